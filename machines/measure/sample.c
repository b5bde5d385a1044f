// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A sample is a short run between two chains of dependent additions. An addition takes one cycle on every core that
 * the lab models, so the chains tell how long a cycle was at that moment, and a clock that changes cancels out.
 *
 * A sample is thrown away if the kernel took the CPU away from it, or if the two chains differ: then the clock changed
 * in between, or the hypervisor ran something else. Another thread on the same core leaves a chain nearly alone, but
 * not additions that could all run at a time: if fewer of them fit into a cycle than usual, more samples are taken for
 * a while, and their reader chooses.
 */
#include "chain.h"
#include "sample.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum {
	SHORTEST_NS = 40000,
	MOST_SAMPLES = 21,		/* in one round */
	MOST_KEPT = 200,
	LONGEST_NS = 40000000,	/* of one series, unless it has too few samples */
	TRIES = 4,		/* for each sample */
	MOST_SERIES = 512,
	ENOUGH = 12,		/* undisturbed samples */
};

static const double CHAINS_DIFFER = 0.03;
static const double UNDISTURBED = 0.985;	/* of the best clock and width */

static double best_ghz;
static double best_width;
static double reading_ns;

bool quick;
bool only_disturbed;

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Time between two readings of the clock, without the reading itself. */
static double between_ns(uint64_t first, uint64_t second)
{
	double ns = (double)(second - first) - reading_ns;

	return ns > 1 ? ns : 1;
}

/* Part of every interval: tens of nanoseconds, or a thousand if the clock is not the CPU's own. */
static void time_clock(void)
{
	uint64_t least = UINT64_MAX;

	for (int i = 0; i < 1000; i++) {
		uint64_t first = now_ns(), second = now_ns();

		if (second - first < least)
			least = second - first;
	}
	reading_ns = (double)least;
	fact_number("clock_reading_ns", least);
}

static long preemptions(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw;
}

/* Let the clock rise to its rate under load. */
void clock_settle(void)
{
	uint64_t end;

	if (!reading_ns)
		time_clock();
	end = now_ns() + (quick ? 20000000 : 200000000);

	while (now_ns() < end)
		chain();
}

struct sample {
	double cycles;		/* an event */
	double ghz;		/* the clock */
	double width;		/* additions in a cycle, of ABREAST chains */
};

/* True if the sample can be used. */
static bool take(const struct bench *bench, uint64_t count, struct sample *sample)
{
	uint64_t at[6];
	double before, after, abreast;
	long preempted;

	if (bench->before)
		bench->before(0, bench->context);
	preempted = preemptions();
	at[0] = now_ns();
	chains_abreast();
	at[1] = now_ns();
	chain();
	at[2] = now_ns();
	bench->work(count, bench->context);
	at[3] = now_ns();
	chain();
	at[4] = now_ns();
	chains_abreast();
	at[5] = now_ns();
	before = between_ns(at[1], at[2]);
	after = between_ns(at[3], at[4]);
	sample->ghz = 2 * CHAIN / (before + after);
	abreast = between_ns(at[0], at[1]) + between_ns(at[4], at[5]);
	sample->width = 2 * ABREAST * SHORT_CHAIN / (abreast * sample->ghz);
	sample->cycles = between_ns(at[2], at[3]) * sample->ghz / (double)count;
	sample->cycles /= (double)(bench->events ? bench->events : 1);
	return (bench->switches || preemptions() == preempted) && before < after * (1 + CHAINS_DIFFER) &&
	       after < before * (1 + CHAINS_DIFFER);
}

/* The units of work that take as long as a sample should. */
static uint64_t calibrate(const struct bench *bench)
{
	uint64_t count = 1;

	for (;;) {
		uint64_t began;

		if (bench->before)
			bench->before(0, bench->context);
		began = now_ns();
		bench->work(count, bench->context);
		if (now_ns() - began >= SHORTEST_NS || count >= (uint64_t)1 << 30)
			return count;
		count *= 2;
	}
}

/* True for a value near the best one; it is the best if two samples in turn have it. */
static bool is_near_best(double value, double *last, double *best)
{
	double both = value < *last ? value : *last;

	*last = value;
	if (both > *best)
		*best = both;
	return value >= *best * UNDISTURBED;
}

static bool undisturbed(const struct sample *sample)
{
	static double last_ghz, last_width;
	bool fast = is_near_best(sample->ghz, &last_ghz, &best_ghz);

	return is_near_best(sample->width, &last_width, &best_width) && fast;
}

static struct total {
	char *name;
	uint64_t x;
	int undisturbed;
} totals[MOST_SERIES];

/* The undisturbed samples of a series in all rounds. */
static int *total_of(const char *name, uint64_t x)
{
	struct total *total = totals;

	for (; total < totals + MOST_SERIES - 1 && total->name; total++)
		if (total->x == x && !strcmp(total->name, name))
			return &total->undisturbed;
	*total = (struct total){ .name = strdup(name), .x = x };
	return &total->undisturbed;
}

bool is_wanted(const char *name, uint64_t x)
{
	return !only_disturbed || *total_of(name, x) < ENOUGH;
}

static void print(const char *name, const struct sample *samples, int number, size_t offset)
{
	printf(", \"%s\": [", name);
	for (int i = 0; i < number; i++)
		printf("%s%.5g", i ? ", " : "", *(const double *)((const char *)&samples[i] + offset));
	printf("]");
}

void measure(const struct bench *bench)
{
	static struct sample samples[MOST_KEPT];
	int wanted = quick ? 9 : MOST_SAMPLES, good = 0, got = 0, lost = 0;
	uint64_t count, end;

	if (!is_wanted(bench->name, bench->x))
		return;
	if (bench->warm)
		bench->work(bench->warm, bench->context);
	count = calibrate(bench);
	end = now_ns() + LONGEST_NS / (quick ? 2 : 1);
	while (good < wanted && got < MOST_KEPT && (now_ns() < end || (got < wanted && lost < wanted * TRIES))) {
		if (take(bench, count, &samples[got])) {
			good += undisturbed(&samples[got]);
			got++;
		} else {
			lost++;
			bench->work(count, bench->context);
		}
	}
	*total_of(bench->name, bench->x) += good;
	printf("{\"t\": \"series\", \"name\": \"%s\", \"x\": %lu, \"disturbed\": %d", bench->name, bench->x, lost);
	print("cycles", samples, got, offsetof(struct sample, cycles));
	print("ghz", samples, got, offsetof(struct sample, ghz));
	print("width", samples, got, offsetof(struct sample, width));
	printf("}\n");
}

void fact_number(const char *name, uint64_t value)
{
	printf("{\"t\": \"fact\", \"name\": \"%s\", \"value\": %lu}\n", name, value);
}

void missing(const char *name, const char *reason)
{
	printf("{\"t\": \"missing\", \"name\": \"%s\", \"reason\": \"%s\"}\n", name, reason);
}
