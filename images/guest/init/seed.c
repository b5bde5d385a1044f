// SPDX-License-Identifier: GPL-2.0-or-later
/* The things that the seed moves, all by splitmix64, each from a stream of its own. */
#include "seed.h"

#include <sys/mman.h>
#include <time.h>

#define PAGE		4096UL
#define HELD_MAX	1024
#define WAIT_MAX_NS	8000000

enum stream {
	STREAM_PAGES = 1,
	STREAM_PAD,
	STREAM_WAIT,
};

static uint64_t splitmix64(uint64_t state)
{
	uint64_t z = state + 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static uint64_t draw(uint64_t seed, enum stream stream, uint64_t salt)
{
	return splitmix64(splitmix64(splitmix64(seed) + stream) + salt);
}

/* FNV-1a: a case gets the same phase after any other cases. */
static uint64_t name_hash(const char *name)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	while (*name)
		hash = (hash ^ (unsigned char)*name++) * 0x100000001b3ULL;
	return hash;
}

void seed_hold_pages(uint64_t seed)
{
	size_t bytes = draw(seed, STREAM_PAGES, 0) % HELD_MAX * PAGE;
	char *pages;

	if (!bytes)
		return;
	pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		return;
	madvise(pages, bytes, MADV_NOHUGEPAGE);
	madvise(pages, bytes, MADV_DONTFORK);	/* a workload's fork() must not copy them */
	for (size_t at = 0; at < bytes; at += PAGE)
		((volatile char *)pages)[at] = 1;
}

unsigned int seed_pad(uint64_t seed)
{
	return (unsigned int)(draw(seed, STREAM_PAD, 0) % SEED_PAD_MAX);
}

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

void seed_wait(uint64_t seed, const char *name)
{
	long long end = now_ns() + (long long)(draw(seed, STREAM_WAIT, name_hash(name)) % WAIT_MAX_NS);

	/* Not a sleep: without high-resolution timers it ends on a tick, which is the phase to be moved. */
	while (now_ns() < end)
		;
}
