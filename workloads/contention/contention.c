// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * contention: one operation on every CPU at once.
 *
 * As many workers as there are CPUs, threads of one process or processes, each
 * on a CPU of its own, do a fixed number of an operation, and wait a little
 * between two of them: the seed says how long, so that workers do not stay in
 * step for ever. The window opens when the last one is ready, and closes when
 * the first one is done: the others finish with less company.
 *
 * Prints one line of JSON.
 */
#include "operations.h"

#include <lab/mark.h>

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WARM_UP	100
#define DELAY	200	/* iterations of an empty loop between two operations, at most */

static const struct operation *const groups[] = {
	user_operations,
	file_operations,
	memory_operations,
	ipc_operations,
	cgroup_operations,
};

struct common *common;
int workers_in_all, operations_in_all;

static struct worker workers[WORKERS_MAX];
static const struct operation *operation;
static int count;

long must(long result, const char *what)
{
	if (result < 0)
		program_cannot("%.40s failed", what);
	return result;
}

static void pause_a_little(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

/* The last one that arrives opens the window, if it is time. */
static void meet_all(bool opens)
{
	int phase = __atomic_load_n(&common->phase, __ATOMIC_ACQUIRE);

	if (__atomic_add_fetch(&common->arrived, 1, __ATOMIC_ACQ_REL) == workers_in_all) {
		common->arrived = 0;
		if (opens)
			lab_window_begin();
		__atomic_store_n(&common->phase, phase + 1, __ATOMIC_RELEASE);
		return;
	}
	while (__atomic_load_n(&common->phase, __ATOMIC_ACQUIRE) == phase)
		pause_a_little();
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	MUST(sched_setaffinity(0, sizeof(set), &set));
}

static void delay(struct worker *worker)
{
	for (uint64_t left = program_random(&worker->random) % DELAY; left; left--)
		__asm__ volatile("" ::: "memory");
}

static void repeat(struct worker *worker, int times)
{
	for (int i = 0; i < times; i++, worker->n++) {
		lab_operation_begin();
		operation->run(worker);
		lab_operation_end();
		delay(worker);
	}
}

static void *work(void *data)
{
	struct worker *worker = data;

	pin(worker->id);
	worker->random = program_seed() * WORKERS_MAX + (uint64_t)worker->id;
	if (operation->settle)
		operation->settle(worker);
	meet_all(false);
	repeat(worker, WARM_UP);
	meet_all(true);
	repeat(worker, count);
	lab_window_end();
	meet_all(false);
	return NULL;
}

static void run_threads(void)
{
	pthread_t threads[WORKERS_MAX];

	for (int i = 1; i < workers_in_all; i++)
		if ((errno = pthread_create(&threads[i], NULL, work, &workers[i])))
			program_cannot("pthread_create failed");
	work(&workers[0]);
	for (int i = 1; i < workers_in_all; i++)
		pthread_join(threads[i], NULL);
}

static void run_processes(void)
{
	int status;

	for (int i = 0; i < workers_in_all; i++) {
		if (MUST(fork()))
			continue;
		work(&workers[i]);
		_exit(PROGRAM_MEASURED);
	}
	for (int i = 0; i < workers_in_all; i++) {
		MUST(wait(&status));
		if (status)
			program_cannot("a worker ended with status %d", status);
	}
}

static const struct operation *find(const char *name)
{
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
		for (const struct operation *one = groups[i]; one->name; one++)
			if (!strcmp(one->name, name))
				return one;
	return NULL;
}

/* A place for files, in memory, and nothing else in it. */
static void make_folder(void)
{
	if (mkdir("/contention", 0755) && errno != EEXIST)
		program_cannot("mkdir /contention failed");
	MUST(mount("tmpfs", "/contention", "tmpfs", 0, NULL));
	MUST(chdir("/contention"));
}

int main(int argc, char **argv)
{
	const char *name = program_case(argc, argv, "NAME");
	int64_t start, end;

	operation = find(name);
	if (!operation)
		program_misuse(name, "no such operation");
	workers_in_all = (int)sysconf(_SC_NPROCESSORS_ONLN);
	if (workers_in_all > WORKERS_MAX)
		program_cannot("%d CPUs, and at most %d workers", workers_in_all, WORKERS_MAX);
	count = operation->count ? operation->count : COUNT;
	operations_in_all = WARM_UP + count;
	common = mmap(NULL, sizeof(*common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (common == MAP_FAILED)
		program_cannot("mmap failed");
	memset(common, 0, sizeof(*common));
	make_folder();
	for (int i = 0; i < workers_in_all; i++) {
		workers[i].id = i;
		if (operation->prepare)
			operation->prepare(&workers[i]);
	}
	start = program_now_ns();
	if (operation->workers == THREADS)
		run_threads();
	else
		run_processes();
	end = program_now_ns();
	printf("{\"metrics\":{\"operation_time\":%.17g,\"workers\":%d,\"ops\":%d}}\n",
	       (double)(end - start) / operations_in_all, workers_in_all, count);
	fflush(stdout);
	MUST(chdir("/"));
	MUST(umount2("/contention", MNT_DETACH));
	return PROGRAM_MEASURED;
}
