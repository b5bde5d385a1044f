// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Decoding only as far as needed. An unknown instruction is plain and may
 * access memory, which costs a little time and never a count.
 */
#include "decode.h"

#include <string.h>

struct prefixes {
	bool rep;
	bool lock;
	bool operand_size;
	bool segment;		/* fs or gs: their base is added */
	bool gs;
	uint8_t rex;
};

/* The opcode, behind all prefixes. */
static size_t skip_prefixes(const uint8_t *bytes, size_t size, struct prefixes *prefixes)
{
	size_t at = 0;

	for (; at < size; at++) {
		switch (bytes[at]) {
		case 0xf2:
		case 0xf3:
			prefixes->rep = true;
			continue;
		case 0x66:
			prefixes->operand_size = true;
			continue;
		case 0x64: case 0x65:
			prefixes->segment = true;
			prefixes->gs = bytes[at] == 0x65;
			continue;
		case 0xf0:
			prefixes->lock = true;
			continue;
		case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x67:
			continue;
		}
		break;
	}
	if (at < size && (bytes[at] & 0xf0) == 0x40)	/* REX */
		prefixes->rex = bytes[at++];
	return at;
}

static bool is_string(uint8_t opcode)
{
	return (opcode >= 0xa4 && opcode <= 0xa7) || (opcode >= 0xaa && opcode <= 0xaf) ||
	       (opcode >= 0x6c && opcode <= 0x6f);
}

/* movs, stos and ins write; cmps, scas, lods and outs only read. */
static bool string_stores(uint8_t opcode)
{
	uint8_t pair = opcode & 0xfe;

	return pair == 0xa4 || pair == 0xaa || pair == 0x6c;
}

static uint8_t string_size(uint8_t opcode, const struct prefixes *prefixes)
{
	if (!(opcode & 1))
		return 1;
	return prefixes->rex & 8 ? 8 : prefixes->operand_size ? 2 : 4;
}

static bool is_mark(const uint8_t *bytes, size_t size)
{
	static const uint8_t start[] = { 0x0f, 0x1f, 0x80 }, magic[] = { 0x42, 0x41, 0x4c };

	return size == 7 && !memcmp(bytes, start, sizeof(start)) && !memcmp(bytes + 4, magic, sizeof(magic));
}

static bool modrm_memory(const uint8_t *at, size_t left)
{
	return left < 2 || at[1] < 0xc0;
}

/* Opcodes of two bytes. */
static bool wide_memory(const uint8_t *at, size_t left)
{
	uint8_t opcode = left > 1 ? at[1] : 0;

	if (opcode >= 0x80 && opcode <= 0x8f)	/* jumps */
		return false;
	if (opcode == 0x1e || opcode == 0x1f)	/* endbr64, nop */
		return false;
	if ((opcode >= 0x40 && opcode <= 0x4f) || (opcode >= 0x90 && opcode <= 0x9f) || opcode == 0xaf ||
	    opcode == 0xb6 || opcode == 0xb7 || opcode == 0xbe || opcode == 0xbf)
		return modrm_memory(at + 1, left - 1);
	return true;
}

static bool may_access(const uint8_t *at, size_t left)
{
	uint8_t opcode = left ? at[0] : 0;

	if (opcode == 0x0f)
		return wide_memory(at, left);
	if (opcode < 0x40)	/* arithmetic: four forms with an operand, two with a constant */
		return (opcode & 7) < 4 ? modrm_memory(at, left) : (opcode & 7) > 5;
	if ((opcode >= 0x70 && opcode <= 0x7f) || (opcode >= 0x90 && opcode <= 0x99) || opcode == 0x8d ||
	    opcode == 0xa8 || opcode == 0xa9 || (opcode >= 0xb0 && opcode <= 0xbf) || opcode == 0xe9 ||
	    opcode == 0xeb)
		return false;
	if ((opcode >= 0x80 && opcode <= 0x8b) || opcode == 0x63 || opcode == 0x69 || opcode == 0x6b ||
	    opcode == 0xc0 || opcode == 0xc1 || opcode == 0xc6 || opcode == 0xc7 ||
	    (opcode >= 0xd0 && opcode <= 0xd3) || opcode == 0xf6 || opcode == 0xf7)
		return modrm_memory(at, left);
	return true;
}

/* An address that has no register in it, but perhaps the instruction pointer. */
static bool constant_address(const uint8_t *at, size_t left)
{
	size_t skip = at[0] == 0x0f ? 2 : 1;

	if (left < skip + 2)
		return false;
	return (at[skip] & 0xc7) == 5 || ((at[skip] & 0xc7) == 4 && at[skip + 1] == 0x25);
}

/* mov from memory to a register that is base or index of the operand: the next one has to wait for it. */
static bool chases(const uint8_t *at, size_t left, uint8_t rex)
{
	uint8_t modrm = left > 1 ? at[1] : 0xff;
	uint8_t target = ((modrm >> 3) & 7) | (rex & 4) << 1, base = (modrm & 7) | (rex & 1) << 3, index = 0xff;

	if (at[0] != 0x8b || modrm >= 0xc0 || (modrm & 0xc7) == 5)
		return false;
	if ((modrm & 7) == 4 && left > 2) {
		base = (at[2] & 7) | (rex & 1) << 3;
		index = ((at[2] >> 3) & 7) | (rex & 2) << 2;
	}
	return target == base || (target == index && index != 4);
}

