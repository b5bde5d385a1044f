// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Single instructions. Most are measured among plain ones, as `among_NAME`, and cost their addition to `among_nothing`:
 * an atomic operation or a fence waits for the loads and stores around it, and back to back there would be none.
 */
#include "measure.h"
#include "sample.h"

#include <stddef.h>

enum {
	BLOCK = 32,		/* repetitions in a loop's body */
	LINES = 16,
};

static _Alignas(4096) uint64_t lines[LINES * 8];

/* Two loads, two stores and four operations on registers, on which nothing waits. */
#define PLAIN                          \
	"mov 128(%[p]), %%r8\n\t"      \
	"add %%r9, %%r10\n\t"          \
	"mov %%r10, 192(%[p])\n\t"     \
	"lea 1(%%r11), %%r9\n\t"       \
	"xor %%r8, %%r11\n\t"          \
	"mov 256(%[p]), %%r8\n\t"      \
	"and %%r8, %%r9\n\t"           \
	"mov %%r9, 320(%[p])\n\t"

#define LOOP(name, body)                                                                                      \
	static void name(uint64_t count, void *context)                                                       \
	{                                                                                                     \
		uint64_t a = 1, d = 0;                                                                        \
                                                                                                              \
		asm volatile(".p2align 6\n"                                                                   \
			     "1:\n\t"                                                                         \
			     ".rept 32\n\t" body ".endr\n\t"                                                  \
			     "dec %[n]\n\t"                                                                   \
			     "jnz 1b"                                                                         \
			     : [n] "+r"(count), "+a"(a), "+d"(d)                                              \
			     : [p] "r"(context), [one] "r"((uint64_t)1),                                      \
			       [seven] "r"((uint64_t)7), [large] "r"((uint64_t)1 << 40)                       \
			     : "cc", "memory", "rbx", "rcx", "r8", "r9", "r10", "r11", "xmm0");                             \
	}

#define AMONG(name, body) LOOP(among_##name, PLAIN body)

AMONG(nothing, "")
AMONG(add, "add %[one], (%[p])\n\t")
AMONG(lock_add, "lock add %[one], (%[p])\n\t")
AMONG(xchg, "xchg %%rax, (%[p])\n\t")
AMONG(cmpxchg, "lock cmpxchg %%rdx, (%[p])\n\t")
AMONG(mfence, "mfence\n\t")
AMONG(lfence, "lfence\n\t")
AMONG(sfence, "sfence\n\t")
AMONG(vector, "movups 64(%[p]), %%xmm0\n\tmovups %%xmm0, 384(%[p])\n\t")
AMONG(taken_branch, "jmp 2f\n\t.p2align 4\n2:\n\t")
AMONG(indirect_branch, "lea 2f(%%rip), %%rax\n\tjmp *%%rax\n\t.p2align 4\n2:\n\t")
AMONG(call, "call 2f\n\tjmp 3f\n\t.p2align 4\n2:\n\tret\n3:\n\t")
/* As kernels do it: speculation stays in the loop, and the return goes to the stack's address. */
AMONG(retpoline, "lea 4f(%%rip), %%rax\n\tcall 3f\n2:\n\tpause\n\tlfence\n\tjmp 2b\n3:\n\t"
		 "mov %%rax, (%%rsp)\n\tret\n4:\n\t")
AMONG(rdtsc, "rdtsc\n\t")
AMONG(rdtscp, "rdtscp\n\t")
AMONG(popf, "pushfq\n\tpopfq\n\t")
AMONG(segment, "mov %%ss, %%ecx\n\tmov %%ecx, %%es\n\t")
LOOP(cpuid, "xor %%eax, %%eax\n\tcpuid\n\t")
LOOP(lock_add, "lock add %[one], (%[p])\n\t")
LOOP(load_add_store, "add %[one], (%[p])\n\t")
LOOP(pause_loop, "pause\n\t")
/* Dividends of 40 bits, each waiting for the last quotient; the addition takes a cycle of its own. */
LOOP(division, "xor %%edx, %%edx\n\tdiv %[seven]\n\tadd %[large], %%rax\n\t")

