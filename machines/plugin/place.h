/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The contents of a place in the guest's memory, by its kernel: the slab cache of an object, the variables of a CPU. */
#ifndef LAB_PLACE_H
#define LAB_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The memory of the running vCPU at a virtual address; false if it has nothing, or if this QEMU does not show it. */
bool place_peek(uint64_t address, void *to, size_t length);

/* By the guest's vCPU that runs, of a line by both its addresses. Each is a part of a JSON object, with a comma before it; nothing where it is not known. */
void place_put_slab(FILE *file, uint64_t physical, uint64_t address);
void place_put_cpus(FILE *file);

#endif
