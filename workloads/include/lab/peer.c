// SPDX-License-Identifier: GPL-2.0-or-later
#include <lab/peer.h>
#include <lab/program.h>

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

void peer_start(void (*run)(const void *data), const void *data)
{
	pid_t parent = getpid(), child = fork();

	if (child < 0)
		program_cannot("cannot start a process");
	if (child)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have ended before that. */
	if (getppid() == parent)
		run(data);
	_exit(PROGRAM_CANNOT);
}
