/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of operations: the preparation of each case, and the call that it repeats. */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include <stddef.h>

/*
 * One case. prepare runs once, and checks that the kernel has the call; run is the repeated operation: its number
 * counts from 0, warm-up included. Both get the argument.
 */
struct operation {
	const char *name;
	void (*run)(long argument, long number);
	void (*prepare)(long argument);
	long argument;
	int count;	/* operations in the window */
};

/* The function of run: at the start of a line of the cache, so that its place in it is the same in every build. */
#define OPERATION(name) \
	static __attribute__((aligned(64), noinline)) void name(__attribute__((unused)) long argument, \
								 __attribute__((unused)) long number)

/*
 * If the kernel has a choice (who runs first, when a buffer is full), one
 * operation is several of them, so that all are of one kind.
 */
#define BATCH	8
#define TRIPS	32	/* to a peer and back: the order of preemption changes seldom */

#define PREPARE(name) static void name(__attribute__((unused)) long argument)

/* Warm-up operations before the window: enough for the first allocations. */
int warm_up_of(const struct operation *operation);

/* All operations of a case, warm-up included: the amount to prepare if each takes a piece of its own. */
extern int operations_in_all;

/* A group's table ends with an operation without a name. */
extern const struct operation fs_operations[], ipc_operations[], mm_operations[], madvise_operations[],
	net_operations[], poll_operations[], process_operations[], sched_operations[], security_operations[],
	signal_operations[], time_operations[];

/* Operations of any size that a name asks for, such as mprotect-private-4k. NULL if it is none of the group's. */
const struct operation *mm_sized(const char *name);

#endif
