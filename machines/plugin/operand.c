// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Operands, decoded for one purpose: to know that an access is to the page of
 * an earlier one in its block. An unknown instruction changes all registers.
 *
 * push, pop, call and ret move the stack pointer by little, as does adding a
 * small constant to it: neither counts as changing it.
 */
#include "operand.h"

#include <stdbool.h>
#include <string.h>

struct modrm {
	uint8_t mod;
	uint8_t reg;		/* with REX.R */
	uint8_t rm;		/* with REX.B */
	uint8_t group;		/* reg as an extension of the opcode */
};

static struct modrm read_modrm(uint8_t byte, uint8_t rex)
{
	return (struct modrm){
		.mod = byte >> 6,
		.reg = ((byte >> 3) & 7) | (rex & 4) << 1,
		.rm = (byte & 7) | (rex & 1) << 3,
		.group = (byte >> 3) & 7,
	};
}

/* Without REX, a byte's registers 4 to 7 are parts of the first four. */
static uint16_t changed(uint8_t number, bool byte)
{
	return (uint16_t)(1U << number | (byte ? 1U << (number & 3) : 0));
}

static uint16_t changed_rm(struct modrm modrm, bool byte)
{
	return modrm.mod == 3 ? changed(modrm.rm, byte) : 0;
}

static uint16_t arithmetic_changes(uint8_t opcode, struct modrm modrm)
{
	bool byte = !(opcode & 1);

	if (opcode >= 0x38)			/* cmp */
		return 0;
	switch (opcode & 7) {
	case 0: case 1:
		return changed_rm(modrm, byte);
	case 2: case 3:
		return changed(modrm.reg, byte);
	case 4: case 5:
		return changed(0, false);
	}
	return ALL_REGISTERS;
}

/* Opcodes whose reg field selects the operation. */
static uint16_t group_changes(uint8_t opcode, struct modrm modrm)
{
	bool byte = !(opcode & 1);

	if (opcode <= 0x83 && modrm.group == 7)	/* cmp */
		return 0;
	if (opcode == 0x83 && modrm.mod == 3 && modrm.rm == STACK_POINTER)
		return 0;
	if (opcode == 0xf6 || opcode == 0xf7)	/* test, not, neg; mul and div change rax and rdx */
		return modrm.group < 2 ? 0 : (uint16_t)(changed_rm(modrm, byte) | 1U << 0 | 1U << 2);
	return changed_rm(modrm, byte);
}

static bool is_group(uint8_t opcode)
{
	return (opcode >= 0x80 && opcode <= 0x83) || opcode == 0xc0 || opcode == 0xc1 || opcode == 0xc6 ||
	       opcode == 0xc7 || (opcode >= 0xd0 && opcode <= 0xd3) || opcode == 0xf6 || opcode == 0xf7 ||
	       opcode == 0xfe || opcode == 0xff;
}

static bool changes_nothing(uint8_t opcode)
{
	return (opcode >= 0x50 && opcode <= 0x57) || opcode == 0x68 || opcode == 0x6a ||
	       (opcode >= 0x70 && opcode <= 0x7f) || opcode == 0x84 || opcode == 0x85 || opcode == 0xa8 ||
	       opcode == 0xa9 || opcode == 0xc3 || opcode == 0xe8 || opcode == 0xe9 || opcode == 0xeb;
}

static uint16_t narrow_changes(uint8_t opcode, struct modrm modrm, uint8_t rex)
{
	uint8_t embedded = (opcode & 7) | (rex & 1) << 3;

	if (changes_nothing(opcode))
		return 0;
	if (opcode < 0x40)
		return arithmetic_changes(opcode, modrm);
	if (is_group(opcode))
		return group_changes(opcode, modrm);
	if (opcode == 0x88 || opcode == 0x89)
		return changed_rm(modrm, opcode == 0x88);
	if (opcode == 0x8a || opcode == 0x8b || opcode == 0x8d || opcode == 0x63 || opcode == 0x69 || opcode == 0x6b)
		return changed(modrm.reg, opcode == 0x8a);
	if ((opcode >= 0x58 && opcode <= 0x5f) || (opcode >= 0xb0 && opcode <= 0xbf))
		return changed(embedded, opcode >= 0xb0 && opcode <= 0xb7);
	return ALL_REGISTERS;
}

static uint16_t wide_changes(uint8_t opcode, struct modrm modrm)
{
	if ((opcode >= 0x80 && opcode <= 0x8f) || opcode == 0x1e || opcode == 0x1f)
		return 0;
	if ((opcode & 0xf0) == 0x40 || opcode == 0xaf || opcode == 0xb6 || opcode == 0xb7 || opcode == 0xbe ||
	    opcode == 0xbf)
		return changed(modrm.reg, false);
	if ((opcode & 0xf0) == 0x90)
		return changed_rm(modrm, true);
	return ALL_REGISTERS;
}

static bool by_stack(uint8_t opcode)
{
	return (opcode >= 0x50 && opcode <= 0x5f) || opcode == 0xe8 || opcode == 0xc3;
}

/* Base and constant of an operand that has neither an index nor the instruction pointer in it. */
static void read_address(const uint8_t *at, size_t left, uint8_t rex, struct operand *operand)
{
	struct modrm modrm = read_modrm(at[0], rex);
	size_t constant = 1;
	uint8_t base = modrm.rm;

	if ((modrm.rm & 7) == 4) {
		if (left < 2 || (at[1] & 0x38) != 0x20 || rex & 2)
			return;
		base = (at[1] & 7) | (rex & 1) << 3;
		constant = 2;
	}
	if (modrm.mod == 3 || (modrm.mod == 0 && (base & 7) == 5))
		return;
	if (modrm.mod == 1 && left > constant)
		operand->displacement = (int8_t)at[constant];
	else if (modrm.mod == 2 && left >= constant + 4)
		memcpy(&operand->displacement, at + constant, 4);
	else if (modrm.mod)
		return;
	operand->base = base;
}

struct operand operand_decode(const uint8_t *at, size_t left, uint8_t rex)
{
	struct operand operand = { .base = NO_BASE, .changes = ALL_REGISTERS };
	bool wide = at[0] == 0x0f;
	size_t skip = wide ? 2 : 1;
	uint8_t opcode = left >= skip ? at[skip - 1] : 0;
	struct modrm modrm = read_modrm(left > skip ? at[skip] : 0, rex);

	if (left < skip)
		return operand;
	operand.changes = wide ? wide_changes(opcode, modrm) : narrow_changes(opcode, modrm, rex);
	if (!wide && by_stack(opcode))
		operand.base = STACK_POINTER;
	else if (left > skip)
		read_address(at + skip, left - skip, rex, &operand);
	return operand;
}
