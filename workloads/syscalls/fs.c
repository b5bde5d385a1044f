// SPDX-License-Identifier: GPL-2.0-or-later
/* Files: names, descriptors, data. Everything is on a tmpfs of the case's own. */
#include "calls.h"
#include "operations.h"
#include "peers.h"

#include <lab/program.h>

#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/stat.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

#define DEPTH	8	/* folders of a deep path */
#define ENTRIES	100	/* files of a folder */
#define BLOCK	4096
#define FILE	(1UL << 20)
#define CYCLE	64	/* blocks: fewer than the smallest L2 of the machines holds */

static _Alignas(4096) char buffer[64 << 10];
static struct stat status;
static int file, null, pipe_ends[2];

PREPARE(prepare_file)
{
	use_scratch();
	touch(buffer, sizeof(buffer));
	file = scratch_file("file", FILE);
	null = open("/dev/null", O_WRONLY);
}

PREPARE(prepare_zero)
{
	touch(buffer, sizeof(buffer));
	file = (int)must(call_open("/dev/zero", O_RDONLY));
	null = (int)must(call_open("/dev/null", O_WRONLY));
}

PREPARE(prepare_pipe)
{
	prepare_file(0);
	must(SYS(pipe2, pipe_ends, 0));
}

PREPARE(prepare_path)
{
	use_scratch();
	for (int i = 0; i < DEPTH; i++)
		if (mkdir("folder", 0755) || chdir("folder"))
			program_cannot("cannot make a folder of depth %d", i);
	close(scratch_file("file", 0));
	for (int i = 0; i < DEPTH; i++)
		must(SYS(chdir, ".."));
	close(scratch_file("file", 0));
}

PREPARE(prepare_folder)
{
	char name[16];

	use_scratch();
	for (int i = 0; i < ENTRIES; i++) {
		snprintf(name, sizeof(name), "file-%03d", i);
		close(scratch_file(name, 0));
	}
	file = open(".", O_RDONLY | O_DIRECTORY);
	touch(buffer, sizeof(buffer));
}

OPERATION(stat_file)
{
	must(SYS(newfstatat, AT_FDCWD, "file", &status, 0));
}

OPERATION(stat_deep)
{
	must(SYS(newfstatat, AT_FDCWD,
		 "folder/folder/folder/folder/folder/folder/folder/folder/file", &status, 0));
}

OPERATION(stat_missing)
{
	if (SYS(newfstatat, AT_FDCWD, "missing", &status, 0) != -ENOENT)
		call_failed("stat of a missing file", -EEXIST);
}

OPERATION(fstat_call)
{
	must(SYS(fstat, file, &status));
}

/* As glibc's fstat() since 2.33. */
OPERATION(fstat_empty_path)
{
	must(SYS(newfstatat, file, "", &status, AT_EMPTY_PATH));
}

OPERATION(statx_call)
{
	static struct statx extended;

	must(SYS(statx, AT_FDCWD, "file", 0, STATX_BASIC_STATS, &extended));
}

OPERATION(access_file)
{
	must(SYS(faccessat, AT_FDCWD, "file", R_OK));
}

OPERATION(open_close)
{
	must(SYS(close, must(SYS(openat, AT_FDCWD, "file", O_RDONLY))));
}

OPERATION(open_deep)
{
	must(SYS(close, must(SYS(openat, AT_FDCWD,
				 "folder/folder/folder/folder/folder/folder/folder/folder/file", O_RDONLY))));
}

OPERATION(create_unlink)
{
	must(SYS(close, must(SYS(openat, AT_FDCWD, "new", O_CREAT | O_EXCL | O_WRONLY, 0644))));
	must(SYS(unlinkat, AT_FDCWD, "new", 0));
}

OPERATION(mkdir_rmdir)
{
	must(SYS(mkdirat, AT_FDCWD, "new", 0755));
	must(SYS(unlinkat, AT_FDCWD, "new", AT_REMOVEDIR));
}

OPERATION(rename_file)
{
	must(SYS(renameat2, AT_FDCWD, "file", AT_FDCWD, "other", 0));
	must(SYS(renameat2, AT_FDCWD, "other", AT_FDCWD, "file", 0));
}

OPERATION(getdents)
{
	must(SYS(lseek, file, 0, SEEK_SET));
	while (must(SYS(getdents64, file, buffer, sizeof(buffer))))
		;
}

