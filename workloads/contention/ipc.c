// SPDX-License-Identifier: GPL-2.0-or-later
/* Events, pipes, futexes, signals. */
#include "operations.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int set = -1;

static void own_event(struct worker *worker)
{
	MUST(worker->fd = eventfd(0, EFD_NONBLOCK));
}

/* All events are in one set, as those of a server are. */
static void event_in_set(struct worker *worker)
{
	struct epoll_event event = { .events = EPOLLIN };

	if (!worker->id)
		set = (int)MUST(epoll_create1(0));
	own_event(worker);
	MUST(epoll_ctl(set, EPOLL_CTL_ADD, worker->fd, &event));
}

static void event_run(struct worker *worker)
{
	uint64_t one = 1;

	MUST(write(worker->fd, &one, sizeof(one)));
	MUST(read(worker->fd, &one, sizeof(one)));
}

static void own_pipe(struct worker *worker)
{
	int ends[2];

	MUST(pipe(ends));
	worker->fd = ends[0];
	worker->other = ends[1];
}

static void pipe_run(struct worker *worker)
{
	MUST(write(worker->other, worker->buffer, 1));
	MUST(read(worker->fd, worker->buffer, 1));
}

static void poll_run(struct worker *worker)
{
	struct pollfd one = { .fd = worker->fd, .events = POLLIN };

	MUST(poll(&one, 1, 0));
}

static void futex_run(struct worker *worker)
{
	MUST(syscall(SYS_futex, &common->apart[worker->id].word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0));
}

/* The word differs from the expected value: the call takes the lock of its bucket and returns. */
static void futex_wait_run(struct worker *worker)
{
	long result = syscall(SYS_futex, &common->apart[worker->id].word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 1, NULL,
			      NULL, 0);

	if (!result || errno != EAGAIN)
		program_cannot("futex did not refuse to wait");
}

static void timer_run(struct worker *worker)
{
	struct sigevent none = { .sigev_notify = SIGEV_NONE };
	int timer;

	(void)worker;
	MUST(syscall(SYS_timer_create, CLOCK_MONOTONIC, &none, &timer));
	MUST(syscall(SYS_timer_delete, timer));
}

static void nothing(int number)
{
	(void)number;
}

static void handled(struct worker *worker)
{
	(void)worker;
	signal(SIGUSR1, nothing);
}

static void signal_run(struct worker *worker)
{
	(void)worker;
	MUST(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1));
}

static void yield_run(struct worker *worker)
{
	(void)worker;
	sched_yield();
}

const struct operation ipc_operations[] = {
	{ .name = "epoll-send", .workers = THREADS, .run = event_run, .prepare = event_in_set },
	{ .name = "eventfd", .workers = THREADS, .run = event_run, .prepare = own_event },
	{ .name = "pipe", .workers = PROCESSES, .run = pipe_run, .prepare = own_pipe },
	{ .name = "poll", .workers = THREADS, .run = poll_run, .prepare = own_pipe },
	{ .name = "futex", .workers = THREADS, .run = futex_run },
	{ .name = "futex-wait", .workers = THREADS, .run = futex_wait_run },
	{ .name = "timer", .workers = PROCESSES, .run = timer_run },
	{ .name = "signal", .workers = THREADS, .run = signal_run, .prepare = handled },
	{ .name = "yield", .workers = PROCESSES, .run = yield_run },
	{ .name = NULL },
};
