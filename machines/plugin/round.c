// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * QEMU runs all vCPUs on one thread, in turn, and ends a turn on request
 * (cpu_exit): the next block looks for that at its head. So a turn ends behind
 * the block in which the clock reached the round's end, at the same instruction
 * in every run.
 *
 * Round robin gives each vCPU a block a round. A vCPU whose last block took
 * longer than its turn must not have it, or clocks run apart: it leaves at the
 * head of that block (cpu_loop_exit_restore), and nothing of it has run.
 *
 * None of this is in QEMU's plugin interface. Debian's builds export their own
 * functions, so they are found by name.
 */
#include "round.h"
#include "context.h"
#include "vcpu.h"

#include <stdio.h>

#define SETTLES	64	/* times that all others have a turn, until they wait */
#define ALONE	64	/* instructions that a vCPU may run after the request to leave, if others can run */

static void *(*get_cpu)(int index);
static void (*ask_to_leave)(void *cpu);
static void (*leave)(void *cpu, uintptr_t generated_code);

static void *cpus[VCPUS_MAX];
static void **current_cpu;	/* QEMU's, of this thread */
static bool halted[VCPUS_MAX];
static bool begun;
static bool asked;
static enum {
	KEEPS_NONE,
	KEEPS_LINE,	/* the vCPU has another block for what it loaded a line for */
	KEPT_LINE,	/* once a turn, or a walk through lines of others would never end it */
} keeping;
static uint64_t round_end;	/* thousandths of cycles */

bool rounds_make(unsigned int count)
{
	static const struct {
		const char *name;
		void *function;
	} needed[] = {
		{ "qemu_get_cpu", &get_cpu },
		{ "cpu_exit", &ask_to_leave },
		{ "cpu_loop_exit_restore", &leave },
	};

	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (!qemu_find(needed[i].function, needed[i].name)) {
			fprintf(stderr, "cost plugin: this QEMU does not export %s\n", needed[i].name);
			return false;
		}
	}
	if (count > VCPUS_MAX) {
		fprintf(stderr, "cost plugin: %u vCPUs; at most %d can take turns\n", count, VCPUS_MAX);
		return false;
	}
	return true;
}

/* QEMU 10.0 tells callbacks of the vCPU that translated their block, so the thread's own variable is asked. */
static unsigned int who(unsigned int told)
{
	if (!current_cpu && !qemu_find(&current_cpu, "current_cpu"))
		return told;
	for (unsigned int i = 0; i < nr_vcpus; i++) {
		if (!cpus[i])
			cpus[i] = get_cpu((int)i);
		if (cpus[i] == *current_cpu)
			return i;
	}
	return told;
}

static uint64_t quantum(void)
{
	return machine.quantum * 1000ULL;
}

static void begin_turn(unsigned int vcpu, struct block *block)
{
	uint64_t begin;

	/* The order has wrapped: everyone has had a turn. */
	if (!begun || vcpu <= running)
		round_end += quantum();
	begun = true;
	asked = false;
	keeping = KEEPS_NONE;
	vcpu_select(vcpu);
	context_select(vcpu);
	begin = round_end - quantum();
	if (halted[vcpu] && account->clock < begin) {
		context_slept(block, begin - account->clock);
		account->clock = begin;
	}
	halted[vcpu] = false;
}

static void on_turn(unsigned int told, void *data)
{
	unsigned int vcpu = who(told);
	struct block *block = data;

	if (!begun || vcpu != running) {
		begin_turn(vcpu, block);
		/* Its last turn took longer than that: it has no turn until the others are as far. */
		if (account->clock >= round_end) {
			ask_to_leave(cpus[vcpu]);
			leave(cpus[vcpu], (uintptr_t)__builtin_return_address(0));
		}
	}
	account->clock += block->clock;
	if (account->clock < round_end)
		return;
	if (keeping == KEEPS_LINE) {
		keeping = KEPT_LINE;
		return;
	}
	if (!asked) {
		asked = true;
		if (nr_vcpus > 1)
			ask_to_leave(cpus[vcpu]);
	} else if (account->clock >= round_end + ALONE * machine.costs.instruction) {
		/* Still here: no other one can run. */
		round_end = account->clock + quantum();
		asked = false;
	}
}

void rounds_settle(unsigned int told, uintptr_t generated_code)
{
	static int settled;
	unsigned int vcpu = who(told);

	if (nr_vcpus == 1 || settled == SETTLES)
		return;
	settled++;
	ask_to_leave(cpus[vcpu]);
	leave(cpus[vcpu], generated_code);
}

/* A vCPU that has waited for a line to load it keeps it for a moment: in modelled time, too, others store later. */
void round_keep(void)
{
	if (keeping == KEEPS_NONE)
		keeping = KEEPS_LINE;
}

void on_halt(unsigned int told, void *unused)
{
	(void)told;
	(void)unused;
	halted[running] = true;
}

void round_watch(struct qemu_plugin_tb *tb, struct block *block)
{
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_turn, QEMU_NO_REGISTERS, block);
}
