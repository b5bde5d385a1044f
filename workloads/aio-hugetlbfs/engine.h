/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Two ways to read asynchronously, by the system calls themselves: between them
 * and the kernel there is no library whose version could change a number.
 */
#ifndef AIO_HUGETLBFS_ENGINE_H
#define AIO_HUGETLBFS_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEPTH_MAX	256

/* The reads and their sources: slot i of the queue reads into the i-th buffer. */
struct queue {
	int fd;
	uint64_t blocks;
	size_t size;
	unsigned int depth;
	bool registered;
	char *buffers;
	size_t length;	/* of all buffers */
};

/* A read that is done; the result is the number of bytes, or an error number less than 0. */
struct done {
	unsigned int slot;
	long long result;
};

struct engine {
	const char *name;
	bool can_register;
	void (*set_up)(const struct queue *queue);
	void (*submit)(const struct queue *queue, unsigned int slot, uint64_t offset);
	/* At least one, at most as many as the queue is deep. */
	unsigned int (*reap)(const struct queue *queue, struct done *done);
};

extern const struct engine engine_aio;
extern const struct engine engine_uring;

#endif
