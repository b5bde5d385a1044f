/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Kinds of waiting, and their common parts. */
#ifndef LATENCY_H
#define LATENCY_H

/*
 * The other tasks while the program waits. No guest may be idle in the
 * measured window: QEMU's main loop then moves the clock on to the next timer,
 * and if it does so just when the CPU halts, the instructions since the last
 * look at the clock count twice, which depends on the host.
 */
enum company {
	NOBODY,		/* the program does not wait in the kernel */
	A_FILLER,	/* a process that uses the CPU; the program is under SCHED_FIFO, and gets it back at once */
	A_RIVAL,	/* a process that uses the CPU with the same right to it */
};

/* One case. Its functions fill in the parts that they need of their file. */
struct kind {
	const char *name;
	void (*prepare)(void);		/* outside the measured window; may be NULL */
	long long (*run)(long long ns);	/* one operation of about so many ns: by how many it was late */
	enum company company;
};

/* Each ends with a kind without a name. */
extern const struct kind timer_kinds[], wake_kinds[];

/* The result of a call that a kernel may lack: the end of the program if it is negative. */
long offered(const char *call, long result);

/* Ask for slices of a tenth of a millisecond. Kernels before v6.12 ignore it. */
void use_short_slices(void);

/* Come before all that have a share of time. */
void use_fifo(void);

#endif
