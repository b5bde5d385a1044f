// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory: faults, and mappings made and taken down. */
#include "operations.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAPPED	(16 * PAGE)

static char *mapped(size_t size, int protection)
{
	char *at = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		program_cannot("mmap failed");
	return at;
}

/* In page tables of its own, and a mapping of its own. */
static void own_memory(struct worker *worker)
{
	size_t size = ((size_t)operations_in_all * PAGE + HUGE - 1) & ~(HUGE - 1);
	uintptr_t at = (uintptr_t)mapped(size + 2 * HUGE, PROT_NONE);

	worker->memory = (char *)((at + HUGE - 1) & ~(HUGE - 1));
	MUST(mprotect(worker->memory, size, PROT_READ | PROT_WRITE));
	MUST(madvise(worker->memory, size, MADV_NOHUGEPAGE));
}

static void fault_run(struct worker *worker)
{
	worker->memory[worker->n * PAGE] = 1;
}

static void mmap_run(struct worker *worker)
{
	(void)worker;
	MUST(munmap(mapped(MAPPED, PROT_READ | PROT_WRITE), MAPPED));
}

/* The child is on its parent's CPU, and has an address space until it ends. */
static void fork_run(struct worker *worker)
{
	pid_t child = (pid_t)MUST(fork());

	(void)worker;
	if (!child)
		_exit(0);
	MUST(waitpid(child, NULL, 0));
}

const struct operation memory_operations[] = {
	{ .name = "fault", .workers = PROCESSES, .run = fault_run, .settle = own_memory },
	{ .name = "fault-t", .workers = THREADS, .run = fault_run, .settle = own_memory },
	{ .name = "mmap", .workers = PROCESSES, .run = mmap_run },
	{ .name = "mmap-t", .workers = THREADS, .run = mmap_run, .count = 100 },
	{ .name = "fork", .workers = PROCESSES, .run = fork_run, .count = 100 },
	{ .name = NULL },
};
