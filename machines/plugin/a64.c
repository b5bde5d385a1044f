// SPDX-License-Identifier: GPL-2.0-or-later
/* Encodings are those of Arm's Architecture Reference Manual for A-profile, DDI 0487, chapter C4. */
#include "a64.h"
#include "a64_class.h"
#include "context.h"
#include "space.h"

#include <string.h>

#define SLOT		128		/* bytes, of 16 in a table */
#define SKIPPED		12		/* a slot's part before the room, for code of user mode */

#define MARK		0xd2e8401f	/* movz xzr, #0x42CODE, lsl #48: see workloads/include/lab/arch */
#define MARK_CODE	0x00001fe0
#define ERET		0xd69f03e0
#define FRAME		0xf9407bfe	/* ldr x30, [sp, #240]: the link register, the last that is restored */
#define LEAVE_TASK	0xa881251d	/* stp x29, x9, [x8], #16, in cpu_switch_to() */
#define ENTER_TASK	0xa8c1251d	/* ldp x29, x9, [x8], #16 */
#define ALLOW		0xd50342ff	/* msr daifclr, #2; #3 with fast interrupts */
#define ALLOW_FAST	0x00000100
#define HALT		0xd503207f	/* wfi */
#define ROOM		0xd10003ff	/* sub sp, sp, #imm12 */
#define ROOM_SIZE	0x003ffc00
#define OPERAND		0x0000001f	/* Rt of a system instruction */
#define ENTER_SPACE	0xd5182020	/* msr ttbr1_el1, xN */
#define LEAVE_SPACE	0xd5382020	/* mrs xN, ttbr1_el1 */
#define TLBI_WHAT	0x000700e0	/* op1: the level of exceptions; op2: the flushed entries */
#define TLBI_SPACE	0x00000040	/* aside1, aside1is */
#define TLBI_PAGES	0x00000020	/* vae1 and all others that name an address: op2 is odd */
#define LOAD		0xf9400000	/* ldr xN, [xM, #imm] */
#define LOAD_MASK	0xffc00000
#define NAMING_MAX	64		/* instructions of a kernel; some fifty are usual */
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
	case ALLOW:
	case ALLOW | ALLOW_FAST:
		return TURN_ALLOW;
	case HALT:
		return TURN_HALT;
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

static enum kind kind_of(uint32_t word, enum class class)
{
	uint32_t what = word & TLBI_WHAT;

	if ((word & ~OPERAND) == ENTER_SPACE)
		return KIND_ENTER_SPACE;
	if (class != CLASS_TLB_INVALIDATION)
		return KIND_PLAIN;
	if (what == TLBI_SPACE)
		return KIND_FLUSH_SPACE;
	return what & TLBI_PAGES ? KIND_FLUSH_ITS_PAGE : KIND_FLUSH_SPACES;
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
	decoded.class = a64_class(word);
	decoded.kind = kind_of(word, decoded.class);
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

/* --- Address spaces ----------------------------------------------------- */

/* Loads that were found to read such a number: a block may end before it tells, if the guest's clock is due then. */
static uint64_t naming[NAMING_MAX];
static unsigned int nr_naming;

static bool is_naming(uint64_t address)
{
	for (unsigned int i = 0; i < nr_naming; i++)
		if (naming[i] == address)
			return true;
	return false;
}

static void watch_name(struct qemu_plugin_insn *load)
{
	uint64_t address = qemu_plugin_insn_vaddr(load);

	if (!is_naming(address) && nr_naming < NAMING_MAX)
		naming[nr_naming++] = address;
	qemu_plugin_register_vcpu_mem_cb(load, on_space_named, QEMU_NO_REGISTERS, QEMU_ALL, NULL);
}

/*
 * The number of an entered space is loaded first of all behind the old one
 * (cpu_do_switch_mm() in arch/arm64/mm/context.c), the number of a flushed
 * space last of all before the flush (flush_tlb_mm() in
 * arch/arm64/include/asm/tlbflush.h).
 */
void a64_watch_spaces(struct qemu_plugin_tb *tb, size_t count)
{
	static uint64_t awaited_at;
	bool awaited = qemu_plugin_tb_vaddr(tb) == awaited_at;
	struct qemu_plugin_insn *load = NULL;
	uint64_t at = 0;

	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint32_t word = 0;

		at = qemu_plugin_insn_vaddr(insn);
		qemu_instruction_bytes(insn, (uint8_t *)&word, sizeof(word));
		if ((word & LOAD_MASK) == LOAD) {
			load = insn;
			if (awaited || is_naming(at)) {
				watch_name(load);
				load = NULL;
			}
			awaited = false;
		} else if ((word & ~OPERAND) == LEAVE_SPACE) {
			awaited = true;
		} else if (load && kind_of(word, a64_class(word)) == KIND_FLUSH_SPACE) {
			watch_name(load);
			load = NULL;
		}
	}
	awaited_at = awaited ? at + sizeof(uint32_t) : 0;
}
