/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The modelled machine: geometry and costs, as given on the command line.
 *
 * Costs are integers, in thousandths of a cycle, so that sums are exact and the
 * same everywhere.
 */
#ifndef LAB_MACHINE_H
#define LAB_MACHINE_H

#include "class.h"

#include <stdbool.h>
#include <stdint.h>

enum model {
	MODEL_COUNT,		/* instructions and profile */
	MODEL_TLB,		/* and loads, stores, TLBs */
	MODEL_FULL,		/* and caches */
};

/* The bounds of a measurement. */
enum brackets {
	BRACKETS_BOTH,		/* a case's, until the program in it opens a window of its own */
	BRACKETS_WINDOW,	/* a program's own only */
	BRACKETS_CASE,		/* a case's only */
	BRACKETS_BOOT,		/* the machine's, from power-on until its first program runs */
};

/* A set-associative array; no ways: there is none. */
struct geometry {
	uint32_t entries;
	uint32_t ways;
};

/* The source of a line that is not in L1d. */
enum level {
	LEVEL_L2,
	LEVEL_LLC,
	LEVEL_MEMORY,
	LEVEL_EXPECTED,		/* L2 missed, but the stream had been recognised */
	NR_LEVELS,
	LEVEL_L1D = NR_LEVELS,
};

struct costs {
	uint64_t instruction;
	uint64_t stlb;		/* first level missed, second level hit */
	uint64_t walk_4k;	/* both missed: the walk, without the fetch of its last entry */
	uint64_t walk_2m;
	uint64_t walk_fetch;	/* that fetch, if no caches are modelled */
	uint64_t l2;		/* L1d missed, L2 hit */
	uint64_t llc;
	uint64_t memory;
	uint64_t prefetched;	/* L2 missed, but the stream had been recognised */
	uint64_t overlap;	/* so many cache misses are under way at once, unless one waits for another */
	uint64_t rep_start;
	uint64_t rep_long;	/* beyond rep_start, if it is long */
	uint64_t rep_byte;
	uint64_t rep_line;	/* of a line that is not in L1d, but in L2 or the last level */
	uint64_t rep_memory;	/* of one that is in none of them */
	uint64_t classes[NR_CLASSES];	/* beyond that of any instruction */
};

struct machine {
	enum model model;
	enum brackets brackets;
	struct geometry dtlb_4k, dtlb_2m, itlb_4k, itlb_2m, stlb, istlb;
	struct geometry l1i, l1d, l2, llc;	/* in lines */
	uint32_t streams;
	uint32_t flushes_all;	/* at the flush of a page: 1 if all pages are flushed */
	struct costs costs;
	const char *out;
	uint32_t hold;		/* a socket that is told when the guest is up; 0: none */
	uint32_t quantum;	/* cycles of a turn, if vCPUs take turns by their clocks; 0: they take QEMU's */
	uint64_t move;		/* cost of the move of a line */
	/* Of the guest's kernel, see place.h; 0: not known. */
	uint64_t slab_caches, percpu;	/* addresses */
	uint64_t slab_cache, cache_name, cache_size, cache_list;	/* offsets of members */
	uint64_t sections, section_size, section_map;	/* without VMEMMAP: address, bytes of a section's, offset in it */
	uint32_t between;	/* 1 if programs mark the begin of operations: the time between two is left out */
	uint32_t chains;	/* 1 if the profile has call chains, see chain.h */
};

/*
 * The priced events beyond instructions and bytes. Each has one price, so that cycles can be summed up again at other
 * costs: lab/guests/costs.py knows these prices, too.
 */
enum charge {
	CHARGE_STLB,
	CHARGE_WALK_4K,
	CHARGE_WALK_2M,
	CHARGE_WALK_FETCH,
	CHARGE_REP_START,
	CHARGE_REP_LONG,
	CHARGE_LINE,		/* of a string, or stored to, from L2 or the last level */
	CHARGE_MEMORY_LINE,	/* of a string, from memory */
	CHARGE_FETCH,		/* of code, waited for */
	CHARGE_MOVE,		/* of a line from another vCPU, see line.h */
	CHARGE_QUEUED,		/* thousandths of cycles until a line had ended the move before */
	CHARGE_SLEPT,		/* the same, until something woke a vCPU that had halted in the middle of an operation */
	CHARGE_WAITED,		/* lines: NR_LEVELS of each of these */
	CHARGE_OVERLAPPED = CHARGE_WAITED + NR_LEVELS,
	NR_CHARGES = CHARGE_OVERLAPPED + NR_LEVELS,
};

extern struct machine machine;
extern uint64_t prices[NR_CHARGES];
extern const char *const charge_names[NR_CHARGES];

/* Per byte; if nothing is looked up, the lines of strings count as coming from memory. */
uint64_t string_byte_cost(void);

bool machine_read(int argc, char **argv);

#endif
