// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The cost plugin: counters and modelled cycles for a guest without a PMU.
 *
 * At translation each block gets its counters, by as little code as possible:
 * most guest time is spent outside a measurement, where every callback must be
 * over at once.
 */
#include "a64.h"
#include "access.h"
#include "block.h"
#include "chain.h"
#include "context.h"
#include "decode.h"
#include "fetch.h"
#include "idle.h"
#include "irqs_off.h"
#include "line.h"
#include "machine.h"
#include "memory.h"
#include "output.h"
#include "owner.h"
#include "preempt_off.h"
#include "round.h"
#include "rv64.h"
#include "space.h"
#include "total.h"
#include "translate.h"
#include "window.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEAR		128	/* bytes */
#define NEAR_KERNEL	4096	/* which maps most of its memory by huge pages */

#define BIT(class)	(1U << (class))
#define X86_CLASSES	(BIT(NR_X86_CLASSES) - 1)
#define COUNTED		(BIT(CLASS_TLB_INVALIDATION) | BIT(CLASS_ZEROED_LINE))
#define A64_CLASSES	(COUNTED | BIT(CLASS_ATOMIC) | BIT(CLASS_FENCE) | BIT(CLASS_DIVISION) | BIT(CLASS_PAUSE) | \
			 BIT(CLASS_INDIRECT) | BIT(CLASS_RETURN) | BIT(CLASS_INTERRUPT_FLAG) | \
			 BIT(CLASS_USER_ACCESS) | BIT(CLASS_VECTOR) | BIT(CLASS_TIME) | BIT(CLASS_MSR) | \
			 BIT(CLASS_SYSCALL) | BIT(CLASS_EXCEPTION) | BIT(CLASS_DSB) | BIT(CLASS_ISB))

/* The guest's architecture, by QEMU's name for it. */
struct guest {
	const char *name;
	enum model most;	/* that there is */
	uint32_t counted, modelled;	/* classes that are told apart, one bit each, without a model and with one */
	struct layout layout;
	struct decoded (*decode)(const uint8_t *bytes, size_t size);
	bool flagged;			/* the instructions that allow and forbid interrupts are known */
	void (*watch_interrupt)(struct qemu_plugin_tb *tb, size_t count);
	void (*watch_spaces)(struct qemu_plugin_tb *tb, size_t count);
};

static const struct guest guests[] = {
	{
		.name = "x86_64",
		.most = MODEL_FULL,
		.counted = X86_CLASSES,
		.modelled = X86_CLASSES,
		.layout = X86_LAYOUT,
		.decode = x86_decode,
		.flagged = true,
		.watch_interrupt = context_watch_block,
	},
	{
		.name = "aarch64",
		.most = MODEL_TLB,
		.counted = COUNTED,
		.modelled = A64_CLASSES,
		.layout = A64_LAYOUT,
		.decode = a64_decode,
		.watch_interrupt = a64_watch,
		.watch_spaces = a64_watch_spaces,
	},
	{
		.name = "riscv64",
		.most = MODEL_COUNT,
		.counted = COUNTED,
		.decode = rv64_decode,
		.watch_interrupt = rv64_watch,
	},
};

static const struct guest *guest;
static uint32_t classes;	/* of it */

/* One instruction on the way through translation. */
struct step {
	struct qemu_plugin_insn *insn;
	struct decoded decoded;
	const struct site *site;
	uint64_t address;
	bool leads;
	bool looked_at;		/* the page that it accesses, by one before it */
};

/* String instructions that were seen behind others in a block: one that leads a block is an iteration of it. */
static uint64_t *seen_slot(uint64_t address)
{
	static uint64_t seen[4096];

	return &seen[(address * 0x9e3779b97f4a7c15ULL) >> 52];
}

static bool iterates(const struct step *step)
{
	return step->leads && step->decoded.kind == KIND_STRING && *seen_slot(step->address) == step->address;
}

