/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The register of an access, and the registers that an instruction may change, for plain x86-64 code. */
#ifndef LAB_OPERAND_H
#define LAB_OPERAND_H

#include <stddef.h>
#include <stdint.h>

#define NO_BASE		0xff
#define STACK_POINTER	4
#define ALL_REGISTERS	0xffff

struct operand {
	uint8_t base;			/* register, if the address is that and a constant, else NO_BASE */
	int32_t displacement;
	uint16_t changes;		/* registers, one bit each; too many rather than too few */
};

/* Of an instruction without its prefixes. */
struct operand operand_decode(const uint8_t *at, size_t left, uint8_t rex);

#endif