/* The registers that programs use everywhere: x87, SSE and AVX. */
static void save_restore(uint64_t count, void *context)
{
	static _Alignas(64) char area[4096];

	(void)context;
	while (count--)
		asm volatile("xsave64 %0\n\txrstor64 %0" : "+m"(area) : "a"(7), "d"(0) : "memory");
}

/* xorshift64, with a jump or call at the end that a predictor can learn only if the mask hides the random bits. */
struct random {
	uint64_t state;
	uint64_t mask;
	void *targets[4];
};

static uint64_t next_random(uint64_t state)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^ state << 17;
}

static void branches(uint64_t count, void *context)
{
	struct random *random = context;
	uint64_t state = random->state, mask = random->mask, taken = 0;

	while (count--) {
		state = next_random(state);
		asm volatile("test %[mask], %[state]\n\t"
			     "jz 1f\n\t"
			     "inc %[taken]\n"
			     "1:"
			     : [taken] "+r"(taken)
			     : [mask] "r"(mask & 1), [state] "r"(state)
			     : "cc");
	}
	random->state = state;
}

static void indirect_jumps(uint64_t count, void *context)
{
	struct random *random = context;
	uint64_t state = random->state, mask = random->mask, target;
	const uint64_t places = 3;

	while (count--) {
		state = next_random(state);
		target = state & mask & places;
		asm volatile("lea 1f(%%rip), %%r8\n\t"
			     "shl $4, %[target]\n\t"
			     "add %[target], %%r8\n\t"
			     "jmp *%%r8\n\t"
			     ".p2align 4\n"
			     "1:\n\t"
			     "jmp 2f\n\t"
			     ".p2align 4\n\t"
			     "jmp 2f\n\t"
			     ".p2align 4\n\t"
			     "jmp 2f\n\t"
			     ".p2align 4\n"
			     "2:"
			     : [target] "+r"(target)
			     :
			     : "cc", "r8");
	}
	random->state = state;
}

void measure_instructions(void)
{
	static const struct {
		const char *name;
		work_fn *work;
	} all[] = {
		{ "among_nothing", among_nothing },
		{ "among_add", among_add },
		{ "among_lock_add", among_lock_add },
		{ "among_xchg", among_xchg },
		{ "among_cmpxchg", among_cmpxchg },
		{ "among_mfence", among_mfence },
		{ "among_lfence", among_lfence },
		{ "among_sfence", among_sfence },
		{ "among_vector", among_vector },
		{ "among_taken_branch", among_taken_branch },
		{ "among_indirect_branch", among_indirect_branch },
		{ "among_call", among_call },
		{ "among_retpoline", among_retpoline },
		{ "among_rdtsc", among_rdtsc },
		{ "among_rdtscp", among_rdtscp },
		{ "among_popf", among_popf },
		{ "among_segment", among_segment },
		{ "cpuid", cpuid },
		{ "lock_add", lock_add },
		{ "load_add_store", load_add_store },
		{ "pause", pause_loop },
		{ "division", division },
	};
	static const struct {
		const char *name;
		work_fn *work;
		uint64_t mask;
	} random[] = {
		{ "branch_predicted", branches, 0 },
		{ "branch_random", branches, ~(uint64_t)0 },
		{ "indirect_predicted", indirect_jumps, 0 },
		{ "indirect_random", indirect_jumps, ~(uint64_t)0 },
	};

	for (size_t i = 0; i < COUNT(all); i++)
		measure(&(struct bench){ .name = all[i].name, .work = all[i].work, .context = lines, .events = BLOCK });
	if (__builtin_cpu_supports("avx"))
		measure(&(struct bench){ .name = "xsave_xrstor", .work = save_restore });
	else
		missing("xsave_xrstor", "the CPU has no AVX");
	for (size_t i = 0; i < COUNT(random); i++) {
		struct random state = { .state = 88172645463325252, .mask = random[i].mask };

		measure(&(struct bench){ .name = random[i].name, .work = random[i].work, .context = &state });
	}
}
