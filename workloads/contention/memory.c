// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory: faults, and mappings made and taken down. */
#include "operations.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAPPED	(16 * PAGE)
#define LARGE	(128 * MIB)

static char *mapped(size_t size, int protection)
{
	char *at = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		program_cannot("mmap failed");
	return at;
}

/* A page for each operation, in page tables of its own. */
static size_t reserved(struct worker *worker)
{
	size_t size = ((size_t)operations_in_all * PAGE + HUGE - 1) & ~(HUGE - 1);
	uintptr_t at = (uintptr_t)mapped(size + 2 * HUGE, PROT_NONE);

	worker->memory = (char *)((at + HUGE - 1) & ~(HUGE - 1));
	return size;
}

/* In a mapping of its own. */
void own_memory(struct worker *worker)
{
	size_t size = reserved(worker);

	MUST(mprotect(worker->memory, size, PROT_READ | PROT_WRITE));
	MUST(madvise(worker->memory, size, MADV_NOHUGEPAGE));
}

/* A file of its own whose pages are in memory. */
static void full_file(struct worker *worker)
{
	char page[PAGE];

	memset(page, 1, sizeof(page));
	snprintf(worker->name, sizeof(worker->name), "memory%d", worker->id);
	MUST(worker->fd = open(worker->name, O_RDWR | O_CREAT, 0644));
	for (int i = 0; i < operations_in_all; i++)
		MUST(pwrite(worker->fd, page, sizeof(page), i * (long)PAGE));
}

static void map_file(struct worker *worker, int flags)
{
	size_t size = reserved(worker);

	if (mmap(worker->memory, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, worker->fd, 0) == MAP_FAILED)
		program_cannot("mmap of a file failed");
}

static void own_copy(struct worker *worker)
{
	map_file(worker, MAP_PRIVATE);
}

static void own_pages(struct worker *worker)
{
	map_file(worker, MAP_SHARED);
}

static void large_file(struct worker *worker)
{
	snprintf(worker->name, sizeof(worker->name), "large%d", worker->id);
	MUST(worker->fd = open(worker->name, O_RDWR | O_CREAT, 0644));
	MUST(ftruncate(worker->fd, LARGE));
}

static void own_break(struct worker *worker)
{
	worker->memory = (char *)syscall(SYS_brk, 0);
}

void fault_run(struct worker *worker)
{
	worker->memory[worker->n * PAGE] = 1;
}

static void mmap_run(struct worker *worker)
{
	(void)worker;
	MUST(munmap(mapped(MAPPED, PROT_READ | PROT_WRITE), MAPPED));
}

static void mmap_file_run(struct worker *worker)
{
	void *at = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, worker->fd, 0);

	if (at == MAP_FAILED)
		program_cannot("mmap of a file failed");
	MUST(munmap(at, LARGE));
}

/* So much comes from mmap(), and goes back. */
static void malloc_run(struct worker *worker)
{
	void *volatile at = malloc(LARGE);

	(void)worker;
	if (!at)
		program_cannot("malloc failed");
	free(at);
}

/* The end of the heap is moved by a page and back. */
static void brk_run(struct worker *worker)
{
	char *end = worker->memory + PAGE;

	if ((char *)syscall(SYS_brk, end) != end || (char *)syscall(SYS_brk, worker->memory) != worker->memory)
		program_cannot("brk failed");
}

/* A page that is there, given back, and there again: all CPUs of this address space forget where it was. */
static void flush_run(struct worker *worker)
{
	volatile char *page = worker->memory + worker->n * PAGE;

	*page = 1;
	MUST(madvise((void *)page, PAGE, MADV_DONTNEED));
	(void)*page;
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
	{ .name = "fault", .workers = PROCESSES, .run = fault_run, .settle = own_memory, .count = 2 * COUNT },
	{ .name = "fault-t", .workers = THREADS, .run = fault_run, .settle = own_memory },
	{ .name = "fault-copy", .workers = PROCESSES, .run = fault_run, .prepare = full_file, .settle = own_copy,
	  .count = 2 * COUNT },
	{ .name = "fault-copy-t", .workers = THREADS, .run = fault_run, .prepare = full_file, .settle = own_copy },
	{ .name = "fault-file", .workers = PROCESSES, .run = fault_run, .prepare = full_file, .settle = own_pages },
	{ .name = "fault-file-t", .workers = THREADS, .run = fault_run, .prepare = full_file, .settle = own_pages },
	{ .name = "mmap", .workers = PROCESSES, .run = mmap_run, .count = 3 * COUNT },
	{ .name = "mmap-t", .workers = THREADS, .run = mmap_run },
	{ .name = "mmap-file", .workers = PROCESSES, .run = mmap_file_run, .prepare = large_file, .count = 3 * COUNT },
	{ .name = "malloc", .workers = PROCESSES, .run = malloc_run },
	{ .name = "malloc-t", .workers = THREADS, .run = malloc_run },
	{ .name = "brk", .workers = PROCESSES, .run = brk_run, .settle = own_break, .count = 6 * COUNT },
	{ .name = "flush", .workers = PROCESSES, .run = flush_run, .settle = own_memory, .count = 4 * COUNT },
	{ .name = "flush-t", .workers = THREADS, .run = flush_run, .settle = own_memory, .count = COUNT / 4 },
	{ .name = "fork", .workers = PROCESSES, .run = fork_run, .count = COUNT / 4 },
	{ .name = NULL },
};
