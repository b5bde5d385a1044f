// SPDX-License-Identifier: GPL-2.0-or-later
/* Work of this host's kernel for a program: system calls, page faults, switches between two processes. */
#include "measure.h"
#include "sample.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	PAGES = 64,		/* that a sample touches first: their page tables are there after the first time */
};

static void no_syscall(uint64_t count, void *context)
{
	(void)context;
	while (count--)
		syscall(-1);
}

static void getppid_syscall(uint64_t count, void *context)
{
	(void)context;
	while (count--)
		syscall(SYS_getppid);
}

/* Touch pages that are not mapped, and unmap them again: `drop` alone has the cost of unmapping. */
static void faults(uint64_t count, void *context)
{
	char *pages = context;

	while (count--) {
		for (int i = 0; i < PAGES; i++)
			*(volatile char *)(pages + i * SMALL_PAGE) = 1;
		madvise(pages, PAGES * SMALL_PAGE, MADV_DONTNEED);
	}
}

/* The same in one call of the kernel, without an exception for each page. */
static void populate(uint64_t count, void *context)
{
	while (count--) {
		madvise(context, PAGES * SMALL_PAGE, MADV_POPULATE_WRITE);
		madvise(context, PAGES * SMALL_PAGE, MADV_DONTNEED);
	}
}

struct pipes {
	int there[2], back[2];
};

static void ping(uint64_t count, void *context)
{
	struct pipes *pipes = context;
	char byte = 0;

	while (count--)
		if (write(pipes->there[1], &byte, 1) != 1 || read(pipes->back[0], &byte, 1) != 1)
			abort();
}

/* The same calls without another process. */
static void write_read(uint64_t count, void *context)
{
	struct pipes *pipes = context;
	char byte = 0;

	while (count--)
		if (write(pipes->back[1], &byte, 1) != 1 || read(pipes->back[0], &byte, 1) != 1)
			abort();
}

static void measure_switches(void)
{
	struct pipes pipes;
	char byte;
	pid_t child;

	if (pipe(pipes.there) || pipe(pipes.back)) {
		missing("switch", "no pipes");
		return;
	}
	measure(&(struct bench){ .name = "write_read", .work = write_read, .context = &pipes });
	child = fork();
	if (!child) {
		close(pipes.there[1]);
		while (read(pipes.there[0], &byte, 1) == 1)
			if (write(pipes.back[1], &byte, 1) != 1)
				break;
		_exit(0);
	}
	if (child < 0) {
		missing("switch", "no second process");
		return;
	}
	measure(&(struct bench){ .name = "ping_pong", .work = ping, .context = &pipes, .switches = true });
	close(pipes.there[1]);
	waitpid(child, NULL, 0);
}

void measure_kernel(void)
{
	char *private = mmap(NULL, PAGES * SMALL_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *shared = mmap(NULL, PAGES * SMALL_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	measure(&(struct bench){ .name = "syscall", .work = no_syscall });
	measure(&(struct bench){ .name = "getppid", .work = getppid_syscall });
	if (private == MAP_FAILED || shared == MAP_FAILED) {
		missing("fault", "no memory to measure in");
		return;
	}
	madvise(private, PAGES * SMALL_PAGE, MADV_NOHUGEPAGE);
	measure(&(struct bench){ .name = "fault", .work = faults, .context = private, .events = PAGES });
	measure(&(struct bench){ .name = "populate", .work = populate, .context = private, .events = PAGES });
	measure(&(struct bench){ .name = "fault_shared", .work = faults, .context = shared, .events = PAGES });
	measure(&(struct bench){ .name = "populate_shared", .work = populate, .context = shared, .events = PAGES });
	measure_switches();
}
