/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Marks of a program that runs natively, instead of those in workloads/include: the window prints on stderr how long
 * it took, in ns, and the clock (cycles in a ns) and the width of the core (additions in a cycle) around it.
 */
#ifndef LAB_MARK_H
#define LAB_MARK_H

#include <chain.h>
#include <stdio.h>
#include <time.h>

static long long window_times[6];

static inline long long window_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline void lab_window_begin(void)
{
	chain();
	window_times[0] = window_now_ns();
	chains_abreast();
	window_times[1] = window_now_ns();
	chain();
	window_times[2] = window_now_ns();
}

static inline void lab_window_end(void)
{
	const long long *at = window_times;
	double ghz, width;

	window_times[3] = window_now_ns();
	chain();
	window_times[4] = window_now_ns();
	chains_abreast();
	window_times[5] = window_now_ns();
	ghz = 2.0 * CHAIN / (double)(at[2] - at[1] + at[4] - at[3]);
	width = 2.0 * ABREAST * SHORT_CHAIN / ((double)(at[1] - at[0] + at[5] - at[4]) * ghz);
	fprintf(stderr, "window %lld %.4f %.4f %.4f\n", at[3] - at[2], ghz, width,
		(double)(at[4] - at[3]) / (double)(at[2] - at[1]));
}

static inline void lab_operation_end(void)
{
	__asm__ volatile("" ::: "memory");
}

static inline void lab_operations_again(void)
{
	__asm__ volatile("" ::: "memory");
}

static inline void lab_ready(void)
{
}

static inline void lab_case_begin(void)
{
}

static inline void lab_case_end(void)
{
}

#endif
