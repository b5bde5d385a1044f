/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The instructions by which a kernel turns to something else, and the instructions that lead to them. */
#ifndef LAB_TURN_H
#define LAB_TURN_H

#include <stddef.h>
#include <stdint.h>

enum turn {
	TURN_NONE,
	TURN_PAD,		/* nop, endbr64, clac */
	TURN_CLD,
	TURN_PUSH_BYTE,
	TURN_ALLOW,		/* interrupts: sti; msr daifclr; csrsi sstatus */
	TURN_FORBID,		/* interrupts, on x86-64 alone: cli */
	TURN_FLAGS,		/* popf */
	TURN_HALT,		/* hlt; wfi */
	TURN_CALL,		/* relative */
	TURN_JUMP,
	TURN_IRET,
	TURN_SYSRET,
	TURN_SWAPGS,
	TURN_SAVE_STACK,	/* mov %rsp, %gs:PLACE */
	TURN_FRAME,		/* a register with a known place is restored: ldr x30, [sp, #240]; ld sp, 16(sp) */
	TURN_ERET,		/* eret; sret */
	TURN_LEAVE_TASK,	/* mov %rsp, OFFSET(%rdi); stp x29, x9, [x8], #16; sd ra, 0(a3) */
	TURN_ENTER_TASK,	/* mov OFFSET(%rsi), %rsp; ldp x29, x9, [x8], #16; ld ra, 0(a4) */
	TURN_POP_R15,
	TURN_POP_R14,
};

enum turn turn_decode(const uint8_t *bytes, size_t size);

#endif