static void watch_string(const struct step *step)
{
	int which = step->decoded.two ? QEMU_ONE_OF_TWO : QEMU_ALL;
	struct string_site *at;

	counters_add_on_access(step->insn, which, &totals, total_at(block_mode(step->site->block), TOTAL_BYTES),
			       step->decoded.size);
	counters_add_on_access(step->insn, which, &totals,
			       total_at(block_mode(step->site->block), TOTAL_ITERATIONS), 1);
	if (!step->leads)
		*seen_slot(step->address) = step->address;
	if (iterates(step))
		return;
	/* While generated code may call with it: for ever. */
	at = memory_get(1, sizeof(*at));
	*at = (struct string_site){ step->site, step->decoded.stores, step->decoded.size, 0 };
	if (!step->leads)
		qemu_plugin_register_vcpu_insn_exec_cb(step->insn, on_string, QEMU_NO_REGISTERS, at);
	qemu_plugin_register_vcpu_mem_cb(step->insn, step->leads ? on_leading_access : on_string_access,
					 QEMU_NO_REGISTERS, QEMU_ALL, at);
}

/*
 * A block's access near an earlier one, by the same register, is nearly always
 * on the same page, so for the TLBs it is enough to have looked at the first.
 * Caches need them all.
 */
struct bases {
	const struct site *site;
	bool looked;			/* at anything on this site */
	uint16_t known;			/* registers, one bit each */
	int32_t near[16];		/* the address of the access that was looked at */
};

/*
 * The kernel's stack, its variables of one CPU and those at an address of their
 * own, in the few huge pages of its image, are always in the first level. A
 * call is looked at if nothing before it showed which page of code this is.
 */
static bool always_there(const struct bases *bases, const struct step *step)
{
	bool told = step->site == bases->site && bases->looked;

	if (step->site->mode != MODE_KERNEL)
		return false;
	return step->decoded.variable ||
	       (step->decoded.operand.base == STACK_POINTER && (!step->decoded.calls || told));
}

static bool looked_at(const struct bases *bases, const struct step *step)
{
	const struct operand *operand = &step->decoded.operand;

	if (machine.model != MODEL_TLB || step->decoded.direction == DIRECTION_ANY)
		return false;
	if (always_there(bases, step))
		return true;
	if (operand->base == NO_BASE)
		return false;
	if (step->site != bases->site || !(bases->known & 1U << operand->base))
		return false;
	return labs((long)operand->displacement - bases->near[operand->base]) <=
	       (step->site->mode == MODE_KERNEL ? NEAR_KERNEL : NEAR);
}

static void remember(struct bases *bases, const struct step *step)
{
	const struct operand *operand = &step->decoded.operand;

	if (step->site != bases->site) {
		bases->known = 0;
		bases->looked = false;
	}
	bases->site = step->site;
	bases->looked |= step->decoded.direction != DIRECTION_ANY && step->decoded.memory && !step->looked_at;
	if (operand->base != NO_BASE && !step->looked_at) {
		bases->known |= (uint16_t)(1U << operand->base);
		bases->near[operand->base] = operand->displacement;
	}
	bases->known &= (uint16_t)~operand->changes;
}

static void count_accesses(const struct step *step)
{
	static enum total const kinds[] = {
		[DIRECTION_LOADS] = TOTAL_LOADS,
		[DIRECTION_STORES] = TOTAL_STORES,
		[DIRECTION_UPDATES] = TOTAL_UPDATES,
	};
	enum direction direction = step->decoded.direction;

	counters_add_on_access(step->insn, direction == DIRECTION_UPDATES ? QEMU_ONE_OF_TWO : QEMU_ALL, &totals,
			       total_at(block_mode(step->site->block), kinds[direction]), 1);
}

/* Helpers of QEMU's access memory for instructions that look as if they did not. */
static void watch_accesses(const struct step *step)
{
	static qemu_mem_cb const callbacks[2][4] = {
		{ on_access, on_load, on_store, on_access },
		{ on_chasing_load, on_chasing_load, on_chasing_load, on_chasing_load },
	};

	if (machine.model < MODEL_TLB)
		return;
	if (step->looked_at) {
		count_accesses(step);
		return;
	}
	qemu_plugin_register_vcpu_mem_cb(step->insn, callbacks[step->decoded.chases][step->decoded.direction],
					 QEMU_NO_REGISTERS, QEMU_ALL, (void *)step->site);
}

