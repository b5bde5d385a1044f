// SPDX-License-Identifier: GPL-2.0-or-later
/* Clocks and timers. Clocks are read by system calls, which the C library avoids. */
#include "calls.h"
#include "operations.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>

static struct timespec now;
static int timer;
static const struct itimerspec far = { .it_value.tv_sec = 1000 }, never, soon = { .it_value.tv_nsec = 1 };

/* A time's nanoseconds carry into its seconds or do not: at the start of a second it is always the same. */
PREPARE(prepare_clock)
{
	must(SYS(clock_gettime, CLOCK_MONOTONIC, &now));
	now = (struct timespec){ .tv_sec = now.tv_sec + 1 };
	must(SYS(clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &now, NULL));
}

OPERATION(get_clock)
{
	must(SYS(clock_gettime, argument, &now));
}

PREPARE(prepare_sleep)
{
	/* Wake up when it is time, not up to 50 us later. */
	prctl(PR_SET_TIMERSLACK, 1);
}

OPERATION(sleep_shortly)
{
	struct timespec time = { .tv_nsec = argument };

	must(SYS(nanosleep, &time, NULL));
}

OPERATION(sleep_until)
{
	must(SYS(clock_gettime, CLOCK_MONOTONIC, &now));
	must(SYS(clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &now, NULL));
}

PREPARE(prepare_timerfd)
{
	timer = (int)offered(SYS(timerfd_create, CLOCK_MONOTONIC, 0));
}

OPERATION(timerfd_arm)
{
	must(SYS(timerfd_settime, timer, 0, &far, NULL));
	must(SYS(timerfd_settime, timer, 0, &never, NULL));
}

OPERATION(timerfd_expire)
{
	long expired;

	must(SYS(timerfd_settime, timer, 0, &soon, NULL));
	must(SYS(read, timer, &expired, sizeof(expired)));
}

PREPARE(prepare_timer)
{
	struct sigevent event = { .sigev_notify = SIGEV_NONE };

	offered(SYS(timer_create, CLOCK_MONOTONIC, &event, &timer));
}

OPERATION(timer_arm)
{
	must(SYS(timer_settime, timer, 0, &far, NULL));
	must(SYS(timer_settime, timer, 0, &never, NULL));
}

OPERATION(timer_create_delete)
{
	struct sigevent event = { .sigev_notify = SIGEV_NONE };
	int created;

	must(SYS(timer_create, CLOCK_MONOTONIC, &event, &created));
	must(SYS(timer_delete, created));
}

OPERATION(interval_timer)
{
	static const struct itimerval late = { .it_value.tv_sec = 1000 }, off;

	must(SYS(setitimer, ITIMER_REAL, &late, NULL));
	must(SYS(setitimer, ITIMER_REAL, &off, NULL));
}

const struct operation time_operations[] = {
	{ "clock-gettime", get_clock, prepare_clock, CLOCK_MONOTONIC, 1000 },
	{ "clock-gettime-coarse", get_clock, prepare_clock, CLOCK_MONOTONIC_COARSE, 1000 },
	{ "clock-gettime-cputime", get_clock, NULL, CLOCK_PROCESS_CPUTIME_ID, 800 },
	{ "nanosleep", sleep_shortly, prepare_sleep, 1, 100 },
	{ "clock-nanosleep", sleep_until, prepare_sleep, 0, 100 },
	{ "timerfd-settime", timerfd_arm, prepare_timerfd, 0, 200 },
	{ "timerfd-expire", timerfd_expire, prepare_timerfd, 0, 60 },
	{ "timer-settime", timer_arm, prepare_timer, 0, 200 },
	{ "timer-create", timer_create_delete, prepare_timer, 0, 150 },
	{ "setitimer", interval_timer, NULL, 0, 200 },
	{ 0 },
};
