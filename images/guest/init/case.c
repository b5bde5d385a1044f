// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Running a case.
 *
 * While the workload runs, nothing is written to the report channel: the
 * console interrupts would be inside the measurement. Its output is kept in
 * memory until it has ended.
 */
#include "case.h"
#include "cgroup.h"
#include "files.h"
#include "report.h"
#include "seed.h"

#include <lab/mark.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OUTPUT_MAX	(1 << 20)
#define VMSTAT_MAX	(1 << 16)
#define NOT_STARTED	127	/* the status a shell gives for it */
#define NOT_JOINED	126

/* The bytes from one pipe. Beyond the limit it is read and dropped, so that the workload never blocks. */
struct output {
	int fd;
	size_t length;
	bool truncated;
	char text[OUTPUT_MAX];
};

struct ending {
	int status;		/* as wait4() gives it */
	int error;		/* errno, when the program could not be started */
	struct rusage usage;	/* of the program and all its waited-for children */
};

static struct output out;
static struct output err;
static char vmstat_before[VMSTAT_MAX];
static char vmstat_after[VMSTAT_MAX];

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Leave the next case as little as possible of the last one. Kernels without one of these do without. */
static void settle(void)
{
	sync();
	file_write("/proc/sys/vm/drop_caches", "3");
	file_write("/proc/sys/vm/compact_memory", "1");
}

static char **environment(const struct job *job)
{
	static char seed[40], pad[SEED_PAD_MAX + 16];
	char **env = calloc(job->nr_env + 5, sizeof(*env));
	size_t count = 0;

	if (!env)
		return NULL;
	snprintf(seed, sizeof(seed), "LAB_SEED=%llu", (unsigned long long)job->seed);
	strcpy(pad, "LAB_PAD=");
	memset(pad + strlen(pad), 'x', seed_pad(job->seed));
	/* The job's come first: of two with one name, the first is found. */
	memcpy(env, job->env, job->nr_env * sizeof(*env));
	count = job->nr_env;
	env[count++] = (char *)"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";
	env[count++] = (char *)"HOME=/";
	env[count++] = seed;
	env[count++] = pad;
	return env;
}

static void join_cgroup(void)
{
	int failed = cgroup_join();

	if (!failed)
		return;
	dprintf(STDERR_FILENO, "cannot join the cgroup of this guest's settings: %s\n", strerror(-failed));
	_exit(NOT_JOINED);
}

static _Noreturn void child(const struct job_case *run, char **env, const int pipes[3][2], bool measured)
{
	int null = open("/dev/null", O_RDONLY);

	setsid();
	if (null >= 0)
		dup2(null, STDIN_FILENO);
	dup2(pipes[0][1], STDOUT_FILENO);
	dup2(pipes[1][1], STDERR_FILENO);
	/* The remains of a setup program are not charged to the cases. */
	if (measured)
		join_cgroup();
	execvpe(run->argv[0], run->argv, env);
	if (write(pipes[2][1], &errno, sizeof(errno)) < 0)
		_exit(NOT_STARTED - 1);
	_exit(NOT_STARTED);
}