static void watch(const struct step *step)
{
	static qemu_exec_cb const flushes[NR_KINDS] = {
		[KIND_FLUSH_USER] = flush_user,
		[KIND_FLUSH_ALL] = flush_all,
		[KIND_FLUSH_PAGE] = flush_page,
		[KIND_ENTER_SPACE] = on_space_entered,
		[KIND_FLUSH_SPACE] = on_space_flushed,
		[KIND_FLUSH_SPACES] = on_spaces_flushed,
		[KIND_FLUSH_ITS_PAGE] = on_page_flushed,
	};

	switch (step->decoded.kind) {
	case KIND_MARK:
		qemu_plugin_register_vcpu_insn_exec_cb(step->insn, on_mark, QEMU_NO_REGISTERS,
						       (void *)(uintptr_t)step->decoded.mark);
		break;
	case KIND_STRING:
		watch_string(step);
		break;
	case KIND_PLAIN:
		watch_accesses(step);
		break;
	default:
		qemu_plugin_register_vcpu_insn_exec_cb(step->insn, flushes[step->decoded.kind], QEMU_NO_REGISTERS,
						       NULL);
		watch_accesses(step);
		break;
	}
}

/* Instructions that are counted together. */
struct weight {
	uint32_t instructions;
	uint32_t classes[NR_CLASSES];
};

/* Marks cost nothing; string instructions are counted when they begin. */
static void weigh(struct weight *weight, const struct decoded *decoded)
{
	if (decoded->kind == KIND_MARK || decoded->kind == KIND_STRING)
		return;
	weight->instructions++;
	if (decoded->class != CLASS_NONE)
		weight->classes[decoded->class]++;
}

static uint64_t class_cycles(const struct weight *weight)
{
	uint64_t cycles = 0;

	for (int i = 0; i < NR_CLASSES; i++)
		cycles += weight->classes[i] * machine.costs.classes[i];
	return cycles;
}

/*
 * A block that a fault leaves in the middle is entered again in the middle, so
 * counts at its start would be counted twice. In user code, where that is
 * usual, counting is done in pieces: the instruction that may fault, and all
 * before the next such, are counted when it is over.
 */
struct pieces {
	const struct block *block;
	struct qemu_plugin_insn *start;	/* of the piece being gathered */
	struct weight gathered;
	struct weight held;		/* the instruction that may fault: it belongs to the next piece */
};

static void close_piece(struct pieces *pieces)
{
	const struct block *block = pieces->block;
	const struct weight *gathered = &pieces->gathered;
	uint64_t cycles = class_cycles(gathered);

	if (gathered->instructions) {
		counters_add_on_insn(pieces->start, &totals, total_at(MODE_USER, TOTAL_INSTRUCTIONS),
				     gathered->instructions);
		counters_add_on_insn(pieces->start, block->counters, block->at + BLOCK_INSTRUCTIONS,
				     gathered->instructions);
	}
	for (size_t i = 0; i < NR_CLASSES; i++)
		if (gathered->classes[i])
			counters_add_on_insn(pieces->start, &totals, total_at(MODE_USER, TOTAL_CLASSES) + i,
					     gathered->classes[i]);
	if (cycles)
		counters_add_on_insn(pieces->start, block->counters, block->at + BLOCK_CLASSES, cycles);
	pieces->start = NULL;
	pieces->gathered = (struct weight){ 0 };
}

static void count_piecewise(struct pieces *pieces, const struct step *step, bool last)
{
	bool splits = step->decoded.memory || step->decoded.kind == KIND_MARK || step->decoded.kind == KIND_STRING;

	if (!pieces->start) {
		pieces->start = step->insn;
		pieces->gathered = pieces->held;
		pieces->held = (struct weight){ 0 };
	}
	if (!splits || last) {
		weigh(&pieces->gathered, &step->decoded);
	} else {
		weigh(&pieces->held, &step->decoded);
		close_piece(pieces);
	}
	if (last)
		close_piece(pieces);
}

static void count_whole(struct qemu_plugin_tb *tb, struct block *block, const struct weight *weight)
{
	block->weight = weight->instructions;
	block->classes = class_cycles(weight);
	if (weight->instructions)
		counters_add_on_block(tb, &totals, total_at(MODE_KERNEL, TOTAL_INSTRUCTIONS), weight->instructions);
	for (size_t i = 0; i < NR_CLASSES; i++)
		if (weight->classes[i])
			counters_add_on_block(tb, &totals, total_at(MODE_KERNEL, TOTAL_CLASSES) + i,
					      weight->classes[i]);
}

static struct step look(struct qemu_plugin_tb *tb, size_t index, const struct block *block)
{
	struct step step = { .insn = qemu_plugin_tb_get_insn(tb, index), .leads = !index };
	uint8_t bytes[INSTRUCTION_MAX];

