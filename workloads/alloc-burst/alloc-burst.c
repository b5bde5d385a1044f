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
 *   layout-S      map buffers of S up to a total, then touch them all, and read
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
 * 128 KiB), malloc (glibc as it is: the threshold follows what was freed, so
 * after the first frees buffers come from the heap).
 *
 * An operation is one buffer: mapped and touched; for layout and alternate also
 * read; for single also unmapped; for burst including the unmapping of its
 * predecessor. The kernel's files are read
 * outside the timed window, which is marked for exact mode's cost model, as is
 * the end of each operation. Prints one line of JSON.
 */
#include <lab/mark.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define KIB		1024UL
#define MIB		(1024UL * KIB)
#define PAGE		4096UL
#define SIZE_LIMIT	(1UL << 40)

#define BUFFERS_MAX	32768
#define TOTAL_DEFAULT	(64 * MIB)
#define READS		2		/* layout, alternate: of each buffer, once all are filled */
#define HEADER_FROM	(64 * MIB)	/* single: from here on the shape of malloc1 */
#define SINGLE_MIN	8
#define SINGLE_MAX	100
#define SINGLE_SHARE	8		/* of the total, touched over all operations */
#define WINDOW_MIN	2
#define WINDOW_MAX	8
#define BURST_MIN	16
#define BURST_MAX	16
#define WARM_UP		(4 * MIB)

#define HIDDEN		768UL		/* BERT-base's hidden state, in floats */
#define BATCH_STEPS	4		/* 1, 2, 4, 8 */
#define TOKENS_MIN	16UL
#define TOKENS_MAX	512UL

enum exit_status {
	EXIT_MEASURED = 0,
	EXIT_CANNOT = 1,
	EXIT_MISUSE = 2,
};

enum frontend {
	FRONTEND_MMAP,
	FRONTEND_MALLOC_FIXED,
	FRONTEND_MALLOC,
};

struct options {
	const char *name;
	size_t total;
	unsigned long rounds;	/* 0: as many as fit the total */
	uint64_t seed;
};

struct plan;

struct pattern {
	const char *name;
	int sizes;
	void (*plan)(struct plan *plan);
	void (*measure)(struct plan *plan);
};

struct plan {
	const struct options *options;
	const struct pattern *pattern;
	enum frontend frontend;
	size_t size[2];
	size_t ops;		/* buffers that are timed */
	size_t window;		/* burst: live buffers */
};

/* One look at the process and the kernel; fields the kernel does not have are -1. */
struct sample {
	long long faults;
	long long thp_alloc;
	long long thp_fallback;
	long long anon_huge_kb;
	long long vmas;
};

static char *buffers[BUFFERS_MAX];
static size_t lengths[BUFFERS_MAX];
static uint32_t slots[BUFFERS_MAX];
static long long latencies[BUFFERS_MAX];
static long long elapsed;
static struct sample before, after;

static _Noreturn void misuse(const char *name, const char *what)
{
	fprintf(stderr, "alloc-burst: case '%s': %s\n", name, what);
	exit(EXIT_MISUSE);
}

static _Noreturn void cannot_map(size_t length)
{
	fprintf(stderr, "alloc-burst: cannot map %zu bytes: %s (errno %d)\n", length, strerror(errno), errno);
	exit(EXIT_CANNOT);
}

static inline long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

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
		cannot_map(length);
	return pages;
}

