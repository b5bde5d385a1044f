// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Recognising classes by the groups of Arm's Architecture Reference Manual for
 * A-profile, DDI 0487, chapter C4.
 *
 * Of a pair of exclusives the store is the atomic instruction, the load a load:
 * kernels read by it alone, too, before they wait for a change.
 */
#include "a64_class.h"

#define FIELD(word, low, count)	((word) >> (low) & ((1U << (count)) - 1))

/* A system register as mrs and msr name it: op0 (2 or 3), op1, CRn, CRm, op2. */
#define REGISTER(op0, op1, n, m, op2) ((op0) << 14 | (op1) << 11 | (n) << 7 | (m) << 3 | (op2))

enum {
	SP_EL0		= REGISTER(3, 0, 4, 1, 0),
	PAN		= REGISTER(3, 0, 4, 2, 3),
	UAO		= REGISTER(3, 0, 4, 2, 4),
	TPIDR_EL1	= REGISTER(3, 0, 13, 0, 4),
	NZCV		= REGISTER(3, 3, 4, 2, 0),
	DAIF		= REGISTER(3, 3, 4, 2, 1),
	FPCR		= REGISTER(3, 3, 4, 4, 0),
	FPSR		= REGISTER(3, 3, 4, 4, 1),
	TPIDR_EL0	= REGISTER(3, 3, 13, 0, 2),
	TPIDRRO_EL0	= REGISTER(3, 3, 13, 0, 3),
	CNTPCT_EL0	= REGISTER(3, 3, 14, 0, 1),
	CNTVCT_EL0	= REGISTER(3, 3, 14, 0, 2),
	CNTPCTSS_EL0	= REGISTER(3, 3, 14, 0, 5),
	CNTVCTSS_EL0	= REGISTER(3, 3, 14, 0, 6),
};

static enum class read_class(uint32_t number)
{
	switch (number) {
	case SP_EL0: case TPIDR_EL1: case TPIDR_EL0: case TPIDRRO_EL0: case NZCV: case DAIF: case FPCR: case FPSR:
		return CLASS_NONE;
	case CNTPCT_EL0: case CNTVCT_EL0: case CNTPCTSS_EL0: case CNTVCTSS_EL0:
		return CLASS_TIME;
	}
	return CLASS_MSR;
}

static enum class write_class(uint32_t number)
{
	switch (number) {
	case SP_EL0: case TPIDR_EL1: case TPIDR_EL0: case TPIDRRO_EL0: case NZCV:
		return CLASS_NONE;
	case DAIF:
		return CLASS_INTERRUPT_FLAG;
	case PAN: case UAO:
		return CLASS_USER_ACCESS;
	}
	return CLASS_MSR;
}

/* yield, wfe, wfi; all others of 128 do nothing that costs. */
static enum class hint_class(uint32_t number)
{
	return number >= 1 && number <= 3 ? CLASS_PAUSE : CLASS_NONE;
}

static enum class barrier_class(uint32_t op2)
{
	switch (op2) {
	case 1: case 4:		/* dsb, with and without nXS */
		return CLASS_DSB;
	case 5:			/* dmb */
		return CLASS_FENCE;
	case 6: case 7:		/* isb, sb */
		return CLASS_ISB;
	}
	return CLASS_NONE;
}

/* msr with a constant: a field of the processor's state. */
static enum class state_class(uint32_t op1, uint32_t op2)
{
	if (op1 == 3)
		return op2 == 6 || op2 == 7 ? CLASS_INTERRUPT_FLAG : CLASS_NONE;
	return op1 == 0 && (op2 == 3 || op2 == 4) ? CLASS_USER_ACCESS : CLASS_NONE;
}

/* sys: of the processor's buffers and caches. */
static enum class maintenance_class(uint32_t word)
{
	if (FIELD(word, 12, 4) == 8 || FIELD(word, 12, 4) == 9)
		return CLASS_TLB_INVALIDATION;
	return (word & ~0x1fU) == 0xd50b7420 ? CLASS_ZEROED_LINE : CLASS_NONE;	/* dc zva */
}

static enum class system_class(uint32_t word)
{
	uint32_t op1 = FIELD(word, 16, 3), op2 = FIELD(word, 5, 3);
	bool reads = FIELD(word, 21, 1);

	switch (FIELD(word, 19, 2)) {
	case 0:
		switch (FIELD(word, 12, 4)) {
		case 1:		/* wfet, wfit */
			return CLASS_PAUSE;
		case 2:
			return op1 == 3 ? hint_class(FIELD(word, 5, 7)) : CLASS_NONE;
		case 3:
			return op1 == 3 ? barrier_class(op2) : CLASS_NONE;
		case 4:
			return state_class(op1, op2);
		}
		return CLASS_NONE;
	case 1:
		return reads ? CLASS_NONE : maintenance_class(word);
	}
	return reads ? read_class(FIELD(word, 5, 16)) : write_class(FIELD(word, 5, 16));
}

/* By a register. Branches that authenticate their pointer are among them. */
static enum class branch_class(uint32_t word)
{
	switch (FIELD(word, 21, 4)) {
	case 0: case 1: case 8: case 9:	/* br, blr */
		return CLASS_INDIRECT;
	case 2:				/* ret */
		return CLASS_RETURN;
	case 4:				/* eret */
		return CLASS_EXCEPTION;
	}
	return CLASS_NONE;
}

static enum class exclusive_class(uint32_t word)
{
	bool ordered = FIELD(word, 23, 1), loads = FIELD(word, 22, 1), pair = FIELD(word, 21, 1);

	if (ordered)
		return pair ? CLASS_ATOMIC : CLASS_NONE;	/* cas; ldar and stlr */
	if (pair && !FIELD(word, 31, 1))
		return CLASS_ATOMIC;				/* casp */
	return loads ? CLASS_NONE : CLASS_ATOMIC;
}

static enum class memory_class(uint32_t word)
{
	if (FIELD(word, 26, 1))
		return CLASS_VECTOR;
	if (FIELD(word, 24, 6) == 0x08)
		return exclusive_class(word);
	if ((word & 0x3f200c00) == 0x38200000)		/* ldadd, swp and the like; ldapr */
		return (word & 0x3ffffc00) == 0x38bfc000 ? CLASS_NONE : CLASS_ATOMIC;
	return CLASS_NONE;
}

enum class a64_class(uint32_t word)
{
	if (FIELD(word, 22, 10) == 0x354)
		return system_class(word);
	if (FIELD(word, 25, 7) == 0x6b)
		return branch_class(word);
	if ((word & 0xffe0001f) == 0xd4000001)		/* svc */
		return CLASS_SYSCALL;
	if ((word & 0x0a000000) == 0x08000000)
		return memory_class(word);
	if ((word & 0x0e000000) == 0x0e000000 || (word & 0x1e000000) == 0x04000000)	/* SIMD, SVE */
		return CLASS_VECTOR;
	if ((word & 0x7fe0f800) == 0x1ac00800)		/* udiv, sdiv */
		return CLASS_DIVISION;
	return CLASS_NONE;
}
