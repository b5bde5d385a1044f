/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Locks and how long they are held: from the last access of a line by a function that takes locks to the store by a
 * function that releases them. The lab gives these functions by their addresses.
 */
#ifndef LAB_HOLD_H
#define LAB_HOLD_H

#include <stdbool.h>
#include <stdint.h>

enum lock_part {
	LOCK_NONE,
	LOCK_TAKES,
	LOCK_RELEASES,
};

/* START:END of such a function; false if it is none, or there are too many. */
bool hold_add(enum lock_part part, const char *range);

/* At translation. */
enum lock_part hold_part(uint64_t pc);

#endif
