// SPDX-License-Identifier: GPL-2.0-or-later
/* Recognising classes by opcode: Intel's Software Developer's Manual, volume 2, appendix A has the maps. */
#include "class.h"

#include <string.h>

const char *const class_costs[NR_CLASSES] = {
	[CLASS_ATOMIC]		= "atomic",
	[CLASS_FENCE]		= "fence",
	[CLASS_DIVISION]	= "division",
	[CLASS_PAUSE]		= "pause",
	[CLASS_INDIRECT]	= "indirect_branch",
	[CLASS_RETURN]		= "return_branch",
	[CLASS_MISPREDICTION]	= "misprediction",
	[CLASS_INTERRUPT_FLAG]	= "interrupt_flag",
	[CLASS_USER_ACCESS]	= "user_access",
	[CLASS_SEGMENT]		= "segment",
	[CLASS_STATE]		= "state",
	[CLASS_VECTOR]		= "vector",
	[CLASS_TIME]		= "time",
	[CLASS_CPUID]		= "cpuid",
	[CLASS_MSR]		= "msr",
	[CLASS_SWAPGS]		= "swapgs",
	[CLASS_CR3]		= "cr3",
	[CLASS_CR4]		= "cr4",
	[CLASS_INVLPG]		= "invlpg",
	[CLASS_SYSCALL]		= "syscall",
	[CLASS_EXCEPTION]	= "exception",
	[CLASS_TLB_INVALIDATION] = "tlb_invalidation",
	[CLASS_ZEROED_LINE]	= "zeroed_line",
	[CLASS_DSB]		= "dsb",
	[CLASS_ISB]		= "isb",
};

const char *const class_counters[NR_CLASSES] = {
	[CLASS_ATOMIC]		= "atomics",
	[CLASS_FENCE]		= "fences",
	[CLASS_DIVISION]	= "divisions",
	[CLASS_PAUSE]		= "pauses",
	[CLASS_INDIRECT]	= "indirect_branches",
	[CLASS_RETURN]		= "returns",
	[CLASS_MISPREDICTION]	= "mispredictions",
	[CLASS_INTERRUPT_FLAG]	= "interrupt_flags",
	[CLASS_USER_ACCESS]	= "user_accesses",
	[CLASS_SEGMENT]		= "segments",
	[CLASS_STATE]		= "states",
	[CLASS_VECTOR]		= "vectors",
	[CLASS_TIME]		= "times",
	[CLASS_CPUID]		= "cpuids",
	[CLASS_MSR]		= "msrs",
	[CLASS_SWAPGS]		= "swapgs",
	[CLASS_CR3]		= "cr3_writes",
	[CLASS_CR4]		= "cr4_writes",
	[CLASS_INVLPG]		= "invlpgs",
	[CLASS_SYSCALL]		= "syscalls",
	[CLASS_EXCEPTION]	= "exceptions",
	[CLASS_TLB_INVALIDATION] = "tlb_invalidations",
	[CLASS_ZEROED_LINE]	= "zeroed_lines",
	[CLASS_DSB]		= "dsbs",
	[CLASS_ISB]		= "isbs",
};

struct modrm {
	bool memory;
	uint8_t group;		/* its reg field */
	uint8_t byte;
};

static struct modrm read_modrm(const uint8_t *at, size_t left)
{
	if (!left)
		return (struct modrm){ 0 };
	return (struct modrm){ *at < 0xc0, (*at >> 3) & 7, *at };
}

/* 0f 01, with a register for operand: the byte says all. */
static enum class system_class(struct modrm modrm)
{
	if (modrm.memory)
		return modrm.group == 7 ? CLASS_INVLPG : CLASS_NONE;
	switch (modrm.byte) {
	case 0xca: case 0xcb:
		return CLASS_USER_ACCESS;
	case 0xf8:
		return CLASS_SWAPGS;
	case 0xf9:
		return CLASS_TIME;
	}
	return CLASS_NONE;
}

