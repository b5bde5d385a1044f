// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Windows. A case that opens no window of its own is measured from the case's
 * begin to its end; one that does, inside its windows only; one that measures
 * the boot, from power-on to the first program's mark.
 *
 * A mark is seen at its own place in a block, and counting in user code stops
 * before and goes on after it, so the count between two marks is exact.
 */
#include "window.h"
#include "access.h"
#include "chain.h"
#include "context.h"
#include "irqs_off.h"
#include "line.h"
#include "memory.h"
#include "output.h"
#include "preempt_off.h"
#include "round.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define ROOM_STEP	1024		/* operations */

void (*windows_ready)(void);

static struct window window;
static uint64_t nr_windows;
static uint64_t nr_cases;
static struct tally before;		/* the window */
static struct operation so_far[VCPUS_MAX];	/* in the window, when the vCPU's last operation ended */
static uint64_t operation_at;
static uint64_t operations_room;

static void begin(enum kind_of_window kind)
{
	vcpus_cold();
	strings_begin();
	if (rounds)
		contexts_look();	/* strings of the other vCPUs, too, came before */
	blocks_begin();
	before = contexts_look();
	contexts_begin();
	spans_begin(&irqs_off);
	preempt_off_begin();
	chains_begin();
	window.kind = kind;
	window.case_number = nr_cases;
	window.nr_operations = 0;
	memset(so_far, 0, sizeof(so_far));
	memset(window.of_vcpus, 0, sizeof(window.of_vcpus));
	operation_at = 0;
	if (rounds)
		lines_begin();
	measuring = true;
}

static void end(bool complete)
{
	struct tally now;

	if (!measuring)
		return;
	now = contexts_look();
	contexts_end();
	window.sequence = nr_windows++;
	window.all = (struct tally){ 0 };
	tally_add(&window.all, &before, &now);
	measuring = false;
	output_window(&window, complete);
}

static struct operation *operation(uint64_t number)
{
	if (number >= operations_room) {
		window.operations =
			memory_grow(window.operations, operations_room, ROOM_STEP, sizeof(*window.operations));
		operations_room += ROOM_STEP;
	}
	if (number == window.nr_operations)
		window.operations[window.nr_operations++] = (struct operation){ 0 };
	return &window.operations[number];
}

/* By the program, since the window began. */
static struct operation operations_so_far(void)
{
	return (struct operation){ context_program(), context_interruptions() };
}

/* The work since the last one ended. After "again" they run once more, and add up. */
static void end_operation(void)
{
	struct operation now = operations_so_far(), *ended = operation(operation_at++), *before_it = &so_far[running];

	tally_add(&ended->spent, &before_it->spent, &now.spent);
	ended->interruptions += now.interruptions - before_it->interruptions;
	*before_it = now;
	window.of_vcpus[running]++;
}

/* In rounds: the work since the last one ended is left out. */
static void begin_operation(void)
{
	context_operation(true);
	so_far[running].interruptions = context_interruptions();
}

static void begin_case(void)
{
	nr_cases++;
	if (machine.brackets == BRACKETS_BOTH || machine.brackets == BRACKETS_CASE)
		begin(WINDOW_CASE);
}

static void end_case(void)
{
	/* A window that is still open was not closed by its program: it died. */
	end(window.kind == WINDOW_CASE);
}

/* Tell the lab that the guest is here. QEMU gets the command to stop, or becomes quiet, before the guest may go on. */
static void hold(void)
{
	int end = (int)machine.hold;
	char byte = 0;

	if (!end || write(end, &byte, 1) < 0)
		return;
	while (read(end, &byte, 1) < 0 && errno == EINTR)
		;
}

void on_mark(unsigned int vcpu, void *data)
{
	bool own = measuring && window.kind == WINDOW_OWN;

	if (machine.quantum && windows_ready && (enum mark)(uintptr_t)data == MARK_HOLD)
		rounds_settle(vcpu, (uintptr_t)__builtin_return_address(0));
	context_in_program();
	if (windows_ready && (enum mark)(uintptr_t)data == MARK_READY)
		windows_ready();
	switch ((enum mark)(uintptr_t)data) {
	case MARK_CASE_BEGIN:
		begin_case();
		break;
	case MARK_CASE_END:
		end_case();
		break;
	case MARK_BOOTED:
		if (machine.brackets == BRACKETS_BOOT)
			end(true);
		break;
	case MARK_WINDOW_BEGIN:
		if (machine.brackets == BRACKETS_BOTH || machine.brackets == BRACKETS_WINDOW)
			begin(WINDOW_OWN);
		break;
	case MARK_WINDOW_END:
		if (own)
			end(true);
		break;
	case MARK_OPERATION_END:
		if (own)
			end_operation();
		if (own && machine.between)
			context_operation(false);
		break;
	case MARK_OPERATION_BEGIN:
		if (own && machine.between)
			begin_operation();
		break;
	case MARK_HOLD:
		hold();
		break;
	case MARK_READY:
		hold();
		machine.hold = 0;	/* programs may have such marks, too */
		break;
	case MARK_MEASURES_BOOT:
		break;
	case MARK_OPERATIONS_AGAIN:
		if (own)
			operation_at = 0;
		break;
	}
}

/* The boot is the first case's. */
void windows_start(void)
{
	if (machine.brackets != BRACKETS_BOOT)
		return;
	begin(WINDOW_CASE);
	window.case_number = 1;
}

void windows_finish(void)
{
	end(false);
}
