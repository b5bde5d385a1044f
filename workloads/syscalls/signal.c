// SPDX-License-Identifier: GPL-2.0-or-later
/* Signals: set up, masked, delivered and waited for. All are of the process to itself. */
#include "calls.h"
#include "operations.h"
#include "peers.h"

#include <lab/program.h>

#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <time.h>

#define SET_BYTES	8	/* the kernel's sigset_t */

/* The kernel's own struct, without the C library's around it. */
struct kernel_action {
	void (*handler)(int);
	unsigned long flags;
	void (*restorer)(void);
	unsigned long mask;
};

static struct kernel_action action;
static const unsigned long user1 = 1UL << (SIGUSR1 - 1);
static int self, thread, signal_fd;
static char *guarded;

static void received(__attribute__((unused)) int number)
{
}

PREPARE(prepare_handler)
{
	/* The C library knows how a handler returns: its action is read back, and used as it is. */
	struct sigaction ours = { .sa_handler = received };

	sigaction((int)argument, &ours, NULL);
	must(SYS(rt_sigaction, argument, NULL, &action, SET_BYTES));
	self = (int)SYS(getpid);
	thread = (int)SYS(gettid);
}

PREPARE(prepare_blocked)
{
	prepare_handler(argument);
	must(SYS(rt_sigprocmask, SIG_BLOCK, &user1, NULL, SET_BYTES));
}

PREPARE(prepare_signalfd)
{
	prepare_blocked(argument);
	signal_fd = (int)offered(SYS(signalfd4, -1, &user1, SET_BYTES, 0));
}

OPERATION(install)
{
	must(SYS(rt_sigaction, SIGUSR1, &action, NULL, SET_BYTES));
}

OPERATION(mask)
{
	must(SYS(rt_sigprocmask, SIG_BLOCK, &user1, NULL, SET_BYTES));
	must(SYS(rt_sigprocmask, SIG_UNBLOCK, &user1, NULL, SET_BYTES));
}

OPERATION(deliver)
{
	must(SYS(kill, self, SIGUSR1));
}

OPERATION(deliver_to_thread)
{
	must(SYS(tgkill, self, thread, SIGUSR1));
}

OPERATION(wait_for_signal)
{
	must(SYS(kill, self, SIGUSR1));
	must(SYS(rt_sigtimedwait, &user1, NULL, NULL, SET_BYTES));
}

OPERATION(unblock)
{
	must(SYS(kill, self, SIGUSR1));
	must(SYS(rt_sigprocmask, SIG_UNBLOCK, &user1, NULL, SET_BYTES));
	must(SYS(rt_sigprocmask, SIG_BLOCK, &user1, NULL, SET_BYTES));
}

OPERATION(read_signal)
{
	static struct signalfd_siginfo information;

	must(SYS(kill, self, SIGUSR1));
	must(SYS(read, signal_fd, &information, sizeof(information)));
}

/* lat_sig prot: a write that is refused, and the handler that allows it. */
static void allow(__attribute__((unused)) int number)
{
	SYS(mprotect, guarded, PAGE, PROT_READ | PROT_WRITE);
}

PREPARE(prepare_fault)
{
	struct sigaction ours = { .sa_handler = allow };

	sigaction(SIGSEGV, &ours, NULL);
	guarded = map_small(PAGE, MAP_PRIVATE);
	touch(guarded, PAGE);
}

OPERATION(fault)
{
	must(SYS(mprotect, guarded, PAGE, PROT_READ));
	*(volatile char *)guarded = 1;
}

const struct operation signal_operations[] = {
	{ "signal-install", install, prepare_handler, SIGUSR1, 800 },
	{ "signal-mask", mask, prepare_handler, SIGUSR1, 500 },
	{ "signal-deliver", deliver, prepare_handler, SIGUSR1, 200 },
	{ "signal-deliver-thread", deliver_to_thread, prepare_handler, SIGUSR1, 200 },
	{ "signal-unblock", unblock, prepare_blocked, SIGUSR1, 150 },
	{ "signal-wait", wait_for_signal, prepare_blocked, SIGUSR1, 200 },
	{ "signalfd", read_signal, prepare_signalfd, SIGUSR1, 200 },
	{ "signal-fault", fault, prepare_fault, 0, 100 },
	{ 0 },
};
