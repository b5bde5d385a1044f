// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Strings of the cost plugin without QEMU, for test_plugin.py: a window begins, and bytes of a string follow that began
 * before it. Prints the bytes that have no block, and the cycles.
 */
#include "access.c"

#include <inttypes.h>
#include <stdio.h>

static struct account own;
static uint64_t moved;
struct account *account = &own;
struct tally unprofiled;
struct counters totals;
struct vcpu *vcpus;
unsigned int nr_vcpus, running;
bool rounds, measuring, aside;

uint64_t string_byte_cost(void)
{
	return 3;
}

uint64_t counters_sum(const struct counters *counters, size_t entry)
{
	return counters == &totals && entry == total_at(MODE_KERNEL, TOTAL_BYTES) ? moved : 0;
}

int main(int argc, char **argv)
{
	(void)argv;
	aside = argc > 1;
	moved = 4096;
	strings_begin();
	moved += 100;
	strings_finish();
	printf("%" PRIu64 " %" PRIu64 "\n", unprofiled.modes[MODE_KERNEL].bytes, own.clock);
	return 0;
}