	step.decoded = guest->decode(bytes, qemu_instruction_bytes(step.insn, bytes, sizeof(bytes)));
	if (step.decoded.class != CLASS_NONE && !(classes & BIT(step.decoded.class)))
		step.decoded.class = CLASS_NONE;
	step.address = qemu_plugin_insn_vaddr(step.insn);
	step.site = &block->sites[(step.address ^ block->start) >> PAGE_SHIFT != 0];
	return step;
}

/* FNV-1a. */
static uint64_t code_hash(struct qemu_plugin_tb *tb, size_t count)
{
	uint64_t hash = 0xcbf29ce484222325ULL;

	for (size_t i = 0; i < count; i++) {
		uint8_t bytes[INSTRUCTION_MAX];
		size_t size = qemu_instruction_bytes(qemu_plugin_tb_get_insn(tb, i), bytes, sizeof(bytes));

		for (size_t at = 0; at < size; at++)
			hash = (hash ^ bytes[at]) * 0x100000001b3ULL;
	}
	return hash;
}

static void watch_start(struct qemu_plugin_tb *tb, struct block *block)
{
	counters_add_on_block(tb, block->counters, block->at + BLOCK_EXECUTIONS, 1);
	if (machine.model == MODEL_FULL)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_NO_REGISTERS, block);
}

/* The target of a direct jump or call; 0 for any other instruction. */
static uint64_t target_of(const struct step *step)
{
	if (!step->decoded.jump)
		return 0;
	return step->address + qemu_plugin_insn_size(step->insn) + (uint64_t)(int64_t)step->decoded.jump;
}

/* A retpoline whose return is in a block of its own. last: the instruction that ends a block, maybe the only one. */
static void watch_thunk(struct qemu_plugin_tb *tb, struct block *block, const struct step *last, bool redirected)
{
	if (last->leads && last->decoded.class == CLASS_RETURN)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_return, QEMU_NO_REGISTERS, block);
	else if (redirected && last->decoded.jump && !last->decoded.calls)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_redirection, QEMU_NO_REGISTERS,
						     (void *)(uintptr_t)target_of(last));
}

static bool is_halt(const struct decoded *decoded)
{
	return decoded->halts || decoded->turn == TURN_HALT;
}

/* The effects of vCPUs on each other: a vCPU spins, halts, or wants a line that another one has. */
static void watch_meeting(const struct step *step, size_t index)
{
	if (step->decoded.class == CLASS_PAUSE)
		qemu_plugin_register_vcpu_insn_exec_cb(step->insn, on_pause, QEMU_NO_REGISTERS,
						       (void *)step->site);
	if (step->decoded.halts)
		qemu_plugin_register_vcpu_insn_exec_cb(step->insn, on_halt, QEMU_NO_REGISTERS, NULL);
	if (step->decoded.memory || step->decoded.kind != KIND_PLAIN)
		line_watch(step->insn, step->site, index, step->address, step->decoded.class == CLASS_ATOMIC);
}

/* whole: the block up to the end of the instruction. */
static void watch_flags(const struct step *step, const struct block *block, const struct weight *whole)
{
	struct span_site site = { qemu_plugin_insn_vaddr(step->insn), block, whole->instructions, class_cycles(whole) };

	irqs_off_watch(step->insn, step->decoded.turn, &site);
	preempt_off_watch(step->insn, &site);
}

