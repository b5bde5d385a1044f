// SPDX-License-Identifier: GPL-2.0-or-later
#include "turn.h"

#include <string.h>

static const struct {
	enum turn turn;
	uint8_t size;		/* of the whole instruction; 0: any operand belongs to it */
	uint8_t length;
	uint8_t bytes[4];
} known[] = {
	{ TURN_PAD,		1, 1, { 0x90 } },
	{ TURN_PAD,		2, 2, { 0x66, 0x90 } },
	{ TURN_PAD,		4, 4, { 0xf3, 0x0f, 0x1e, 0xfa } },
	{ TURN_PAD,		3, 3, { 0x0f, 0x01, 0xca } },
	{ TURN_PAD,		0, 2, { 0x0f, 0x1f } },
	{ TURN_CLD,		1, 1, { 0xfc } },
	{ TURN_ALLOW,		1, 1, { 0xfb } },
	{ TURN_FORBID,		1, 1, { 0xfa } },
	{ TURN_FLAGS,		1, 1, { 0x9d } },
	{ TURN_HALT,		1, 1, { 0xf4 } },
	{ TURN_PUSH_BYTE,	2, 1, { 0x6a } },
	{ TURN_CALL,		5, 1, { 0xe8 } },
	{ TURN_JUMP,		5, 1, { 0xe9 } },
	{ TURN_JUMP,		2, 1, { 0xeb } },
	{ TURN_IRET,		2, 2, { 0x48, 0xcf } },
	{ TURN_SYSRET,		3, 3, { 0x48, 0x0f, 0x07 } },
	{ TURN_SWAPGS,		3, 3, { 0x0f, 0x01, 0xf8 } },
	{ TURN_SAVE_STACK,	9, 4, { 0x65, 0x48, 0x89, 0x24 } },
	{ TURN_SAVE_STACK,	8, 4, { 0x65, 0x48, 0x89, 0x25 } },
	{ TURN_LEAVE_TASK,	7, 3, { 0x48, 0x89, 0xa7 } },
	{ TURN_ENTER_TASK,	7, 3, { 0x48, 0x8b, 0xa6 } },
	{ TURN_POP_R15,		2, 2, { 0x41, 0x5f } },
	{ TURN_POP_R14,		2, 2, { 0x41, 0x5e } },
};

enum turn turn_decode(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if ((!known[i].size || known[i].size == size) && size >= known[i].length &&
		    !memcmp(bytes, known[i].bytes, known[i].length))
			return known[i].turn;
	return TURN_NONE;
}
