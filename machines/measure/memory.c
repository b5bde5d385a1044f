// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Caches, memory and TLBs, by walks along a chain of pointers: each load waits for the last. The chain is one cycle
 * through all lines in random order, which no prefetcher foresees.
 */
#include "measure.h"
#include "sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	MOST_CHAINS = 24,
	NEAR_GROUPS = 1024,	/* places of a neighbourhood */
	MOST_SMALL_PAGES = 16384,
};

/* Larger chains are laid by a linear congruence, which needs no table of places. */
#define LARGEST_TABLE (64 * MIB)

struct walk {
	void *at[MOST_CHAINS];
	char *arena;
	uint64_t bytes;
	uint32_t *order;	/* of the places in a neighbourhood */
	uint64_t number;	/* of loads so far */
};

/* One line of four is used: CPUs fetch lines in pairs. */
#define NEAR_GROUP (4 * LINE)
#define NEAR (NEAR_GROUPS * NEAR_GROUP)

char *arena;
uint64_t arena_bytes;

static uint64_t huge;

static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint64_t random_below(uint64_t limit)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % limit;
}

static uint32_t *shuffled(uint64_t count)
{
	uint32_t *order = malloc(count * sizeof(*order));

	for (uint64_t i = 0; i < count; i++)
		order[i] = (uint32_t)i;
	for (uint64_t i = count - 1; i > 0; i--) {
		uint64_t other = random_below(i + 1);
		uint32_t kept = order[i];

		order[i] = order[other];
		order[other] = kept;
	}
	return order;
}

/*
 * A place in the i-th of several pages. Over all pages, the places use all sets of a cache alike, and of a TLB also if
 * a hypervisor maps a huge page by small ones.
 */
static char *place(char *base, uint64_t i, uint64_t stride)
{
	uint64_t step = stride == HUGE_PAGE ? SMALL_PAGE + LINE : LINE;

	return base + i * stride + (stride > LINE ? i * step % stride : 0);
}

/* A cycle through `count` places. */
static void lay(char *base, uint64_t count, uint64_t stride)
{
	if (count * LINE <= LARGEST_TABLE) {
		uint32_t *order = shuffled(count);

		for (uint64_t i = 0; i < count; i++)
			*(char **)place(base, order[i], stride) = place(base, order[(i + 1) % count], stride);
		free(order);
		return;
	}
	/* The period is full if count is a power of two, the factor is 1 modulo 4, and the addend is odd. */
	for (uint64_t i = 0; i < count; i++) {
		uint64_t next = (i * 0x5851f42d4c957f2d + 0x14057b7ef767814f) & (count - 1);

		*(char **)place(base, i, stride) = place(base, next, stride);
	}
}

/*
 * A cycle that stays in a neighbourhood of 64 small pages until it has seen all of it, so that hardly any hop misses a
 * TLB, with any size of pages. Returns places far from each other on it.
 */
static void lay_near(char *base, uint64_t bytes, void **starts)
{
	uint64_t number = bytes / NEAR;
	uint32_t *blocks = shuffled(number);
	char **last = (char **)base;

	for (uint64_t i = 0; i < number; i++) {
		uint32_t *order = shuffled(NEAR_GROUPS);

		for (uint64_t k = 0; k < NEAR_GROUPS; k++) {
			char *at = base + blocks[i] * NEAR + order[k] * NEAR_GROUP + random_below(4) * LINE;

			*last = at;
			last = (char **)at;
		}
		if (i % (number / MOST_CHAINS) == 0 && i / (number / MOST_CHAINS) < MOST_CHAINS)
			starts[i / (number / MOST_CHAINS)] = last;
		free(order);
	}
	*last = starts[0];
	free(blocks);
}

#define HOP "mov (%0), %0\n\t"

static void chase(uint64_t count, void *context)
{
	struct walk *walk = context;
	void *at = walk->at[0];

	while (count--)
		asm volatile(HOP HOP HOP HOP HOP HOP HOP HOP : "+r"(at) : : "memory");
	walk->at[0] = at;
}

/* Hops of several chains at a time: `count` of each. */
#define CHASE_SEVERAL(number)                                                          \
	static void chase_##number(uint64_t count, void *context)                      \
	{                                                                              \
		struct walk *walk = context;                                           \
		void *at[number];                                                      \
                                                                                       \
		memcpy(at, walk->at, sizeof(at));                                      \
		while (count--) {                                                      \
			_Pragma("GCC unroll 24") for (int i = 0; i < number; i++)      \
				at[i] = *(void *volatile *)at[i];                      \
		}                                                                      \
		memcpy(walk->at, at, sizeof(at));                                      \
	}