OPERATION(dup_close)
{
	must(SYS(close, must(SYS(dup, file))));
}

OPERATION(lseek_call)
{
	must(SYS(lseek, file, 0, SEEK_SET));
}

OPERATION(lock_file)
{
	static const struct flock lock = { .l_type = F_WRLCK, .l_len = 1 }, unlock = { .l_type = F_UNLCK, .l_len = 1 };

	must(SYS(fcntl, file, F_SETLK, &lock));
	must(SYS(fcntl, file, F_SETLK, &unlock));
}

OPERATION(read_call)
{
	must(SYS(read, file, buffer, argument));
}

OPERATION(write_null)
{
	must(SYS(write, null, buffer, 1));
}

OPERATION(pread_block)
{
	must(SYS(pread64, file, buffer, BLOCK, number % CYCLE * BLOCK));
}

OPERATION(pwrite_block)
{
	must(SYS(pwrite64, file, buffer, BLOCK, number % CYCLE * BLOCK));
}

OPERATION(append_truncate)
{
	must(SYS(pwrite64, file, buffer, BLOCK, FILE));
	must(SYS(ftruncate, file, FILE));
}

OPERATION(fallocate_truncate)
{
	must(SYS(fallocate, file, 0, FILE, 16 * BLOCK));
	must(SYS(ftruncate, file, FILE));
}

OPERATION(read_vector)
{
	static const struct iovec parts[] = {
		{ buffer, BLOCK },
		{ buffer + 2 * BLOCK, BLOCK },
		{ buffer + 4 * BLOCK, BLOCK },
		{ buffer + 6 * BLOCK, BLOCK },
	};

	must(SYS(preadv, file, parts, 4, 0));
}

OPERATION(write_vector)
{
	static const struct iovec parts[] = {
		{ buffer, BLOCK },
		{ buffer + 2 * BLOCK, BLOCK },
		{ buffer + 4 * BLOCK, BLOCK },
		{ buffer + 6 * BLOCK, BLOCK },
	};

	must(SYS(pwritev, file, parts, 4, 0));
}

OPERATION(sync_file)
{
	must(SYS(pwrite64, file, buffer, BLOCK, 0));
	must(SYS(fsync, file));
}

OPERATION(send_file)
{
	off_t offset = 0;

	must(SYS(sendfile, pipe_ends[1], file, &offset, sizeof(buffer)));
	must(SYS(read, pipe_ends[0], buffer, sizeof(buffer)));
}

OPERATION(splice_file)
{
	loff_t offset = 0;

	must(SYS(splice, file, &offset, pipe_ends[1], NULL, sizeof(buffer), 0));
	must(SYS(splice, pipe_ends[0], NULL, null, NULL, sizeof(buffer), 0));
}

OPERATION(copy_range)
{
	loff_t from = 0, to = FILE / 2;

	must(SYS(copy_file_range, file, &from, file, &to, sizeof(buffer), 0));
}

OPERATION(memfd)
{
	must(SYS(close, must(SYS(memfd_create, "lab", 0))));
}

/* io_uring by hand: one entry submitted and reaped by one system call. */
static struct ring {
	int fd;
	_Atomic unsigned int *submit_tail, *done_head;
	unsigned int *submit_mask, *indices;
	struct io_uring_sqe *entries;
} ring;

/*
 * If a read may wait, a thread of the kernel does it, which never returns to user code. It counts as the program's if
 * its task takes the place of a task that did: so some end here, whose memory RCU has freed when this returns.
 */
static void leave_tasks(void)
{
	for (int i = 0; i < BATCH; i++)
		if (!must(call_fork()))
			SYS(exit, 0);
	for (int i = 0; i < BATCH; i++)
		must(SYS(wait4, -1, NULL, 0, NULL));
	must(SYS(nanosleep, &(struct timespec){ .tv_nsec = 200000000 }, NULL));
}

