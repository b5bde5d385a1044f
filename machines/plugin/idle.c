// SPDX-License-Identifier: GPL-2.0-or-later
#include "idle.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TRIES	50000	/* a second, then something is wrong with the host, and nothing with the guest */

/* The main thread waits for events; true as well if the host does not say. */
static bool main_thread_sleeps(void)
{
	static int file = -1;
	char text[32] = "";
	long number;

	if (file < 0) {
		snprintf(text, sizeof(text), "/proc/self/task/%d/syscall", (int)getpid());
		file = open(text, O_RDONLY | O_CLOEXEC);
	}
	if (file < 0 || pread(file, text, sizeof(text) - 1, 0) <= 0)
		return true;
	number = strtol(text, NULL, 10);	/* 0: it is running */
#ifdef SYS_poll
	if (number == SYS_poll)
		return true;
#endif
	return number == SYS_ppoll;
}

static void wait_for_main_thread(unsigned int vcpu, void *unused)
{
	static const struct timespec moment = { .tv_nsec = 20000 };

	(void)vcpu;
	(void)unused;
	for (int i = 0; i < TRIES && !main_thread_sleeps(); i++)
		nanosleep(&moment, NULL);
}

void idle_watch(struct qemu_plugin_insn *insn)
{
	qemu_plugin_register_vcpu_insn_exec_cb(insn, wait_for_main_thread, QEMU_NO_REGISTERS, NULL);
}
