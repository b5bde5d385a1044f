// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * reaper FOLDER PROGRAM [ARGUMENT...]
 *
 * Run a program in a folder, end the processes that it leaves behind, and
 * print how many there were. A process that ended before the program did is
 * none of them. The reaper ends as the program did.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOT_STARTED	127	/* the status that a shell gives for it */
#define PIDS		(4 << 20)	/* PID_MAX_LIMIT of 64-bit kernels */

static _Noreturn void fail(const char *what)
{
	dprintf(STDERR_FILENO, "%s: %s\n", what, strerror(errno));
	_exit(NOT_STARTED);
}

static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			fail("waitpid");
	return status;
}

/*
 * The number of children that run; all of them are ended, if asked for. Processes that were made since have the numbers
 * from the reaper's to that of one that is made now: a search through /proc would cost far more.
 */
static int running(bool end)
{
	pid_t now = vfork(), pid;
	int count = 0;

	if (now < 0)
		fail("vfork");
	if (!now)
		_exit(0);
	wait_for(now);
	for (pid = getpid() + 1; pid != now; pid = pid < PIDS ? pid + 1 : 1) {
		if (waitpid(pid, NULL, WNOHANG))
			continue;
		count++;
		if (end) {
			kill(pid, SIGKILL);
			wait_for(pid);
		}
	}
	return count;
}

/*
 * The number of processes that were left behind. Those that they started in turn are not counted, as that depends on
 * how far they came. They are the reaper's when their parent has ended.
 */
static int end_others(void)
{
	int left;
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
		;
	if (pid < 0)
		return 0;
	left = running(false);
	while (running(true))
		;
	return left;
}

int main(int argc, char **argv)
{
	int status, left;
	pid_t pid;

	if (argc < 3) {
		fprintf(stderr, "usage: reaper FOLDER PROGRAM [ARGUMENT...]\n");
		return NOT_STARTED;
	}
	if (chdir(argv[1]))
		fail(argv[1]);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1))
		fail("PR_SET_CHILD_SUBREAPER");
	pid = vfork();
	if (pid < 0)
		fail("vfork");
	if (!pid) {
		/* A script without a first line is the shell's. */
		execvp(argv[2], argv + 2);
		fail(argv[2]);
	}
	status = wait_for(pid);
	left = end_others();
	if (left)
		dprintf(STDOUT_FILENO, "\n{\"metrics\": {\"left_processes\": %d}}\n", left);
	if (WIFSIGNALED(status)) {
		signal(WTERMSIG(status), SIG_DFL);
		raise(WTERMSIG(status));
	}
	return WEXITSTATUS(status);
}
