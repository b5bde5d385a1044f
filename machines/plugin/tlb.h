/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Translation look-aside buffers: set-associative, true LRU.
 *
 * An entry's key holds page number, page size and epoch. A flush begins a new
 * epoch: entries of older ones never match again, and are the first to go.
 */
#ifndef LAB_TLB_H
#define LAB_TLB_H

#include "machine.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PAGE_SHIFT	12
#define HUGE_SHIFT	21
#define GIANT_SHIFT	30
#define PAGE_BITS	37	/* 48 bits of address, less 12, and the kernel's bit with them */

#define TLB_RECENT	64	/* pages, by the last bits of their numbers */
#define TLB_CONFIRMATIONS 3	/* so many small pages must lie as in a huge one */
#define TLB_UNSEEN	UINT16_MAX	/* instead of confirmations: the frame was guessed */

struct entry {
	uint64_t key;
	uint64_t frame;		/* physical address of the page */
	uint64_t used;		/* when, counted in uses of the buffer */
	uint32_t checked;	/* the vCPU's count of single-page flushes when the frame was last seen */
	uint16_t confirmed;	/* huge: how many other small pages in it lay as they should */
	uint16_t part;		/* huge: which of its small pages was seen last */
};

struct tlb {
	uint32_t sets;
	uint32_t mask;
	uint32_t ways;
	struct entry *entries;
	uint64_t uses;
	struct entry *recent[TLB_RECENT];	/* the first place to look; never NULL */
};

bool tlb_make(struct tlb *tlb, const struct geometry *geometry);
void tlb_empty(struct tlb *tlb);

static inline uint64_t tlb_key(uint64_t page, bool huge, uint64_t epoch)
{
	return epoch << (PAGE_BITS + 1) | (uint64_t)huge << PAGE_BITS | (page & ((1ULL << PAGE_BITS) - 1));
}

static inline struct entry *tlb_set(const struct tlb *tlb, uint64_t page)
{
	uint32_t set = tlb->sets == 1 ? 0 : tlb->mask ? (uint32_t)page & tlb->mask : (uint32_t)(page % tlb->sets);

	return tlb->entries + (uint64_t)set * tlb->ways;
}

/* The place where the entry of a page is looked for before its set is searched. */
static inline struct entry **tlb_recent(struct tlb *tlb, uint64_t page)
{
	return &tlb->recent[page % TLB_RECENT];
}

/* The entry is the one used last of its set. */
static inline struct entry *tlb_use(struct tlb *tlb, uint64_t page, struct entry *entry)
{
	entry->used = ++tlb->uses;
	*tlb_recent(tlb, page) = entry;
	return entry;
}

/* The entry with this key, now the one used last; NULL if there is none. */
static inline struct entry *tlb_find(struct tlb *tlb, uint64_t page, uint64_t key)
{
	struct entry *set = tlb_set(tlb, page);

	for (uint32_t way = 0; way < tlb->ways; way++)
		if (set[way].key == key)
			return tlb_use(tlb, page, &set[way]);
	return NULL;
}

/* The entry that the page had in the last epoch that used it; NULL if its place was taken since. */
static inline const struct entry *tlb_flushed(const struct tlb *tlb, uint64_t page, bool huge)
{
	const struct entry *set = tlb_set(tlb, page), *last = NULL;

	for (uint32_t way = 0; way < tlb->ways; way++)
		if (!((set[way].key ^ tlb_key(page, huge, 0)) << (64 - PAGE_BITS - 1)) &&
		    (!last || set[way].used > last->used))
			last = &set[way];
	return last;
}

/* Put an entry, known not to be there, in the place of the one unused longest. */
static inline struct entry *tlb_put(struct tlb *tlb, uint64_t page, const struct entry *entry)
{
	struct entry *set = tlb_set(tlb, page), *oldest = set;

	for (uint32_t way = 1; way < tlb->ways; way++)
		if (set[way].used < oldest->used)
			oldest = &set[way];
	*oldest = *entry;
	return tlb_use(tlb, page, oldest);
}

#endif
