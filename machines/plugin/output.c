// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * One line names the format, then two per window: its counters, its profile.
 * Nothing in it depends on time or host: equal runs give equal bytes.
 */
#include "output.h"
#include "chain.h"
#include "context.h"
#include "irqs_off.h"
#include "line.h"
#include "place.h"
#include "preempt_off.h"
#include "vcpu.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SCHEMA	4

static FILE *file;
static bool fresh;
static uint32_t printed;		/* blocks of the profile so far */
static uint32_t classes_there;

static const char *const names[NR_COUNTERS] = {
	[STRINGS]		= "string_instructions",
	[DTLB_L1_MISSES]	= "dtlb_l1_misses",
	[DTLB_WALKS_4K]		= "dtlb_walks_4k",
	[DTLB_WALKS_2M]		= "dtlb_walks_2m",
	[ITLB_L1_MISSES]	= "itlb_l1_misses",
	[ITLB_WALKS]		= "itlb_walks",
	[L1D_MISSES]		= "l1d_misses",
	[L2_MISSES]		= "l2_misses",
	[LLC_MISSES]		= "llc_misses",
	[PREFETCHED]		= "prefetched",
	[L1I_MISSES]		= "l1i_misses",
	[FETCH_STALLS]		= "fetch_stalls",
	[MOVES]			= "moves",
	[ESSENTIAL_MOVES]	= "essential_moves",
	[CONTENDED_ATOMICS]	= "contended_atomics",
	[WAITED]		= "waited",
	};

bool output_open(const char *path, int interface)
{
	static const char *const models[] = { "count", "tlb", "full" };

	file = fopen(path, "w");
	if (!file) {
		fprintf(stderr, "cost plugin: cannot write %s: %s\n", path, strerror(errno));
		return false;
	}
	fprintf(file, "{\"t\":\"header\",\"schema\":%d,\"interface\":%d,\"model\":\"%s\",\"vcpus\":%u}\n", SCHEMA,
		interface, models[machine.model], nr_vcpus);
	return true;
}

void output_classes(uint32_t classes)
{
	classes_there = classes;
}

/* The counters of a model: those of an unmodelled part are left out, not zero. */
static bool has(enum counter counter)
{
	if (counter == STRINGS)
		return true;
	if (counter >= MOVES)
		return rounds;
	return counter < L1D_MISSES ? machine.model >= MODEL_TLB : machine.model == MODEL_FULL;
}

static void put_spent(const struct spent *spent)
{
	fprintf(file, "{\"instructions\":%" PRIu64 ",\"string_bytes\":%" PRIu64, spent->instructions, spent->bytes);
	if (machine.model >= MODEL_TLB)
		fprintf(file, ",\"loads\":%" PRIu64 ",\"stores\":%" PRIu64, spent->loads, spent->stores);
	for (int i = 0; i < NR_CLASSES; i++)
		if (classes_there & 1U << i)
			fprintf(file, ",\"%s\":%" PRIu64, class_counters[i], spent->classes[i]);
	for (int i = 0; i < NR_COUNTERS; i++)
		if (names[i] && has((enum counter)i))
			fprintf(file, ",\"%s\":%" PRIu64, names[i], spent->counts[i]);
	fputc('}', file);
}

static void put_event(const char *name, uint64_t count)
{
	if (!count)
		return;
	fprintf(file, "%s\"%s\":%" PRIu64, fresh ? "" : ",", name, count);
	fresh = false;
}

/* The events that cycles are the sum of, by the names of their prices; events that did not happen are left out. */
static void put_events(const struct spent *spent)
{
	fputc('{', file);
	fresh = true;
	put_event("instruction", spent->instructions);
	put_event("rep_byte", spent->bytes);
	if (machine.model == MODEL_COUNT)
		put_event("byte_of_line", spent->bytes);
	for (int i = 0; i < NR_CLASSES; i++)
		put_event(class_costs[i], spent->classes[i]);
	for (int i = 0; i < NR_CHARGES; i++)
		put_event(charge_names[i], spent->charges[i]);
	fputc('}', file);
}

static void put_events_of(const struct tally *tally)
{
	fputc('[', file);
	put_events(&tally->modes[MODE_USER]);
	fputc(',', file);
	put_events(&tally->modes[MODE_KERNEL]);
	fputc(']', file);
}

static uint64_t tally_cycles(const struct tally *tally)
{
	return spent_cycles(&tally->modes[MODE_USER]) + spent_cycles(&tally->modes[MODE_KERNEL]);
}

static void put_tally(const char *name, const struct tally *tally)
{
	fprintf(file, ",\"%s\":{\"millicycles\":[%" PRIu64 ",%" PRIu64 "],\"user\":", name,
		spent_cycles(&tally->modes[MODE_USER]), spent_cycles(&tally->modes[MODE_KERNEL]));
	put_spent(&tally->modes[MODE_USER]);
	fputs(",\"kernel\":", file);
	put_spent(&tally->modes[MODE_KERNEL]);
	fputs(",\"events\":", file);
	put_events_of(tally);
	fputc('}', file);
}

