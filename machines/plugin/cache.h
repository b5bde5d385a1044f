/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Set-associative caches of 64-byte lines by physical address, with true LRU.
 *
 * A set is an array in the order of use. The line used last is where it was
 * looked for first, so the common case costs one comparison.
 */
#ifndef LAB_CACHE_H
#define LAB_CACHE_H

#include "machine.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LINE		64
#define LINE_SHIFT	6
#define HASH_SHIFT	11	/* lines of 128 KiB: the end of the previous level's index */

struct cache {
	uint32_t sets;
	uint32_t mask;		/* if the number of sets is a power of two, else 0 */
	uint32_t ways;
	bool hashed;		/* as last-level caches are: far addresses alias by accident only */
	uint32_t *lines;	/* number of a line plus one; 0 is empty */
};

/* Sequential misses are met by the prefetcher: streams that it follows within a page, the last used first. */
struct stream {
	uint64_t up;		/* the line that would continue it */
	uint64_t down;
};

struct streams {
	uint32_t count;
	struct stream *list;
};

bool cache_make(struct cache *cache, const struct geometry *geometry);
void cache_empty(struct cache *cache);
bool streams_make(struct streams *streams, uint32_t count);
void streams_forget(struct streams *streams);
bool streams_expected(struct streams *streams, uint64_t line);

static inline uint32_t *cache_set(const struct cache *cache, uint64_t line)
{
	uint64_t folded = cache->hashed ? line ^ line >> HASH_SHIFT ^ line >> 2 * HASH_SHIFT : line;
	uint32_t set = cache->mask ? (uint32_t)folded & cache->mask : (uint32_t)(folded % cache->sets);

	return cache->lines + (uint64_t)set * cache->ways;
}

static inline bool cache_used_last(const struct cache *cache, uint64_t line)
{
	return *cache_set(cache, line) == (uint32_t)line + 1;
}

/* Find a line and make it the one used last; put it there if it is missing. True if it was found. */
static inline bool cache_use(struct cache *cache, uint64_t line)
{
	uint32_t *set = cache_set(cache, line), tag = (uint32_t)line + 1;
	uint32_t way = 0;

	if (set[0] == tag)
		return true;
	while (++way < cache->ways && set[way] != tag)
		;
	memmove(set + 1, set, (way < cache->ways ? way : way - 1) * sizeof(*set));
	set[0] = tag;
	return way < cache->ways;
}

#endif
