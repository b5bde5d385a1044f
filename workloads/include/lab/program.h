/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The common part of all workload programs: their calls, their failures, their counts. */
#ifndef LAB_PROGRAM_H
#define LAB_PROGRAM_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#define KIB	1024UL
#define MIB	(1024UL * KIB)
#define GIB	(1024UL * MIB)
#define PAGE	4096UL
#define HUGE	(2 * MIB)

enum program_exit {
	PROGRAM_MEASURED = 0,
	PROGRAM_CANNOT = 1,
	PROGRAM_MISUSE = 2,
	PROGRAM_UNSUPPORTED = 4,	/* as kselftest's KSFT_SKIP */
};

/* The machine cannot do it: one line on stderr, and the end. With errno's text if it is set. */
_Noreturn void program_cannot(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The case cannot be: one line on stderr, and the end. */
_Noreturn void program_misuse(const char *name, const char *what);

/* The kernel lacks something that the case needs: one line on stderr, which the lab looks for, and the end. */
_Noreturn void program_unsupported(const char *what, const char *why);

/* The only option, --case NAME; anything else is misuse. */
const char *program_case(int argc, char **argv, const char *usage);

/* The lab's seed for this boot, 0 without one. */
uint64_t program_seed(void);

/* The next number of a stream that a seed begins (splitmix64). */
uint64_t program_random(uint64_t *state);

/* A size such as 64k, 256m or 1g at the start of a text: its end, or NULL if there is none. */
const char *program_size(const char *at, size_t *size);

long long program_now_ns(void);

void program_sort(long long *values, size_t count);

/* Of sorted values, nearest rank: the smallest that so many percent of all do not exceed. */
long long program_percentile(const long long *sorted, size_t count, unsigned int percent);

#endif
