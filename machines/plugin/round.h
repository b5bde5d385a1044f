/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Rounds: vCPUs that take turns by the clocks of their modelled work.
 *
 * In each round every vCPU runs until its clock is at the round's end, which is
 * a quantum after that of the round before. So none is ahead of another by much
 * more than a quantum, and they meet at lines and locks like CPUs that run at
 * once. The quantum should not be longer than the move of a line.
 */
#ifndef LAB_ROUND_H
#define LAB_ROUND_H

#include "block.h"

/* False, with a line on stderr, if QEMU does not export the needs of rounds, or there are too many vCPUs. */
bool rounds_make(unsigned int count);

/*
 * Before a guest's state is kept: QEMU's state has the interrupts of other vCPUs, but not whose turn is next. So the
 * vCPU that runs stays at its instruction until all others have done their work. generated_code: from where QEMU's code
 * called.
 */
void rounds_settle(unsigned int vcpu, uintptr_t generated_code);

/* The vCPU that runs has waited for a line to load it: its turn goes on for another block. */
void round_keep(void);

/* At translation, before anything else of the block. */
void round_watch(struct qemu_plugin_tb *tb, struct block *block);

/* hlt: until something wakes it, the vCPU sleeps. */
void on_halt(unsigned int vcpu, void *unused);

#endif
