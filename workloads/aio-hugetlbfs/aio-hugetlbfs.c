// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * aio-hugetlbfs: a database's direct reads into shared memory of huge pages.
 *
 * Before a device can write into the user's buffer, direct I/O takes a
 * reference on each of its pages, and gives them back when it is done. With
 * transparent huge pages (in v2.6.38) that became expensive for every huge
 * page, also for those of hugetlbfs: a lock and atomic operations for each 4
 * KiB page. A load generator of Oracle's lost up to 46 % of its throughput
 * until commit 7cb2ef56e6a8 ("mm: fix aio performance regression for database
 * caused by THP") (in v3.12). Since v6.12, commits ed9832bc08db and
 * eb1d46fcd5d6, the block layer takes all pages of a large folio at once, too.
 *
 * Kernel path: io_submit() -> blkdev_direct_IO() -> bio_iov_iter_get_pages() ->
 * pin_user_pages_fast() -> try_grab_folio_fast(), and when the read is done
 * bio_release_pages() -> unpin_user_folio() or unpin_user_page(). A null_blk
 * device moves no data, so that the path is nearly all there is.
 *
 * A case is ENGINE-SIZE[-dDEPTH][-BUFFER]:
 *
 *   read-S    aio: io_submit(), io_getevents()
 *   uring-S   io_uring
 *
 * each with DEPTH reads of S bytes in flight (32 if not said). The buffers are
 * in shared memory of huge pages, shmget(SHM_HUGETLB), or
 *
 *   -malloc      on the heap, in small pages
 *   -registered  io_uring only: in huge pages that were pinned beforehand
 *
 * An operation is one read. Each is submitted by itself; when the queue is full,
 * as many as are done are reaped and submitted again. Prints one line of JSON.
 */
#include <lab/mark.h>
#include <lab/proc.h>
#include <lab/program.h>

#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#define DEVICE		"/dev/nullb0"
#define SIZE_MAX_READ	(16 * MIB)
#define DEPTH_DEFAULT	32
#define TOTAL		(256 * MIB)	/* read in the window, within these bounds: */
#define ROUNDS_MIN	8		/* times the depth */
#define READS_MAX	4096UL

enum memory {
	MEMORY_HUGETLB,
	MEMORY_MALLOC,
};

struct plan {
	const char *device;
	const struct engine *engine;
	struct queue queue;
	enum memory memory;
	size_t reads;
};

static uint64_t offsets[READS_MAX];
static long long latencies[READS_MAX];
static long long started[DEPTH_MAX];
static unsigned int idle[DEPTH_MAX], idle_count;
static size_t reaped;

/* --- The case's name ---------------------------------------------------- */

static const char *parse_engine(const char *name, const struct engine **engine)
{
	static const struct engine *const engines[] = { &engine_aio, &engine_uring };

	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
		size_t length = strlen(engines[i]->name);

		if (!strncmp(engines[i]->name, name, length) && name[length] == '-') {
			*engine = engines[i];
			return name + length + 1;
		}
	}
	program_misuse(name, "begins with read- or uring-");
}

static const char *parse_depth(const char *name, const char *at, unsigned int *depth)
{
	unsigned long number;
	char *end;

	if (strncmp(at, "-d", 2))
		return at;
	number = at[2] >= '1' && at[2] <= '9' ? strtoul(at + 2, &end, 10) : 0;
	if (!number || number > DEPTH_MAX)
		program_misuse(name, "the depth is a number from 1 to 256");
	*depth = (unsigned int)number;
	return end;
}

static void parse_case(const char *name, struct plan *plan)
{
	const char *at = parse_engine(name, &plan->engine);

	at = program_size(at, &plan->queue.size);
	if (!at || plan->queue.size % PAGE || plan->queue.size > SIZE_MAX_READ)
		program_misuse(name, "needs a size such as 64k or 1m, a multiple of 4k up to 16m");
	plan->queue.depth = DEPTH_DEFAULT;
	at = parse_depth(name, at, &plan->queue.depth);
	if (!strcmp(at, "-malloc"))
		plan->memory = MEMORY_MALLOC;
	else if (!strcmp(at, "-registered") && plan->engine->can_register)
		plan->queue.registered = true;
	else if (*at)
		program_misuse(name, "ends in -malloc, for io_uring also in -registered, or in neither");
}