CHASE_SEVERAL(1)
CHASE_SEVERAL(2)
CHASE_SEVERAL(3)
CHASE_SEVERAL(4)
CHASE_SEVERAL(6)
CHASE_SEVERAL(8)
CHASE_SEVERAL(12)
CHASE_SEVERAL(16)
CHASE_SEVERAL(24)

/* Walk the chain that begins at an address; warm: hops before the first sample. */
static void measure_walk(const char *name, char *base, uint64_t x, uint64_t warm)
{
	struct walk walk = { .at = { base } };

	measure(&(struct bench){ .name = name, .work = chase, .context = &walk, .x = x, .events = 8, .warm = warm / 8 });
}

/* One load of each line, in order. */
static void stream(uint64_t count, void *context)
{
	struct walk *walk = context;
	char *at = walk->at[0];

	while (count--) {
		asm volatile("mov (%0), %%r8\n\t"
			     "mov 64(%0), %%r8\n\t"
			     "mov 128(%0), %%r8\n\t"
			     "mov 192(%0), %%r8"
			     :
			     : "r"(at)
			     : "r8", "memory");
		at += 4 * LINE;
		if (at == walk->arena + walk->bytes)
			at = walk->arena;
	}
	walk->at[0] = at;
}

static void measure_chase(char *arena, uint64_t bytes)
{
	static const uint16_t thorough[] = { 16, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128, 192, 256, 384, 512, 640,
					     768, 896, 1024, 1152, 1280, 1536, 2048, 3072, 4096, 6144, 8192, 12288,
					     16384, 24576, 32768, 40960, 49152 };
	static const uint16_t rough[] = { 16, 24, 32, 40, 48, 64, 128, 256, 512, 1024, 1536, 2048, 4096, 8192, 16384,
					  32768 };
	const uint16_t *sizes = quick ? rough : thorough;
	uint64_t number = quick ? COUNT(rough) : COUNT(thorough);

	for (uint64_t i = 0; i < number && sizes[i] * KIB <= bytes; i++) {
		uint64_t count = sizes[i] * KIB / LINE;

		if (!is_wanted("chase", sizes[i] * KIB))
			continue;
		lay(arena, count, LINE);
		measure_walk("chase", arena, sizes[i] * KIB, 2 * count);
	}
	for (uint64_t size = 64 * MIB; size <= bytes; size *= 2) {
		if (!is_wanted("chase", size))
			continue;
		lay(arena, size / LINE, LINE);
		measure_walk("chase", arena, size, 4096);
	}
}

static void measure_chains(char *arena, uint64_t bytes)
{
	static const struct {
		uint64_t chains;
		work_fn *work;
	} all[] = { { 1, chase_1 }, { 2, chase_2 }, { 3, chase_3 },   { 4, chase_4 },	{ 6, chase_6 },
		    { 8, chase_8 }, { 12, chase_12 }, { 16, chase_16 }, { 24, chase_24 } };
	struct walk walk;

	lay_near(arena, bytes, walk.at);
	for (size_t i = 0; i < COUNT(all); i++)
		measure(&(struct bench){ .name = "chains", .work = all[i].work, .context = &walk, .x = all[i].chains,
					 .events = all[i].chains, .warm = 256 });
}

/* 32 instructions on registers, eight at a time. */
#define APART                        \
	".rept 4\n\t"                \
	"add %%r9, %%r10\n\t"        \
	"lea 1(%%r10), %%r11\n\t"    \
	"xor %%r10, %%r8\n\t"        \
	"and %%r11, %%r9\n\t"        \
	"add %%r8, %%rdx\n\t"        \
	"lea 3(%%r9), %%r10\n\t"     \
	"xor %%rdx, %%r11\n\t"       \
	"or %%r11, %%r8\n\t"         \
	".endr\n\t"

/* Loads that miss every cache, with plain code between them. `waits`: each needs the value of the last, which is 0. */
static inline __attribute__((always_inline)) void load_apart(uint64_t count, struct walk *walk, bool waits, bool far)
{
	uint64_t value = 0, number = walk->number;

	while (count--) {
		uint64_t block = number / NEAR_GROUPS * NEAR * 5 & (walk->bytes - 1);
		char *at = walk->arena + (far ? block + walk->order[number % NEAR_GROUPS] * NEAR_GROUP : 0);

		number++;
		if (waits)
			at += value;
		asm volatile("mov (%[at]), %[value]\n\t" APART
			     : [value] "=&r"(value)
			     : [at] "r"(at)
			     : "cc", "memory", "rdx", "r8", "r9", "r10", "r11");
	}
	walk->number = number;
}

