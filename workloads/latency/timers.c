// SPDX-License-Identifier: GPL-2.0-or-later
/* Time-outs, each kind as a program would wait for it. */
#include "latency.h"

#include <lab/program.h>

#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int fd;
static timer_t timer;
static sigset_t alarm_set;
static volatile long long alarmed;

static struct timespec timespec_of(long long ns)
{
	return (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
}

/* A call that must end because its time is over. */
static void must_expire(const char *call, long result, int error)
{
	if (error ? result != -1 || errno != error : result)
		program_cannot("%s ended before its time", call);
}

static long long sleep_for(long long ns)
{
	struct timespec time = timespec_of(ns);
	long long due = program_now_ns() + ns;

	must_expire("nanosleep", nanosleep(&time, NULL), 0);
	return program_now_ns() - due;
}

static long long sleep_until(long long ns)
{
	long long due = program_now_ns() + ns;
	struct timespec time = timespec_of(due);

	must_expire("clock_nanosleep", -clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL), 0);
	return program_now_ns() - due;
}

static long long poll_nothing(long long ns)
{
	struct timespec time = timespec_of(ns);
	long long due = program_now_ns() + ns;

	must_expire("ppoll", ppoll(NULL, 0, &time, NULL), 0);
	return program_now_ns() - due;
}

static void prepare_epoll(void)
{
	struct timespec none = { 0 };
	struct epoll_event event;

	fd = (int)offered("epoll_create1", epoll_create1(EPOLL_CLOEXEC));
	offered("epoll_pwait2", syscall(SYS_epoll_pwait2, fd, &event, 1, &none, NULL, 0L));
}

static long long wait_for_events(long long ns)
{
	struct timespec time = timespec_of(ns);
	long long due = program_now_ns() + ns;
	struct epoll_event event;

	must_expire("epoll_pwait2", syscall(SYS_epoll_pwait2, fd, &event, 1, &time, NULL, 0L), 0);
	return program_now_ns() - due;
}

static long long wait_on_futex(long long ns)
{
	static uint32_t word;
	struct timespec time = timespec_of(ns);
	long long due = program_now_ns() + ns;

	must_expire("futex", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0), ETIMEDOUT);
	return program_now_ns() - due;
}

static void prepare_timerfd(void)
{
	fd = (int)offered("timerfd_create", timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
}

static long long read_timerfd(long long ns)
{
	struct itimerspec time = { .it_value = timespec_of(ns) };
	long long due = program_now_ns() + ns;
	uint64_t expired;

	if (timerfd_settime(fd, 0, &time, NULL) || read(fd, &expired, sizeof(expired)) != sizeof(expired))
		program_cannot("a timerfd failed");
	return program_now_ns() - due;
}

/* --- Signals ------------------------------------------------------------- */

static void prepare_alarm(void)
{
	sigemptyset(&alarm_set);
	sigaddset(&alarm_set, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarm_set, NULL);
}

static void prepare_timer(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };

	prepare_alarm();
	offered("timer_create", timer_create(CLOCK_MONOTONIC, &event, &timer));
}

static void on_alarm(int number)
{
	(void)number;
	alarmed = program_now_ns();
}

static void prepare_handler(void)
{
	struct sigaction action = { .sa_handler = on_alarm };

	sigaction(SIGALRM, &action, NULL);
}

/* An interval timer has microseconds: the lost nanoseconds are not part of the request. */
static long long arm_interval_timer(long long ns)
{
	struct itimerval time = { .it_value = { .tv_usec = ns / 1000 } };
	long long due = program_now_ns() + ns / 1000 * 1000;

	if (setitimer(ITIMER_REAL, &time, NULL))
		program_cannot("setitimer failed");
	return due;
}

static void wait_for_alarm(void)
{
	if (sigwaitinfo(&alarm_set, NULL) != SIGALRM)
		program_cannot("sigwaitinfo failed");
}

static long long interval_timer(long long ns)
{
	long long due = arm_interval_timer(ns);

	wait_for_alarm();
	return program_now_ns() - due;
}

/* Nobody waits: the signal interrupts a program that works. */
static long long interrupting_timer(long long ns)
{
	long long due;

	alarmed = 0;
	due = arm_interval_timer(ns);
	while (!alarmed)
		;
	return alarmed - due;
}

