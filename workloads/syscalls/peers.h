/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Preparations of several groups: other processes and threads, memory, files, sockets. */
#ifndef PEERS_H
#define PEERS_H

#include <stddef.h>

/*
 * Leave nothing to the scheduler: the first task runs until it waits. To the process, and to all that it starts from
 * here on. The order of two tasks with a share of time each differs from boot to boot.
 */
void use_fifo(void);

/*
 * The same, and the kernel's threads for softirqs come before. Up to Linux 6.3
 * such a thread, once it was woken, does all softirqs (d15121be7485 ended that),
 * and with a share of time it would wait for us.
 */
void use_fifo_with_softirqs(void);

/*
 * Empty the counts of pages that each CPU keeps before it adds them to those of all. A count that an operation takes up
 * and down goes over its limit each time or never, depending on its first value.
 */
void fold_page_counts(void);

/*
 * Give back the free pages that each CPU keeps for itself. Once it keeps too many, as those before us may have left,
 * pages that are freed go to all, some dozens at a time.
 */
void drain_free_pages(void);

/* A process beside this one, which ends with it. Its function must not return. */
void peer_start(void (*run)(void *), void *data);

/* A thread of this process on a stack of its own. Its function must not return, and use no thread-local data. */
void thread_start(void (*run)(void *), void *data);

/* Answer each byte that arrives at one descriptor by one at the other, for ever. */
struct echo {
	int in, out;
};
_Noreturn void echo(void *data);

/* The end of a stream: takes so many bytes, then gives one back, for ever. */
struct sink {
	int in, out;
	long bytes;
};
_Noreturn void drain(void *data);

/* Anonymous memory, not touched yet; at a multiple of 2 MiB. flags: MAP_PRIVATE or MAP_SHARED. */
char *map_aligned(size_t length, int flags);

/* The same, in small pages. */
char *map_small(size_t length, int flags);

/* The same, in huge pages if there are any. */
char *map_huge(size_t length, int flags);

/* Write to each page. */
void touch(char *memory, size_t length);

/* Go to an empty folder on tmpfs, which goes when the program's process ends. */
void use_scratch(void);

/* A file of the folder with so many bytes. */
int scratch_file(const char *name, size_t length);

/* Bring up the loopback interface. */
void use_loopback(void);

/* Sockets of the loopback interface: a pair that is connected. type: SOCK_STREAM or SOCK_DGRAM. */
void loopback_pair(int type, int pair[2]);

#endif
