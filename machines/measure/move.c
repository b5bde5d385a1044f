// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A line that two CPUs take from each other: both try to exchange the same word, each if it has the other's value. So
 * a CPU has the word for itself whenever it looks, and handing it over is one move.
 */
#include "measure.h"
#include "sample.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

enum turn { OURS, THEIRS };

static struct {
	_Alignas(LINE) _Atomic int turn;
	_Alignas(LINE) atomic_bool done;
} shared;

static bool hand_over(int from, int to)
{
	return atomic_compare_exchange_strong(&shared.turn, &from, to);
}

static void *partner(void *unused)
{
	while (!shared.done)
		hand_over(THEIRS, OURS);
	return unused;
}

/* Two moves each: there and back. */
static void moves(uint64_t count, void *context)
{
	(void)context;
	while (count--)
		while (!hand_over(OURS, THEIRS))
			;
}

void measure_moves(int cpu)
{
	pthread_attr_t attributes;
	pthread_t thread;
	cpu_set_t set;
	bool began;

	if (cpu < 0) {
		missing("move", "this process may use one core only");
		return;
	}
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	shared.done = false;
	pthread_attr_init(&attributes);
	pthread_attr_setaffinity_np(&attributes, sizeof(set), &set);
	began = !pthread_create(&thread, &attributes, partner, NULL);
	pthread_attr_destroy(&attributes);
	if (!began) {
		missing("move", "no second thread");
		return;
	}
	measure(&(struct bench){ .name = "move", .work = moves, .events = 2 });
	shared.done = true;
	pthread_join(thread, NULL);
}
