// SPDX-License-Identifier: GPL-2.0-or-later
/* The scheduler: yielding, and a token that goes round a ring of processes (lat_ctx). */
#include "calls.h"
#include "operations.h"
#include "peers.h"

#include <sched.h>
#include <sys/resource.h>

#define RING_MAX	16

static struct echo ring[RING_MAX];
static unsigned long cpus[16];
static struct sched_param parameter;

static _Noreturn void yield_for_ever(__attribute__((unused)) void *data)
{
	for (;;)
		SYS(sched_yield);
}

PREPARE(prepare_yielding_peer)
{
	peer_start(yield_for_ever, NULL);
}

OPERATION(yield)
{
	for (int i = 0; i < BATCH; i++)
		must(SYS(sched_yield));
}

/* Process k reads from pipe k and writes to pipe k + 1; this one is the last. */
PREPARE(prepare_ring)
{
	int pipes[RING_MAX][2];

	for (int i = 0; i < argument; i++)
		must(SYS(pipe2, pipes[i], 0));
	for (int i = 0; i < argument; i++)
		ring[i] = (struct echo){ pipes[i][0], pipes[(i + 1) % argument][1] };
	for (int i = 0; i < argument - 1; i++)
		peer_start(echo, &ring[i]);
}

OPERATION(pass_token)
{
	char byte = 0;

	for (int i = 0; i < BATCH; i++) {
		must(SYS(write, ring[argument - 1].out, &byte, 1));
		must(SYS(read, ring[argument - 1].in, &byte, 1));
	}
}

PREPARE(prepare_affinity)
{
	must(SYS(sched_getaffinity, 0, sizeof(cpus), cpus));
}

OPERATION(set_affinity)
{
	must(SYS(sched_setaffinity, 0, sizeof(cpus), cpus));
}

OPERATION(get_affinity)
{
	must(SYS(sched_getaffinity, 0, sizeof(cpus), cpus));
}

OPERATION(set_scheduler)
{
	must(SYS(sched_setscheduler, 0, SCHED_BATCH, &parameter));
	must(SYS(sched_setscheduler, 0, SCHED_OTHER, &parameter));
}

OPERATION(set_priority)
{
	must(SYS(setpriority, PRIO_PROCESS, 0, 1));
	offered(SYS(setpriority, PRIO_PROCESS, 0, 0));
}

const struct operation sched_operations[] = {
	{ "sched-yield", yield, NULL, 0, 100 },
	{ "sched-yield-2", yield, prepare_yielding_peer, 0, 60 },
	{ "ctx-2", pass_token, prepare_ring, 2, 40 },
	{ "ctx-4", pass_token, prepare_ring, 4, 24 },
	{ "ctx-8", pass_token, prepare_ring, 8, 32 },
	{ "ctx-16", pass_token, prepare_ring, RING_MAX, 20 },
	{ "sched-setaffinity", set_affinity, prepare_affinity, 0, 150 },
	{ "sched-getaffinity", get_affinity, prepare_affinity, 0, 500 },
	{ "sched-setscheduler", set_scheduler, NULL, 0, 100 },
	{ "setpriority", set_priority, NULL, 0, 300 },
	{ 0 },
};
