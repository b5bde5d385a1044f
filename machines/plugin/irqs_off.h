/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The longest time for which a vCPU takes no interrupts: EFLAGS.IF is clear. It is known of x86-64 guests with one vCPU.
 */
#ifndef LAB_IRQS_OFF_H
#define LAB_IRQS_OFF_H

#include "decode.h"

#include <stdbool.h>

/*
 * From the first instruction that runs with interrupts off to the one that allows them, both included.
 */
struct span {
	uint64_t millicycles;
	uint64_t instructions;
	uint64_t begin;		/* address of the instruction that forbids them, or of the entry to the kernel */
	uint64_t end;		/* address of the instruction that allows them */
};

extern struct span longest_off;		/* of the window */

extern bool irqs_off_known;
void irqs_off_begin(void);		/* a window */

/*
 * At translation of the kernel's code, before anything is counted. instructions, classes: the block's up to the end of
 * the instruction.
 */
void irqs_off_watch_block(struct qemu_plugin_tb *tb, size_t count);
void irqs_off_watch(struct qemu_plugin_insn *insn, enum turn turn, const struct block *block, uint32_t instructions,
		    uint64_t classes);

#endif