static void apart_cached(uint64_t count, void *context)
{
	load_apart(count, context, true, false);
}

static void apart_waiting(uint64_t count, void *context)
{
	load_apart(count, context, true, true);
}

static void apart_independent(uint64_t count, void *context)
{
	load_apart(count, context, false, true);
}

static void measure_apart(char *arena, uint64_t bytes)
{
	struct walk walk = { .arena = arena, .bytes = bytes, .order = shuffled(NEAR_GROUPS) };

	for (uint64_t at = 0; at < bytes; at += NEAR_GROUP)
		*(uint64_t *)(arena + at) = 0;
	measure(&(struct bench){ .name = "apart_cached", .work = apart_cached, .context = &walk });
	measure(&(struct bench){ .name = "apart_waiting", .work = apart_waiting, .context = &walk });
	measure(&(struct bench){ .name = "apart_independent", .work = apart_independent, .context = &walk });
	free(walk.order);
}

/* Bring all lines into the caches, the first ones longest ago. */
static void refill(uint64_t count, void *context)
{
	struct walk *walk = context;

	(void)count;
	for (uint64_t at = 0; at < walk->bytes; at += LINE)
		(void)*(volatile char *)(walk->arena + at);
}

/*
 * Lines that the second level has just given up for others. On a host whose last level others fill, lines stay there
 * for a millisecond only, so they are brought back before each sample.
 */
static void measure_refilled(char *arena, uint64_t bytes)
{
	for (uint64_t size = 4 * MIB; size <= 64 * MIB && size <= bytes; size *= 2) {
		struct walk walk = { .at = { arena }, .arena = arena, .bytes = size };

		lay(arena, size / 4 / LINE, LINE);
		measure(&(struct bench){ .name = "chase_refilled", .work = chase, .context = &walk, .x = size,
					 .events = 8, .before = refill });
	}
}

static void measure_stream(char *arena, uint64_t bytes)
{
	struct walk walk = { .at = { arena }, .arena = arena, .bytes = bytes };

	measure(&(struct bench){ .name = "stream", .work = stream, .context = &walk, .events = 4, .warm = 4096 });
}

/* Chains through one line of each page, and through as many lines side by side. */
static void measure_tlb(const char *name, char *pages, uint64_t stride, uint64_t most, char *arena)
{
	static const uint16_t thorough[] = { 16,   24,	 32,   40,   48,   56,	 64,   72,   80,   96,	 112,
					     128,  160,	 192,  256,  320,  384,	 512,  640,  768,  1024, 1280,
					     1536, 1792, 2048, 2304, 2560, 2816, 3072, 3584, 4096, 5120, 6144, 8192 };
	static const uint16_t rough[] = { 16, 32, 48, 64, 80, 96, 128, 192, 256, 512, 1024, 1536, 2048, 2560, 3072,
					  3584, 4096, 5120, 6144, 8192 };
	const uint16_t *numbers = quick ? rough : thorough;
	uint64_t length = quick ? COUNT(rough) : COUNT(thorough);
	char dense[32];

	snprintf(dense, sizeof(dense), "%s_dense", name);
	for (uint64_t i = 0; i < length && numbers[i] <= most; i++) {
		lay(arena, numbers[i], LINE);
		measure_walk(dense, arena, numbers[i], 4 * numbers[i]);
		lay(pages, numbers[i], stride);
		measure_walk(name, pages, numbers[i], 4 * numbers[i]);
	}
}

/* Bytes of a mapping that huge pages hold. */
static uint64_t huge_bytes(const char *begin)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long first, last, kib;
	bool inside = false;
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &first, &last) == 2)
			inside = first <= (uintptr_t)begin && (uintptr_t)begin < last;
		else if (inside && sscanf(line, "AnonHugePages: %lu kB", &kib) == 1) {
			fclose(file);
			return kib * KIB;
		}
	}
	if (file)
		fclose(file);
	return 0;
}

/* A page that is written to, and a chain through others. */
struct flush {
	char *page;
	struct walk walk;
	uint64_t number;	/* of the others, a multiple of 8 */
};

