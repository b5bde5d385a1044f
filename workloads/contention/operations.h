/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The table of operations: each worker repeats one, while all others do the same. */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include <lab/program.h>

#define WORKERS_MAX	64
#define COUNT		400	/* operations of a worker in most cases; more if seeds differ much, fewer of slow ones */
#define LINE		128	/* bytes: two lines, as one is fetched with its neighbour on many CPUs */

/* Each has lines of its own. */
struct worker {
	_Alignas(2 * LINE) int id;
	int fd, other;		/* a pipe or a file of its own */
	char *memory;
	unsigned long n;	/* operations until now */
	uint64_t random;
	char name[64];
	char buffer[256];
};

/* Visible to all workers, also if they are processes. */
struct common {
	_Alignas(LINE) int arrived;
	_Alignas(LINE) int phase;
	_Alignas(LINE) volatile long near[WORKERS_MAX];	/* neighbours in a line */
	_Alignas(LINE) int lock;
	struct {
		_Alignas(LINE) volatile long value;
		int word;
	} apart[WORKERS_MAX];
};

struct operation {
	const char *name;
	enum {
		PROCESSES,
		THREADS,
	} workers;
	void (*run)(struct worker *worker);
	void (*prepare)(struct worker *worker);	/* before workers are there, for each of them */
	void (*settle)(struct worker *worker);	/* in the worker */
	int count;				/* operations of a worker; 0: COUNT */
};

extern struct common *common;
extern int workers_in_all, operations_in_all;	/* with the warm-up */

/* End the program if a call failed. */
long must(long result, const char *what);
#define MUST(call)	must((long)(call), #call)

/* Memory of the worker's, and the first touch of its next page. */
void own_memory(struct worker *worker);
void fault_run(struct worker *worker);

/* A group's table ends with an operation without a name. */
extern const struct operation user_operations[], file_operations[], memory_operations[], ipc_operations[],
	cgroup_operations[];

#endif
