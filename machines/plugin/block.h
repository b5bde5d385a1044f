/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Translated blocks: the parts of the profile.
 *
 * Generated code counts executions (and in user blocks instructions) inline,
 * all the time; a measurement is the difference of two looks. Everything else
 * is charged to the block that causes it, only while measuring. The profile is
 * the program's: interruptions are set aside.
 */
#ifndef LAB_BLOCK_H
#define LAB_BLOCK_H

#include "qemu.h"

#include <stdbool.h>
#include <stdint.h>

struct block;

/* The place of an access in a block: a block can lie on two pages. */
struct site {
	struct block *block;
	uint64_t page;
	uint32_t mode;		/* of enum mode, beside the fields that the fast path reads anyway */
};

enum leap {
	LEAP_NONE,
	LEAP_CALL,
	LEAP_RETURN,
};

enum mode {
	MODE_USER,
	MODE_KERNEL,
	NR_MODES,
};

enum block_counter {
	BLOCK_EXECUTIONS,
	BLOCK_INSTRUCTIONS,	/* of a user block */
	BLOCK_CLASSES,		/* of a user block: thousandths of cycles that its classes cost */
	NR_BLOCK_COUNTERS,
};

struct block {
	uint64_t start;
	uint32_t length;	/* instructions */
	uint64_t code;		/* a hash of them: the kernel patches itself */
	uint32_t size;		/* bytes */
	bool redirects;		/* has a return that goes elsewhere than predicted */
	enum leap leap;		/* by its last instruction */
	uint32_t printed;	/* its place in the profile of the last window that was written, from 1; 0: in none */
	uint32_t weight;	/* the operations that count once per execution */
	uint64_t classes;	/* of a kernel block: thousandths of cycles that its classes cost per execution */
	struct site sites[2];
	struct block *next;	/* of the same hash */
	uint64_t penalty;	/* thousandths of cycles beyond the cost of the instructions */
	uint64_t bytes;		/* moved by strings that it began */
	uint64_t strings;	/* instructions with a rep prefix, begun */
	uint64_t executions_before;
	uint64_t instructions_before;
	uint64_t classes_before;
	const struct counters *counters;
	uint32_t at;		/* of the first of NR_BLOCK_COUNTERS in counters */
	uint64_t clock;		/* in rounds: thousandths of cycles that an execution takes at least */
	struct line_site *lines;	/* in rounds: of each instruction, see line.h */
};

/* The work of a block in the measurement, on the program's behalf. */
struct work {
	uint64_t executions;
	uint64_t instructions;
	uint64_t classes;	/* thousandths of cycles that they cost */
};

struct block *block_get(uint64_t start, uint32_t length, uint64_t code);
void blocks_begin(void);

/* Work in between is left out of every block's. */
void blocks_set_aside(void);
void blocks_go_on(void);
extern bool aside;

struct work block_work(const struct block *block);
void blocks_each(void (*visit)(struct block *block));

static inline enum mode block_mode(const struct block *block)
{
	return block->start >> 63 ? MODE_KERNEL : MODE_USER;
}

#endif
