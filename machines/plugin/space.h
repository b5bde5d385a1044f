/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Address spaces with numbers (ASIDs): the translations of a space stay in the TLBs while another space runs. Each
 * space is an epoch of translations that comes back.
 */
#ifndef LAB_SPACE_H
#define LAB_SPACE_H

#include "qemu.h"

#include <stdint.h>

/*
 * The guest reads the number of an address space. Its address names the space, which the next of the instructions below
 * is about.
 */
void on_space_named(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused);

void on_space_entered(unsigned int vcpu, void *unused);

/* Flushes reach all vCPUs. */
void on_space_flushed(unsigned int vcpu, void *unused);
void on_spaces_flushed(unsigned int vcpu, void *unused);
void on_page_flushed(unsigned int vcpu, void *unused);

#endif
