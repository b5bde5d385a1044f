// SPDX-License-Identifier: GPL-2.0-or-later
/* A buffer of translations of the cost plugin without QEMU, for test_tlb.py. */
#include "tlb.h"

static struct tlb tlb;

int make(uint32_t entries, uint32_t ways)
{
	return tlb_make(&tlb, &(struct geometry){ .entries = entries, .ways = ways });
}

/* 1 if the page is there; if not, it is put there. */
int use(uint64_t page, int huge, uint64_t epoch)
{
	struct entry entry = { .key = tlb_key(page, huge, epoch), .frame = epoch };

	if (tlb_find(&tlb, page, entry.key))
		return 1;
	tlb_put(&tlb, page, &entry);
	return 0;
}

/* The epoch in which the page was put there last; 0 if it is not there. */
uint64_t flushed(uint64_t page, int huge)
{
	const struct entry *entry = tlb_flushed(&tlb, page, huge);

	return entry ? entry->frame : 0;
}
