// SPDX-License-Identifier: GPL-2.0-or-later
/* Files: one for all workers, and one for each. */
#include "operations.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int shared;

static int opened(const char *name)
{
	int fd = (int)MUST(open(name, O_RDWR | O_CREAT, 0644));

	MUST(ftruncate(fd, WORKERS_MAX * (long)PAGE));
	MUST(pwrite(fd, "x", 1, 0));
	return fd;
}

static void one_file(struct worker *worker)
{
	if (!worker->id)
		shared = opened("file");
	snprintf(worker->name, sizeof(worker->name), "file");
	MUST(pwrite(shared, "x", 1, worker->id * (long)PAGE));
}

/* Beside those of the others. */
static void file_beside(struct worker *worker)
{
	snprintf(worker->name, sizeof(worker->name), "file%d", worker->id);
	worker->fd = opened(worker->name);
}

static void own_file(struct worker *worker)
{
	snprintf(worker->name, sizeof(worker->name), "folder%d", worker->id);
	MUST(mkdir(worker->name, 0755));
	snprintf(worker->name, sizeof(worker->name), "folder%d/file", worker->id);
	worker->fd = opened(worker->name);
}

static void fstat_run(struct worker *worker)
{
	MUST(syscall(SYS_fstat, shared, worker->buffer));
}

static void pread_run(struct worker *worker)
{
	MUST(pread(shared, worker->buffer, 1, worker->id * (long)PAGE));
}

static void pread_own_run(struct worker *worker)
{
	MUST(pread(worker->fd, worker->buffer, 1, 0));
}

static void pwrite_run(struct worker *worker)
{
	MUST(pwrite(shared, worker->buffer, 1, worker->id * (long)PAGE));
}

static void pwrite_own_run(struct worker *worker)
{
	MUST(pwrite(worker->fd, worker->buffer, 1, 0));
}

static void lseek_run(struct worker *worker)
{
	(void)worker;
	MUST(lseek(shared, 0, SEEK_SET));
}

static void lseek_own_run(struct worker *worker)
{
	MUST(lseek(worker->fd, 0, SEEK_SET));
}

static void open_run(struct worker *worker)
{
	close((int)MUST(open(worker->name, O_RDWR)));
}

static void dup_run(struct worker *worker)
{
	close((int)MUST(dup(worker->fd)));
}

/* A byte is locked for writing, and unlocked. */
static void lock_run(struct worker *worker)
{
	struct flock one = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };

	MUST(fcntl(worker->fd, F_SETLKW, &one));
	one.l_type = F_UNLCK;
	MUST(fcntl(worker->fd, F_SETLKW, &one));
}

const struct operation file_operations[] = {
	{ .name = "fstat", .workers = THREADS, .run = fstat_run, .prepare = one_file },
	{ .name = "fstat-p", .workers = PROCESSES, .run = fstat_run, .prepare = one_file },
	{ .name = "pread", .workers = THREADS, .run = pread_run, .prepare = one_file },
	{ .name = "pread-p", .workers = PROCESSES, .run = pread_run, .prepare = one_file },
	{ .name = "pread-own", .workers = THREADS, .run = pread_own_run, .prepare = own_file },
	{ .name = "pwrite", .workers = THREADS, .run = pwrite_run, .prepare = one_file },
	{ .name = "pwrite-p", .workers = PROCESSES, .run = pwrite_run, .prepare = one_file },
	{ .name = "pwrite-own", .workers = THREADS, .run = pwrite_own_run, .prepare = own_file },
	{ .name = "lseek", .workers = THREADS, .run = lseek_run, .prepare = one_file, .count = 5 * COUNT },
	{ .name = "lseek-own", .workers = THREADS, .run = lseek_own_run, .prepare = own_file },
	{ .name = "open", .workers = PROCESSES, .run = open_run, .prepare = one_file },
	{ .name = "open-t", .workers = THREADS, .run = open_run, .prepare = one_file, .count = 2 * COUNT },
	{ .name = "open-beside", .workers = PROCESSES, .run = open_run, .prepare = file_beside, .count = 2 * COUNT },
	{ .name = "open-own", .workers = PROCESSES, .run = open_run, .prepare = own_file, .count = 2 * COUNT },
	{ .name = "open-own-t", .workers = THREADS, .run = open_run, .prepare = own_file },
	{ .name = "lock", .workers = PROCESSES, .run = lock_run, .prepare = own_file },
	{ .name = "lock-t", .workers = THREADS, .run = lock_run, .prepare = own_file, .count = 3 * COUNT },
	{ .name = "dup", .workers = THREADS, .run = dup_run, .prepare = own_file },
	{ .name = NULL },
};
