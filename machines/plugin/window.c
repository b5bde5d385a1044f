// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Windows. A case that opens no window of its own is measured from the case's
 * begin to its end; one that does, inside its windows only.
 *
 * A mark is seen at its own place in a block, and counting in user code stops
 * before and goes on after it, so what lies between two marks is exact.
 */
#include "window.h"
#include "access.h"
#include "output.h"
#include "total.h"
#include "vcpu.h"

#include <stdlib.h>

struct counters totals;

void (*windows_ready)(void);

static struct window window;
static uint64_t nr_windows;
static uint64_t nr_cases;
static struct executed before[NR_MODES];
static uint64_t operation_began;	/* cycles of the window so far */
static uint64_t operation_at;
static uint64_t operations_room;

bool totals_make(void)
{
	return counters_make(&totals, (size_t)NR_MODES * NR_TOTALS);
}

/* Since power-on. */
static struct executed look(enum mode mode)
{
	uint64_t updates = counters_sum(&totals, total_at(mode, TOTAL_UPDATES));

	return (struct executed){
		.instructions = counters_sum(&totals, total_at(mode, TOTAL_INSTRUCTIONS)),
		.bytes = counters_sum(&totals, total_at(mode, TOTAL_BYTES)),
		.loads = counters_sum(&totals, total_at(mode, TOTAL_LOADS)) + updates,
		.stores = counters_sum(&totals, total_at(mode, TOTAL_STORES)) + updates,
	};
}

/* In this window. */
static struct executed executed(enum mode mode)
{
	struct executed now = look(mode);

	now.instructions += counts[mode][STRINGS] - before[mode].instructions;
	now.bytes -= before[mode].bytes;
	now.loads += counts[mode][LOADS] - before[mode].loads;
	now.stores += counts[mode][STORES] - before[mode].stores;
	return now;
}

static uint64_t cycles(void)
{
	struct executed user = executed(MODE_USER), kernel = executed(MODE_KERNEL);

	strings_finish();
	return (user.instructions + kernel.instructions) * machine.costs.instruction +
	       (user.bytes + kernel.bytes) * string_byte_cost() + penalties;
}

static void begin(enum kind_of_window kind)
{
	vcpus_cold();
	strings_begin();
	blocks_begin();
	before[MODE_USER] = look(MODE_USER);
	before[MODE_KERNEL] = look(MODE_KERNEL);
	window.kind = kind;
	window.case_number = nr_cases;
	window.nr_operations = 0;
	operation_began = operation_at = 0;
	measuring = true;
}

static void end(bool complete)
{
	if (!measuring)
		return;
	window.sequence = nr_windows++;
	window.cycles = cycles();
	window.executed[MODE_USER] = executed(MODE_USER);
	window.executed[MODE_KERNEL] = executed(MODE_KERNEL);
	measuring = false;
	output_window(&window, complete);
}

static uint64_t *operation(uint64_t number)
{
	if (number >= operations_room) {
		operations_room = operations_room ? 2 * operations_room : 1024;
		window.operations = realloc(window.operations, operations_room * sizeof(*window.operations));
		if (!window.operations)
			abort();
	}
	if (number == window.nr_operations)
		window.operations[window.nr_operations++] = 0;
	return &window.operations[number];
}

/* What was done since the last one ended. After "again" they are gone through once more, and add up. */
static void end_operation(void)
{
	uint64_t now = cycles();

	*operation(operation_at++) += now - operation_began;
	operation_began = now;
}

static void begin_case(void)
{
	nr_cases++;
	if (machine.brackets != BRACKETS_WINDOW)
		begin(WINDOW_CASE);
}

static void end_case(void)
{
	/* A window that is still open was not closed by its program: it died. */
	end(window.kind == WINDOW_CASE);
}

void on_mark(unsigned int vcpu, void *data)
{
	bool own = measuring && window.kind == WINDOW_OWN;

	(void)vcpu;
	if (windows_ready)
		windows_ready();
	switch ((enum mark)(uintptr_t)data) {
	case MARK_CASE_BEGIN:
		begin_case();
		break;
	case MARK_CASE_END:
		end_case();
		break;
	case MARK_WINDOW_BEGIN:
		if (machine.brackets != BRACKETS_CASE)
			begin(WINDOW_OWN);
		break;
	case MARK_WINDOW_END:
		if (own)
			end(true);
		break;
	case MARK_OPERATION_END:
		if (own)
			end_operation();
		break;
	case MARK_READY:
		break;
	case MARK_OPERATIONS_AGAIN:
		if (own)
			operation_at = 0;
		break;
	}
}

void windows_finish(void)
{
	end(false);
}
