// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * large-alloc: one large vector, allocated and zeroed from its first byte to
 * its last, on fresh memory and on aged.
 *
 * On fresh memory a fault brings 2 MiB and the process grows at the speed at
 * which memory can be cleared. On aged memory there are no 2 MiB in one piece:
 * every page is a fault of its own, and with THP's defrag setting at "always"
 * each 2 MiB is first compacted for, often in vain. Seen from outside, the
 * resident size (RES of top) grows in a line that bends.
 *
 * Kernel path: do_huge_pmd_anonymous_page() -> vma_thp_gfp_mask() ->
 * __alloc_pages_slowpath(); if that gives nothing, do_anonymous_page().
 *
 * A case is zero-SIZE-fresh or zero-SIZE-aged; aged memory has every other page
 * free, and one page of each 2 MiB that cannot be moved (lab/age.h). The vector
 * is zeroed in up to 64 steps; an operation is one step. After each the resident
 * size is read, off the clock (modelled cycles contain that reading). Prints one line of JSON, with the curve of the
 * resident size beside the metrics: pairs of nanoseconds and KiB.
 */
#include <lab/age.h>
#include <lab/mark.h>
#include <lab/proc.h>
#include <lab/program.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define STEPS_MAX	64

struct plan {
	size_t size;
	size_t step;
	enum age age;
};

/* For each step: its length, its end, and the size of the process by then. */
static long long latencies[STEPS_MAX];
static long long ended_ns[STEPS_MAX];
static long long grown_kb[STEPS_MAX];
static struct proc_text before, after;
static long long faults_before, faults_after;
static int statm;

static void parse_case(const char *name, struct plan *plan)
{
	const char *end = strncmp(name, "zero-", 5) ? NULL : program_size(name + 5, &plan->size);

	if (!end)
		program_misuse(name, "needs zero-SIZE-fresh or zero-SIZE-aged, such as zero-256m-aged");
	if (!strcmp(end, "-fresh"))
		plan->age = AGE_FRESH;
	else if (!strcmp(end, "-aged"))
		plan->age = AGE_PINNED;
	else
		program_misuse(name, "memory is fresh or aged");
	if (plan->size % (4 * KIB))
		program_misuse(name, "the size is a multiple of 4k");
	plan->step = (plan->size / STEPS_MAX + PAGE - 1) & ~(PAGE - 1);
}

/* The process's resident pages: the second number of the file. */
static long long read_resident_kb(void)
{
	char text[128];
	ssize_t length = pread(statm, text, sizeof(text) - 1, 0);
	char *second;

	if (length <= 0)
		program_cannot("cannot read /proc/self/statm");
	text[length] = '\0';
	second = strchr(text, ' ');
	return second ? strtoll(second, NULL, 10) * (long long)(PAGE / KIB) : 0;
}

static long long count_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

static char *map_vector(size_t size)
{
	char *vector = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (vector == MAP_FAILED)
		program_cannot("cannot map %zu bytes", size);
	return vector;
}

/* First-use costs, outside the window: the arrays' own pages, the clock, the files that are read. */
static void warm_up(void)
{
	statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	memset(latencies, 0, sizeof(latencies));
	memset(ended_ns, 0, sizeof(ended_ns));
	memset(grown_kb, 0, sizeof(grown_kb));
	program_now_ns();
	proc_read("/proc/vmstat", &after);
	count_faults();
	read_resident_kb();
}

/* The number of steps. */
static size_t measure(const struct plan *plan, char *vector)
{
	long long resident_kb, elapsed = 0;
	size_t steps = 0;

	proc_read("/proc/vmstat", &before);
	resident_kb = read_resident_kb();
	faults_before = count_faults();
	lab_window_begin();
	for (size_t at = 0; at < plan->size; at += plan->step, steps++) {
		size_t length = plan->size - at < plan->step ? plan->size - at : plan->step;
		long long start = program_now_ns();

		memset(vector + at, 0, length);
		__asm__ volatile("" ::: "memory");
		latencies[steps] = program_now_ns() - start;
		ended_ns[steps] = elapsed += latencies[steps];
		grown_kb[steps] = read_resident_kb() - resident_kb;
		lab_operation_end();
	}
	lab_window_end();
	faults_after = count_faults();
	proc_read("/proc/vmstat", &after);
	return steps;
}

static void print_metrics(const struct plan *plan, size_t steps, long long free_kb)
{
	static const char *const counters[] = {
		"thp_fault_alloc", "thp_fault_fallback", "compact_stall", "compact_fail", "compact_success",
	};
	long long total = ended_ns[steps - 1];

	printf("{\"metrics\":{\"total_time\":%lld", total);
	printf(",\"throughput\":%.17g", (double)plan->size / (double)MIB * 1e9 / (double)(total ? total : 1));
	program_sort(latencies, steps);
	printf(",\"latency_p50\":%lld", program_percentile(latencies, steps, 50));
	printf(",\"latency_p95\":%lld", program_percentile(latencies, steps, 95));
	printf(",\"latency_max\":%lld", latencies[steps - 1]);
	printf(",\"page_faults\":%lld", faults_after - faults_before);
	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		proc_print_increase(counters[i], counters[i], &before, &after);
	proc_print_increase("allocstall", "allocstall_*", &before, &after);
	printf(",\"free_kb\":%lld,\"ops\":%zu}", free_kb, steps);
}

static void print_curve(size_t steps)
{
	printf(",\"series\":{\"rss\":[[0,0]");
	for (size_t i = 0; i < steps; i++)
		printf(",[%lld,%lld]", ended_ns[i], grown_kb[i]);
	printf("]}}\n");
}

int main(int argc, char **argv)
{
	const char *name = program_case(argc, argv, "zero-SIZE-fresh|aged");
	uint64_t seed = program_seed();
	long long free_kb;
	struct plan plan;
	size_t steps;
	char *vector;

	parse_case(name, &plan);
	age_memory(plan.age, seed);
	vector = map_vector(plan.size);
	warm_up();
	free_kb = age_free_kb();
	steps = measure(&plan, vector);
	print_metrics(&plan, steps, free_kb);
	print_curve(steps);
	return fflush(stdout) ? PROGRAM_CANNOT : PROGRAM_MEASURED;
}
