// SPDX-License-Identifier: GPL-2.0-or-later
/* TLBs: the part off the fast path. */
#include "tlb.h"

#include <stdlib.h>

bool tlb_make(struct tlb *tlb, const struct geometry *geometry)
{
	tlb->ways = geometry->ways;
	tlb->sets = geometry->ways ? geometry->entries / geometry->ways : 0;
	tlb->mask = tlb->sets & (tlb->sets - 1) ? 0 : tlb->sets - 1;
	tlb->entries = calloc(geometry->entries ? geometry->entries : 1, sizeof(*tlb->entries));
	for (unsigned int i = 0; i < TLB_RECENT; i++)
		tlb->recent[i] = tlb->entries;
	return tlb->entries;
}

void tlb_empty(struct tlb *tlb)
{
	memset(tlb->entries, 0, (size_t)tlb->sets * tlb->ways * sizeof(*tlb->entries));
}
