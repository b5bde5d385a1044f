// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A sample is a short run between two chains of dependent additions. An addition takes one cycle on every core that
 * the lab models, so the chains tell how long a cycle was at that moment, and a clock that changes cancels out.
 *
 * A sample is thrown away if the kernel took the CPU away from it, or if the two chains differ: then the clock changed
 * in between, or the hypervisor ran something else. Chains slower than the fastest ones are a sign of another thread on
 * the same core: then more samples are taken for a while, and whoever reads them chooses.
 */
#include "sample.h"

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

enum {
	CHAIN = 32768,		/* additions: about 10 us */
	SHORTEST_NS = 40000,
	MOST_SAMPLES = 21,		/* in one round */
	MOST_KEPT = 200,
	LONGEST_NS = 40000000,	/* of one series, unless it has too few samples */
	TRIES = 4,		/* for each sample */
};

static const double CHAINS_DIFFER = 0.03;
static const double UNDISTURBED = 0.997;	/* of the fastest chains */

static double fastest_ghz;
static double last_ghz;

bool quick;

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static long preemptions(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nivcsw;
}

/*
 * The operands are registers: Golden Cove and its successors do an addition of a small constant while renaming, in no
 * cycle at all.
 */
static void chain(void)
{
	uint64_t sum = 1, one = 1, turns = CHAIN / 64;

	asm volatile("1:\n\t"
		     ".rept 64\n\t"
		     "add %2, %0\n\t"
		     ".endr\n\t"
		     "dec %1\n\t"
		     "jnz 1b"
		     : "+r"(sum), "+r"(turns)
		     : "r"(one)
		     : "cc");
}

/* Let the clock rise to where it stays under load. */
void clock_settle(void)
{
	uint64_t end = now_ns() + (quick ? 20000000 : 200000000);

	while (now_ns() < end)
		chain();
}

/* True if the sample can be used. */
static bool sample(const struct bench *bench, uint64_t count, double *cycles, double *ghz)
{
	uint64_t at[4];
	double before, after;
	long preempted;

	if (bench->before)
		bench->before(0, bench->context);
	preempted = preemptions();
	at[0] = now_ns();
	chain();
	at[1] = now_ns();
	bench->work(count, bench->context);
	at[2] = now_ns();
	chain();
	at[3] = now_ns();
	before = (double)(at[1] - at[0]);
	after = (double)(at[3] - at[2]);
	*ghz = 2 * CHAIN / (before + after);
	*cycles = (double)(at[2] - at[1]) * *ghz / (double)count / (double)(bench->events ? bench->events : 1);
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

/* True for a clock near the fastest one; it is the fastest if two samples have it. */
static bool undisturbed(double ghz)
{
	double both = ghz < last_ghz ? ghz : last_ghz;

	last_ghz = ghz;
	if (both > fastest_ghz)
		fastest_ghz = both;
	return ghz >= fastest_ghz * UNDISTURBED;
}

void measure(const struct bench *bench)
{
	static double cycles[MOST_KEPT], ghz[MOST_KEPT];
	int wanted = quick ? 9 : MOST_SAMPLES, good = 0, got = 0, lost = 0;
	uint64_t count, end;

	if (bench->warm)
		bench->work(bench->warm, bench->context);
	count = calibrate(bench);
	end = now_ns() + LONGEST_NS / (quick ? 2 : 1);
	while (good < wanted && got < MOST_KEPT && (now_ns() < end || (got < wanted && lost < wanted * TRIES))) {
		if (sample(bench, count, &cycles[got], &ghz[got])) {
			good += undisturbed(ghz[got]);
			got++;
		} else {
			lost++;
			bench->work(count, bench->context);
		}
	}
	printf("{\"t\": \"series\", \"name\": \"%s\", \"x\": %lu, \"disturbed\": %d, \"cycles\": [", bench->name, bench->x,
	       lost);
	for (int i = 0; i < got; i++)
		printf("%s%.6g", i ? ", " : "", cycles[i]);
	printf("], \"ghz\": [");
	for (int i = 0; i < got; i++)
		printf("%s%.5g", i ? ", " : "", ghz[i]);
	printf("]}\n");
}

void fact_number(const char *name, uint64_t value)
{
	printf("{\"t\": \"fact\", \"name\": \"%s\", \"value\": %lu}\n", name, value);
}

void missing(const char *name, const char *reason)
{
	printf("{\"t\": \"missing\", \"name\": \"%s\", \"reason\": \"%s\"}\n", name, reason);
}
