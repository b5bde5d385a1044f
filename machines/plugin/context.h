/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * On whose behalf a vCPU works: the measured program's, an interrupt's, or a thread's of the kernel. With several
 * vCPUs this is told apart in rounds only (round.h).
 */
#ifndef LAB_CONTEXT_H
#define LAB_CONTEXT_H

#include "decode.h"
#include "total.h"

#include <stdbool.h>
#include <stdint.h>

enum context {
	CONTEXT_PROGRAM,	/* every task that runs user code, and the kernel on its behalf */
	CONTEXT_INTERRUPT,	/* with interrupts off: a tick's own work, for example */
	CONTEXT_SOFTIRQ,	/* the part of an interrupt after they are on again, and its switch to others */
	CONTEXT_THREAD,		/* all but idle */
	CONTEXT_IDLE,
	CONTEXT_BETWEEN,	/* the program between its operations, if it marks their begin, and in rounds only */
	NR_CONTEXTS,
};

/* Of the window that contexts_end() ended. */
extern struct tally contexts[NR_CONTEXTS];
extern uint64_t interruptions;	/* of the program, by either of the others */
extern struct tally unprofiled;	/* of the program's: tasks were not known to be its own until later */

/* Else all is the program's. */
bool contexts_told_apart(void);

void contexts_make(void);
void contexts_begin(void);
void contexts_end(void);

/* All that was done, by all vCPUs. */
struct tally contexts_look(void);

/* On the program's behalf, by the vCPU whose turn it is, since the window began. */
struct tally context_program(void);
uint64_t context_interruptions(void);

/* In rounds. */
void context_select(unsigned int vcpu);
void context_operation(bool begins);
void context_slept(struct block *block, uint64_t millicycles);

/* A place of the running task's for its stack in chain.c. */
void **context_chain(void);

/* A mark was executed: this is the program. */
void context_in_program(void);

/* At translation, before anything is counted. */
void context_watch_block(struct qemu_plugin_tb *tb, size_t count);	/* x86-64 */
void context_watch(struct qemu_plugin_insn *insn, enum turn turn);

/* The same for other architectures: a block with which an interrupt begins. */
void context_watch_interrupt(struct qemu_plugin_tb *tb);

/* The size of a task's kept registers when the kernel is entered, and the place in them that TURN_FRAME restores. */
void context_set_frame(uint32_t size, uint32_t place);

#endif
