/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The instructions by which a kernel turns to something else, and those that lead to them. */
#ifndef LAB_TURN_H
#define LAB_TURN_H

#include <stddef.h>
#include <stdint.h>

enum turn {
	TURN_NONE,
	TURN_PAD,		/* nop, endbr64, clac */
	TURN_CLD,
	TURN_PUSH_BYTE,
	TURN_CALL,		/* relative */
	TURN_JUMP,
	TURN_IRET,
	TURN_SYSRET,
	TURN_FRAME,		/* arm64: ldr x30, [sp, #240] */
	TURN_ERET,		/* arm64 */
	TURN_LEAVE_TASK,	/* mov %rsp, OFFSET(%rdi); stp x29, x9, [x8], #16 */
	TURN_ENTER_TASK,	/* mov OFFSET(%rsi), %rsp; ldp x29, x9, [x8], #16 */
	TURN_POP_R15,
	TURN_POP_R14,
};

enum turn turn_decode(const uint8_t *bytes, size_t size);

#endif