/* --- The source of reads, and their buffers ----------------------------- */

static void open_device(struct plan *plan)
{
	off_t size;

	plan->queue.fd = open(plan->device, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (plan->queue.fd < 0)
		program_cannot("cannot open %s", plan->device);
	size = lseek(plan->queue.fd, 0, SEEK_END);
	if (size < 0)
		program_cannot("cannot tell the size of %s", plan->device);
	errno = 0;
	plan->queue.blocks = (uint64_t)size / plan->queue.size;
	if (!plan->queue.blocks)
		program_cannot("%s has %lld bytes, too few for a read of %zu", plan->device, (long long)size,
			       plan->queue.size);
}

static long long free_hugepages(void)
{
	static struct proc_text meminfo;

	proc_read("/proc/meminfo", &meminfo);
	return proc_number(&meminfo, "HugePages_Free");
}

/* As orion does: a segment of System V's shared memory, gone when the process is. */
static char *share_hugepages(size_t length)
{
	int id = shmget(IPC_PRIVATE, length, IPC_CREAT | SHM_HUGETLB | 0600);
	int error = errno;
	char *memory;

	if (id < 0) {
		long long free = free_hugepages();

		errno = error;
		program_cannot("cannot get %zu huge pages of shared memory, %lld are free", length / HUGE, free);
	}
	memory = shmat(id, NULL, 0);
	error = errno;
	shmctl(id, IPC_RMID, NULL);
	errno = error;
	if (memory == (char *)-1)
		program_cannot("cannot attach %zu huge pages of shared memory", length / HUGE);
	return memory;
}

/* Small pages, so that all of malloc()'s buffers are alike with any setting of THP. */
static char *allocate_small_pages(size_t length)
{
	void *memory;

	errno = posix_memalign(&memory, HUGE, length);
	if (errno)
		program_cannot("cannot allocate %zu bytes", length);
	madvise(memory, length, MADV_NOHUGEPAGE);
	return memory;
}

/* All of it is touched, so that no read meets a page fault. */
static void get_buffers(struct plan *plan)
{
	size_t length = (plan->queue.size * plan->queue.depth + HUGE - 1) & ~(HUGE - 1);

	plan->queue.buffers = plan->memory == MEMORY_HUGETLB ? share_hugepages(length) : allocate_small_pages(length);
	plan->queue.length = length;
	memset(plan->queue.buffers, 1, length);
}

/* Anywhere on the device, in whole blocks; drawn before anything is timed. */
static void draw_offsets(struct plan *plan)
{
	uint64_t state = program_seed();

	plan->reads = TOTAL / plan->queue.size;
	if (plan->reads < ROUNDS_MIN * plan->queue.depth)
		plan->reads = ROUNDS_MIN * plan->queue.depth;
	if (plan->reads > READS_MAX)
		plan->reads = READS_MAX;
	for (size_t i = 0; i < plan->reads; i++)
		offsets[i] = program_random(&state) % plan->queue.blocks * plan->queue.size;
}

/* --- Measuring and printing --------------------------------------------- */

/* Wait until a read is done, and take all finished ones. */
static void reap(struct plan *plan)
{
	static struct done done[DEPTH_MAX];
	unsigned int count = plan->engine->reap(&plan->queue, done);
	long long now = program_now_ns();

	for (unsigned int i = 0; i < count; i++) {
		if (done[i].result != (long long)plan->queue.size) {
			errno = done[i].result < 0 ? (int)-done[i].result : 0;
			program_cannot("a read of %zu bytes from %s gave %lld", plan->queue.size, plan->device,
				       done[i].result);
		}
		latencies[reaped++] = now - started[done[i].slot];
		idle[idle_count++] = done[i].slot;
	}
}

static void submit(struct plan *plan, uint64_t offset)
{
	unsigned int slot = idle[--idle_count];

	started[slot] = program_now_ns();
	plan->engine->submit(&plan->queue, slot, offset);
}

static void read_all(struct plan *plan, size_t reads)
{
	reaped = 0;
	for (size_t i = 0; i < reads; i++) {
		submit(plan, offsets[i]);
		while (!idle_count || (i == reads - 1 && idle_count < plan->queue.depth))
			reap(plan);
		lab_operation_end();
	}
}

/* Counters are kept for each CPU and added up now and then, or when asked to. */
static long long count_pins(void)
{
	static struct proc_text vmstat;

	proc_write("/proc/sys/vm/stat_refresh", "1");
	proc_read("/proc/vmstat", &vmstat);
	return proc_number(&vmstat, "nr_foll_pin_acquired");
}

static void print_metrics(const struct plan *plan, long long elapsed, long long pins)
{
	double bytes = (double)(plan->reads * plan->queue.size);

	program_sort(latencies, plan->reads);
	printf("{\"metrics\":{\"throughput\":%.17g", bytes * 1e3 / (double)(elapsed ? elapsed : 1));
	printf(",\"latency_p50\":%lld", program_percentile(latencies, plan->reads, 50));
	printf(",\"latency_p95\":%lld", program_percentile(latencies, plan->reads, 95));
	printf(",\"latency_p99\":%lld", program_percentile(latencies, plan->reads, 99));
	if (pins >= 0)
		printf(",\"pins_per_read\":%.17g", (double)pins / (double)plan->reads);
	printf(",\"ops\":%zu}}\n", plan->reads);
}

static void measure(struct plan *plan)
{
	long long before, after, began, elapsed;

	for (unsigned int slot = 0; slot < plan->queue.depth; slot++)
		idle[idle_count++] = slot;
	/* The cost of the first use of everything. */
	read_all(plan, plan->queue.depth);
	before = count_pins();
	lab_window_begin();
	began = program_now_ns();
	read_all(plan, plan->reads);
	elapsed = program_now_ns() - began;
	lab_window_end();
	after = count_pins();
	if (before < 0 || after < 0)
		fprintf(stderr, "aio-hugetlbfs: no pins_per_read: this kernel does not count pins in /proc/vmstat\n");
	print_metrics(plan, elapsed, before < 0 ? -1 : after - before);
}

static _Noreturn void usage(FILE *stream, int status)
{
	fputs("usage: aio-hugetlbfs --case ENGINE-SIZE[-dDEPTH][-malloc|-registered] [--device PATH]\n"
	      "for example: aio-hugetlbfs --case read-64k\n", stream);
	exit(status);
}

static const char *parse_options(int argc, char **argv, struct plan *plan)
{
	static const struct option known[] = {
		{ "case",	required_argument, NULL, 'c' },
		{ "device",	required_argument, NULL, 'd' },
		{ "help",	no_argument,	   NULL, 'h' },
		{ 0 },
	};
	const char *name = NULL;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 'c')
			name = optarg;
		else if (option == 'd')
			plan->device = optarg;
		else
			usage(option == 'h' ? stdout : stderr, option == 'h' ? PROGRAM_MEASURED : PROGRAM_MISUSE);
	}
	if (!name || optind != argc)
		usage(stderr, PROGRAM_MISUSE);
	return name;
}

int main(int argc, char **argv)
{
	struct plan plan = { .device = DEVICE };

	parse_case(parse_options(argc, argv, &plan), &plan);
	open_device(&plan);
	draw_offsets(&plan);
	get_buffers(&plan);
	plan.engine->set_up(&plan.queue);
	measure(&plan);
	return fflush(stdout) ? PROGRAM_CANNOT : PROGRAM_MEASURED;
}
