/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The groups of benchmarks. */
#ifndef LAB_MEASURE_H
#define LAB_MEASURE_H

#include <stdint.h>

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define LINE ((uint64_t)64)
#define SMALL_PAGE (4 * KIB)
#define HUGE_PAGE (2 * MIB)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Huge pages if they are available; NULL if there is no memory. */
extern char *arena;
extern uint64_t arena_bytes;

void measure_instructions(void);
void prepare_mix(void);
void measure_mix(void);
void prepare_memory(uint64_t bytes);
void measure_memory(void);
void measure_strings(void);
void measure_kernel(void);

/* partner: a CPU of another core; negative if there is none. */
void measure_moves(int partner);

#endif
