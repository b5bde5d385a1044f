/* SPDX-License-Identifier: GPL-2.0-or-later */
/* All blocks together, counted inline beside each block's own. */
#ifndef LAB_TOTAL_H
#define LAB_TOTAL_H

#include "block.h"

#include <stdbool.h>

/* In each mode. */
enum total {
	TOTAL_INSTRUCTIONS,	/* without strings */
	TOTAL_BYTES,		/* moved by strings */
	TOTAL_LOADS,		/* that need no look */
	TOTAL_STORES,
	TOTAL_UPDATES,		/* each a load and a store */
	NR_TOTALS,
};

extern struct counters totals;

static inline size_t total_at(enum mode mode, enum total total)
{
	return (size_t)mode * NR_TOTALS + (size_t)total;
}

bool totals_make(void);

#endif
