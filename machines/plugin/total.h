/* SPDX-License-Identifier: GPL-2.0-or-later */
/* All blocks together, counted inline beside each block's own, with the look-ups and charges beside that. */
#ifndef LAB_TOTAL_H
#define LAB_TOTAL_H

#include "block.h"
#include "vcpu.h"

#include <stdbool.h>

/* In each mode. */
enum total {
	TOTAL_INSTRUCTIONS,	/* without strings */
	TOTAL_BYTES,		/* moved by strings */
	TOTAL_ITERATIONS,	/* of strings */
	TOTAL_LOADS,		/* that need no look */
	TOTAL_STORES,
	TOTAL_UPDATES,		/* each a load and a store */
	TOTAL_CLASSES,		/* NR_CLASSES of them */
	NR_TOTALS = TOTAL_CLASSES + NR_CLASSES,
};

/* In one mode. */
struct spent {
	uint64_t instructions;
	uint64_t bytes;			/* moved by string instructions */
	uint64_t iterations;		/* of them: those that QEMU executes and the guest's clock counts */
	uint64_t loads;
	uint64_t stores;
	uint64_t classes[NR_CLASSES];
	uint64_t counts[NR_COUNTERS];
	uint64_t charges[NR_CHARGES];
};

struct tally {
	struct spent modes[NR_MODES];
};

extern struct counters totals;

static inline size_t total_at(enum mode mode, enum total total)
{
	return (size_t)mode * NR_TOTALS + (size_t)total;
}

void totals_make(void);

/* All executed work up to now, in both modes; a string that is on its way is paid for later. */
struct moment {
	uint64_t millicycles;
	uint64_t instructions;
};

struct moment moment_look(void);

/* Of all work since power-on (in rounds: of the vCPU in turn), with the modelled part since the window began. */
struct tally tally_look(void);
void tally_add(struct tally *sum, const struct tally *from, const struct tally *to);
uint64_t spent_cycles(const struct spent *spent);

#endif
