/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The longest time of a window in which something was forbidden, by the instructions that forbid and allow it. */
#ifndef LAB_SPAN_H
#define LAB_SPAN_H

#include "block.h"
#include "total.h"

#include <stdbool.h>
#include <stdint.h>

/* From the first instruction behind the one that forbids to the one that allows, which is included. */
struct span {
	uint64_t millicycles;
	uint64_t instructions;
	uint64_t begin;		/* address of the instruction that forbids, or of the entry to the kernel */
	uint64_t end;		/* address of the instruction that allows */
};

/* An instruction that forbids or allows. */
struct span_site {
	uint64_t address;
	const struct block *block;	/* NULL: the begin of any block */
	uint32_t instructions;		/* of the block, up to its end */
	uint64_t classes;
};

struct spans {
	bool forbidden;		/* now */
	struct moment since;
	uint64_t since_at;
	struct span longest;	/* of the window */
};

void spans_begin(struct spans *spans);	/* a window */
void spans_forbid(struct spans *spans, const struct span_site *site);
void spans_allow(struct spans *spans, const struct span_site *site);

#endif
