/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Chains of dependent additions: by them a sample knows the clock, and if another thread uses the core. */
#ifndef LAB_CHAIN_H
#define LAB_CHAIN_H

#include <stdint.h>

enum {
	CHAIN = 32768,		/* additions: about 10 us */
	ABREAST = 4,		/* chains that every modelled core runs at a time */
	SHORT_CHAIN = 8192,
};

/*
 * The operands are registers: Golden Cove and its successors do an addition of a small constant while renaming, in no
 * cycle at all.
 */
static inline void chain(void)
{
	uint64_t sum = 1, one = 1, turns = CHAIN / 64;

	asm volatile("1:\n\t"
		     ".rept 64\n\t"
		     "add %2, %0\n\t"
		     ".endr\n\t"
		     "dec %1\n\t"
		     "jnz 1b"
		     : "+r"(sum), "+r"(turns)
		     : "r"(one)
		     : "cc");
}

/* Several chains at a time. */
static inline void chains_abreast(void)
{
	uint64_t a = 1, b = 1, c = 1, d = 1, one = 1, turns = SHORT_CHAIN / 32;

	asm volatile("1:\n\t"
		     ".rept 32\n\t"
		     "add %5, %0\n\t"
		     "add %5, %1\n\t"
		     "add %5, %2\n\t"
		     "add %5, %3\n\t"
		     ".endr\n\t"
		     "dec %4\n\t"
		     "jnz 1b"
		     : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(turns)
		     : "r"(one)
		     : "cc");
}

#endif