static void collect(struct output *output)
{
	char dropped[4096];
	size_t room = OUTPUT_MAX - output->length;
	ssize_t count = read(output->fd, room ? output->text + output->length : dropped,
			     room ? room : sizeof(dropped));

	if (count < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (count <= 0) {
		close(output->fd);
		output->fd = -1;
	} else if (room) {
		output->length += (size_t)count;
	} else {
		output->truncated = true;
	}
}

/* Read both pipes until the workload has ended. */
static void watch(int pidfd)
{
	struct pollfd polls[3] = {
		{ .fd = out.fd, .events = POLLIN },
		{ .fd = err.fd, .events = POLLIN },
		{ .fd = pidfd, .events = POLLIN },
	};

	while (pidfd >= 0 ? !polls[2].revents : (out.fd >= 0 || err.fd >= 0)) {
		polls[0].fd = out.fd;
		polls[1].fd = err.fd;
		if (poll(polls, 3, -1) < 0)
			continue;
		if (polls[0].revents)
			collect(&out);
		if (polls[1].revents)
			collect(&err);
	}
}

/* Processes that the workload left would run into the next case: end them, then read the rest of the pipes. */
static void finish(pid_t pid, struct ending *ending)
{
	while (wait4(pid, &ending->status, 0, &ending->usage) < 0 && errno == EINTR)
		;
	kill(-1, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	while (out.fd >= 0)
		collect(&out);
	while (err.fd >= 0)
		collect(&err);
}

static void open_pipes(int pipes[3][2])
{
	for (int i = 0; i < 3; i++)
		if (pipe2(pipes[i], O_CLOEXEC))
			pipes[i][0] = pipes[i][1] = -1;
	out.fd = pipes[0][0];
	err.fd = pipes[1][0];
	out.length = err.length = 0;
	out.truncated = err.truncated = false;
}

static struct ending run_program(const struct job_case *run, char **env, bool measured)
{
	struct ending ending = { .status = NOT_STARTED << 8 };
	int pipes[3][2];
	pid_t pid;

	open_pipes(pipes);
	pid = fork();
	if (!pid)
		child(run, env, (const int (*)[2])pipes, measured);
	ending.error = pid < 0 ? errno : 0;
	for (int i = 0; i < 3; i++)
		close(pipes[i][1]);
	if (pid > 0) {
		int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

		watch(pidfd);
		finish(pid, &ending);
		close(pidfd);
		if (read(pipes[2][0], &ending.error, sizeof(ending.error)) < 0)
			ending.error = 0;
	} else {
		close(out.fd);
		close(err.fd);
	}
	close(pipes[2][0]);
	return ending;
}

/* A line longer than a piece continues in the next record: "more". */
static void report_line(const char *name, const char *type, const char *text, size_t length)
{
	size_t piece;

	do {
		piece = report_cut(text, length, REPORT_PIECE);
		report_begin(type);
		report_string("case", name);
		report_text("line", text, piece);
		if (piece < length)
			report_flag("more", true);
		report_end();
		text += piece;
		length -= piece;
	} while (length);
}

static void report_output(const char *name, const char *type, const struct output *output)
{
	size_t at = 0;

	while (at < output->length) {
		const char *start = output->text + at;
		const char *end = memchr(start, '\n', output->length - at);
		size_t length = end ? (size_t)(end - start) : output->length - at;

		report_line(name, type, start, length);
		at += length + 1;
	}
}

/* Give the next "name value" of a /proc/vmstat text and step over it; false at its end. */
static bool next_counter(const char **at, char *name, size_t size, long long *value)
{
	size_t length = strcspn(*at, " \n");
	char *end;

	if (!**at || (*at)[length] != ' ' || length >= size)
		return false;
	memcpy(name, *at, length);
	name[length] = '\0';
	*value = strtoll(*at + length, &end, 10);
	*at = *end ? end + 1 : end;
	return true;
}

static void vmstat_begin(const char *name)
{
	report_begin("vmstat");
	report_string("case", name);
	report_enter("delta");
}

static void vmstat_end(void)
{
	report_leave();
	report_end();
}

/* Both texts come from one kernel, so their counters come in the same order. */
static void report_vmstat(const char *name)
{
	const char *before = vmstat_before, *after = vmstat_after;
	char old_key[128], key[128];
	long long was, is;

	vmstat_begin(name);
	while (next_counter(&before, old_key, sizeof(old_key), &was) &&
	       next_counter(&after, key, sizeof(key), &is)) {
		if (report_length() > REPORT_FLUSH) {
			vmstat_end();
			vmstat_begin(name);
		}
		if (is != was && !strcmp(key, old_key))
			report_number(key, is - was);
	}
	vmstat_end();
}

static long long counter(const char *text, const char *name)
{
	char key[128];
	long long value;

	while (next_counter(&text, key, sizeof(key), &value))
		if (!strcmp(key, name))
			return value;
	return 0;
}

static long long microseconds(const struct timeval *time)
{
	return time->tv_sec * 1000000LL + time->tv_usec;
}

static void report_usage(const struct rusage *usage, long long elapsed_ns)
{
	report_enter("usage");
	report_number("elapsed_ns", elapsed_ns);
	report_number("user_us", microseconds(&usage->ru_utime));
	report_number("system_us", microseconds(&usage->ru_stime));
	report_number("page_faults", usage->ru_minflt);
	report_number("major_faults", usage->ru_majflt);
	report_number("max_rss_kb", usage->ru_maxrss);
	report_leave();
}

static void report_ending(const char *name, const struct ending *ending, long long started, long long now)
{
	int signal = WIFSIGNALED(ending->status) ? WTERMSIG(ending->status) : 0;

	report_begin("end");
	report_string("case", name);
	report_number("status", signal ? 128 + signal : WEXITSTATUS(ending->status));
	report_number("signal", signal);
	report_number("oom_kills", counter(vmstat_after, "oom_kill") - counter(vmstat_before, "oom_kill"));
	report_number("now_ns", now);
	report_usage(&ending->usage, now - started);
	if (ending->error)
		report_string("error", strerror(ending->error));
	if (out.truncated || err.truncated)
		report_flag("truncated", true);
	report_end();
}

void case_run(const struct job *job, const struct job_case *run)
{
	char **env = environment(job);
	struct ending ending;
	long long started, ended;

	report_begin("begin");
	report_string("case", run->name);
	report_number("now_ns", now_ns());
	report_end();
	report_drain();
	settle();
	seed_wait(job->seed, run->name);
	file_read("/proc/vmstat", vmstat_before, sizeof(vmstat_before));
	started = now_ns();
	/* A program that marks no window of its own is measured from here to there. */
	lab_case_begin();
	ending = run_program(run, env, true);
	lab_case_end();
	ended = now_ns();
	file_read("/proc/vmstat", vmstat_after, sizeof(vmstat_after));
	report_output(run->name, "out", &out);
	report_output(run->name, "err", &err);
	report_vmstat(run->name);
	report_ending(run->name, &ending, started, ended);
	free(env);
}

bool setup_run(const struct job *job, const struct job_case *run)
{
	char **env = environment(job);
	struct ending ending = run_program(run, env, false);
	const struct output *said = err.length ? &err : &out;
	int length = (int)strcspn(said->text, "\n");

	free(env);
	if (!ending.status)
		return true;
	if (ending.error)
		report_fatal("the setup program %s could not be started: %s", run->argv[0], strerror(ending.error));
	else
		report_fatal("the setup program %s failed: %.*s", run->argv[0],
			     length < (int)said->length ? length : (int)said->length, said->text);
	return false;
}