static long long posix_timer(long long ns)
{
	struct itimerspec time = { .it_value = timespec_of(ns) };
	long long due = program_now_ns() + ns;

	if (timer_settime(timer, 0, &time, NULL))
		program_cannot("timer_settime failed");
	wait_for_alarm();
	return program_now_ns() - due;
}

/* --- io_uring ------------------------------------------------------------ */

static struct {
	struct io_uring_sqe *entry;
	unsigned int *sq_tail, *cq_head;
	const unsigned int *cq_tail;
} ring;

static void *map_ring(size_t length, off_t what)
{
	void *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);

	if (mapped == MAP_FAILED)
		program_cannot("cannot map the rings of io_uring");
	return mapped;
}

/* One entry: both rings have one index of the array, and it stays. */
static void prepare_ring(void)
{
	struct io_uring_params given = { 0 };
	char *sq, *cq;

	fd = (int)offered("io_uring_setup", syscall(SYS_io_uring_setup, 1, &given));
	sq = map_ring(given.sq_off.array + given.sq_entries * sizeof(unsigned int), IORING_OFF_SQ_RING);
	cq = map_ring(given.cq_off.cqes + given.cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
	ring.entry = map_ring(given.sq_entries * sizeof(*ring.entry), IORING_OFF_SQES);
	ring.sq_tail = (unsigned int *)(sq + given.sq_off.tail);
	ring.cq_head = (unsigned int *)(cq + given.cq_off.head);
	ring.cq_tail = (unsigned int *)(cq + given.cq_off.tail);
}

/* Submit a time-out, wait for so many completions in the kernel, and take it out of the ring. */
static long long ring_timeout(long long ns, unsigned int wait, unsigned int flags)
{
	static struct __kernel_timespec time;
	long long due;

	time = (struct __kernel_timespec){ .tv_nsec = ns };
	*ring.entry = (struct io_uring_sqe){ .opcode = IORING_OP_TIMEOUT, .addr = (uintptr_t)&time, .len = 1 };
	due = program_now_ns() + ns;
	__atomic_store_n(ring.sq_tail, *ring.sq_tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, fd, 1U, wait, flags, NULL, 0UL) != 1)
		program_cannot("io_uring_enter failed");
	while (__atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE) == *ring.cq_head)
		;
	due = program_now_ns() - due;
	__atomic_store_n(ring.cq_head, *ring.cq_head + 1, __ATOMIC_RELEASE);
	return due;
}

static long long ring_wait(long long ns)
{
	return ring_timeout(ns, 1, IORING_ENTER_GETEVENTS);
}

/* Nobody waits in the kernel: the completion appears in the ring while the program looks. */
static long long ring_poll(long long ns)
{
	return ring_timeout(ns, 0, 0);
}

const struct kind timer_kinds[] = {
	{ "nanosleep",		NULL,		 sleep_for, A_FILLER },
	{ "clock-nanosleep",	NULL,		 sleep_until, A_FILLER },
	{ "ppoll",		NULL,		 poll_nothing, A_FILLER },
	{ "epoll-pwait2",	prepare_epoll,	 wait_for_events, A_FILLER },
	{ "futex-timeout",	NULL,		 wait_on_futex, A_FILLER },
	{ "timerfd",		prepare_timerfd, read_timerfd, A_FILLER },
	{ "posix-timer",	prepare_timer,	 posix_timer, A_FILLER },
	{ "setitimer",		prepare_alarm,	 interval_timer, A_FILLER },
	{ "setitimer-running",	prepare_handler, interrupting_timer, NOBODY },
	{ "uring-timeout",	prepare_ring,	 ring_wait, A_FILLER },
	{ "uring-timeout-polled", prepare_ring,	 ring_poll, NOBODY },
	{ "nanosleep-busy",	NULL,		 sleep_for, A_RIVAL },
	{ "nanosleep-busy-brief", use_short_slices, sleep_for, A_RIVAL },
	{ "timerfd-busy",	prepare_timerfd, read_timerfd, A_RIVAL },
	{ "setitimer-busy",	prepare_alarm,	 interval_timer, A_RIVAL },
	{ "uring-timeout-busy",	prepare_ring,	 ring_wait, A_RIVAL },
	{ 0 },
};
