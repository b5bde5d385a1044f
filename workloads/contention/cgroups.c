// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory that is charged to cgroups: the cases of the workload `charging`. */
#include "operations.h"

#include <lab/proc.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT	"groups"

static void write_file(const char *folder, const char *file, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	if (!proc_write(path, value))
		program_unsupported(file, strerror(errno));
}

/* The controller `memory`. The mount goes with the program's folder. */
static void use_groups(void)
{
	if (mkdir(ROOT, 0755))
		return;
	if (mount("cgroup2", ROOT, "cgroup2", 0, NULL))
		program_unsupported("cgroup2", strerror(errno));
	write_file(ROOT, "cgroup.subtree_control", "+memory");
}

static void make_group(const char *name)
{
	if (mkdir(name, 0755) && errno != EEXIST)
		program_cannot("cannot make the group %s", name);
}

static void one_group(struct worker *worker)
{
	use_groups();
	snprintf(worker->name, sizeof(worker->name), ROOT "/contention");
	make_group(worker->name);
}

static void own_group(struct worker *worker)
{
	use_groups();
	snprintf(worker->name, sizeof(worker->name), ROOT "/contention%d", worker->id);
	make_group(worker->name);
}

static void enter(struct worker *worker)
{
	write_file(worker->name, "cgroup.procs", "0");
}

/*
 * A page costs more if another vCPU freed it last, as the case before may have. So
 * each worker takes and frees its pages first.
 */
static void enter_with_memory(struct worker *worker)
{
	enter(worker);
	own_memory(worker);
	for (int i = 0; i < operations_in_all; i++)
		worker->memory[i * (long)PAGE] = 1;
	MUST(madvise(worker->memory, operations_in_all * (size_t)PAGE, MADV_DONTNEED));
}

/* A pipe's objects are charged, too. */
static void pipe_run(struct worker *worker)
{
	int ends[2];

	(void)worker;
	MUST(pipe(ends));
	close(ends[0]);
	close(ends[1]);
}

const struct operation cgroup_operations[] = {
	{ .name = "pages", .workers = PROCESSES, .run = fault_run, .prepare = one_group, .settle = enter_with_memory },
	{ .name = "pages-own", .workers = PROCESSES, .run = fault_run, .prepare = own_group, .settle = enter_with_memory },
	{ .name = "objects", .workers = PROCESSES, .run = pipe_run, .prepare = one_group, .settle = enter,
	  .count = 3 * COUNT },
	{ .name = "objects-own", .workers = PROCESSES, .run = pipe_run, .prepare = own_group, .settle = enter,
	  .count = 3 * COUNT },
	{ .name = NULL },
};
