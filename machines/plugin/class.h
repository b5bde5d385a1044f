/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Instructions that cost more than most: each class has a cost of its own beyond that of any instruction. */
#ifndef LAB_CLASS_H
#define LAB_CLASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum class {
	CLASS_ATOMIC,		/* with a lock prefix, or xchg with memory; ldadd, cas, stxr and the like */
	CLASS_FENCE,		/* mfence, lfence, sfence; dmb */
	CLASS_DIVISION,
	CLASS_PAUSE,		/* and yield, wfe, wfi */
	CLASS_INDIRECT,		/* jump or call to an address in a register or in memory */
	CLASS_RETURN,
	CLASS_MISPREDICTION,	/* a return to elsewhere than behind its call: of retpolines and safe returns */
	CLASS_INTERRUPT_FLAG,	/* cli, sti, popf; msr daifset and the like */
	CLASS_USER_ACCESS,	/* stac, clac; msr pan, uao */
	CLASS_SEGMENT,		/* a segment register is loaded */
	CLASS_STATE,		/* xsave, xrstor, fxsave, fxrstor */
	CLASS_VECTOR,		/* SSE and AVX; SIMD, floating point and SVE */
	CLASS_TIME,		/* rdtsc, rdtscp; mrs cntvct_el0 */
	CLASS_CPUID,
	CLASS_MSR,		/* rdmsr, wrmsr; mrs and msr of registers that are not renamed as others are */
	CLASS_SWAPGS,
	CLASS_CR3,		/* written; invpcid */
	CLASS_CR4,
	CLASS_INVLPG,
	CLASS_SYSCALL,		/* a system call's way in and out; seen at its sysret; svc */
	CLASS_EXCEPTION,	/* the same of an exception or interrupt; seen at its iret; eret, of all three */
	CLASS_TLB_INVALIDATION,	/* tlbi, sfence.vma: of a page, a range or all */
	CLASS_ZEROED_LINE,	/* dc zva, cbo.zero: they store no operand */
	CLASS_DSB,
	CLASS_ISB,		/* and sb */
	NR_CLASSES,
	NR_X86_CLASSES = CLASS_TLB_INVALIDATION,
	CLASS_NONE = NR_CLASSES,
};

/* Of the output, and of the machine's file: plural for counts. */
extern const char *const class_costs[NR_CLASSES];
extern const char *const class_counters[NR_CLASSES];

/* An instruction behind its prefixes. locked, repeated: it has such a prefix. */
/* An instruction that changes the target of the return behind it. */
bool redirects_return(const uint8_t *bytes, size_t size);

enum class class_decode(const uint8_t *at, size_t left, bool locked, bool repeated);

#endif
