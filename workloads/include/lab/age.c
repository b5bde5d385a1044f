// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Memory is filled with small pages, every other of them is given back, and
 * every free piece of 2 MiB is taken. Pins are references
 * that a pipe holds on a page (vmsplice): such a page cannot be migrated. mlock()
 * would not do: locked pages are migrated all the same
 * (vm.compact_unevictable_allowed).
 */
#include <lab/age.h>
#include <lab/proc.h>
#include <lab/program.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define THP		"/sys/kernel/mm/transparent_hugepage/"
#define DROP_CACHES	"/proc/sys/vm/drop_caches"

#define FILL_PERCENT	88	/* of the available memory: the kernel needs some for itself */
#define PIPE_PAGES	256
#define PAGES_PER_HUGE	(HUGE / PAGE)

static struct proc_text text;

static long long meminfo_kb(const char *key)
{
	long long kb = proc_read("/proc/meminfo", &text) ? proc_number(&text, key) : -1;

	if (kb < 0)
		program_cannot("/proc/meminfo has no %s", key);
	return kb;
}

long long age_free_kb(void)
{
	return meminfo_kb("MemFree");
}

static void set(const char *path, const char *value)
{
	errno = 0;
	if (!proc_write(path, value))
		program_cannot("ageing needs root: %s cannot be set to %s", path, value);
}

/* A choice of the kernel's such as `always [madvise] never`, and the word in brackets. */
struct choice {
	const char *path;
	char word[32];
};

static void read_choice(struct choice *choice)
{
	char *left, *right;

	errno = 0;
	if (!proc_read(choice->path, &text))
		program_cannot("%s cannot be read: no transparent huge pages", choice->path);
	left = strchr(text.text, '[');
	right = left ? strchr(left, ']') : NULL;
	if (!right || (size_t)(right - left) > sizeof(choice->word))
		program_cannot("%s is not a choice: %s", choice->path, text.text);
	*right = '\0';
	strcpy(choice->word, left + 1);
}

/* Not to be copied on fork: a flag that also keeps it apart from the measured memory beside it. */
static char *map_private(size_t length)
{
	char *pages = mmap(NULL, length, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (pages == MAP_FAILED)
		program_cannot("cannot map %zu bytes", length);
	madvise(pages, length, MADV_DONTFORK);
	return pages;
}

static char *fill(size_t *length)
{
	volatile char *bytes;
	char *pages;

	*length = (size_t)meminfo_kb("MemAvailable") * KIB / 100 * FILL_PERCENT & ~(HUGE - 1);
	bytes = pages = map_private(*length);
	if (madvise(pages, *length, MADV_NOHUGEPAGE))
		program_cannot("cannot keep huge pages away");
	for (size_t at = 0; at < *length; at += PAGE)
		bytes[at] = 1;
	return pages;
}

/* A pipe's writing end; both ends stay open, so that its contents stay. */
static int open_pipe(void)
{
	int ends[2];

	if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, PIPE_PAGES * PAGE) < 0)
		program_cannot("cannot make a pipe of %d pages", PIPE_PAGES);
	return ends[1];
}

/* One page of each 2 MiB, an even one: the odd ones are given back. */
static void pin(char *pages, size_t length, uint64_t seed)
{
	uint64_t state = seed;
	int end = -1;

	for (size_t i = 0; i < length / HUGE; i++) {
		size_t page = program_random(&state) % (PAGES_PER_HUGE / 2) * 2;
		struct iovec one = { .iov_base = pages + i * HUGE + page * PAGE, .iov_len = PAGE };

		if (i % PIPE_PAGES == 0)
			end = open_pipe();
		if (vmsplice(end, &one, 1, SPLICE_F_NONBLOCK) != (ssize_t)PAGE)
			program_cannot("cannot pin a page");
	}
}

static void give_back_odd_pages(char *pages, size_t length)
{
	for (size_t at = PAGE; at < length; at += 2 * PAGE)
		if (madvise(pages + at, PAGE, MADV_DONTNEED))
			program_cannot("cannot give a page back");
}

static long long fallbacks(void)
{
	long long count = proc_read("/proc/vmstat", &text) ? proc_number(&text, "thp_fault_fallback") : -1;

	if (count < 0)
		program_cannot("/proc/vmstat has no thp_fault_fallback");
	return count;
}

/*
 * Take the remaining huge pages, until a fault gets none. Without this, the
 * pages that ageing missed would serve everything that is measured. Nothing may
 * be compacted during that.
 */
static void take_huge_pages(void)
{
	size_t length = ((size_t)meminfo_kb("MemFree") * KIB + 2 * HUGE) & ~(HUGE - 1);
	char *pages = map_private(length);
	long long before = fallbacks();
	size_t at = -(uintptr_t)pages & (HUGE - 1);

	for (; at + HUGE <= length && fallbacks() == before; at += HUGE)
		*(volatile char *)(pages + at) = 1;
	if (fallbacks() == before)
		program_cannot("no fault fell back to a small page: memory is not aged");
}

void age_memory(enum age age, uint64_t seed)
{
	struct choice enabled = { .path = THP "enabled" }, defrag = { .path = THP "defrag" };
	size_t length;
	char *pages;

	if (age == AGE_FRESH)
		return;
	errno = 0;
	if (!getenv("LAB_SEED"))
		program_cannot("LAB_SEED is not set, so this is not a lab guest; ageing would take all of this machine's memory");
	read_choice(&enabled);
	read_choice(&defrag);
	set(enabled.path, "always");
	set(defrag.path, "never");
	set(DROP_CACHES, "3");
	pages = fill(&length);
	if (age == AGE_PINNED)
		pin(pages, length, seed);
	give_back_odd_pages(pages, length);
	take_huge_pages();
	set(enabled.path, enabled.word);
	set(defrag.path, defrag.word);
}
