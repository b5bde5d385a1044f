// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * alloc-burst: large anonymous buffers, mapped and touched in bursts.
 *
 * Since commit efa7df3e3bb5 ("mm: align larger anonymous mappings on THP
 * boundaries") (in v6.7) every anonymous mapping of 2 MiB or more starts on a
 * 2 MiB boundary. A single buffer gains: its first page fault brings a huge
 * page. Many live buffers whose length is not a multiple of 2 MiB lose: a gap
 * after each keeps them from merging into one VMA, and every tail shorter than
 * 2 MiB is faulted in 4 KiB at a time, for good. Commit d4148aeab412 ("mm,
 * mmap: limit THP alignment of anonymous mappings to PMD-aligned sizes") (in
 * v6.12) aligns multiples of 2 MiB only; mixing those with other sizes still
 * leaves gaps. So the sign of the effect depends on the pattern, and a fair
 * look needs all of them.
 *
 * Kernel path: mmap() -> __get_unmapped_area() -> thp_get_unmapped_area(), then
 * the first touch -> handle_mm_fault() -> do_huge_pmd_anonymous_page() or
 * do_anonymous_page().
 *
 * A case is PATTERN-SIZE[-SIZE][-FRONTEND]:
 *
 *   layout-S      map buffers of S up to 64 MiB, then touch them all, and read
 *                 them twice: what is used after it was filled pays for small
 *                 pages in TLB misses each time
 *   alternate-A-B the same, with sizes A, B, A, B, ...
 *   single-S      map, touch, unmap one buffer, again and again. From 64 MiB on
 *                 only its first page is touched and S + 4 KiB mapped: the shape
 *                 of will-it-scale's malloc1, where malloc() adds a header.
 *   burst-A-B     a window of live buffers of A to B bytes, randomly replaced.
 *                 Their sizes are those of tensors in language-model inference:
 *                 batch x tokens x hidden state, 32-bit floats.
 *
 * Front ends: mmap (default), malloc-fixed (glibc, mmap threshold fixed at
 * 128 KiB), malloc (glibc unchanged: the threshold follows the freed sizes, so
 * after the first frees buffers come from the heap).
 *
 * An operation is one buffer: mapped and touched; for layout and alternate also
 * read; for single also unmapped; for burst including the unmapping of its
 * predecessor. The kernel's files are read
 * outside the timed window, which is marked for exact mode's cost model, as is
 * the end of each operation. Prints one line of JSON.
 */
#include <lab/mark.h>
#include <lab/proc.h>
#include <lab/program.h>

#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define BUFFERS_MAX	32768
#define TOTAL		(64 * MIB)
#define READS		2		/* layout, alternate: of each buffer, once all are filled */
#define HEADER_FROM	(64 * MIB)	/* single: from here on the shape of malloc1 */
#define SINGLE_MIN	8
#define SINGLE_MAX	100
#define SINGLE_SHARE	8		/* of the total, touched over all operations */
#define WINDOW_MIN	2
#define WINDOW_MAX	8
#define BURST_OPS	16
#define WARM_UP		(4 * MIB)

#define HIDDEN		768UL		/* BERT-base's hidden state, in floats */
#define BATCH_STEPS	4		/* 1, 2, 4, 8 */
#define TOKENS_MIN	16UL
#define TOKENS_MAX	512UL

enum frontend {
	FRONTEND_MMAP,
	FRONTEND_MALLOC_FIXED,
	FRONTEND_MALLOC,
};

struct plan;

struct pattern {
	const char *name;
	int sizes;
	void (*plan)(struct plan *plan);
	void (*measure)(struct plan *plan);
};

struct plan {
	const char *name;
	const struct pattern *pattern;
	enum frontend frontend;
	size_t size[2];
	size_t ops;		/* buffers that are timed */
	size_t window;		/* burst: live buffers */
};

/* One look at the process and the kernel. */
struct sample {
	long long faults;
	long long vmas;
	struct proc_text vmstat;
	struct proc_text rollup;
};

static char *buffers[BUFFERS_MAX];
static size_t lengths[BUFFERS_MAX];
static uint32_t slots[BUFFERS_MAX];
static long long latencies[BUFFERS_MAX];
static long long elapsed;
static struct sample before, after;

static size_t clamp(size_t value, size_t low, size_t high)
{
	return value < low ? low : value > high ? high : value;
}

/* --- Buffers ------------------------------------------------------------ */

static size_t page_round(size_t length)
{
	return (length + PAGE - 1) & ~(PAGE - 1);
}

static char *map_pages(size_t length)
{
	char *pages = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		program_cannot("cannot map %zu bytes", length);
	return pages;
}

static char *get_buffer(enum frontend frontend, size_t length)
{
	char *buffer;

	if (frontend == FRONTEND_MMAP)
		return map_pages(page_round(length));
	buffer = malloc(length);
	if (!buffer)
		program_cannot("cannot map %zu bytes", length);
	return buffer;
}

static void put_buffer(enum frontend frontend, char *buffer, size_t length)
{
	if (frontend == FRONTEND_MMAP)
		munmap(buffer, page_round(length));
	else
		free(buffer);
}

/* A byte in every page. A malloc()ed buffer starts inside a page, so its last byte may be in one more. */
static void touch(char *buffer, size_t length)
{
	volatile char *bytes = buffer;

	for (size_t at = 0; at < length; at += PAGE)
		bytes[at] = 1;
	bytes[length - 1] = 1;
}

static void look_at(const char *buffer, size_t length)
{
	const volatile char *bytes = buffer;

	for (size_t at = 0; at < length; at += PAGE)
		(void)bytes[at];
}

static void set_up_frontend(enum frontend frontend)
{
	/* Naming a threshold also ends glibc's habit of raising it with each free. */
	if (frontend == FRONTEND_MALLOC_FIXED)
		mallopt(M_MMAP_THRESHOLD, 128 * KIB);
	if (frontend != FRONTEND_MMAP)
		free(malloc(64));
}

/* --- Sampling ----------------------------------------------------------- */

/* The list of mappings may be longer than any buffer, so it is counted as it comes. */
static long long count_vmas(void)
{
	static char text[1 << 16];
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	long long lines = 0;
	ssize_t step;

	if (fd < 0)
		program_cannot("cannot read /proc/self/maps");
	while ((step = read(fd, text, sizeof(text))) > 0)
		for (ssize_t i = 0; i < step; i++)
			lines += text[i] == '\n';
	close(fd);
	return lines;
}

static long long count_faults(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

/* The process's mappings and their kinds. */
static void sample_layout(struct sample *sample)
{
	sample->vmas = count_vmas();
	proc_read("/proc/self/smaps_rollup", &sample->rollup);
}

/* The events so far. The faults come last before the window and first after it: reading faults, too. */
static void sample_events(struct sample *sample)
{
	proc_read("/proc/vmstat", &sample->vmstat);
}

static long long window_begin(void)
{
	sample_layout(&before);
	sample_events(&before);
	before.faults = count_faults();
	return program_now_ns();
}

static void window_end(long long began)
{
	elapsed = program_now_ns() - began;
	after.faults = count_faults();
	sample_events(&after);
}

/* --- Patterns ----------------------------------------------------------- */

static void plan_layout(struct plan *plan)
{
	/*
	 * malloc() writes a header into each buffer before the next one extends the
	 * mapping, which costs most of them their huge pages. Half as many take as long.
	 */
	size_t total = TOTAL / (plan->frontend == FRONTEND_MMAP ? 1 : 2);
	size_t used = 0;

	/* Alternating, it takes more of them until the gaps outweigh the first buffer's gain. */
	if (plan->pattern->sizes == 2)
		total += total / 2;

	while (plan->ops < BUFFERS_MAX) {
		size_t length = plan->size[plan->pattern->sizes == 2 ? plan->ops & 1 : 0];

		if (used + length > total)
			break;
		lengths[plan->ops++] = length;
		used += length;
	}
	if (plan->ops < (size_t)plan->pattern->sizes)
		program_misuse(plan->name, "does not fit into 64 MiB");
}

/* One pass over all buffers: the time of each is added to its operation. */
static void pass_over(struct plan *plan, void (*step)(struct plan *plan, size_t i))
{
	long long start = program_now_ns(), end;

	for (size_t i = 0; i < plan->ops; i++) {
		step(plan, i);
		end = program_now_ns();
		latencies[i] += end - start;
		start = end;
		lab_operation_end();
	}
}

static void step_map(struct plan *plan, size_t i)
{
	buffers[i] = get_buffer(plan->frontend, lengths[i]);
}

static void step_touch(struct plan *plan, size_t i)
{
	(void)plan;
	touch(buffers[i], lengths[i]);
}

static void step_read(struct plan *plan, size_t i)
{
	(void)plan;
	look_at(buffers[i], lengths[i]);
}

/* All are mapped before any is touched: how they lie is settled before the first fault. */
static void measure_layout(struct plan *plan)
{
	long long began = window_begin();

	lab_window_begin();
	pass_over(plan, step_map);
	lab_operations_again();
	pass_over(plan, step_touch);
	for (unsigned int i = 0; i < READS; i++) {
		lab_operations_again();
		pass_over(plan, step_read);
	}
	lab_window_end();
	window_end(began);
	sample_layout(&after);
	for (size_t i = 0; i < plan->ops; i++)
		put_buffer(plan->frontend, buffers[i], lengths[i]);
}

/* How much of a buffer a single operation touches. */
static size_t single_touched(const struct plan *plan)
{
	return plan->size[0] < HEADER_FROM ? plan->size[0] : 1;
}

static size_t single_length(const struct plan *plan)
{
	bool header = plan->size[0] >= HEADER_FROM && plan->frontend == FRONTEND_MMAP;

	return plan->size[0] + (header ? PAGE : 0);
}

static void plan_single(struct plan *plan)
{
	plan->ops = clamp(TOTAL / SINGLE_SHARE / single_touched(plan), SINGLE_MIN, SINGLE_MAX);
}

static void measure_single(struct plan *plan)
{
	size_t length = single_length(plan), touched = single_touched(plan);
	long long began = window_begin(), start, end;
	char *buffer;

	lab_window_begin();
	start = program_now_ns();
	for (size_t i = 0; i < plan->ops; i++) {
		buffer = get_buffer(plan->frontend, length);
		touch(buffer, touched);
		put_buffer(plan->frontend, buffer, length);
		end = program_now_ns();
		latencies[i] = end - start;
		start = end;
		lab_operation_end();
	}
	lab_window_end();
	window_end(began);
	/* Once more, to look at it while it is there. */
	buffer = get_buffer(plan->frontend, length);
	touch(buffer, touched);
	sample_layout(&after);
	put_buffer(plan->frontend, buffer, length);
}

/* The sizes of tensors within the bounds; gives how many there are. */
static size_t tensor_sizes(const struct plan *plan, size_t *sizes)
{
	size_t count = 0;

	for (unsigned int batch = 0; batch < BATCH_STEPS; batch++) {
		for (size_t tokens = TOKENS_MIN; tokens <= TOKENS_MAX; tokens++) {
			size_t bytes = (tokens << batch) * HIDDEN * sizeof(float);

			if (bytes >= plan->size[0] && bytes <= plan->size[1])
				sizes[count++] = bytes;
		}
	}
	return count;
}

/* Everything random is drawn here: the window's buffers first, then slot and size of each replacement. */
static void plan_burst(struct plan *plan)
{
	static size_t sizes[BATCH_STEPS * (TOKENS_MAX - TOKENS_MIN + 1)];
	size_t count = tensor_sizes(plan, sizes);
	uint64_t state = program_seed();

	if (!count)
		program_misuse(plan->name, "no batch x tokens gives a size within these bounds");
	if (TOTAL / plan->size[1] < WINDOW_MIN)
		program_misuse(plan->name, "does not fit into 64 MiB");
	plan->window = clamp(TOTAL / plan->size[1], WINDOW_MIN, WINDOW_MAX);
	plan->ops = BURST_OPS;
	for (size_t i = 0; i < plan->window + plan->ops; i++) {
		slots[i] = i < plan->window ? i : program_random(&state) % plan->window;
		lengths[i] = sizes[program_random(&state) % count];
	}
}

static size_t replace(const struct plan *plan, size_t i, size_t *live)
{
	size_t slot = slots[i];

	if (live[slot])
		put_buffer(plan->frontend, buffers[slot], live[slot]);
	live[slot] = lengths[i];
	buffers[slot] = get_buffer(plan->frontend, lengths[i]);
	touch(buffers[slot], lengths[i]);
	return slot;
}

static void measure_burst(struct plan *plan)
{
	static size_t live[WINDOW_MAX];
	long long began, start, end;

	sample_layout(&before);
	for (size_t i = 0; i < plan->window; i++)
		replace(plan, i, live);
	sample_events(&before);
	before.faults = count_faults();
	lab_window_begin();
	began = start = program_now_ns();
	for (size_t i = 0; i < plan->ops; i++) {
		replace(plan, plan->window + i, live);
		end = program_now_ns();
		latencies[i] = end - start;
		start = end;
		lab_operation_end();
	}
	lab_window_end();
	window_end(began);
	sample_layout(&after);
	for (size_t slot = 0; slot < plan->window; slot++)
		put_buffer(plan->frontend, buffers[slot], live[slot]);
}

static const struct pattern patterns[] = {
	{ "layout",	1, plan_layout,	measure_layout },
	{ "alternate",	2, plan_layout,	measure_layout },
	{ "single",	1, plan_single,	measure_single },
	{ "burst",	2, plan_burst,	measure_burst },
};

/* --- The case's name ---------------------------------------------------- */

static bool parse_frontend(const char *at, enum frontend *frontend)
{
	if (!*at || !strcmp(at, "-mmap"))
		*frontend = FRONTEND_MMAP;
	else if (!strcmp(at, "-malloc-fixed"))
		*frontend = FRONTEND_MALLOC_FIXED;
	else if (!strcmp(at, "-malloc"))
		*frontend = FRONTEND_MALLOC;
	else
		return false;
	return true;
}

static const struct pattern *find_pattern(const char *name)
{
	size_t length = strcspn(name, "-");

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		if (strlen(patterns[i].name) == length && !strncmp(patterns[i].name, name, length))
			return &patterns[i];
	program_misuse(name, "the pattern is one of layout, alternate, single, burst");
}

static void parse_case(const char *name, struct plan *plan)
{
	const char *at;

	plan->name = name;
	plan->pattern = find_pattern(name);
	at = name + strlen(plan->pattern->name);
	for (int i = 0; i < plan->pattern->sizes; i++) {
		if (*at == '-')
			at = program_size(at + 1, &plan->size[i]);
		else
			at = NULL;
		if (!at)
			program_misuse(name, plan->pattern->sizes == 2 ?
				     "needs two sizes such as 2048k-1400k" : "needs a size such as 4632k or 2m");
	}
	if (!parse_frontend(at, &plan->frontend))
		program_misuse(name, "after the sizes only -mmap, -malloc-fixed or -malloc may come");
	if (plan->pattern->plan == plan_burst && plan->size[0] > plan->size[1])
		program_misuse(name, "the first bound is above the second");
}

/* --- Measuring and printing --------------------------------------------- */

/*
 * First-use costs, outside the window: the arrays' own pages, the page tables
 * and kernel caches of a mapping with huge and small pages, the clock, each file
 * that is read. Never with malloc(): glibc would learn from the free.
 */
static void warm_up(const struct plan *plan)
{
	char *pages;

	memset(latencies, 0, plan->ops * sizeof(*latencies));
	memset(buffers, 0, (plan->ops > WINDOW_MAX ? plan->ops : WINDOW_MAX) * sizeof(*buffers));
	pages = map_pages(WARM_UP);
	for (size_t at = 0; at < WARM_UP; at += WARM_UP / 16)
		touch(pages + at, 1);
	munmap(pages, WARM_UP);
	window_end(window_begin());
}

static void print_metrics(const struct plan *plan)
{
	program_sort(latencies, plan->ops);
	printf("{\"metrics\":{\"throughput\":%.17g", (double)plan->ops * 1e9 / (double)(elapsed ? elapsed : 1));
	printf(",\"latency_p50\":%lld", program_percentile(latencies, plan->ops, 50));
	printf(",\"latency_p95\":%lld", program_percentile(latencies, plan->ops, 95));
	printf(",\"latency_p99\":%lld", program_percentile(latencies, plan->ops, 99));
	printf(",\"page_faults\":%lld", after.faults - before.faults);
	proc_print_increase("thp_fault_alloc", "thp_fault_alloc", &before.vmstat, &after.vmstat);
	proc_print_increase("thp_fault_fallback", "thp_fault_fallback", &before.vmstat, &after.vmstat);
	proc_print_increase("anon_huge_kb", "AnonHugePages", &before.rollup, &after.rollup);
	printf(",\"vmas\":%lld", after.vmas - before.vmas);
	printf(",\"ops\":%zu}}\n", plan->ops);
}

int main(int argc, char **argv)
{
	struct plan plan = { 0 };

	parse_case(program_case(argc, argv, "PATTERN-SIZE[-SIZE][-FRONTEND], such as layout-4632k"), &plan);
	plan.pattern->plan(&plan);
	set_up_frontend(plan.frontend);
	warm_up(&plan);
	plan.pattern->measure(&plan);
	print_metrics(&plan);
	return fflush(stdout) ? PROGRAM_CANNOT : PROGRAM_MEASURED;
}
