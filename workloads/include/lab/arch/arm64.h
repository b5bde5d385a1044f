/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See arch.h. */
#include <elf.h>
#include <stddef.h>
#include <sys/syscall.h>

/* movz xzr, #0x42CODE, lsl #48 */
#define LAB_MARK(code) __asm__ volatile(".inst 0xd2e8401f + (" #code " << 5)" ::: "memory")

#define LAB_JUMP	"b"

static inline __attribute__((always_inline)) long arch_call6(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;

	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}

static inline __attribute__((always_inline)) long arch_clone3(void *arguments, size_t size, void (*run)(void))
{
	register void (*child)(void) __asm__("x19") = run;
	register long number __asm__("x8") = SYS_clone3;
	register void *result __asm__("x0") = arguments;
	register size_t length __asm__("x1") = size;

	__asm__ volatile("svc #0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, xzr\n\t"
			 "blr x19\n\t"
			 "1:"
			 : "+r"(result)
			 : "r"(number), "r"(length), "r"(child)
			 : "memory");
	return (long)result;
}

#define ARCH_ELF_MACHINE	EM_AARCH64
/* mov x0, xzr; mov x8, #93; svc #0 */
#define ARCH_EXIT		{ 0xe0, 0x03, 0x1f, 0xaa, 0xa8, 0x0b, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4 }
