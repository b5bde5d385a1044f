/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See arch.h. */
#include <elf.h>
#include <stddef.h>
#include <sys/syscall.h>

/* lui zero, 0x42c00 + CODE: a hint that says nothing */
#define LAB_MARK(code) __asm__ volatile(".4byte 0x42c00037 + (" #code " << 12)" ::: "memory")

#define LAB_JUMP	"j"

static inline __attribute__((always_inline)) long arch_call6(long number, long a, long b, long c, long d, long e, long f)
{
	register long a7 __asm__("a7") = number;
	register long a0 __asm__("a0") = a;
	register long a1 __asm__("a1") = b;
	register long a2 __asm__("a2") = c;
	register long a3 __asm__("a3") = d;
	register long a4 __asm__("a4") = e;
	register long a5 __asm__("a5") = f;

	__asm__ volatile("ecall"
			 : "+r"(a0)
			 : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5)
			 : "memory");
	return a0;
}

static inline __attribute__((always_inline)) long arch_clone3(void *arguments, size_t size, void (*run)(void))
{
	register void (*child)(void) __asm__("s1") = run;
	register long number __asm__("a7") = SYS_clone3;
	register void *result __asm__("a0") = arguments;
	register size_t length __asm__("a1") = size;

	__asm__ volatile("ecall\n\t"
			 "bnez a0, 1f\n\t"
			 "mv s0, zero\n\t"
			 "jalr s1\n\t"
			 "1:"
			 : "+r"(result)
			 : "r"(number), "r"(length), "r"(child)
			 : "memory");
	return (long)result;
}

#define ARCH_ELF_MACHINE	EM_RISCV
/* li a0, 0; li a7, 93; ecall */
#define ARCH_EXIT		{ 0x13, 0x05, 0x00, 0x00, 0x93, 0x08, 0xd0, 0x05, 0x73, 0x00, 0x00, 0x00 }
