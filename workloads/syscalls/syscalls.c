// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * syscalls: one system call, or a few that belong together, again and again.
 *
 * Each case is an operation of the tables in the other files: a fixed number of
 * them, after a warm-up. Nothing depends on the seed. Within the measured
 * window the C library is not used, and memory was touched beforehand, so
 * nearly all measured work is the kernel's.
 *
 * A case that a kernel lacks ends with "not supported on this kernel" and the
 * status PROGRAM_UNSUPPORTED. Prints one line of JSON.
 */
#include "calls.h"
#include "operations.h"

#include <lab/mark.h>
#include <lab/program.h>

#include <fcntl.h>
#include <linux/random.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>

static const struct operation *const groups[] = {
	fs_operations,	    ipc_operations,   mm_operations,	   madvise_operations,	net_operations,	 poll_operations,
	process_operations, sched_operations, security_operations, signal_operations, time_operations,
};

int operations_in_all;
static volatile bool measuring;

/* The call's name in "SYS(name, ...)" and in "name(...)". */
static const char *call_name(const char *what)
{
	static char name[64];

	return sscanf(what, "SYS(%63[a-z0-9_]", name) == 1 || sscanf(what, "%63[^(]", name) == 1 ? name : what;
}

_Noreturn void call_failed(const char *what, long result)
{
	errno = (int)-result;
	program_cannot(measuring ? "%s failed in the measured window" : "%s failed", call_name(what));
}

_Noreturn void call_refused(const char *what, long result)
{
	switch (-result) {
	case EACCES:
	case EAFNOSUPPORT:
	case EINVAL:
	case ENODEV:
	case ENOENT:
	case ENOPROTOOPT:
	case ENOSYS:
	case EOPNOTSUPP:
	case EPERM:
	case EPROTONOSUPPORT:
	case ESOCKTNOSUPPORT:
		if (!measuring)
			not_supported(call_name(what), strerror((int)-result));
	}
	call_failed(what, result);
}

_Noreturn void not_supported(const char *what, const char *why)
{
	program_unsupported(what, why);
}

static const struct operation *find(const char *name)
{
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		for (const struct operation *at = groups[i]; at->name; at++)
			if (!strcmp(at->name, name))
				return at;
	return mm_sized(name);
}

int warm_up_of(const struct operation *operation)
{
	return operation->count / 4 + 4;
}

/* The loop's own instructions are the same in every case: it begins a line of the cache, and calls by pointer. */
static __attribute__((aligned(64), noinline)) void repeat(const struct operation *operation, long from, long to)
{
	for (long i = from; i < to; i++) {
		operation->run(operation->argument, i);
		lab_operation_end();
	}
}

/*
 * A guest without a source of randomness gathers it for seconds, and takes other paths until it has it. This one's
 * numbers need not be secret.
 */
static void ready_random_numbers(void)
{
	struct {
		struct rand_pool_info header;
		uint32_t bytes[8];
	} entropy = { .header = { .entropy_count = 256, .buf_size = 32 } };
	char byte;
	int fd;

	if (getrandom(&byte, 1, GRND_NONBLOCK) == 1)
		return;
	fd = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ioctl(fd, RNDADDENTROPY, &entropy);
	close(fd);
}

static void measure(const struct operation *operation)
{
	int warm_up = warm_up_of(operation);
	struct rusage before = { 0 }, after = { 0 };
	long long start, end;

	operations_in_all = warm_up + operation->count;
	ready_random_numbers();
	if (operation->prepare)
		operation->prepare(operation->argument);
	repeat(operation, 0, warm_up);
	getrusage(RUSAGE_SELF, &before);
	/* The pages of all writes from here on are there. */
	measuring = false;
	program_now_ns();
	measuring = true;
	start = program_now_ns();
	lab_window_begin();
	repeat(operation, warm_up, operations_in_all);
	lab_window_end();
	end = program_now_ns();
	measuring = false;
	getrusage(RUSAGE_SELF, &after);
	printf("{\"metrics\":{\"operation_time\":%.17g", (double)(end - start) / operation->count);
	printf(",\"page_faults\":%ld", after.ru_minflt - before.ru_minflt);
	printf(",\"context_switches\":%ld",
	       after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw);
	printf(",\"ops\":%d}}\n", operation->count);
}

int main(int argc, char **argv)
{
	const char *name = program_case(argc, argv, "NAME");
	const struct operation *operation = find(name);

	if (!operation)
		program_misuse(name, "no such operation");
	measure(operation);
	/* Without the work of exit(): some operations leave the process in a state of its own. */
	_exit(fflush(stdout) ? PROGRAM_CANNOT : PROGRAM_MEASURED);
}
