/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * System calls without the C library: SYS(read, fd, buffer, length) is the
 * kernel's own result, negative with an error. must() is for those that cannot
 * fail, offered() for what a kernel may lack.
 */
#ifndef CALLS_H
#define CALLS_H

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline __attribute__((always_inline)) long call6(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
#else
	long result = syscall(number, a, b, c, d, e, f);

	return result < 0 ? -errno : result;
#endif
}

#define SYS_PICK(number, a, b, c, d, e, f, ...) \
	call6(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define SYS(name, ...) SYS_PICK(SYS_##name __VA_OPT__(,) __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

/* The end of the program: what failed, and why. */
_Noreturn void call_failed(const char *what, long result);

/* The same, where the kernel may lack it: errors that say so are "not supported on this kernel". */
_Noreturn void call_refused(const char *what, long result);

/* The end of the program: the kernel cannot do this case. */
_Noreturn void not_supported(const char *what, const char *why);

#define must(call) \
	({ \
		long must_result = (call); \
		if (__builtin_expect(must_result < 0, 0)) \
			call_failed(#call, must_result); \
		must_result; \
	})

#define offered(call) \
	({ \
		long offered_result = (call); \
		if (__builtin_expect(offered_result < 0, 0)) \
			call_refused(#call, offered_result); \
		offered_result; \
	})

#endif
