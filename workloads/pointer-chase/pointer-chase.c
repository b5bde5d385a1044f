// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pointer-chase: dependent loads all over a working set.
 *
 * Each node holds the address of the next, in an order that visits every node
 * once and that no prefetcher can guess, so a hop takes as long as one access:
 * translation and fetch. The gain of huge pages by fewer and shorter page walks
 * shows here undiluted, once the working set is beyond the reach of the TLB.
 *
 * Kernel path: only the page size that the first touch gives, see
 * do_huge_pmd_anonymous_page(); compare thp=always with thp=never.
 *
 * A case is chase-SIZE[-malloc], a power of two such as 64m or 1g. With -malloc
 * the memory comes from glibc, whose tunable glibc.malloc.hugetlb=1 asks for
 * huge pages by madvise() if thp=madvise; else straight from mmap(). Either way
 * the nodes begin on a 2 MiB boundary. An operation is a fixed number of hops.
 * The nodes are laid out before the measured window. Prints one line of JSON.
 */
#include <lab/mark.h>
#include <lab/proc.h>
#include <lab/program.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NODE		64UL		/* a cache line each */
#define SMALLEST	(64 * KIB)
#define LARGEST	(16 * GIB)

#define OPERATIONS	64
#define HOPS		8192UL		/* per operation */

struct node {
	struct node *next;
	char pad[NODE - sizeof(struct node *)];
};

struct plan {
	size_t size;
	bool malloc;
};

static long long latencies[OPERATIONS];

static _Noreturn void misuse(const char *name)
{
	program_misuse(name, "needs chase-SIZE[-malloc], a power of two from 64k to 16g");
}

/* On a 2 MiB boundary, so that all of it can be huge pages. */
static struct node *get_nodes(const struct plan *plan)
{
	size_t length = plan->size + HUGE;
	char *all;

	if (plan->malloc) {
		all = malloc(length);
	} else {
		all = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (all == MAP_FAILED)
			all = NULL;
	}
	if (!all)
		program_cannot("cannot map %zu bytes", length);
	return (struct node *)(((uintptr_t)all + HUGE - 1) & ~(HUGE - 1));
}

/* Number to number of as many bits, one to one: each step can be undone. */
static size_t mix(size_t x, unsigned int bits)
{
	size_t mask = (1UL << bits) - 1;

	for (int round = 0; round < 2; round++) {
		x ^= x >> (bits / 2 + 1);
		x = x * 0x9e3779b97f4a7c15UL & mask;
	}
	return x ^ x >> (bits / 2 + 1);
}

/*
 * The nodes in the order of the mixed numbers: once through all, then again. Of
 * a set larger than the walk, only the nodes on the way are laid out.
 */
static void lay_out(struct node *nodes, size_t count)
{
	size_t links = count < OPERATIONS * HOPS ? count : OPERATIONS * HOPS;
	unsigned int bits = (unsigned int)__builtin_ctzl(count);
	struct node *node = &nodes[mix(0, bits)];

	for (size_t i = 1; i <= links; i++) {
		node->next = &nodes[mix(i & (count - 1), bits)];
		node = node->next;
	}
}

static struct node *chase(struct node *node)
{
	for (size_t i = 0; i < HOPS; i++)
		node = node->next;
	return node;
}

static void measure(struct node *node)
{
	long long start, end;

	lab_window_begin();
	start = program_now_ns();
	for (size_t i = 0; i < OPERATIONS; i++) {
		node = chase(node);
		__asm__ volatile("" :: "r"(node));
		end = program_now_ns();
		latencies[i] = end - start;
		start = end;
		lab_operation_end();
	}
	lab_window_end();
}

/* The process's memory in huge pages; -1 if the kernel does not say. */
static long long anon_huge_kb(void)
{
	static struct proc_text rollup;

	proc_read("/proc/self/smaps_rollup", &rollup);
	return proc_number(&rollup, "AnonHugePages");
}

static void print_metrics(void)
{
	long long total = 0, huge_kb = anon_huge_kb();

	for (size_t i = 0; i < OPERATIONS; i++)
		total += latencies[i];
	program_sort(latencies, OPERATIONS);
	printf("{\"metrics\":{\"hop_time\":%.17g", (double)total / (double)(OPERATIONS * HOPS));
	printf(",\"latency_p50\":%lld", program_percentile(latencies, OPERATIONS, 50));
	printf(",\"latency_p99\":%lld", program_percentile(latencies, OPERATIONS, 99));
	if (huge_kb >= 0)
		printf(",\"anon_huge_kb\":%lld", huge_kb);
	else
		fputs("pointer-chase: no anon_huge_kb: this kernel has no /proc/self/smaps_rollup\n", stderr);
	printf(",\"hops\":%lu,\"ops\":%d}}\n", OPERATIONS * HOPS, OPERATIONS);
}

static struct plan parse_case(const char *name)
{
	struct plan plan = { 0 };
	const char *end = strncmp(name, "chase-", 6) ? NULL : program_size(name + 6, &plan.size);

	if (!end || plan.size & (plan.size - 1) || plan.size < SMALLEST || plan.size > LARGEST)
		misuse(name);
	plan.malloc = !strcmp(end, "-malloc");
	if (*end && !plan.malloc)
		misuse(name);
	return plan;
}

int main(int argc, char **argv)
{
	struct plan plan = parse_case(program_case(argc, argv, "chase-SIZE[-malloc]"));
	struct node *nodes = get_nodes(&plan);

	lay_out(nodes, plan.size / NODE);
	measure(nodes);
	print_metrics();
	return fflush(stdout) ? PROGRAM_CANNOT : PROGRAM_MEASURED;
}
