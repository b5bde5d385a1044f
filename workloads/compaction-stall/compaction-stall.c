// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * compaction-stall: page faults that wait for memory to be compacted.
 *
 * On a machine that has been up for weeks half of the memory can be free and no
 * 2 MiB of it in one piece. THP's defrag setting then decides the first touch
 * of a huge page's worth of memory: fall back to a small page at once (never),
 * wake kcompactd and fall back (defer), or reclaim and compact right there, in
 * the fault (always; madvise for programs that asked). "always" was the default
 * until commit 444eb2a449ef ("mm: thp: set THP defrag by default to madvise and
 * add a stall-free defrag option") (in v4.6). If something in each 2 MiB cannot
 * be moved, the work is in vain every time.
 *
 * Kernel path: do_huge_pmd_anonymous_page() -> vma_thp_gfp_mask(), then
 * __alloc_pages_slowpath() -> __alloc_pages_direct_compact() ->
 * try_to_compact_pages().
 *
 * A case is fault-COUNT-MEMORY: the first touch of so many areas of 2 MiB, on
 * memory that is
 *
 *   fresh    as booted
 *   movable  aged: every other page is free, and the others can be moved
 *   pinned   aged, with one page of each 2 MiB that cannot be moved
 *
 * An operation is one touch. Ageing (lab/age.h) and the kernel's counters are
 * outside the measured window. Prints one line of JSON.
 */
#include <lab/age.h>
#include <lab/mark.h>
#include <lab/proc.h>
#include <lab/program.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define COUNT_MAX	512

struct plan {
	size_t count;
	enum age age;
};

static long long latencies[COUNT_MAX];
static struct proc_text before, after;

static void parse_case(const char *name, struct plan *plan)
{
	static const char *const ages[] = {
		[AGE_FRESH] = "-fresh", [AGE_MOVABLE] = "-movable", [AGE_PINNED] = "-pinned",
	};
	char *end;

	if (strncmp(name, "fault-", 6) || name[6] < '1' || name[6] > '9')
		program_misuse(name, "needs fault-COUNT-MEMORY such as fault-80-pinned");
	errno = 0;
	plan->count = strtoul(name + 6, &end, 10);
	if (errno || plan->count > COUNT_MAX)
		program_misuse(name, "the count is from 1 to 512");
	for (size_t i = 0; i < sizeof(ages) / sizeof(ages[0]); i++) {
		plan->age = (enum age)i;
		if (!strcmp(end, ages[i]))
			return;
	}
	program_misuse(name, "memory is one of fresh, movable, pinned");
}

/* On a 2 MiB boundary, so that each area can be a huge page. */
static char *map_areas(size_t count)
{
	char *all = mmap(NULL, (count + 1) * HUGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (all == MAP_FAILED)
		program_cannot("cannot map %zu areas of 2 MiB", count);
	return all + (-(uintptr_t)all & (HUGE - 1));
}

/* First-use costs, outside the window: the array's own pages, the clock, the file that is read. */
static void warm_up(void)
{
	memset(latencies, 0, sizeof(latencies));
	program_now_ns();
	proc_read("/proc/vmstat", &after);
}

/* The time from the first touch to the last. */
static long long measure(volatile char *areas, size_t count)
{
	long long began, start, end;

	proc_read("/proc/vmstat", &before);
	lab_window_begin();
	began = start = end = program_now_ns();
	for (size_t i = 0; i < count; i++) {
		areas[i * HUGE] = 1;
		end = program_now_ns();
		latencies[i] = end - start;
		start = end;
		lab_operation_end();
	}
	lab_window_end();
	proc_read("/proc/vmstat", &after);
	return end - began;
}

static void print_metrics(size_t count, long long elapsed, long long free_kb)
{
	static const char *const counters[] = {
		"compact_stall", "compact_fail", "compact_success", "thp_fault_alloc", "thp_fault_fallback",
	};

	program_sort(latencies, count);
	printf("{\"metrics\":{\"latency_p50\":%lld", program_percentile(latencies, count, 50));
	printf(",\"latency_p95\":%lld", program_percentile(latencies, count, 95));
	printf(",\"latency_p99\":%lld", program_percentile(latencies, count, 99));
	printf(",\"latency_max\":%lld", latencies[count - 1]);
	printf(",\"throughput\":%.17g", (double)count * 1e9 / (double)(elapsed ? elapsed : 1));
	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		proc_print_increase(counters[i], counters[i], &before, &after);
	proc_print_increase("pages_scanned", "compact_migrate_scanned", &before, &after);
	proc_print_increase("allocstall", "allocstall_*", &before, &after);
	printf(",\"free_kb\":%lld,\"ops\":%zu}}\n", free_kb, count);
}

int main(int argc, char **argv)
{
	const char *name = program_case(argc, argv, "fault-COUNT-fresh|movable|pinned");
	uint64_t seed = program_seed();
	long long elapsed, free_kb;
	struct plan plan;
	char *areas;

	parse_case(name, &plan);
	age_memory(plan.age, seed);
	areas = map_areas(plan.count);
	warm_up();
	free_kb = age_free_kb();
	elapsed = measure(areas, plan.count);
	print_metrics(plan.count, elapsed, free_kb);
	return fflush(stdout) ? PROGRAM_CANNOT : PROGRAM_MEASURED;
}
