// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pointer-chase: dependent loads all over a working set.
 *
 * Each node holds the address of the next, in an order that visits every node
 * once and that no prefetcher can guess, so a hop takes as long as one access:
 * translation and fetch. What huge pages gain by fewer and shorter page walks
 * shows here undiluted, once the working set is beyond the reach of the TLB.
 *
 * Kernel path: only the page size that the first touch gives, see
 * do_huge_pmd_anonymous_page(); compare thp=always with thp=never.
 *
 * A case is chase-SIZE[-malloc], a power of two such as 64m or 1g. With -malloc
 * the memory comes from glibc, whose tunable glibc.malloc.hugetlb=1 asks for
 * huge pages by madvise() where thp=madvise; else straight from mmap(). Either
 * way the nodes begin on a 2 MiB boundary. An operation is a fixed number of
 * hops. The nodes are laid out before the measured window. Prints one line of
 * JSON.
 */
#include <lab/mark.h>

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define KIB		1024UL
#define MIB		(1024UL * KIB)
#define GIB		(1024UL * MIB)
#define HUGE		(2 * MIB)
#define NODE		64UL		/* a cache line each */
#define SMALLEST	(64 * KIB)
#define LARGEST	(16 * GIB)

#define OPERATIONS	64
#define HOPS		8192UL		/* per operation */

enum exit_status {
	EXIT_MEASURED = 0,
	EXIT_CANNOT = 1,
	EXIT_MISUSE = 2,
};

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
	fprintf(stderr, "pointer-chase: case '%s': needs chase-SIZE[-malloc], a power of two from 64k to 16g\n", name);
	exit(EXIT_MISUSE);
}

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
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
	if (!all) {
		fprintf(stderr, "pointer-chase: cannot map %zu bytes: %s\n", length, strerror(errno));
		exit(EXIT_CANNOT);
	}
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
 * a set larger than what is walked, only the nodes on the way are laid out.
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
	start = now_ns();
	for (size_t i = 0; i < OPERATIONS; i++) {
		node = chase(node);
		__asm__ volatile("" :: "r"(node));
		end = now_ns();
		latencies[i] = end - start;
		start = end;
		lab_operation_end();
	}
	lab_window_end();
}

static int by_value(const void *a, const void *b)
{
	long long left = *(const long long *)a, right = *(const long long *)b;

	return (left > right) - (left < right);
}

/* The process's memory in huge pages; -1 where the kernel does not say. */
static long long anon_huge_kb(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "re");
	long long kb = -1;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "AnonHugePages: %lld", &kb) == 1)
			break;
	if (file)
		fclose(file);
	return kb;
}

static void print_metrics(void)
{
	long long total = 0, huge_kb = anon_huge_kb();

	for (size_t i = 0; i < OPERATIONS; i++)
		total += latencies[i];
	qsort(latencies, OPERATIONS, sizeof(*latencies), by_value);
	printf("{\"metrics\":{\"hop_time\":%.17g", (double)total / (double)(OPERATIONS * HOPS));
	printf(",\"latency_p50\":%lld", latencies[OPERATIONS * 50 / 100 - 1]);
	printf(",\"latency_p99\":%lld", latencies[(OPERATIONS * 99 + 99) / 100 - 1]);
	if (huge_kb >= 0)
		printf(",\"anon_huge_kb\":%lld", huge_kb);
	else
		fputs("pointer-chase: no anon_huge_kb: this kernel has no /proc/self/smaps_rollup\n", stderr);
	printf(",\"hops\":%lu,\"ops\":%d}}\n", OPERATIONS * HOPS, OPERATIONS);
}

static struct plan parse_case(const char *name)
{
	struct plan plan = { 0 };
	unsigned long number;
	size_t unit = 0;
	char *end;

	if (strncmp(name, "chase-", 6) || name[6] < '1' || name[6] > '9')
		misuse(name);
	errno = 0;
	number = strtoul(name + 6, &end, 10);
	if (*end)
		unit = *end == 'k' ? KIB : *end == 'm' ? MIB : *end == 'g' ? GIB : 0;
	if (!unit || errno || number > LARGEST / unit || number & (number - 1) || number * unit < SMALLEST)
		misuse(name);
	plan.size = number * unit;
	plan.malloc = !strcmp(end + 1, "-malloc");
	if (end[1] && !plan.malloc)
		misuse(name);
	return plan;
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{ "case", required_argument, NULL, 'c' },
		{ 0 },
	};
	const char *name = NULL;
	struct node *nodes;
	struct plan plan;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) == 'c')
		name = optarg;
	if (option != -1 || !name || optind != argc) {
		fputs("usage: pointer-chase --case chase-SIZE[-malloc]\n", stderr);
		return EXIT_MISUSE;
	}
	plan = parse_case(name);
	nodes = get_nodes(&plan);
	lay_out(nodes, plan.size / NODE);
	measure(nodes);
	print_metrics();
	return fflush(stdout) ? EXIT_CANNOT : EXIT_MEASURED;
}
