// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Wake-ups: this process works, wakes another one that waits, and works on.
 * The scheduler decides when the other one gets the CPU.
 */
#include "latency.h"

#include <lab/peer.h>
#include <lab/program.h>

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORK		4	/* so many times as long as a time-out: longer than a tick of 250 Hz now and then */

/* Shared by both. seen: when the other one read the clock, 0 before. word: the futex's. */
static struct {
	volatile long long seen;
	volatile pid_t waiting;
	uint32_t word;
} *shared;

static void (*wait_once)(void);
static void (*become)(void);
static int ends[2];
static sigset_t signals;

static void waiting_process(__attribute__((unused)) const void *none)
{
	if (become)
		become();
	for (shared->waiting = getpid();; shared->seen = program_now_ns())
		wait_once();
}

static void start_waiting(void (*wait)(void))
{
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		program_cannot("cannot map a page");
	shared->seen = 0;
	wait_once = wait;
	peer_start(waiting_process, NULL);
	while (!shared->waiting)
		sched_yield();
}

static void work_for(long long ns)
{
	for (long long end = program_now_ns() + ns; program_now_ns() < end;)
		;
}

static long long wake_after(long long ns, void (*wake)(void))
{
	long long start;

	work_for(ns * WORK);
	shared->seen = 0;
	start = program_now_ns();
	wake();
	while (!shared->seen)
		;
	return shared->seen - start;
}

static void wait_read(void)
{
	uint64_t word;

	if (read(ends[0], &word, sizeof(word)) != sizeof(word))
		_exit(PROGRAM_CANNOT);
}

static void wake_write(void)
{
	uint64_t word = 1;

	if (write(ends[1], &word, sizeof(word)) != sizeof(word))
		program_cannot("cannot write to what the other process reads");
}

static long long by_write(long long ns)
{
	return wake_after(ns, wake_write);
}

static void prepare_pipe(void)
{
	if (pipe(ends))
		program_cannot("cannot make a pipe");
	start_waiting(wait_read);
}

static void prepare_eventfd(void)
{
	ends[0] = ends[1] = (int)offered("eventfd", eventfd(0, EFD_CLOEXEC));
	start_waiting(wait_read);
}

/* Until the word is another one than when we last looked. */
static void wait_futex(void)
{
	static uint32_t last;

	while (__atomic_load_n(&shared->word, __ATOMIC_ACQUIRE) == last)
		syscall(SYS_futex, &shared->word, FUTEX_WAIT, last, NULL, NULL, 0);
	last++;
}

static void wake_futex(void)
{
	__atomic_add_fetch(&shared->word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &shared->word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static long long by_futex(long long ns)
{
	return wake_after(ns, wake_futex);
}

static void prepare_futex(void)
{
	start_waiting(wait_futex);
}

static void wait_signal(void)
{
	if (sigwaitinfo(&signals, NULL) != SIGUSR1)
		_exit(PROGRAM_CANNOT);
}

static void wake_signal(void)
{
	if (kill(shared->waiting, SIGUSR1))
		program_cannot("cannot send a signal to the other process");
}

static long long by_signal(long long ns)
{
	return wake_after(ns, wake_signal);
}

static void prepare_signal(void)
{
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	start_waiting(wait_signal);
}

static void prepare_pipe_brief(void)
{
	become = use_short_slices;
	prepare_pipe();
}

static void prepare_pipe_fifo(void)
{
	become = use_fifo;
	prepare_pipe();
}

const struct kind wake_kinds[] = {
	{ "wake-pipe",		prepare_pipe,		by_write, NOBODY },
	{ "wake-eventfd",	prepare_eventfd,	by_write, NOBODY },
	{ "wake-futex",		prepare_futex,		by_futex, NOBODY },
	{ "wake-signal",	prepare_signal,		by_signal, NOBODY },
	{ "wake-pipe-brief",	prepare_pipe_brief,	by_write, NOBODY },
	{ "wake-pipe-fifo",	prepare_pipe_fifo,	by_write, NOBODY },
	{ 0 },
};
