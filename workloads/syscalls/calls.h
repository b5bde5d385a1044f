/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * System calls without the C library: SYS(read, fd, buffer, length) is the
 * kernel's own result, negative with an error. must() is for calls that cannot
 * fail, offered() for calls that a kernel may lack.
 */
#ifndef CALLS_H
#define CALLS_H

#include <lab/arch.h>

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYS_PICK(number, a, b, c, d, e, f, ...) \
	arch_call6(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define SYS(name, ...) SYS_PICK(SYS_##name __VA_OPT__(,) __VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

/*
 * Calls that architectures since arm64 do not have (include/uapi/asm-generic/unistd.h
 * leaves them out), and their successors there.
 */
#ifdef SYS_fork
#define call_fork()			SYS(fork)
#define call_open(...)			SYS(open, __VA_ARGS__)
#define call_pause()			SYS(pause)
#define call_poll(polled, count)	SYS(poll, polled, count, 0)
#define call_select(...)		SYS(select, __VA_ARGS__)
#define call_epoll_wait(...)		SYS(epoll_wait, __VA_ARGS__)
#else
#include <fcntl.h>
#include <signal.h>
#include <time.h>

#define call_fork()			SYS(clone, SIGCHLD)
#define call_open(...)			SYS(openat, AT_FDCWD, __VA_ARGS__)
#define call_pause()			SYS(ppoll, NULL, 0, NULL, NULL)
#define call_poll(polled, count)	SYS(ppoll, polled, count, &(struct timespec){ 0 }, NULL, 8)
/* Both kinds of time have two words, and none is left. */
#define call_select(...)		SYS(pselect6, __VA_ARGS__, NULL)
#define call_epoll_wait(...)		SYS(epoll_pwait, __VA_ARGS__, NULL, 8)
#endif

/* The end of the program: the failure, and its reason. */
_Noreturn void call_failed(const char *what, long result);

/* The same, if the kernel may lack it: errors that say so are "not supported on this kernel". */
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