/* Arithmetic in memory, with a register, a constant or nothing; xchg. */
static bool updates(uint8_t opcode, uint8_t group)
{
	if (opcode < 0x40)
		return (opcode & 7) < 2;
	return (opcode >= 0x80 && opcode <= 0x83) || opcode == 0x86 || opcode == 0x87 || opcode == 0xc0 ||
	       opcode == 0xc1 || (opcode >= 0xd0 && opcode <= 0xd3) ||
	       ((opcode == 0xf6 || opcode == 0xf7) && (group == 2 || group == 3)) ||
	       ((opcode == 0xfe || opcode == 0xff) && group < 2);
}

/* bts, btr and btc; cmpxchg; xadd. Of bts by a register, the register is part of the address. */
static bool wide_updates(uint8_t opcode, uint8_t group)
{
	return (opcode == 0xba && group > 4) || opcode == 0xb0 || opcode == 0xb1 || opcode == 0xc0 || opcode == 0xc1;
}

/* The most usual ones: asking QEMU at each access takes time. */
static enum direction direction(const uint8_t *at, size_t left)
{
	uint8_t opcode = at[0], second = left > 1 ? at[1] : 0, group = (second >> 3) & 7;

	if ((opcode >= 0x50 && opcode <= 0x57) || opcode == 0x88 || opcode == 0x89 || opcode == 0xc6 ||
	    opcode == 0xc7 || opcode == 0xe8)
		return DIRECTION_STORES;
	if ((opcode >= 0x58 && opcode <= 0x5f) || opcode == 0x8a || opcode == 0x8b || opcode == 0x63 ||
	    opcode == 0xc3 || opcode == 0x84 || opcode == 0x85)
		return DIRECTION_LOADS;
	/* Arithmetic to a register, and both forms of cmp. */
	if (opcode < 0x40 && ((opcode & 7) == 2 || (opcode & 7) == 3 || opcode == 0x38 || opcode == 0x39))
		return DIRECTION_LOADS;
	/* cmp and test with a constant. */
	if ((opcode >= 0x80 && opcode <= 0x83 && group == 7) || ((opcode == 0xf6 || opcode == 0xf7) && group < 2))
		return DIRECTION_LOADS;
	if (opcode == 0x0f && (second == 0xb6 || second == 0xb7 || second == 0xbe || second == 0xbf ||
			       (second & 0xf0) == 0x40))
		return DIRECTION_LOADS;
	if (opcode == 0x0f ? wide_updates(second, left > 2 ? (at[2] >> 3) & 7 : 0) : updates(opcode, group))
		return DIRECTION_UPDATES;
	return DIRECTION_ANY;
}

static enum leap leap(const uint8_t *at, size_t left)
{
	uint8_t extension = left > 1 ? at[1] >> 3 & 7 : 0;

	if (at[0] == 0xe8 || (at[0] == 0xff && (extension == 2 || extension == 3)))
		return LEAP_CALL;
	return at[0] == 0xc3 || at[0] == 0xc2 || at[0] == 0xcf ? LEAP_RETURN : LEAP_NONE;
}

struct decoded x86_decode(const uint8_t *bytes, size_t size)
{
	struct decoded decoded = { .kind = KIND_PLAIN, .class = CLASS_NONE };
	struct prefixes prefixes = { .rep = false };
	size_t start = skip_prefixes(bytes, size, &prefixes), left = size - start;
	const uint8_t *at = bytes + start;

	if (is_mark(bytes, size)) {
		decoded.kind = KIND_MARK;
		decoded.mark = bytes[3];
		return decoded;
	}
	decoded.memory = may_access(at, left);
	if (!left)
		return decoded;
	decoded.direction = direction(at, left);
	decoded.chases = chases(at, left, prefixes.rex);
	decoded.operand = operand_decode(at, left, prefixes.rex);
	decoded.calls = at[0] == 0xe8;
	decoded.leap = leap(at, left);
	decoded.variable = decoded.memory && decoded.operand.base != STACK_POINTER &&
			   (prefixes.gs || (!prefixes.segment && constant_address(at, left)));
	if (prefixes.segment || !decoded.memory)
		decoded.operand.base = NO_BASE;
	decoded.halts = at[0] == 0xf4;
	decoded.turn = turn_decode(bytes, size);
	decoded.class = class_decode(at, left, prefixes.lock, prefixes.rep);
	decoded.redirects = redirects_return(bytes, size);
	if ((at[0] == 0xe8 || at[0] == 0xe9) && left == 5)
		memcpy(&decoded.jump, at + 1, sizeof(decoded.jump));
	if (prefixes.rep && is_string(at[0])) {
		decoded.kind = KIND_STRING;
		decoded.stores = string_stores(at[0]);
		decoded.two = (at[0] & 0xfe) == 0xa4;
		decoded.size = string_size(at[0], &prefixes);
	} else if (decoded.class == CLASS_CR3) {
		decoded.kind = KIND_FLUSH_USER;
	} else if (decoded.class == CLASS_CR4) {
		decoded.kind = KIND_FLUSH_ALL;
	} else if (decoded.class == CLASS_INVLPG) {
		decoded.kind = KIND_FLUSH_PAGE;
	}
	return decoded;
}
