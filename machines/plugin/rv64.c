// SPDX-License-Identifier: GPL-2.0-or-later
/* Encodings are those of the RISC-V Instruction Set Manual, volumes I and II. */
#include "rv64.h"
#include "context.h"

#include <string.h>

#define MARK		0x42c00037	/* lui zero, 0x42c00 + CODE: see workloads/include/lab/arch */
#define MARK_CODE	0x000ff000
#define SRET		0x10200073
#define STACK_BACK	0x6142		/* c.ldsp sp, 16(sp): the last register that is restored */
#define CAUSE		0x14202a73	/* csrr s4, scause */
#define NO_INTERRUPT	0x000a5063	/* bgez s4, ...: of a cause, true for all but interrupts */
#define BRANCH_OFFSET	0xfe000f80
#define ENTRY		256		/* bytes: the most between the reading of a cause and the branch on it */
#define FRAME		288		/* bytes: struct pt_regs of arch/riscv/include/asm/ptrace.h */
#define STACK_POINTER_AT 16		/* bytes: its place there */
#define LEAVE_TASK	0x0016b023	/* sd ra, 0(a3), in __switch_to() */
#define ENTER_TASK	0x00073083	/* ld ra, 0(a4) */
#define ALLOW		0x10016073	/* csrsi sstatus, 2 */
#define HALT		0x10500073	/* wfi */
#define SFENCE		0x12000073	/* sfence.vma rs1, rs2; sinval.vma is 0x16000073 */
#define SFENCE_MASK	0xfa007fff
#define CBO_ZERO	0x0040200f	/* cbo.zero (rs1) */
#define CBO_ADDRESS	0x000f8000

static enum turn turn_of(uint32_t word)
{
	switch (word) {
	case ALLOW:
		return TURN_ALLOW;
	case HALT:
		return TURN_HALT;
	case SRET:
		return TURN_ERET;
	case LEAVE_TASK:
		return TURN_LEAVE_TASK;
	case ENTER_TASK:
		return TURN_ENTER_TASK;
	}
	return TURN_NONE;
}

/* Loads, stores, atomics, fences and cbo; vectors load and store as floating point does. */
static bool may_access(uint32_t word)
{
	switch (word & 0x7f) {
	case 0x03:
	case 0x07:
	case 0x0f:
	case 0x23:
	case 0x27:
	case 0x2f:
		return true;
	}
	return false;
}

static enum class class_of(uint32_t word)
{
	if ((word & ~CBO_ADDRESS) == CBO_ZERO)
		return CLASS_ZEROED_LINE;
	return (word & SFENCE_MASK) == SFENCE ? CLASS_TLB_INVALIDATION : CLASS_NONE;
}

/* Of two bytes: all but arithmetic, jumps and branches, which are the second quadrant, count as memory accesses. */
static void decode_compressed(struct decoded *decoded, uint16_t half)
{
	decoded->memory = (half & 3) != 1;
	if (half == STACK_BACK)
		decoded->turn = TURN_FRAME;
}

struct decoded rv64_decode(const uint8_t *bytes, size_t size)
{
	struct decoded decoded = { .kind = KIND_PLAIN, .class = CLASS_NONE };
	uint32_t word = 0;

	decoded.operand.base = NO_BASE;
	memcpy(&word, bytes, size < sizeof(word) ? size : sizeof(word));
	if (size != sizeof(word)) {
		decode_compressed(&decoded, (uint16_t)word);
		return decoded;
	}
	if ((word & ~MARK_CODE) == MARK) {
		decoded.kind = KIND_MARK;
		decoded.mark = (uint8_t)(word >> 12);
		return decoded;
	}
	decoded.memory = may_access(word);
	decoded.turn = turn_of(word);
	decoded.class = class_of(word);
	return decoded;
}

/*
 * All traps begin in one place, which reads the cause into s4; for interrupts,
 * the branch on its sign is not taken (handle_exception in
 * arch/riscv/kernel/entry.S). Compilers branch on the sign of s4, too, but not
 * behind a cause.
 */
void rv64_watch(struct qemu_plugin_tb *tb, size_t count)
{
	static uint64_t cause_at, interrupt_at;

	context_set_frame(FRAME, STACK_POINTER_AT);
	if (qemu_plugin_tb_vaddr(tb) == interrupt_at)
		context_watch_interrupt(tb);
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t at = qemu_plugin_insn_vaddr(insn);
		uint32_t word = 0;

		qemu_instruction_bytes(insn, (uint8_t *)&word, sizeof(word));
		if (word == CAUSE)
			cause_at = at;
		else if ((word & ~BRANCH_OFFSET) == NO_INTERRUPT && at - cause_at < ENTRY)
			interrupt_at = at + sizeof(word);
	}
}
