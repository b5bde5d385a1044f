/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The model of each vCPU, and the counters. Only the last-level cache is shared. */
#ifndef LAB_VCPU_H
#define LAB_VCPU_H

#include "block.h"
#include "cache.h"
#include "machine.h"
#include "tlb.h"

#include <stdbool.h>
#include <stdint.h>

enum counter {
	LOADS,
	STORES,
	STRINGS,
	DTLB_L1_MISSES,
	DTLB_WALKS_4K,
	DTLB_WALKS_2M,
	ITLB_L1_MISSES,
	ITLB_WALKS,
	L1D_MISSES,
	L2_MISSES,
	LLC_MISSES,
	PREFETCHED,
	L1I_MISSES,
	FETCH_STALLS,
	REDIRECTED,		/* returns in a thunk of their own, to which a retpoline jumped; they count as returns, too */
	MOVES,			/* of lines from another vCPU, see line.h */
	ESSENTIAL_MOVES,	/* the vCPU then used another one's writes there */
	CONTENDED_ATOMICS,	/* those whose line had moved */
	WAITED,			/* thousandths of cycles of hints of loops that wait */
	NR_COUNTERS,
};

#define SMALL_SLOTS	1024
#define VCPUS_MAX	16	/* that take turns in rounds */

struct space;
struct string_site;

/*
 * A string instruction on its way. The lines of its iterations are looked up
 * when the next one begins, all at once.
 */
struct run {
	const struct string_site *at;
	uint64_t bytes;			/* moved by all strings of the mode until it began */
	uint64_t start[2];		/* first address read and written; 0: none yet */
	qemu_plugin_meminfo_t info[2];
};

struct vcpu {
	struct tlb dtlb_4k, dtlb_2m, itlb_4k, itlb_2m, stlb, istlb;
	struct tlb *dtlb_huge;		/* the first level's array for huge pages: their own or the common one */
	struct cache l1i, l1d, l2;
	struct cache pages;		/* without caches: the pages that strings went through, half of L2 */
	struct streams streams;
	uint64_t epochs[NR_MODES];	/* of translations below and above the middle of the address space */
	uint32_t page_flushes;
	uint64_t code_page;
	uint64_t small[SMALL_SLOTS];	/* regions of 2 MiB known to be mapped by small pages */
	struct run run;
	enum mode mode;			/* of the block before */
	uint32_t behind;		/* blocks until fetch is ahead of execution again */
	uint64_t redirected;		/* the target of a retpoline's jump, to return elsewhere */
	struct space *space;		/* that it runs in, if address spaces have numbers; NULL: not known */
	uint64_t named;			/* the space whose number was read last; 0: it was used, see space.c */
};

/* The look-ups and charges: in rounds (round.h) of one vCPU, else of all. */
struct account {
	uint64_t counts[NR_MODES][NR_COUNTERS];
	uint64_t charges[NR_MODES][NR_CHARGES];
	uint64_t clock;			/* thousandths of cycles since power-on, about */
	uint64_t *totals;		/* in rounds, see total.h */
	struct block *mover[NR_MODES];	/* the block that began the last string */
	uint64_t settled[NR_MODES];	/* bytes of strings, up to the last look */
	bool known_long[NR_MODES];	/* the last string, and paid for as such */
};

extern bool measuring;
extern struct vcpu *vcpus;
extern unsigned int nr_vcpus;
extern struct cache llc;
extern struct account *account;		/* of the vCPU whose turn it is */
extern bool rounds;			/* vCPUs take turns by their clocks, and each has an account */
extern unsigned int running;		/* in rounds: the vCPU whose turn it is */

bool vcpus_make(unsigned int count, bool in_rounds);
void vcpus_cold(void);

/* In rounds: from now on this vCPU's account is meant. */
void vcpu_select(unsigned int vcpu);

/* The vCPU that runs. QEMU 10.0 names to a callback the vCPU that translated its block. */
static inline struct vcpu *vcpu_of(unsigned int told)
{
	return &vcpus[rounds ? running : told];
}

/*
 * The state of a vCPU except the last-level cache, set aside and put back. Entries flushed in between stay so. The
 * lines of the last level that an interruption replaced are too few to matter.
 */
void vcpu_keep(const struct vcpu *vcpu);
void vcpu_restore(struct vcpu *vcpu);

/* Something that a block did is paid for, so many times. */
static inline void charge_times(struct block *block, enum charge charge, uint64_t times)
{
	if (!aside)
		block->penalty += times * prices[charge];
	account->charges[block_mode(block)][charge] += times;
	account->clock += times * prices[charge];
}

static inline void charge(struct block *block, enum charge charge)
{
	charge_times(block, charge, 1);
}

#endif
