/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Address spaces with numbers (ASIDs): what one has in the TLBs stays there while another one runs. Each is an epoch
 * of translations that comes back.
 */
#ifndef LAB_SPACE_H
#define LAB_SPACE_H

#include "qemu.h"

#include <stdint.h>

/* Where the number of an address space is read, which is its name here: the next instruction of those below means it. */
void on_space_named(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused);

void on_space_entered(unsigned int vcpu, void *unused);

/* Flushes reach all vCPUs. */
void on_space_flushed(unsigned int vcpu, void *unused);
void on_spaces_flushed(unsigned int vcpu, void *unused);
void on_page_flushed(unsigned int vcpu, void *unused);

#endif
