// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Microbenchmarks of one CPU, without privileges and without a PMU:  measure CPU PARTNER ARENA_MIB [quick]
 *
 * PARTNER is a CPU of another core, or -1.
 *
 * Everything is measured in several rounds, seconds apart: a neighbour that keeps the other thread of the core busy
 * does not do so in all of them. The output is JSON, one object a line: the samples of each benchmark,
 * which lab/guests/native.py reads.
 */
#include "measure.h"
#include "sample.h"

#include <err.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ROUNDS = 3,
	MORE_ROUNDS = 3,	/* of values that were disturbed in all others */
};

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "cannot run on CPU %d", cpu);
}

int main(int argc, char **argv)
{
	uint64_t arena;

	if (argc < 4 || argc > 5)
		errx(2, "usage: measure CPU PARTNER ARENA_MIB [quick]");
	pin(atoi(argv[1]));
	arena = strtoull(argv[3], NULL, 10) * MIB;
	quick = argc == 5 && !strcmp(argv[4], "quick");
	printf("{\"t\": \"header\", \"schema\": 1}\n");
	prepare_mix();
	prepare_memory(arena);
	for (int round = 0; round < (quick ? 2 : ROUNDS + MORE_ROUNDS); round++) {
		only_disturbed = round >= ROUNDS;
		clock_settle();
		measure_instructions();
		measure_mix();
		measure_kernel();
		measure_memory();
		measure_strings();
		measure_moves(atoi(argv[2]));
	}
	printf("{\"t\": \"end\"}\n");
	return 0;
}
