/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Kinds of waiting, and what they share. */
#ifndef LATENCY_H
#define LATENCY_H

/* One case. Its functions fill in what they need of the file they are in. */
struct kind {
	const char *name;
	void (*prepare)(void);		/* outside the measured window; may be NULL */
	long long (*run)(long long ns);	/* one operation of about so many ns: by how many it was late */
	void (*beside)(void);		/* a process that runs all the while; may be NULL */
};

/* Each ends with a kind without a name. */
extern const struct kind timer_kinds[], wake_kinds[];

/* The result of a call that a kernel may lack: the end of the program if it is negative. */
long offered(const char *call, long result);

/* A process that ends with this one. What it runs must not return. */
void start_process(void (*run)(void));

/*
 * Use the CPU for ever: whenever nobody else wants it, or like anybody else.
 * No guest may be idle in the measured window. QEMU's main loop then moves the
 * clock on to the next timer, and where it does so just when the CPU halts, the
 * instructions since the last look at the clock count twice, which depends on
 * the host.
 */
_Noreturn void spin_idly(void);
_Noreturn void spin(void);

/* Ask for slices of a tenth of a millisecond. Kernels before v6.12 ignore it. */
void use_short_slices(void);

/* Come before all that have a share of time. */
void use_fifo(void);

#endif