/* 0f ae: fences with a register for operand, the state of SSE and AVX with memory. */
static enum class fence_class(struct modrm modrm)
{
	if (!modrm.memory)
		return modrm.group > 4 ? CLASS_FENCE : CLASS_NONE;
	return modrm.group < 2 || (modrm.group > 3 && modrm.group < 7) ? CLASS_STATE : CLASS_NONE;
}

static bool is_vector(uint8_t opcode)
{
	return (opcode >= 0x10 && opcode <= 0x17) || (opcode >= 0x28 && opcode <= 0x2f) ||
	       (opcode >= 0x50 && opcode <= 0x7f) || opcode == 0xc2 || (opcode >= 0xc4 && opcode <= 0xc6) ||
	       opcode >= 0xd0;
}

/* Opcodes of two bytes, behind the first. */
static enum class wide_class(const uint8_t *at, size_t left)
{
	struct modrm modrm = read_modrm(at + 1, left - 1);

	switch (*at) {
	case 0x01:
		return system_class(modrm);
	case 0x07:
		return CLASS_SYSCALL;
	case 0x22:
		return modrm.group == 3 ? CLASS_CR3 : modrm.group == 4 ? CLASS_CR4 : CLASS_NONE;
	case 0x30: case 0x32:
		return CLASS_MSR;
	case 0x31:
		return CLASS_TIME;
	case 0x38:	/* invpcid among them, with memory for operand */
		return modrm.byte == 0x82 ? CLASS_CR3 : CLASS_VECTOR;
	case 0x3a:
		return CLASS_VECTOR;
	case 0xa2:
		return CLASS_CPUID;
	case 0xae:
		return fence_class(modrm);
	case 0xc7:	/* xsavec, xsaves, xrstors */
		return modrm.memory && modrm.group > 2 && modrm.group < 6 ? CLASS_STATE : CLASS_NONE;
	}
	return is_vector(*at) ? CLASS_VECTOR : CLASS_NONE;
}

/*
 * lea 8(%rsp),%rsp and mov %REGISTER,(%rsp): the last instruction but one of the
 * thunks in arch/x86/lib/retpoline.S.
 */
bool redirects_return(const uint8_t *bytes, size_t size)
{
	static const uint8_t skip[] = { 0x48, 0x8d, 0x64, 0x24, 0x08 };

	if (size == sizeof(skip))
		return !memcmp(bytes, skip, sizeof(skip));
	return size == 4 && (bytes[0] & 0xfb) == 0x48 && bytes[1] == 0x89 && (bytes[2] & 0xc7) == 4 &&
	       bytes[3] == 0x24;
}

enum class class_decode(const uint8_t *at, size_t left, bool locked, bool repeated)
{
	struct modrm modrm = read_modrm(at + 1, left - 1);

	if (locked)
		return CLASS_ATOMIC;
	switch (*at) {
	case 0x0f:
		return left > 1 ? wide_class(at + 1, left - 1) : CLASS_NONE;
	case 0x62: case 0xc4: case 0xc5:
		return CLASS_VECTOR;
	case 0x86: case 0x87:
		return modrm.memory ? CLASS_ATOMIC : CLASS_NONE;
	case 0x8e:
		return CLASS_SEGMENT;
	case 0x90:
		return repeated ? CLASS_PAUSE : CLASS_NONE;
	case 0x9d: case 0xfa: case 0xfb:
		return CLASS_INTERRUPT_FLAG;
	case 0xc2: case 0xc3:
		return CLASS_RETURN;
	case 0xcf:
		return CLASS_EXCEPTION;
	case 0xf6: case 0xf7:
		return modrm.group > 5 ? CLASS_DIVISION : CLASS_NONE;
	case 0xff:
		return modrm.group > 1 && modrm.group < 6 ? CLASS_INDIRECT : CLASS_NONE;
	}
	return CLASS_NONE;
}
