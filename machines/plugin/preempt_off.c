// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Spans without preemption.
 *
 * preempt_count is a variable of each CPU, which locks, softirqs and interrupts
 * raise and lower: incl, decl, add and sub of a constant, at gs and a place that
 * is part of the instruction. The place shows at the first interrupt, which adds
 * HARDIRQ_OFFSET (include/linux/preempt.h): nothing else adds that much to such
 * a variable. The count is the low half of eight bytes in kernels with bits for
 * local_interrupt_disable() (seen in 7.3), and of four before. Each interrupt
 * reads it from QEMU again, and so do the few instructions that set it.
 */
#include "preempt_off.h"
#include "decode.h"
#include "memory.h"
#include "place.h"

#include <string.h>

#define GS		0x65
#define HARDIRQ_OFFSET	0x10000
#define WIDE_HARDIRQ	0x1000000
#define NEED_RESCHED	0x80000000u	/* inverted, and no part of the count */

struct count_site {
	struct span_site span;
	uint64_t place;		/* of the variable, without the CPU's distance */
	int32_t add;
	bool interrupts;	/* so the variable is preempt_count */
};

struct spans preempt_off;

static uint64_t place;		/* of preempt_count; 0 until an interrupt */
static uint32_t preempt_count;
static bool known;		/* since the window began */

void preempt_off_begin(void)
{
	spans_begin(&preempt_off);
	known = place;
}

bool preempt_off_known(void)
{
	return known;
}

static void set(const struct count_site *site, uint32_t to)
{
	preempt_count = to & ~NEED_RESCHED;
	if (preempt_count)
		spans_forbid(&preempt_off, &site->span);
	else
		spans_allow(&preempt_off, &site->span);
}

static void on_add(unsigned int vcpu, void *data)
{
	const struct count_site *site = data;

	(void)vcpu;
	if (site->place == place)
		set(site, preempt_count + (uint32_t)site->add);
}

static void on_set(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	const struct count_site *site = data;
	uint32_t value;

	(void)vcpu;
	if (site->interrupts)
		place = site->place;
	if (site->place == place && qemu_plugin_mem_is_store(info) && place_peek(address, &value, sizeof(value)))
		set(site, value);
}

/* The operand is gs and a constant, from the next instruction on or by itself. */
static bool find_place(const uint8_t *at, size_t left, uint64_t next, uint64_t *found)
{
	int32_t distance;

	if (left >= 5 && (at[0] & 0xc7) == 5) {
		memcpy(&distance, at + 1, sizeof(distance));
		*found = next + (uint64_t)(int64_t)distance;
		return true;
	}
	if (left >= 6 && (at[0] & 0xc7) == 4 && at[1] == 0x25) {
		memcpy(&distance, at + 2, sizeof(distance));
		*found = (uint64_t)(int64_t)distance;
		return true;
	}
	return false;
}

/* The constant that an instruction adds; false if it is none of the four. */
static bool find_constant(const uint8_t *at, const uint8_t *end, int32_t *add)
{
	uint8_t group = (at[1] >> 3) & 7;

	if (at[0] == 0xff && group < 2) {
		*add = group ? -1 : 1;
		return true;
	}
	if ((at[0] != 0x81 && at[0] != 0x83) || (group != 0 && group != 5))
		return false;
	if (at[0] == 0x83)
		*add = (int8_t)end[-1];
	else
		memcpy(add, end - sizeof(*add), sizeof(*add));
	if (group == 5)
		*add = -*add;
	return true;
}

/* mov, xchg, cmpxchg, xadd, and arithmetic with a register or of another kind: anything but loads and comparisons. */
static bool may_set(const uint8_t *at)
{
	if (at[0] == 0x0f)
		return at[1] == 0xb1 || at[1] == 0xc1;
	if (at[0] == 0x81 || at[0] == 0x83)
		return ((at[1] >> 3) & 7) != 7;
	return (at[0] < 0x38 && (at[0] & 7) == 1) || at[0] == 0x87 || at[0] == 0x89 || at[0] == 0xc7;
}

void preempt_off_watch(struct qemu_plugin_insn *insn, const struct span_site *span)
{
	uint8_t bytes[INSTRUCTION_MAX];
	size_t size = qemu_instruction_bytes(insn, bytes, sizeof(bytes)), at = 1;
	struct count_site site = { .span = *span }, *kept;
	bool adds, wide;
	size_t operand;

	if (size < 7 || bytes[0] != GS)
		return;
	if ((bytes[at] & 0xf0) == 0x40)
		at++;
	wide = at == 2 && bytes[1] & 8;
	operand = at + (bytes[at] == 0x0f ? 2 : 1);
	if (!find_place(bytes + operand, size - operand, span->address + size, &site.place))
		return;
	adds = find_constant(bytes + at, bytes + size, &site.add);
	if (!adds && !may_set(bytes + at))
		return;
	site.interrupts = adds && site.add == (wide ? WIDE_HARDIRQ : HARDIRQ_OFFSET);
	/* While generated code may call with it: for ever. */
	kept = memory_get(1, sizeof(*kept));
	*kept = site;
	if (adds && !site.interrupts)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_add, QEMU_NO_REGISTERS, kept);
	else
		qemu_plugin_register_vcpu_mem_cb(insn, on_set, QEMU_NO_REGISTERS, QEMU_ALL, kept);
}
