// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A guest can mark operations without end, or write code and run it. QEMU must
 * not grow with that, and to leave something out would be a wrong number.
 */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static size_t taken;
static size_t most = MEMORY_MAX;

void memory_allow(size_t bytes)
{
	most = bytes;
}

static void take(size_t count, size_t size)
{
	size_t bytes = count * size;

	if (bytes <= most && taken <= most - bytes) {
		taken += bytes;
		return;
	}
	fprintf(stderr, "cost plugin: the guest's operations and code take more than %lu MiB to count\n",
		most >> 20);
	/* In the middle of a translation: no function of QEMU can be called. */
	_exit(EXIT_FAILURE);
}

static void *checked(void *memory)
{
	if (memory)
		return memory;
	fputs("cost plugin: out of memory\n", stderr);
	_exit(EXIT_FAILURE);
}

void *memory_get(size_t count, size_t size)
{
	take(count, size);
	return checked(calloc(count, size));
}

void *memory_grow(void *array, size_t count, size_t more, size_t size)
{
	take(more, size);
	return checked(realloc(array, (count + more) * size));
}
