// SPDX-License-Identifier: GPL-2.0-or-later
#include "peers.h"
#include "calls.h"

#include <lab/proc.h>
#include <lab/program.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define STACK		(64 * KIB)
#define TMPFS_MAGIC	0x01021994
#define BUFFER		(256 * KIB)
#define DRAINED		(4 * MIB)
#define FIRST_THREADS	1000		/* where the kernel's own of its boot are, by their numbers */

void use_fifo(void)
{
	const struct sched_param parameter = { .sched_priority = 1 };

	must(SYS(sched_setscheduler, 0, SCHED_FIFO, &parameter));
}

static bool is_softirq_thread(int pid)
{
	static const char wanted[] = "ksoftirqd/";
	char path[32], name[sizeof(wanted)] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, name, sizeof(name) - 1) < 0)
		name[0] = 0;
	close(fd);
	return !strcmp(name, wanted);
}

void use_fifo_with_softirqs(void)
{
	const struct sched_param parameter = { .sched_priority = 2 };

	use_fifo();
	if (!getenv("LAB_SEED"))	/* not in a guest: these threads are the host's */
		return;
	for (int pid = 2; pid < FIRST_THREADS; pid++)
		if (is_softirq_thread(pid))
			must(SYS(sched_setscheduler, pid, SCHED_FIFO, &parameter));
}

void fold_page_counts(void)
{
	proc_write("/proc/sys/vm/stat_refresh", "1");
}

void drain_free_pages(void)
{
	static const char limit[] = "/proc/sys/vm/percpu_pagelist_high_fraction";	/* since v5.14 */
	static struct proc_text before;
	char *memory = map_small(DRAINED, MAP_PRIVATE);

	touch(memory, DRAINED);
	if (!proc_read(limit, &before))
		return;
	/* A millionth of all: each page that is freed now takes dozens along. */
	proc_write(limit, "1000000");
	munmap(memory, DRAINED);
	proc_write(limit, before.text);
}

void peer_start(void (*run)(void *), void *data)
{
	pid_t parent = getpid();

	if (must(call_fork()))
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have ended before that. */
	if (getppid() != parent)
		_exit(PROGRAM_CANNOT);
	run(data);
	_exit(PROGRAM_CANNOT);
}

struct start {
	void (*run)(void *);
	void *data;
};

static int thread_main(void *data)
{
	struct start start = *(struct start *)data;

	start.run(start.data);
	return 0;
}

void thread_start(void (*run)(void *), void *data)
{
	const int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
	char *stack = map_small(STACK, MAP_PRIVATE);
	struct start *start = (struct start *)stack;

	touch(stack, STACK);
	*start = (struct start){ run, data };
	if (clone(thread_main, stack + STACK, flags, start) < 0)
		program_cannot("cannot start a thread");
}

_Noreturn void echo(void *data)
{
	const struct echo *ends = data;
	char byte;

	for (;;) {
		if (SYS(read, ends->in, &byte, 1) != 1 || SYS(write, ends->out, &byte, 1) != 1)
			SYS(exit, 0);
	}
}

_Noreturn void drain(void *data)
{
	const struct sink *sink = data;
	static char buffer[BUFFER];

	for (;;) {
		for (long left = sink->bytes, got; left > 0; left -= got) {
			got = SYS(read, sink->in, buffer, sizeof(buffer));
			if (got <= 0)
				SYS(exit, 0);
		}
		if (SYS(write, sink->out, buffer, 1) != 1)
			SYS(exit, 0);
	}
}

char *map_aligned(size_t length, int flags)
{
	char *memory = mmap(NULL, length + HUGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0), *start;

	if (memory == MAP_FAILED)
		program_cannot("cannot map %zu bytes", length);
	start = (char *)(((uintptr_t)memory + HUGE - 1) & ~(HUGE - 1));
	if (start > memory)
		munmap(memory, (size_t)(start - memory));
	munmap(start + length, (size_t)(memory + HUGE - start));
	return start;
}

char *map_small(size_t length, int flags)
{
	char *memory = map_aligned(length, flags);

	madvise(memory, length, MADV_NOHUGEPAGE);
	return memory;
}

char *map_huge(size_t length, int flags)
{
	char *memory = map_aligned(length, flags);

	if (madvise(memory, length, MADV_HUGEPAGE))
		not_supported("madvise(MADV_HUGEPAGE)", strerror(errno));
	return memory;
}

void touch(char *memory, size_t length)
{
	for (size_t at = 0; at < length; at += PAGE)
		((volatile char *)memory)[at] = 1;
}

void use_scratch(void)
{
	static const char folder[] = "/tmp/syscalls";
	struct statfs fs;

	/* A mount in a namespace of our own leaves nothing behind; without it, the folder's own file system will do. */
	mkdir(folder, 0755);
	if (!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		mount("tmpfs", folder, "tmpfs", 0, "mode=0755");
	if (chdir(folder) || statfs(".", &fs))
		program_cannot("cannot go to %s", folder);
	if (fs.f_type != TMPFS_MAGIC)
		not_supported(folder, "not on tmpfs");
}

int scratch_file(const char *name, size_t length)
{
	static const char block[4096] = { 1 };
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);

	if (fd < 0)
		program_cannot("cannot make the file %s", name);
	for (size_t done = 0; done < length; done += sizeof(block))
		if (write(fd, block, sizeof(block)) != sizeof(block))
			program_cannot("cannot write %zu bytes to %s", length, name);
	return fd;
}

void use_loopback(void)
{
	int fd = (int)offered(SYS(socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	struct ifreq request = { .ifr_name = "lo" };

	if (ioctl(fd, SIOCGIFFLAGS, &request))
		program_cannot("cannot read the flags of the loopback interface");
	if (!(request.ifr_flags & IFF_UP)) {
		request.ifr_flags |= IFF_UP | IFF_RUNNING;
		if (ioctl(fd, SIOCSIFFLAGS, &request))
			program_cannot("cannot bring up the loopback interface");
	}
	close(fd);
}

static int bound(int type, struct sockaddr_in *address)
{
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
	socklen_t length = sizeof(*address);

	*address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (fd < 0 || bind(fd, (struct sockaddr *)address, length) ||
	    getsockname(fd, (struct sockaddr *)address, &length))
		program_cannot("cannot bind a socket to the loopback interface");
	return fd;
}

static void join(int fd, const struct sockaddr_in *address)
{
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)))
		program_cannot("cannot connect over the loopback interface");
}

void loopback_pair(int type, int pair[2])
{
	struct sockaddr_in here, there;
	int one = 1;

	use_loopback();
	pair[0] = bound(type, &here);
	pair[1] = bound(type, &there);
	if (type == SOCK_DGRAM) {
		join(pair[0], &there);
		join(pair[1], &here);
		return;
	}
	if (listen(pair[1], 1))
		program_cannot("cannot listen on the loopback interface");
	join(pair[0], &there);
	one = accept(pair[1], NULL, NULL);
	if (one < 0)
		program_cannot("cannot accept a connection");
	close(pair[1]);
	pair[1] = one;
	one = 1;
	for (int i = 0; i < 2; i++)
		setsockopt(pair[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}
