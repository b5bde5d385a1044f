/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Marks: the begin and the end of a measurement, and of each operation in it.
 *
 * A mark is a long NOP whose operand no program has by accident, or a move
 * to the register that is always zero of a constant of that kind (arch/). It
 * does nothing, on any CPU and under any emulator; exact mode's plugin
 * (machines/plugin) recognises it when the code around it is translated. It is
 * not counted, and the compiler moves no memory access across it.
 */
#ifndef LAB_MARK_H
#define LAB_MARK_H

#include "arch.h"

/* The measured part. A program without a window is measured from its start to its end. */
static inline void lab_window_begin(void)
{
	LAB_MARK(1);
}

static inline void lab_window_end(void)
{
	LAB_MARK(2);
}

/* An operation ended, and the next one begins. The first one begins with the window. */
static inline void lab_operation_end(void)
{
	LAB_MARK(3);
}

/*
 * An operation begins here: the time between the end of one and this is left out. By each thread on a CPU of its own,
 * in guests whose vCPUs take turns by their clocks (machines/plugin/round.h); elsewhere it does nothing.
 */
static inline void lab_operation_begin(void)
{
	LAB_MARK(11);
}

/* The operations run once more, from the first: the cost of each now is added to it. */
static inline void lab_operations_again(void)
{
	LAB_MARK(6);
}

/* The guest may be held here, and its state kept (lab/guests/snapshot.py). By who runs the cases, just before it is up. */
static inline void lab_hold(void)
{
	LAB_MARK(10);
}

/* The guest is up: code is watched from here on. By who runs the cases, once, before the first. */
static inline void lab_ready(void)
{
	LAB_MARK(7);
}

/* The kernel has booted. By its first program, before anything else. */
static inline void lab_booted(void)
{
	LAB_MARK(8);
}

/* The boot before this program is measured, and nothing in it. It need not be executed: the lab looks for it. */
static inline void lab_measures_boot(void)
{
	LAB_MARK(9);
}

/* Around a whole case, by the program that runs it. */
static inline void lab_case_begin(void)
{
	LAB_MARK(4);
}

static inline void lab_case_end(void)
{
	LAB_MARK(5);
}

#endif
