// SPDX-License-Identifier: GPL-2.0-or-later
/* Looks at the totals. The difference of two was spent between them. */
#include "total.h"
#include "access.h"

struct counters totals;

void totals_make(void)
{
	counters_make(&totals, (size_t)NR_MODES * NR_TOTALS);
}

static uint64_t total(enum mode mode, enum total which)
{
	return counters_sum(&totals, total_at(mode, which));
}

static struct spent look(enum mode mode)
{
	uint64_t updates = total(mode, TOTAL_UPDATES);
	struct spent spent = {
		.instructions = total(mode, TOTAL_INSTRUCTIONS) + account->counts[mode][STRINGS],
		.bytes = total(mode, TOTAL_BYTES),
		.iterations = total(mode, TOTAL_ITERATIONS),
		.loads = total(mode, TOTAL_LOADS) + updates + account->counts[mode][LOADS],
		.stores = total(mode, TOTAL_STORES) + updates + account->counts[mode][STORES],
	};

	memcpy(spent.counts, account->counts[mode], sizeof(spent.counts));
	memcpy(spent.charges, account->charges[mode], sizeof(spent.charges));
	for (int i = 0; i < NR_CLASSES; i++)
		spent.classes[i] = counters_sum(&totals, total_at(mode, TOTAL_CLASSES) + (size_t)i);
	spent.classes[CLASS_MISPREDICTION] += account->counts[mode][REDIRECTED];
	return spent;
}

struct tally tally_look(void)
{
	strings_finish();
	return (struct tally){ { look(MODE_USER), look(MODE_KERNEL) } };
}

struct moment moment_look(void)
{
	struct moment moment = { 0 };

	for (int mode = 0; mode < NR_MODES; mode++) {
		struct spent spent = look((enum mode)mode);

		moment.millicycles += spent_cycles(&spent);
		moment.instructions += spent.instructions;
	}
	return moment;
}

static void spent_add(struct spent *sum, const struct spent *from, const struct spent *to)
{
	sum->instructions += to->instructions - from->instructions;
	sum->bytes += to->bytes - from->bytes;
	sum->iterations += to->iterations - from->iterations;
	sum->loads += to->loads - from->loads;
	sum->stores += to->stores - from->stores;
	for (int i = 0; i < NR_CLASSES; i++)
		sum->classes[i] += to->classes[i] - from->classes[i];
	for (int i = 0; i < NR_COUNTERS; i++)
		sum->counts[i] += to->counts[i] - from->counts[i];
	for (int i = 0; i < NR_CHARGES; i++)
		sum->charges[i] += to->charges[i] - from->charges[i];
}

void tally_add(struct tally *sum, const struct tally *from, const struct tally *to)
{
	for (int mode = 0; mode < NR_MODES; mode++)
		spent_add(&sum->modes[mode], &from->modes[mode], &to->modes[mode]);
}

uint64_t spent_cycles(const struct spent *spent)
{
	uint64_t cycles = spent->instructions * machine.costs.instruction + spent->bytes * string_byte_cost();

	for (int i = 0; i < NR_CLASSES; i++)
		cycles += spent->classes[i] * machine.costs.classes[i];
	for (int i = 0; i < NR_CHARGES; i++)
		cycles += spent->charges[i] * prices[i];
	return cycles;
}
