// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Spans without interrupts.
 *
 * Kernels forbid interrupts by cli, and the CPU does when it enters the kernel:
 * every gate of Linux is an interrupt gate, and IF is in the mask of system
 * calls (idt_setup_*() and syscall_init() in arch/x86/kernel). sti and sysret
 * allow them, and iret and popf restore what is on the stack, which the plugin
 * reads from QEMU. Entries to the kernel show by instructions that no compiler
 * writes: cld at the start of a block, or swapgs before the stack pointer is
 * kept.
 */
#include "irqs_off.h"
#include "memory.h"
#include "place.h"

#define INTERRUPT_FLAG	0x200
#define FLAGS_IN_FRAME	3	/* of the five words that iretq loads */
#define FRAME_WORDS	5

struct spans irqs_off;
bool irqs_off_known;

static uint32_t frame_words;
static uint64_t flags_at;

static void on_forbid(unsigned int vcpu, void *site)
{
	(void)vcpu;
	spans_forbid(&irqs_off, site);
}

static void on_allow(unsigned int vcpu, void *site)
{
	(void)vcpu;
	spans_allow(&irqs_off, site);
}

static void on_entry(unsigned int vcpu, void *block_address)
{
	struct span_site site = { .address = (uint64_t)(uintptr_t)block_address };

	(void)vcpu;
	spans_forbid(&irqs_off, &site);
}

static void restore(const struct span_site *site, uint64_t address)
{
	uint64_t flags = INTERRUPT_FLAG;

	place_peek(address, &flags, sizeof(flags));
	if (flags & INTERRUPT_FLAG)
		spans_allow(&irqs_off, site);
	else
		spans_forbid(&irqs_off, site);
}

static void on_popf(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *site)
{
	(void)vcpu;
	(void)info;
	restore(site, address);
}

static void on_iret(unsigned int vcpu, void *unused)
{
	(void)vcpu;
	(void)unused;
	frame_words = 0;
}

static void on_frame_word(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *site)
{
	(void)vcpu;
	(void)info;
	if (++frame_words == FLAGS_IN_FRAME)
		flags_at = address;
	if (frame_words == FRAME_WORDS)
		restore(site, flags_at);
}

static enum turn turn_at(struct qemu_plugin_tb *tb, size_t index, size_t count)
{
	uint8_t bytes[INSTRUCTION_MAX];

	if (index >= count)
		return TURN_NONE;
	return turn_decode(bytes, qemu_instruction_bytes(qemu_plugin_tb_get_insn(tb, index), bytes, sizeof(bytes)));
}

void irqs_off_watch_block(struct qemu_plugin_tb *tb, size_t count)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	size_t at = 0;
	enum turn turn;

	while ((turn = turn_at(tb, at, count)) == TURN_PAD)
		at++;
	if (turn == TURN_CLD || (turn == TURN_SWAPGS && turn_at(tb, at + 1, count) == TURN_SAVE_STACK))
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_entry, QEMU_NO_REGISTERS, (void *)(uintptr_t)address);
}

void irqs_off_watch(struct qemu_plugin_insn *insn, enum turn turn, const struct span_site *span)
{
	struct span_site *site;

	if (turn != TURN_FORBID && turn != TURN_ALLOW && turn != TURN_FLAGS && turn != TURN_IRET && turn != TURN_SYSRET)
		return;
	/* While generated code may call with it: for ever. */
	site = memory_get(1, sizeof(*site));
	*site = *span;
	switch (turn) {
	case TURN_FORBID:
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_forbid, QEMU_NO_REGISTERS, site);
		break;
	case TURN_FLAGS:
		qemu_plugin_register_vcpu_mem_cb(insn, on_popf, QEMU_NO_REGISTERS, QEMU_ALL, site);
		break;
	case TURN_IRET:
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_iret, QEMU_NO_REGISTERS, NULL);
		qemu_plugin_register_vcpu_mem_cb(insn, on_frame_word, QEMU_NO_REGISTERS, QEMU_ALL, site);
		break;
	default:
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_allow, QEMU_NO_REGISTERS, site);
		break;
	}
}
