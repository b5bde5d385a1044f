// SPDX-License-Identifier: GPL-2.0-or-later
/* Waiting for many descriptors: pipes; the last one can be read. */
#include "calls.h"
#include "operations.h"

#include <lab/program.h>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <time.h>

#define PIPES	128

static struct pollfd polled[PIPES];
static struct epoll_event ready[PIPES];
static fd_set readable, none;
static int nr_fds, epoll_fd, free_fd;
static const struct timespec no_time;

static void add_pipe(int index, int can_be_read)
{
	int ends[2];

	must(SYS(pipe2, ends, 0));
	if (can_be_read)
		must(SYS(write, ends[1], "", 1));
	polled[index] = (struct pollfd){ .fd = ends[0], .events = POLLIN };
	FD_SET(ends[0], &readable);
	nr_fds = ends[0] + 1;
}

PREPARE(prepare_pipes)
{
	for (int i = 0; i < argument; i++)
		add_pipe(i, i == argument - 1);
}

PREPARE(prepare_epoll)
{
	prepare_pipes(argument);
	epoll_fd = (int)offered(SYS(epoll_create1, 0));
	for (int i = 0; i < argument; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.fd = polled[i].fd };

		must(SYS(epoll_ctl, epoll_fd, EPOLL_CTL_ADD, polled[i].fd, &event));
	}
	free_fd = (int)offered(SYS(eventfd2, 1, 0));
}

PREPARE(prepare_all_ready)
{
	prepare_epoll(argument);
	for (int i = 0; i < argument; i++) {
		struct epoll_event event = { .events = EPOLLOUT | EPOLLIN };
		int fd = (int)must(SYS(eventfd2, 1, 0));

		must(SYS(epoll_ctl, epoll_fd, EPOLL_CTL_ADD, fd, &event));
	}
}

OPERATION(poll_call)
{
	must(call_poll(polled, argument));
}

OPERATION(ppoll_call)
{
	must(SYS(ppoll, polled, argument, &no_time, NULL, 8));
}

OPERATION(select_call)
{
	struct timeval timeout = { 0 };

	none = readable;
	must(call_select(nr_fds, &none, NULL, NULL, &timeout));
}

OPERATION(epoll_one)
{
	must(call_epoll_wait(epoll_fd, ready, PIPES, 0));
}

OPERATION(epoll_add_delete)
{
	struct epoll_event event = { .events = EPOLLIN };

	must(SYS(epoll_ctl, epoll_fd, EPOLL_CTL_ADD, free_fd, &event));
	must(SYS(epoll_ctl, epoll_fd, EPOLL_CTL_DEL, free_fd, NULL));
}

OPERATION(epoll_modify)
{
	struct epoll_event edge = { .events = EPOLLIN | EPOLLET }, level = { .events = EPOLLIN };

	must(SYS(epoll_ctl, epoll_fd, EPOLL_CTL_MOD, polled[0].fd, &edge));
	must(SYS(epoll_ctl, epoll_fd, EPOLL_CTL_MOD, polled[0].fd, &level));
}

OPERATION(create_close)
{
	must(SYS(close, must(SYS(epoll_create1, 0))));
}

const struct operation poll_operations[] = {
	{ "poll-10", poll_call, prepare_pipes, 10, 300 },
	{ "poll-128", poll_call, prepare_pipes, PIPES, 60 },
	{ "ppoll-10", ppoll_call, prepare_pipes, 10, 300 },
	{ "ppoll-128", ppoll_call, prepare_pipes, PIPES, 60 },
	{ "select-10", select_call, prepare_pipes, 10, 300 },
	{ "select-128", select_call, prepare_pipes, PIPES, 60 },
	{ "epoll-create", create_close, prepare_epoll, 1, 150 },
	{ "epoll-add-delete", epoll_add_delete, prepare_epoll, 1, 200 },
	{ "epoll-modify", epoll_modify, prepare_epoll, 1, 400 },
	{ "epoll-wait-10", epoll_one, prepare_epoll, 10, 400 },
	{ "epoll-wait-128", epoll_one, prepare_epoll, PIPES, 400 },
	{ "epoll-wait-128-ready", epoll_one, prepare_all_ready, PIPES, 60 },
	{ 0 },
};
