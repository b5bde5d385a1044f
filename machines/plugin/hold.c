// SPDX-License-Identifier: GPL-2.0-or-later
#include "hold.h"

#include <stdlib.h>

#define FUNCTIONS	128

static struct {
	uint64_t start, end;
	enum lock_part part;
} functions[FUNCTIONS];
static int nr_functions;

bool hold_add(enum lock_part part, const char *range)
{
	char *end;

	if (nr_functions == FUNCTIONS)
		return false;
	functions[nr_functions].part = part;
	functions[nr_functions].start = strtoull(range, &end, 10);
	if (*end != ':')
		return false;
	functions[nr_functions].end = strtoull(end + 1, &end, 10);
	nr_functions++;
	return !*end;
}

enum lock_part hold_part(uint64_t pc)
{
	for (int i = 0; i < nr_functions; i++)
		if (pc >= functions[i].start && pc < functions[i].end)
			return functions[i].part;
	return LOCK_NONE;
}
