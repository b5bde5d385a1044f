/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ageing: a freshly booted guest's memory made to look like that of a machine
 * that has been up for weeks. Half of it is free, in single pages.
 */
#ifndef LAB_AGE_H
#define LAB_AGE_H

#include <stdint.h>

enum age {
	AGE_FRESH,	/* as booted: huge pages everywhere */
	AGE_MOVABLE,	/* every other page free; the pages between can be moved by compaction */
	AGE_PINNED,	/* the same, with one page of each 2 MiB that nothing can move */
};

/*
 * Ages all memory for the rest of the process. The seed moves the pins.
 * Afterwards THP is set as before, so all arms are aged alike. Needs root; ends
 * the program with one line on stderr if it cannot be done.
 */
void age_memory(enum age age, uint64_t seed);

/* Free memory now, in KiB. */
long long age_free_kb(void);

#endif