PREPARE(prepare_ring)
{
	struct io_uring_params params = { 0 };
	char *submit, *done;

	if (argument)
		prepare_zero(0);
	else
		prepare_file(0);
	leave_tasks();
	use_fifo();
	ring.fd = (int)offered(SYS(io_uring_setup, 4, &params));
	submit = mmap(NULL, params.sq_off.array + params.sq_entries * sizeof(int), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);
	done = mmap(NULL, params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe),
		    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_CQ_RING);
	ring.entries = mmap(NULL, params.sq_entries * sizeof(*ring.entries), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQES);
	if (submit == MAP_FAILED || done == MAP_FAILED || ring.entries == MAP_FAILED)
		program_cannot("cannot map the ring");
	ring.submit_tail = (_Atomic unsigned int *)(submit + params.sq_off.tail);
	ring.submit_mask = (unsigned int *)(submit + params.sq_off.ring_mask);
	ring.indices = (unsigned int *)(submit + params.sq_off.array);
	ring.done_head = (_Atomic unsigned int *)(done + params.cq_off.head);
}

static inline void ring_submit(unsigned char opcode)
{
	unsigned int tail = atomic_load_explicit(ring.submit_tail, memory_order_relaxed);
	unsigned int index = tail & *ring.submit_mask;
	struct io_uring_sqe *entry = &ring.entries[index];

	entry->opcode = opcode;
	entry->fd = file;
	entry->addr = opcode == IORING_OP_READ ? (unsigned long)buffer : 0;
	entry->len = opcode == IORING_OP_READ ? BLOCK : 0;
	ring.indices[index] = index;
	atomic_store_explicit(ring.submit_tail, tail + 1, memory_order_release);
	must(SYS(io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS));
	atomic_fetch_add_explicit(ring.done_head, 1, memory_order_release);
}

OPERATION(ring_nop)
{
	ring_submit(IORING_OP_NOP);
}

OPERATION(ring_read)
{
	ring_submit(IORING_OP_READ);
}

const struct operation fs_operations[] = {
	{ "stat", stat_file, prepare_file, 0, 400 },
	{ "stat-deep", stat_deep, prepare_path, 0, 200 },
	{ "stat-missing", stat_missing, prepare_path, 0, 400 },
	{ "fstat", fstat_call, prepare_file, 0, 800 },
	{ "fstat-empty-path", fstat_empty_path, prepare_file, 0, 800 },
	{ "statx", statx_call, prepare_file, 0, 400 },
	{ "access", access_file, prepare_file, 0, 400 },
	{ "open-close", open_close, prepare_file, 0, 200 },
	{ "open-close-deep", open_deep, prepare_path, 0, 150 },
	{ "create-unlink", create_unlink, prepare_file, 0, 100 },
	{ "mkdir-rmdir", mkdir_rmdir, prepare_file, 0, 100 },
	{ "rename", rename_file, prepare_file, 0, 100 },
	{ "getdents-100", getdents, prepare_folder, 0, 30 },
	{ "dup-close", dup_close, prepare_file, 0, 500 },
	{ "lseek", lseek_call, prepare_file, 0, 1000 },
	{ "lock", lock_file, prepare_file, 0, 200 },
	{ "read-zero-1", read_call, prepare_zero, 1, 800 },
	{ "read-zero-64k", read_call, prepare_zero, sizeof(buffer), 240 },
	{ "write-null-1", write_null, prepare_zero, 0, 800 },
	{ "pread-4k", pread_block, prepare_file, 0, 400 },
	{ "pwrite-4k", pwrite_block, prepare_file, 0, 300 },
	{ "preadv-4x4k", read_vector, prepare_file, 0, 200 },
	{ "pwritev-4x4k", write_vector, prepare_file, 0, 150 },
	{ "append-truncate-4k", append_truncate, prepare_file, 0, 100 },
	{ "fallocate-truncate-64k", fallocate_truncate, prepare_file, 0, 30 },
	{ "fsync-tmpfs", sync_file, prepare_file, 0, 300 },
	{ "sendfile-64k", send_file, prepare_pipe, 0, 60 },
	{ "splice-64k", splice_file, prepare_pipe, 0, 100 },
	{ "copy-file-range-64k", copy_range, prepare_file, 0, 40 },
	{ "memfd-create", memfd, NULL, 0, 100 },
	{ "io-uring-nop", ring_nop, prepare_ring, 0, 500 },
	{ "io-uring-read-4k", ring_read, prepare_ring, 1, 300 },
	{ "io-uring-read-tmpfs-4k", ring_read, prepare_ring, 0, 100 },
	{ 0 },
};
