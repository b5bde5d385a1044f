// SPDX-License-Identifier: GPL-2.0-or-later
/* Without the kernel: contention that is planted, and its controls. */
#include "operations.h"

#include <sys/syscall.h>
#include <unistd.h>

static void getppid_run(struct worker *worker)
{
	(void)worker;
	syscall(SYS_getppid);
}

static void near_run(struct worker *worker)
{
	common->near[worker->id]++;
}

static void apart_run(struct worker *worker)
{
	common->apart[worker->id].value++;
}

/* A lock that is tried only when it looks free. */
static void lock_run(struct worker *worker)
{
	(void)worker;
	while (__atomic_exchange_n(&common->lock, 1, __ATOMIC_ACQUIRE))
		while (__atomic_load_n(&common->lock, __ATOMIC_RELAXED))
#ifdef __x86_64__
			__builtin_ia32_pause();
#else
			;
#endif
	__atomic_store_n(&common->lock, 0, __ATOMIC_RELEASE);
}

const struct operation user_operations[] = {
	{ .name = "getppid", .workers = PROCESSES, .run = getppid_run, .count = 3 * COUNT },
	{ .name = "user-near", .workers = THREADS, .run = near_run, .count = 3 * COUNT },
	{ .name = "user-apart", .workers = THREADS, .run = apart_run, .count = 3 * COUNT },
	{ .name = "user-lock", .workers = THREADS, .run = lock_run },
	{ .name = NULL },
};
