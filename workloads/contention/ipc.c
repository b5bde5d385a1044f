// SPDX-License-Identifier: GPL-2.0-or-later
/* Events, pipes, futexes, signals. */
#include "operations.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POLLED	128

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

static void many_events(struct worker *worker)
{
	struct pollfd *events = calloc(POLLED, sizeof(*events));

	if (!events)
		program_cannot("calloc failed");
	for (int i = 0; i < POLLED; i++) {
		events[i].events = POLLIN;
		MUST(events[i].fd = eventfd(0, 0));
	}
	worker->memory = (char *)events;
}

static void poll_many_run(struct worker *worker)
{
	MUST(poll((struct pollfd *)worker->memory, POLLED, 0));
}

static void own_sockets(struct worker *worker)
{
	int ends[2];

	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	worker->fd = ends[0];
	worker->other = ends[1];
}

static void echo(int from, int to)
{
	char byte;

	while (read(from, &byte, 1) == 1 && write(to, &byte, 1) == 1)
		;
	_exit(0);
}

/* A process of its own answers, on the same CPU, until the worker has ended. */
static void own_peer(struct worker *worker)
{
	int there[2], back[2];

	MUST(pipe(there));
	MUST(pipe(back));
	if (!MUST(fork())) {
		close(there[1]);
		close(back[0]);
		echo(there[0], back[1]);
	}
	close(there[0]);
	close(back[1]);
	worker->fd = back[0];
	worker->other = there[1];
}

static void futex_shared_run(struct worker *worker)
{
	MUST(syscall(SYS_futex, &common->apart[worker->id].word, FUTEX_WAKE, 1, NULL, NULL, 0));
}

static void futex_run(struct worker *worker)
{
	MUST(syscall(SYS_futex, &common->apart[worker->id].word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0));
}

/* The word differs from the expected value: the call takes the lock of its bucket and returns. */
static void try_to_wait(struct worker *worker, int operation)
{
	long result = syscall(SYS_futex, &common->apart[worker->id].word, operation, 1, NULL, NULL, 0);

	if (!result || errno != EAGAIN)
		program_cannot("futex did not refuse to wait");
}

static void futex_wait_shared_run(struct worker *worker)
{
	try_to_wait(worker, FUTEX_WAIT);
}

static void futex_wait_run(struct worker *worker)
{
	try_to_wait(worker, FUTEX_WAIT | FUTEX_PRIVATE_FLAG);
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
	{ .name = "unix", .workers = PROCESSES, .run = pipe_run, .prepare = own_sockets },
	{ .name = "unix-t", .workers = THREADS, .run = pipe_run, .prepare = own_sockets },
	{ .name = "switch", .workers = PROCESSES, .run = pipe_run, .settle = own_peer },
	{ .name = "poll", .workers = THREADS, .run = poll_run, .prepare = own_pipe },
	{ .name = "poll-128", .workers = PROCESSES, .run = poll_many_run, .settle = many_events, .count = COUNT / 4 },
	{ .name = "futex", .workers = THREADS, .run = futex_run, .count = 3 * COUNT },
	{ .name = "futex-shared", .workers = THREADS, .run = futex_shared_run, .count = 3 * COUNT },
	{ .name = "futex-wait", .workers = THREADS, .run = futex_wait_run },
	{ .name = "futex-wait-shared", .workers = THREADS, .run = futex_wait_shared_run },
	{ .name = "timer", .workers = PROCESSES, .run = timer_run },
	{ .name = "timer-t", .workers = THREADS, .run = timer_run, .count = 3 * COUNT },
	{ .name = "signal", .workers = THREADS, .run = signal_run, .prepare = handled },
	{ .name = "signal-p", .workers = PROCESSES, .run = signal_run, .prepare = handled },
	{ .name = "yield", .workers = PROCESSES, .run = yield_run },
	{ .name = NULL },
};