static char *get_buffer(enum frontend frontend, size_t length)
{
	char *buffer;

	if (frontend == FRONTEND_MMAP)
		return map_pages(page_round(length));
	buffer = malloc(length);
	if (!buffer)
		cannot_map(length);
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

static char text[1 << 16];

static ssize_t read_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t step;

	text[0] = '\0';
	if (fd < 0)
		return -1;
	while (length < sizeof(text) - 1 && (step = read(fd, text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)step;
	close(fd);
	text[length] = '\0';
	return (ssize_t)length;
}

/* The number after a key at the start of a line of the text that was read; -1 if there is none. */
static long long number_of(const char *key)
{
	size_t length = strlen(key);
	const char *line = text;

	while (line) {
		if (!strncmp(line, key, length) && (line[length] == ' ' || line[length] == ':'))
			return strtoll(line + length + 1, NULL, 10);
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	return -1;
}

/* The list of mappings may be longer than any buffer, so it is counted as it comes. */
static long long count_vmas(void)
{
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	long long lines = 0;
	ssize_t step;

	if (fd < 0)
		return -1;
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

/* Of the process: what is mapped and how. */
static void sample_layout(struct sample *sample)
{
	sample->vmas = count_vmas();
	read_file("/proc/self/smaps_rollup");
	sample->anon_huge_kb = number_of("AnonHugePages");
}

/* Of the events so far. The faults come last before the window and first after it: reading faults, too. */
static void sample_events(struct sample *sample)
{
	read_file("/proc/vmstat");
	sample->thp_alloc = number_of("thp_fault_alloc");
	sample->thp_fallback = number_of("thp_fault_fallback");
}

static long long window_begin(void)
{
	sample_layout(&before);
	sample_events(&before);
	before.faults = count_faults();
	return now_ns();
}

static void window_end(long long began)
{
	elapsed = now_ns() - began;
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
	size_t total = plan->options->total / (plan->frontend == FRONTEND_MMAP ? 1 : 2);
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
		misuse(plan->options->name, "does not fit into --total");
}

/* One pass over all buffers: what each takes is added to its operation. */
static void pass_over(struct plan *plan, void (*step)(struct plan *plan, size_t i))
{
	long long start = now_ns(), end;

	for (size_t i = 0; i < plan->ops; i++) {
		step(plan, i);
		end = now_ns();
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
	size_t touched = single_touched(plan);

	if (touched > plan->options->total)
		misuse(plan->options->name, "does not fit into --total");
	plan->ops = plan->options->rounds;
	if (!plan->ops)
		plan->ops = clamp(plan->options->total / SINGLE_SHARE / touched, SINGLE_MIN, SINGLE_MAX);
}

static void measure_single(struct plan *plan)
{
	size_t length = single_length(plan), touched = single_touched(plan);
	long long began = window_begin(), start, end;
	char *buffer;

	lab_window_begin();
	start = now_ns();
	for (size_t i = 0; i < plan->ops; i++) {
		buffer = get_buffer(plan->frontend, length);
		touch(buffer, touched);
		put_buffer(plan->frontend, buffer, length);
		end = now_ns();
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
	uint64_t state = plan->options->seed;

	if (!count)
		misuse(plan->options->name, "no batch x tokens gives a size within these bounds");
	if (plan->options->total / plan->size[1] < WINDOW_MIN)
		misuse(plan->options->name, "does not fit into --total");
	plan->window = clamp(plan->options->total / plan->size[1], WINDOW_MIN, WINDOW_MAX);
	plan->ops = plan->options->rounds;
	if (!plan->ops)
		plan->ops = clamp(2 * plan->window, BURST_MIN, BURST_MAX);
	for (size_t i = 0; i < plan->window + plan->ops; i++) {
		slots[i] = i < plan->window ? i : splitmix64(&state) % plan->window;
		lengths[i] = sizes[splitmix64(&state) % count];
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
	began = start = now_ns();
	for (size_t i = 0; i < plan->ops; i++) {
		replace(plan, plan->window + i, live);
		end = now_ns();
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

/* A size such as 4632k or 2m at the start of text: its end, or NULL if there is none. */
static const char *parse_size(const char *at, size_t *size)
{
	unsigned long number;
	char *end;

	if (*at < '1' || *at > '9')
		return NULL;
	errno = 0;
	number = strtoul(at, &end, 10);
	if (errno || number > SIZE_LIMIT / MIB * (*end == 'k' ? KIB : 1))
		return NULL;
	if (*end != 'k' && *end != 'm')
		return NULL;
	*size = number * (*end == 'k' ? KIB : MIB);
	return end + 1;
}

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
	misuse(name, "the pattern is one of layout, alternate, single, burst");
}

static void parse_case(const char *name, struct plan *plan)
{
	const char *at;

	plan->pattern = find_pattern(name);
	at = name + strlen(plan->pattern->name);
	for (int i = 0; i < plan->pattern->sizes; i++) {
		if (*at == '-')
			at = parse_size(at + 1, &plan->size[i]);
		else
			at = NULL;
		if (!at)
			misuse(name, plan->pattern->sizes == 2 ?
				     "needs two sizes such as 2048k-1400k" : "needs a size such as 4632k or 2m");
	}
	if (!parse_frontend(at, &plan->frontend))
		misuse(name, "after the sizes only -mmap, -malloc-fixed or -malloc may come");
	if (plan->pattern->plan == plan_burst && plan->size[0] > plan->size[1])
		misuse(name, "the first bound is above the second");
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

static int by_value(const void *a, const void *b)
{
	long long left = *(const long long *)a, right = *(const long long *)b;

	return (left > right) - (left < right);
}

/* Nearest rank: the smallest value that so many percent of all do not exceed. */
static long long percentile(size_t count, unsigned int percent)
{
	return latencies[(count * percent + 99) / 100 - 1];
}

/* A counter's increase, or nothing but the reason why there is none. */
static void print_increase(const char *name, long long was, long long is, const char *source)
{
	if (was < 0 || is < 0)
		fprintf(stderr, "alloc-burst: no %s: this kernel does not show it in %s\n", name, source);
	else
		printf(",\"%s\":%lld", name, is - was);
}

static void print_metrics(const struct plan *plan)
{
	qsort(latencies, plan->ops, sizeof(*latencies), by_value);
	printf("{\"metrics\":{\"throughput\":%.17g", (double)plan->ops * 1e9 / (double)(elapsed ? elapsed : 1));
	printf(",\"latency_p50\":%lld", percentile(plan->ops, 50));
	printf(",\"latency_p95\":%lld", percentile(plan->ops, 95));
	printf(",\"latency_p99\":%lld", percentile(plan->ops, 99));
	print_increase("page_faults", before.faults, after.faults, "getrusage()");
	print_increase("thp_fault_alloc", before.thp_alloc, after.thp_alloc, "/proc/vmstat");
	print_increase("thp_fault_fallback", before.thp_fallback, after.thp_fallback, "/proc/vmstat");
	print_increase("anon_huge_kb", before.anon_huge_kb, after.anon_huge_kb, "/proc/self/smaps_rollup");
	print_increase("vmas", before.vmas, after.vmas, "/proc/self/maps");
	printf(",\"ops\":%zu}}\n", plan->ops);
}

static uint64_t parse_number(const char *option, const char *value)
{
	char *end;
	unsigned long long number;

	errno = 0;
	number = strtoull(value, &end, 10);
	if (*value >= '0' && *value <= '9' && !*end && !errno)
		return number;
	fprintf(stderr, "alloc-burst: %s '%s' is not a number\n", option, value);
	exit(EXIT_MISUSE);
}

static size_t parse_total(const char *value)
{
	size_t total = 0;
	const char *end = parse_size(value, &total);

	if (end && !*end)
		return total;
	fprintf(stderr, "alloc-burst: --total '%s' is not a size such as 96m\n", value);
	exit(EXIT_MISUSE);
}

static void usage(FILE *stream)
{
	fputs("usage: alloc-burst --case PATTERN-SIZE[-SIZE][-FRONTEND] [--total SIZE] [--rounds N] [--seed N]\n"
	      "for example: alloc-burst --case layout-4632k\n", stream);
}

static void parse_options(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{ "case",	required_argument, NULL, 'c' },
		{ "total",	required_argument, NULL, 't' },
		{ "rounds",	required_argument, NULL, 'r' },
		{ "seed",	required_argument, NULL, 's' },
		{ "help",	no_argument,	   NULL, 'h' },
		{ 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (option == 'c') {
			options->name = optarg;
		} else if (option == 't') {
			options->total = parse_total(optarg);
		} else if (option == 'r') {
			options->rounds = parse_number("--rounds", optarg);
		} else if (option == 's') {
			options->seed = parse_number("--seed", optarg);
		} else {
			usage(option == 'h' ? stdout : stderr);
			exit(option == 'h' ? EXIT_MEASURED : EXIT_MISUSE);
		}
	}
	if (!options->name || optind != argc) {
		usage(stderr);
		exit(EXIT_MISUSE);
	}
}

int main(int argc, char **argv)
{
	struct options options = { .total = TOTAL_DEFAULT };
	struct plan plan = { .options = &options };
	const char *seed = getenv("LAB_SEED");

	if (seed)
		options.seed = parse_number("LAB_SEED", seed);
	parse_options(argc, argv, &options);
	if (options.rounds > BUFFERS_MAX - WINDOW_MAX)
		misuse(options.name, "--rounds is above what can be recorded");
	parse_case(options.name, &plan);
	plan.pattern->plan(&plan);
	set_up_frontend(plan.frontend);
	warm_up(&plan);
	plan.pattern->measure(&plan);
	print_metrics(&plan);
	return fflush(stdout) ? EXIT_CANNOT : EXIT_MEASURED;
}
