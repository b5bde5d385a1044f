/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See arch.h. */
#include <elf.h>
#include <stddef.h>
#include <sys/syscall.h>

/* nopl 0x4c4142xx(%rax), always in its form of 7 bytes */
#define LAB_MARK(code) \
	__asm__ volatile(".byte 0x0f, 0x1f, 0x80, " #code ", 0x42, 0x41, 0x4c" ::: "memory")

#define LAB_JUMP	"jmp"

static inline __attribute__((always_inline)) long arch_call6(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

static inline __attribute__((always_inline)) long arch_clone3(void *arguments, size_t size, void (*run)(void))
{
	register void (*child)(void) __asm__("r12") = run;
	long result;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "call *%%r12\n\t"
			 "1:"
			 : "=a"(result)
			 : "a"((long)SYS_clone3), "D"(arguments), "S"(size), "r"(child)
			 : "rcx", "r11", "memory");
	return result;
}

#define ARCH_ELF_MACHINE	EM_X86_64
/* xor %edi, %edi; mov $60, %eax; syscall */
#define ARCH_EXIT		{ 0x31, 0xff, 0xb8, 0x3c, 0x00, 0x00, 0x00, 0x0f, 0x05 }
