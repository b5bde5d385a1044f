/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The seed: moves things that should not matter.
 *
 * A guest that repeats to the last digit repeats its accidents too: which
 * physical page comes first, where the stack starts, how far away the next tick
 * is. Each seed gives other accidents, and the same seed the same ones.
 */
#ifndef LAB_SEED_H
#define LAB_SEED_H

#include <stdint.h>

#define SEED_PAD_MAX	1024

/* Hold 0..1023 pages until power-off, so that everything after lies elsewhere. */
void seed_hold_pages(uint64_t seed);

/* How many bytes (0..1023) of environment a workload gets, which moves its stack. */
unsigned int seed_pad(uint64_t seed);

/* Let 0..8 ms pass before a case: its phase against the tick. */
void seed_wait(uint64_t seed, const char *name);

#endif
