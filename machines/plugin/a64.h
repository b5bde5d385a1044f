/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Recognising the few A64 instructions that are treated apart. What a kernel does by them is in context.c. */
#ifndef LAB_A64_H
#define LAB_A64_H

#include "decode.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct decoded a64_decode(const uint8_t *bytes, size_t size);

/*
 * A slot of the kernel's table of vectors makes room for the registers and looks
 * at where the stack pointer then points (kernel_ventry in
 * arch/arm64/kernel/entry.S): the size of the room, 0 for other code. first and
 * second: the first two instructions of a block at an address.
 */
uint32_t a64_vector_room(uint64_t address, uint32_t first, uint32_t second);

/* True of the slots of interrupts, in the table of vectors. */
bool a64_interrupts(uint64_t address);

#endif
