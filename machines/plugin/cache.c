// SPDX-License-Identifier: GPL-2.0-or-later
/* Caches: the part off the fast path. */
#include "cache.h"

#include <stdlib.h>

#define PAGE_LINES	64	/* a stream ends with its page, because the next page's frame is not known */

bool cache_make(struct cache *cache, const struct geometry *geometry)
{
	cache->ways = geometry->ways;
	cache->sets = geometry->ways ? geometry->entries / geometry->ways : 0;
	cache->mask = cache->sets & (cache->sets - 1) ? 0 : cache->sets - 1;
	cache->lines = calloc(geometry->entries ? geometry->entries : 1, sizeof(*cache->lines));
	return cache->lines;
}

void cache_empty(struct cache *cache)
{
	memset(cache->lines, 0, (size_t)cache->sets * cache->ways * sizeof(*cache->lines));
}

bool streams_make(struct streams *streams, uint32_t count)
{
	streams->count = count;
	streams->list = calloc(count ? count : 1, sizeof(*streams->list));
	return streams->list;
}

void streams_forget(struct streams *streams)
{
	memset(streams->list, 0, streams->count * sizeof(*streams->list));
}

static uint64_t within_page(uint64_t line, uint64_t next)
{
	return line / PAGE_LINES == next / PAGE_LINES ? next : 0;
}

static void use_stream(struct streams *streams, uint32_t at, struct stream stream)
{
	memmove(streams->list + 1, streams->list, at * sizeof(*streams->list));
	streams->list[0] = stream;
}

/* Whether a line that L2 misses continues a stream; from now on it is part of one. */
bool streams_expected(struct streams *streams, uint64_t line)
{
	for (uint32_t i = 0; i < streams->count; i++) {
		struct stream *stream = &streams->list[i];

		if (line == stream->up) {
			use_stream(streams, i, (struct stream){ .up = within_page(line, line + 1) });
			return true;
		}
		if (line == stream->down) {
			use_stream(streams, i, (struct stream){ .down = within_page(line, line - 1) });
			return true;
		}
	}
	if (streams->count)
		use_stream(streams, streams->count - 1, (struct stream){
			.up = within_page(line, line + 1), .down = within_page(line, line - 1),
		});
	return false;
}