static void watch_block(struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);
	struct block *block = block_get(qemu_plugin_tb_vaddr(tb), (uint32_t)count, code_hash(tb, count));
	struct pieces pieces = { .block = block };
	bool user = block_mode(block) == MODE_USER;
	bool told_apart = !user && contexts_told_apart();
	bool flagged = !user && irqs_off_known;
	struct bases bases = { .known = 0 };
	struct weight whole = { 0 };
	bool redirected = false;
	uint64_t called = 0;

	if (rounds)
		round_watch(tb, block);
	if (told_apart)
		guest->watch_interrupt(tb, count);
	if (flagged)
		irqs_off_watch_block(tb, count);
	if (!user && guest->watch_spaces && machine.model >= MODEL_TLB)
		guest->watch_spaces(tb, count);
	for (size_t i = 0; i < count; i++) {
		struct step step = look(tb, i, block);

		if (i + 1 == count) {
			watch_thunk(tb, block, &step, redirected);
			block->leap = step.decoded.leap;
			called = step.decoded.calls ? target_of(&step) : 0;
		}
		if (redirected && step.decoded.class == CLASS_RETURN) {
			step.decoded.class = CLASS_MISPREDICTION;
			block->redirects = true;
		}
		redirected = step.decoded.redirects;
		step.looked_at = looked_at(&bases, &step);
		remember(&bases, &step);
		block->size = (uint32_t)(step.address - block->start + qemu_plugin_insn_size(step.insn));
		if (!i && !iterates(&step))
			watch_start(tb, block);
		if (!i && machine.chains && contexts_told_apart())
			chain_watch(tb, block);
		watch(&step);
		if (is_halt(&step.decoded))
			idle_watch(step.insn);
		if (rounds)
			watch_meeting(&step, i);
		if (told_apart)
			context_watch(step.insn, step.decoded.turn);
		weigh(&whole, &step.decoded);
		if (flagged)
			watch_flags(&step, block, &whole);
		if (user)
			count_piecewise(&pieces, &step, i + 1 == count);
	}
	if (!user)
		count_whole(tb, block, &whole);
	if (rounds && !user)
		owner_watch(tb, block, called);
	block->clock = whole.instructions * machine.costs.instruction + class_cycles(&whole);
}

/* A halt ends its block. */
static void watch_halt(struct qemu_plugin_tb *tb)
{
	struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(tb, qemu_plugin_tb_n_insns(tb) - 1);
	uint8_t bytes[INSTRUCTION_MAX];
	struct decoded decoded = guest->decode(bytes, qemu_instruction_bytes(last, bytes, sizeof(bytes)));

	if (is_halt(&decoded))
		idle_watch(last);
}

/* While the guest boots, only marks and halts are looked for, and only where there can be one. */
static void wait_for_mark(struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);

	if (qemu_plugin_tb_vaddr(tb) >> 63) {
		watch_halt(tb);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		struct step step = { .insn = qemu_plugin_tb_get_insn(tb, i) };
		uint8_t bytes[INSTRUCTION_MAX];

		step.decoded = guest->decode(bytes, qemu_instruction_bytes(step.insn, bytes, sizeof(bytes)));
		if (step.decoded.kind == KIND_MARK)
			watch(&step);
	}
}

static void on_translate(struct qemu_plugin_tb *tb)
{
	if (windows_ready)
		wait_for_mark(tb);
	else
		watch_block(tb);
}

static void on_power_off(void)
{
	windows_finish();
	output_close();
}

static void register_all(void)
{
	qemu_on_translation(on_translate);
	qemu_on_exit(on_power_off);
}

/* Resetting drops all code that was translated so far; from now on it is watched. */
static void begin_watching(void)
{
	windows_ready = NULL;
	qemu_reset(register_all);
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info,
							       int argc, char **argv);

static bool choose_guest(const char *target)
{
	for (size_t i = 0; i < sizeof(guests) / sizeof(guests[0]); i++)
		if (!strcmp(target, guests[i].name))
			guest = &guests[i];
	if (!guest || machine.model > guest->most) {
		fprintf(stderr, "cost plugin: %s guests are not known, or not modelled that far\n", target);
		return false;
	}
	classes = machine.model == MODEL_COUNT ? guest->counted : guest->modelled;
	layout = guest->layout;
	output_classes(classes);
	return true;
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	unsigned int count;

	if (!info->system_emulation || !qemu_adapt(id, info, &count)) {
		fputs("cost plugin: this QEMU's plugin interface is not one that is known\n", stderr);
		return 1;
	}
	if (!machine_read(argc, argv) || !choose_guest(info->target_name))
		return 1;
	if (machine.quantum) {
		if (!rounds_make(count))
			return 1;
		memory_allow(MEMORY_MAX_ROUNDS);
		qemu_count_by_callbacks();
	}
	if (!vcpus_make(count, machine.quantum) || !output_open(machine.out, info->version.cur))
		return 1;
	totals_make();
	contexts_make();
	irqs_off_known = guest->flagged && nr_vcpus == 1 && contexts_told_apart();
	if (rounds)
		vcpu_select(0);
	/*
	 * A reset interrupts the vCPU's turn, so with several it would change which runs when: then watch from the start.
	 * Rounds begin with the reset.
	 */
	if ((count == 1 || rounds) && machine.brackets != BRACKETS_BOOT)
		windows_ready = begin_watching;
	windows_start();
	register_all();
	return 0;
}