/* Two of the contexts together, and the second alone by a name of its own. */
static void put_both(const char *name, enum context one, const char *part, enum context other)
{
	static const struct tally nothing;
	struct tally both = contexts[one];

	tally_add(&both, &nothing, &contexts[other]);
	put_tally(name, &both);
	if (contexts_told_apart())
		put_tally(part, &contexts[other]);
}

/* By QEMU and by the guest's clock: a string takes one for each iteration. */
static uint64_t steps_of(const struct tally *tally)
{
	uint64_t steps = 0;

	for (int mode = 0; mode < NR_MODES; mode++) {
		const struct spent *spent = &tally->modes[mode];

		steps += spent->instructions + spent->iterations - spent->counts[STRINGS];
	}
	return steps;
}

static void put_block(struct block *block)
{
	struct work work = block_work(block);
	uint64_t cycles = work.instructions * machine.costs.instruction + block->bytes * string_byte_cost() +
			  work.classes + block->penalty;

	block->printed = 0;
	if (!work.executions && !work.instructions && !cycles)
		return;
	block->printed = ++printed;
	fprintf(file, "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", fresh ? "" : ",", block->start,
		work.instructions, cycles, work.executions);
	fresh = false;
}

static bool same_events(const struct operation *one, const struct operation *other)
{
	return !memcmp(&one->spent, &other->spent, sizeof(one->spent));
}

/* The events of an operation are printed once for it and all later ones with the same. */
static void put_operations(const struct window *window)
{
	const struct operation *each = window->operations;
	uint64_t kind = 0;

	fputs(",\"operations\":[", file);
	for (uint64_t i = 0; i < window->nr_operations; i++) {
		const struct spent *user = &each[i].spent.modes[MODE_USER], *kernel = &each[i].spent.modes[MODE_KERNEL];

		kind += i && !same_events(&each[i], &each[i - 1]);
		fprintf(file, "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", i ? "," : "",
			spent_cycles(user), spent_cycles(kernel), user->instructions, each[i].interruptions, kind);
	}
	fputs("],\"kinds\":[", file);
	for (uint64_t i = 0; i < window->nr_operations; i++) {
		if (i && same_events(&each[i], &each[i - 1]))
			continue;
		if (i)
			fputc(',', file);
		put_events_of(&each[i].spent);
	}
	fputc(']', file);
}

static void put_vcpus(const struct window *window)
{
	fputs(",\"of_vcpus\":[", file);
	for (unsigned int i = 0; i < nr_vcpus; i++)
		fprintf(file, "%s%" PRIu64, i ? "," : "", window->of_vcpus[i]);
	fputc(']', file);
}

static void put_span(const char *name, const struct span *span)
{
	fprintf(file, ",\"%s\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", name, span->millicycles,
		span->instructions, span->begin, span->end);
}

void output_window(const struct window *window, bool complete)
{
	fprintf(file, "{\"t\":\"window\",\"sequence\":%" PRIu64 ",\"case\":%" PRIu64, window->sequence,
		window->case_number);
	fprintf(file, ",\"kind\":\"%s\",\"complete\":%s", window->kind == WINDOW_OWN ? "own" : "case",
		complete ? "true" : "false");
	fprintf(file, ",\"millicycles\":%" PRIu64 ",\"user\":", tally_cycles(&window->all));
	put_spent(&window->all.modes[MODE_USER]);
	fputs(",\"kernel\":", file);
	put_spent(&window->all.modes[MODE_KERNEL]);
	put_tally("in_program", &contexts[CONTEXT_PROGRAM]);
	put_both("in_interrupts", CONTEXT_INTERRUPT, "in_softirqs", CONTEXT_SOFTIRQ);
	put_both("in_threads", CONTEXT_THREAD, "in_idle", CONTEXT_IDLE);
	fprintf(file, ",\"unprofiled\":[%" PRIu64 ",%" PRIu64 "]", tally_cycles(&unprofiled),
		unprofiled.modes[MODE_USER].instructions + unprofiled.modes[MODE_KERNEL].instructions);
	fprintf(file, ",\"steps\":%" PRIu64 ",\"interruptions\":%" PRIu64, steps_of(&window->all), interruptions);
	if (irqs_off_known)
		put_span("irqs_off", &irqs_off.longest);
	if (preempt_off_known())
		put_span("preempt_off", &preempt_off.longest);
	if (rounds)
		put_vcpus(window);
	put_operations(window);
	fprintf(file, "}\n{\"t\":\"profile\",\"sequence\":%" PRIu64 ",\"blocks\":[", window->sequence);
	fresh = true;
	printed = 0;
	blocks_each(put_block);
	fputs("]}\n", file);
	if (machine.chains) {
		fprintf(file, "{\"t\":\"chains\",\"sequence\":%" PRIu64 ",\"calls\":", window->sequence);
		chains_put(file);
		fputs("}\n", file);
	}
	if (rounds) {
		fprintf(file, "{\"t\":\"lines\",\"sequence\":%" PRIu64 ",\"lines\":", window->sequence);
		lines_put(file);
		place_put_cpus(file);
		fputs("}\n", file);
	}
	fflush(file);
}

/* The last line shows that the writer was not killed and the disk not full. */
void output_close(void)
{
	fputs("{\"t\":\"end\"}\n", file);
	if (ferror(file) | fclose(file))
		fprintf(stderr, "cost plugin: the output is not complete: %s\n", strerror(errno));
}