/* Make the page read-only and writable again: the kernel flushes it, once or twice. */
static void flush_and_chase(uint64_t count, void *context)
{
	struct flush *flush = context;

	while (count--) {
		mprotect(flush->page, SMALL_PAGE, PROT_READ);
		mprotect(flush->page, SMALL_PAGE, PROT_READ | PROT_WRITE);
		*(volatile char *)flush->page = 1;
		chase(flush->number / 8, &flush->walk);
	}
}

static void chase_only(uint64_t count, void *context)
{
	struct flush *flush = context;

	while (count--)
		chase(flush->number / 8, &flush->walk);
}

/* A chain through two numbers of pages, with and without the flush of another: its cost by the page. */
static void measure_flush(char *pages)
{
	static const uint64_t numbers[] = { 64, 256 };
	struct flush flush = { .page = pages + MOST_SMALL_PAGES / 2 * SMALL_PAGE };

	for (size_t i = 0; i < COUNT(numbers); i++) {
		flush.walk.at[0] = pages;
		flush.number = numbers[i];
		lay(pages, numbers[i], SMALL_PAGE);
		measure(&(struct bench){ .name = "flush", .work = flush_and_chase, .context = &flush, .x = numbers[i] });
		measure(&(struct bench){ .name = "flush_none", .work = chase_only, .context = &flush, .x = numbers[i] });
	}
}

/* Anonymous memory, aligned to huge pages; NULL if there is none. */
static char *map(uint64_t bytes, int advice)
{
	char *raw = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			 -1, 0);
	char *base;

	if (raw == MAP_FAILED)
		return NULL;
	base = (char *)(((uintptr_t)raw + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	madvise(base, bytes, advice);
	return base;
}

static void touch(char *base, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += SMALL_PAGE)
		base[at] = 1;
}

/* In random order, so that neighbours in one address space are none in memory: some TLBs hold several in one entry. */
static void touch_scattered(char *base, uint64_t number)
{
	uint32_t *order = shuffled(number);

	for (uint64_t i = 0; i < number; i++)
		base[order[i] * SMALL_PAGE] = 1;
	free(order);
}

/*
 * Huge pages that share a set of the second level: many more than a set has ways, at a distance that all bits of the
 * index divide. It takes fewer of them than to fill the whole TLB.
 */
static void measure_walk_2m(void)
{
	const uint64_t number = 160, stride = 256 * MIB;
	char *base = mmap(NULL, number * stride + HUGE_PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *first = (char *)(((uintptr_t)base + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));

	if (base == MAP_FAILED) {
		missing("conflict_2m", "no address space to measure in");
		return;
	}
	for (uint64_t i = 0; i < number; i++) {
		madvise(first + i * stride, HUGE_PAGE, MADV_HUGEPAGE);
		*place(first, i, stride) = 1;
	}
	lay(first, number, stride);
	measure_walk("conflict_2m", first, number, 4 * number);
	munmap(base, number * stride + HUGE_PAGE);
}

void prepare_memory(uint64_t bytes)
{
	arena = map(bytes, MADV_HUGEPAGE);
	if (!arena) {
		missing("memory", "no memory to measure in");
		return;
	}
	arena_bytes = bytes;
	touch(arena, bytes);
	huge = huge_bytes(arena);
	fact_number("arena_bytes", bytes);
	fact_number("huge_bytes", huge);
}

void measure_memory(void)
{
	char *small_pages;

	if (!arena)
		return;
	measure_chase(arena, arena_bytes);
	measure_refilled(arena, arena_bytes);
	measure_chains(arena, arena_bytes);
	measure_apart(arena, arena_bytes);
	measure_stream(arena, arena_bytes);
	/* Other pages in each round: the cost of a walk depends on the places of pages and tables. */
	small_pages = map(MOST_SMALL_PAGES * SMALL_PAGE, MADV_NOHUGEPAGE);
	if (!small_pages) {
		missing("tlb_4k", "no memory to measure in");
		return;
	}
	touch_scattered(small_pages, MOST_SMALL_PAGES);
	measure_tlb("tlb_4k", small_pages, SMALL_PAGE, MOST_SMALL_PAGES, arena);
	measure_flush(small_pages);
	if (huge == arena_bytes) {
		measure_tlb("tlb_2m", arena, HUGE_PAGE, arena_bytes / HUGE_PAGE, small_pages);
		measure_walk_2m();
	} else {
		missing("tlb_2m", "huge pages are not available");
		missing("conflict_2m", "huge pages are not available");
	}
	munmap(small_pages, MOST_SMALL_PAGES * SMALL_PAGE);
}
