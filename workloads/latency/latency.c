// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * latency: how long a task waits beyond its request.
 *
 * timers.c: a time-out of 50 us to 1 ms; the measured span begins when it is
 * due and ends when the program reads the clock behind the call that waited, so
 * the way into the call counts, too. With -busy a second process uses the CPU
 * all the time, and the waiting one must get it back.
 *
 * wakes.c: a process wakes another and continues to work; the measured span
 * begins before the call that wakes and ends when the other one reads the
 * clock.
 *
 * An operation is one wait. The times between them are drawn by the lab's seed,
 * so that a seed meets the kernel's own ticks at other places; their number is
 * fixed. Prints one line of JSON.
 */
#include "latency.h"

#include <lab/mark.h>
#include <lab/peer.h>
#include <lab/program.h>

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WARM_UP		20
#define OPERATIONS	500
#define SHORTEST_NS	50000
#define LONGEST_NS	1000000
#define SLICE_NS	100000	/* the shortest that v6.12 grants */

static const struct kind *const groups[] = { timer_kinds, wake_kinds };
static long long latencies[WARM_UP + OPERATIONS];

long offered(const char *call, long result)
{
	if (result >= 0)
		return result;
	if (errno == ENOSYS || errno == EPERM || errno == EINVAL)
		program_unsupported(call, strerror(errno));
	program_cannot("%s failed", call);
}

/* The first version of the kernel's struct sched_attr; headers that have it exclude each other. */
struct schedule {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static void use_schedule(struct schedule schedule)
{
	schedule.size = sizeof(schedule);
	offered("sched_setattr", syscall(SYS_sched_setattr, 0, &schedule, 0));
}

void use_short_slices(void)
{
	use_schedule((struct schedule){ .runtime = SLICE_NS });
}

void use_fifo(void)
{
	use_schedule((struct schedule){ .policy = SCHED_FIFO, .priority = 1 });
}

static void spin(__attribute__((unused)) const void *none)
{
	for (;;)
		__asm__ volatile("" ::: "memory");
}

static const struct kind *find(const char *name)
{
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		for (const struct kind *kind = groups[i]; kind->name; kind++)
			if (!strcmp(kind->name, name))
				return kind;
	program_misuse(name, "no such case");
}

/* The least distance of two readings of the clock: no latency is finer. */
static long long clock_grain(void)
{
	long long least = LONGEST_NS;

	for (int i = 0; i < WARM_UP; i++) {
		long long start = program_now_ns(), apart = program_now_ns() - start;

		if (apart < least)
			least = apart;
	}
	return least;
}

static void run(const struct kind *kind, int from, int to, uint64_t *state)
{
	for (int i = from; i < to; i++) {
		latencies[i] = kind->run(SHORTEST_NS + (long long)(program_random(state) % (LONGEST_NS - SHORTEST_NS)));
		lab_operation_end();
	}
}

static void measure(const struct kind *kind)
{
	uint64_t state = program_seed();

	memset(latencies, 0, sizeof(latencies));
	prctl(PR_SET_TIMERSLACK, 1);
	if (kind->prepare)
		kind->prepare();
	if (kind->company != NOBODY)
		peer_start(spin, NULL);
	if (kind->company == A_FILLER)
		use_fifo();
	run(kind, 0, WARM_UP, &state);
	lab_window_begin();
	run(kind, WARM_UP, WARM_UP + OPERATIONS, &state);
	lab_window_end();
}

/* The mean of the middle half of sorted values: of two kinds about equally frequent, the median is either by chance. */
static double middle(const long long *sorted)
{
	long long sum = 0;

	for (int i = OPERATIONS / 4; i < OPERATIONS * 3 / 4; i++)
		sum += sorted[i];
	return (double)sum / (OPERATIONS / 2);
}

static void print_metrics(long long *measured)
{
	program_sort(measured, OPERATIONS);
	printf("{\"metrics\":{\"latency_mid\":%.1f", middle(measured));
	printf(",\"latency_p50\":%lld", program_percentile(measured, OPERATIONS, 50));
	printf(",\"latency_p99\":%lld", program_percentile(measured, OPERATIONS, 99));
	printf(",\"latency_max\":%lld", measured[OPERATIONS - 1]);
	printf(",\"grain\":%lld,\"ops\":%d}}\n", clock_grain(), OPERATIONS);
}

int main(int argc, char **argv)
{
	measure(find(program_case(argc, argv, "NAME")));
	print_metrics(latencies + WARM_UP);
	return fflush(stdout) ? PROGRAM_CANNOT : PROGRAM_MEASURED;
}
