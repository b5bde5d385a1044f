/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Samples of a benchmark in core cycles, and the output. */
#ifndef LAB_SAMPLE_H
#define LAB_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

/* Does `count` units of work. */
typedef void work_fn(uint64_t count, void *context);

struct bench {
	const char *name;
	work_fn *work;
	void *context;
	uint64_t x;		/* the size or length that a series is over; 0 for none */
	uint64_t events;	/* in one unit of work; 0 is 1 */
	uint64_t warm;		/* units of work before the first sample */
	work_fn *before;	/* each sample, and not part of it; gets no count */
	bool switches;		/* that the kernel switches to another process is part of the work */
};

extern bool quick;
extern bool only_disturbed;	/* measure values with too few undisturbed samples so far */

void clock_settle(void);
bool is_wanted(const char *name, uint64_t x);
void measure(const struct bench *bench);
void fact_number(const char *name, uint64_t value);
void missing(const char *name, const char *reason);

#endif
