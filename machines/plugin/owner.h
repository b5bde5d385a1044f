/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Objects of the kernel's general caches by the call that got them: kmalloc-192 has objects of many types, and the
 * caller tells which. The lab says which functions allocate, by their addresses. QEMU shows registers since 9.0.
 */
#ifndef LAB_OWNER_H
#define LAB_OWNER_H

#include "block.h"
#include "qemu.h"

#include <stdbool.h>
#include <stdint.h>

/* The address of a function that returns an object; false if it is none, or there are too many. */
bool owner_add(const char *address);

/* At translation. target: of the call that ends the block, 0 if it is none or not known. */
void owner_watch(struct qemu_plugin_tb *tb, const struct block *block, uint64_t target);

/* The return address of the call that got an object; 0 if that call was not seen. */
uint64_t owner_of(uint64_t object);

#endif
