// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cache-alias: many arrays walked together, whose starts differ by nothing but
 * multiples of 2 MiB, or are spread.
 *
 * Where mappings begin decides which cache sets their data falls into. Since
 * commit efa7df3e3bb5 ("mm: align larger anonymous mappings on THP boundaries")
 * (in v6.7) every large mapping began at a multiple of 2 MiB, and in huge pages
 * that is so in physical memory, too: the same element of every array then
 * competes for the same sets of the second-level cache. cactusBSSN and
 * darktable lost by it, and commit d4148aeab412 (in v6.12) gave it up for
 * lengths that are not a multiple of 2 MiB.
 *
 * This program places the arrays itself, so kernels do not differ: it shows the
 * cost of the placement alone. Both placements start at a multiple of the page
 * size, so the first-level cache, indexed within a page, sees no difference.
 *
 * A case is PLACEMENT-ARRAYS, with aliased or spread, such as aliased-64. As in
 * a stencil, each point reads three elements of each array. An operation is one
 * row of points. Prints one line of JSON.
 */
#include <lab/mark.h>
#include <lab/program.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARRAYS_MAX	64
#define ARRAY		(512 * KIB)
#define ELEMENTS	(ARRAY / sizeof(double))
#define REACH		2048UL			/* elements to either side: 16 KiB */
#define SPREAD		(17 * PAGE)		/* odd, so that all sets of a second level get their share */
#define ROW		64UL			/* points */
#define ROWS_MAX	((ELEMENTS - 2 * REACH) / ROW)
#define READS		6144UL			/* rows x arrays; every case takes as long */

static const double *arrays[ARRAYS_MAX];
static long long latencies[ROWS_MAX];
static volatile double sink;

static _Noreturn void misuse(const char *name)
{
	program_misuse(name, "needs aliased-N or spread-N, N from 1 to 64");
}

/* Room for every array at either placement, on a 2 MiB boundary. */
static char *map_all(void)
{
	size_t length = ARRAYS_MAX * (HUGE + SPREAD) + HUGE;
	char *all = mmap(NULL, length + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (all == MAP_FAILED)
		program_cannot("cannot map %zu bytes", length);
	all = (char *)(((uintptr_t)all + HUGE - 1) & ~(HUGE - 1));
	madvise(all, length, MADV_HUGEPAGE);
	return all;
}

static void place(size_t count, size_t distance)
{
	char *all = map_all();

	for (size_t k = 0; k < count; k++) {
		double *array = (double *)(all + k * distance);

		for (size_t i = 0; i < ELEMENTS; i++)
			array[i] = (double)(i + k);
		arrays[k] = array;
	}
}

static double row(size_t count, size_t from)
{
	double sum = 0;

	for (size_t i = from; i < from + ROW; i++)
		for (size_t k = 0; k < count; k++)
			sum += arrays[k][i - REACH] + arrays[k][i] + arrays[k][i + REACH];
	return sum;
}

static void measure(size_t count, size_t rows)
{
	long long start, end;

	/* The first row's costs are those of a beginning. */
	sink = row(count, REACH);
	lab_window_begin();
	start = program_now_ns();
	for (size_t i = 0; i < rows; i++) {
		sink = row(count, REACH + i * ROW);
		end = program_now_ns();
		latencies[i] = end - start;
		start = end;
		lab_operation_end();
	}
	lab_window_end();
}

static void print_metrics(size_t count, size_t rows)
{
	long long total = 0;

	for (size_t i = 0; i < rows; i++)
		total += latencies[i];
	program_sort(latencies, rows);
	printf("{\"metrics\":{\"point_time\":%.17g", (double)total / (double)(rows * ROW * count));
	printf(",\"latency_p50\":%lld", program_percentile(latencies, rows, 50));
	printf(",\"latency_p99\":%lld", program_percentile(latencies, rows, 99));
	printf(",\"ops\":%zu}}\n", rows);
}

static size_t parse_case(const char *name, size_t *distance)
{
	const char *number = strchr(name, '-');
	unsigned long count;
	char *end;

	if (!number || number[1] < '1' || number[1] > '9')
		misuse(name);
	if (!strncmp(name, "aliased-", 8))
		*distance = HUGE;
	else if (!strncmp(name, "spread-", 7))
		*distance = HUGE + SPREAD;
	else
		misuse(name);
	count = strtoul(number + 1, &end, 10);
	if (*end || count > ARRAYS_MAX)
		misuse(name);
	return count;
}

int main(int argc, char **argv)
{
	size_t count, rows, distance;

	count = parse_case(program_case(argc, argv, "aliased-N|spread-N"), &distance);
	rows = READS / count < ROWS_MAX ? READS / count : ROWS_MAX;
	place(count, distance);
	measure(count, rows);
	print_metrics(count, rows);
	return fflush(stdout) ? PROGRAM_CANNOT : PROGRAM_MEASURED;
}
