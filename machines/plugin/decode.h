/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The few instructions that the model treats apart; those of x86-64 are recognised here, others' in a64.h and rv64.h. */
#ifndef LAB_DECODE_H
#define LAB_DECODE_H

#include "block.h"
#include "class.h"
#include "operand.h"
#include "turn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INSTRUCTION_MAX	15

enum kind {
	KIND_PLAIN,
	KIND_MARK,		/* see workloads/include/lab/mark.h */
	KIND_STRING,		/* with a rep prefix */
	KIND_FLUSH_USER,	/* mov to cr3; invpcid, whose operand alone says what it flushes */
	KIND_FLUSH_ALL,		/* mov to cr4 */
	KIND_FLUSH_PAGE,	/* invlpg */
	KIND_ENTER_SPACE,	/* msr ttbr1_el1: the number of the next address space is in it */
	KIND_FLUSH_SPACE,	/* tlbi, in all vCPUs: of an address space */
	KIND_FLUSH_SPACES,	/* all */
	KIND_FLUSH_ITS_PAGE,	/* one page, or a range of them */
	NR_KINDS,
};

/* The memory access of an instruction, if there is one and it is known. */
enum direction {
	DIRECTION_ANY,
	DIRECTION_LOADS,
	DIRECTION_STORES,
	DIRECTION_UPDATES,	/* one of each, by generated code alone */
};

struct decoded {
	enum kind kind;
	uint8_t mark;
	bool two;		/* string: reads and writes in each iteration */
	bool stores;		/* string: writes, whether or not it reads as well */
	uint8_t size;		/* string: of an element */
	bool chases;		/* loads into a register that its address is made of */
	bool calls;		/* pushes a return address */
	bool variable;		/* by gs or without a register: in the kernel, this CPU's variables and its own */
	enum direction direction;
	struct operand operand;
	bool memory;		/* may access memory, so may fault; true when in doubt */
	bool halts;
	enum turn turn;
	enum class class;
	bool redirects;		/* the return behind it, see class.h */
	int32_t jump;		/* of a jmp or a call: how far, from its end */
	enum leap leap;
};

struct decoded x86_decode(const uint8_t *bytes, size_t size);

#endif
