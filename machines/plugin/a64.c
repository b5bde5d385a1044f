// SPDX-License-Identifier: GPL-2.0-or-later
/* Encodings are those of Arm's Architecture Reference Manual for A-profile, DDI 0487, chapter C4. */
#include "a64.h"
#include "context.h"

#include <string.h>

#define SLOT		128		/* bytes, of 16 in a table */
#define SKIPPED		12		/* what precedes the room in a slot for code that ran in user mode */

#define MARK		0xd2e8401f	/* movz xzr, #0x42CODE, lsl #48: see workloads/include/lab/arch */
#define MARK_CODE	0x00001fe0
#define ERET		0xd69f03e0
#define FRAME		0xf9407bfe	/* ldr x30, [sp, #240]: the link register, the last that is restored */
#define LEAVE_TASK	0xa881251d	/* stp x29, x9, [x8], #16, in cpu_switch_to() */
#define ENTER_TASK	0xa8c1251d	/* ldp x29, x9, [x8], #16 */
#define ROOM		0xd10003ff	/* sub sp, sp, #imm12 */
#define ROOM_SIZE	0x003ffc00
#define DC_ZVA		0xd50b7420	/* dc zva, xN */
#define DC_ADDRESS	0x0000001f
#define TLBI		0xd5088000	/* tlbi: system instructions of CRn 8, or 9 with nXS */
#define TLBI_MASK	0xfff8e000
#define LOOK		0x8b2063ff	/* add sp, sp, x0 */
#define LINK_REGISTER	240		/* bytes: its place in struct pt_regs */

static uint32_t word_of(const uint8_t *bytes)
{
	uint32_t word;

	memcpy(&word, bytes, sizeof(word));
	return word;
}

static enum turn turn_of(uint32_t word)
{
	switch (word) {
	case ERET:
		return TURN_ERET;
	case FRAME:
		return TURN_FRAME;
	case LEAVE_TASK:
		return TURN_LEAVE_TASK;
	case ENTER_TASK:
		return TURN_ENTER_TASK;
	}
	return TURN_NONE;
}

/* Loads and stores are one group of encodings; dc and the like may fault, too, and are among the system instructions. */
static bool may_access(uint32_t word)
{
	return (word & 0x0a000000) == 0x08000000 || (word & 0xffc00000) == 0xd5000000;
}

static enum class class_of(uint32_t word)
{
	if ((word & ~DC_ADDRESS) == DC_ZVA)
		return CLASS_ZEROED_LINE;
	return (word & TLBI_MASK) == TLBI ? CLASS_TLB_INVALIDATION : CLASS_NONE;
}

struct decoded a64_decode(const uint8_t *bytes, size_t size)
{
	struct decoded decoded = { .kind = KIND_PLAIN, .class = CLASS_NONE };
	uint32_t word;

	decoded.operand.base = NO_BASE;
	if (size != sizeof(word)) {
		decoded.memory = true;
		return decoded;
	}
	word = word_of(bytes);
	if ((word & ~MARK_CODE) == MARK) {
		decoded.kind = KIND_MARK;
		decoded.mark = (uint8_t)(word >> 5);
		return decoded;
	}
	decoded.memory = may_access(word);
	decoded.turn = turn_of(word);
	decoded.class = class_of(word);
	return decoded;
}

/*
 * A slot of the kernel's table of vectors makes room for the registers and looks
 * at where the stack pointer then points (kernel_ventry in
 * arch/arm64/kernel/entry.S): the size of the room, 0 for other code. first and
 * second: the first two instructions of a block at an address.
 */
static uint32_t vector_room(uint64_t address, uint32_t first, uint32_t second)
{
	uint64_t at = address % SLOT;

	if ((at != 0 && at != SKIPPED) || (first & ~ROOM_SIZE) != ROOM || second != LOOK)
		return 0;
	return (first & ROOM_SIZE) >> 10;
}

/* True of the slots of interrupts, in the table of vectors. */
static bool interrupts(uint64_t address)
{
	unsigned int kind = address / SLOT % 4;	/* synchronous, IRQ, FIQ, SError */

	return kind == 1 || kind == 2;
}

void a64_watch(struct qemu_plugin_tb *tb, size_t count)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	uint32_t words[2], size;

	if (count < 2)
		return;
	for (size_t i = 0; i < 2; i++)
		qemu_instruction_bytes(qemu_plugin_tb_get_insn(tb, i), (uint8_t *)&words[i], sizeof(words[i]));
	size = vector_room(address, words[0], words[1]);
	if (!size)
		return;
	context_set_frame(size, LINK_REGISTER);
	if (interrupts(address))
		context_watch_interrupt(tb);
}
