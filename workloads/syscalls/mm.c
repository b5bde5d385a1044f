// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory: mappings made and changed, and the first touch of a page of each kind. Advice is in madvise.c. */
#include "calls.h"
#include "operations.h"
#include "peers.h"

#include <lab/program.h>

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/uio.h>

#define CHUNK		(64 * KIB)
#define AROUND		(64 * KIB)	/* a fault of a file maps its surroundings, too */
#define RESERVED	(4 * MIB)

static char *area, *other;
static int file;

static char *map(size_t length, int flags, int fd)
{
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (memory == MAP_FAILED)
		program_cannot("cannot map %zu bytes of a file", length);
	return memory;
}

/* ---- mappings */

PREPARE(prepare_area)
{
	area = map_small(RESERVED, MAP_PRIVATE);
}

PREPARE(prepare_file)
{
	use_scratch();
	file = scratch_file("file", CHUNK);
}

OPERATION(map_unmap)
{
	for (int i = 0; i < BATCH; i++) {
		long at = must(SYS(mmap, NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

		must(SYS(munmap, at, CHUNK));
	}
}

OPERATION(map_touch_unmap)
{
	for (int i = 0; i < BATCH; i++) {
		long at = must(SYS(mmap, NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

		touch((char *)at, CHUNK);
		must(SYS(munmap, at, CHUNK));
	}
}

OPERATION(map_file)
{
	for (int i = 0; i < BATCH; i++)
		must(SYS(munmap, must(SYS(mmap, NULL, CHUNK, PROT_READ, MAP_SHARED, file, 0)), CHUNK));
}

/* A hole in the middle, and the same closed again: two mappings of one, one of three. */
OPERATION(split_unmap)
{
	char *middle = area + RESERVED / 2;

	must(SYS(munmap, middle, PAGE));
	must(SYS(mmap, middle, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

OPERATION(split_protect)
{
	char *middle = area + RESERVED / 2;

	must(SYS(mprotect, middle, PAGE, PROT_READ));
	must(SYS(mprotect, middle, PAGE, PROT_READ | PROT_WRITE));
}

PREPARE(prepare_move)
{
	area = map_small(RESERVED, MAP_PRIVATE);
	other = map_small(RESERVED, MAP_PRIVATE);
	munmap(other, RESERVED);
	touch(area, (size_t)argument);
	munmap(area + argument, RESERVED - (size_t)argument);
}

OPERATION(move)
{
	for (int i = 0; i < BATCH; i++) {
		must(SYS(mremap, area, argument, argument, MREMAP_MAYMOVE | MREMAP_FIXED, other));
		must(SYS(mremap, other, argument, argument, MREMAP_MAYMOVE | MREMAP_FIXED, area));
	}
}

PREPARE(prepare_grow)
{
	area = map_small(RESERVED, MAP_PRIVATE);
	munmap(area + CHUNK, RESERVED - CHUNK);
	touch(area, CHUNK);
}

OPERATION(grow_shrink)
{
	for (int i = 0; i < BATCH; i++) {
		must(SYS(mremap, area, CHUNK, 2 * CHUNK, 0));
		must(SYS(mremap, area, 2 * CHUNK, CHUNK, 0));
	}
}

PREPARE(prepare_break)
{
	area = (char *)((SYS(brk, 0) + (long)PAGE - 1) & -(long)PAGE);
	must(SYS(brk, area));
}

OPERATION(break_grow)
{
	for (int i = 0; i < BATCH; i++) {
		must(SYS(brk, area + CHUNK));
		must(SYS(brk, area));
	}
}

OPERATION(break_touch)
{
	for (int i = 0; i < BATCH; i++) {
		must(SYS(brk, area + CHUNK));
		touch(area, CHUNK);
		must(SYS(brk, area));
	}
}

/* ---- protection: a sweep over the size */

PREPARE(prepare_protect_private)
{
	area = map_small((size_t)argument, MAP_PRIVATE);
	touch(area, (size_t)argument);
}

PREPARE(prepare_protect_shared)
{
	area = map_small((size_t)argument, MAP_SHARED);
	touch(area, (size_t)argument);
}

/* In folios as the kernel is set to make them. */
PREPARE(prepare_protect_folios)
{
	area = map_aligned((size_t)argument, MAP_PRIVATE);
	touch(area, (size_t)argument);
}

OPERATION(protect)
{
	must(SYS(mprotect, area, argument, PROT_READ));
	must(SYS(mprotect, area, argument, PROT_READ | PROT_WRITE));
}

#define SIZED_MAX	(64 * MIB)

const struct operation *mm_sized(const char *name)
{
	static const struct {
		const char *prefix;
		void (*prepare)(long);
	} kinds[] = {
		{ "mprotect-private-", prepare_protect_private },
		{ "mprotect-shared-", prepare_protect_shared },
		{ "mprotect-folios-", prepare_protect_folios },
	};
	static struct operation sized = { .run = protect };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t length = strlen(kinds[i].prefix), size;
		const char *end;

		if (strncmp(name, kinds[i].prefix, length))
			continue;
		end = program_size(name + length, &size);
		if (!end || *end || size % PAGE || size > SIZED_MAX)
			program_misuse(name, "its size is a multiple of 4k, at most 64m");
		sized.name = name;
		sized.prepare = kinds[i].prepare;
		sized.argument = (long)size;
		sized.count = 16 + (int)(2000 / (size / PAGE + 10));
		return &sized;
	}
	return NULL;
}

/* ---- the first touch: each operation takes the next page, or huge page */

static size_t pages_in_all(size_t size)
{
	return (size_t)operations_in_all * size;
}

PREPARE(prepare_anonymous)
{
	area = map_small(pages_in_all(PAGE), (int)argument);
}

PREPARE(prepare_anonymous_huge)
{
	area = map_huge(pages_in_all(HUGE), MAP_PRIVATE);
}

PREPARE(prepare_shared_huge)
{
	use_scratch();
	offered(SYS(mount, "tmpfs", ".", "tmpfs", 0, "huge=always"));
	must(SYS(chdir, "/tmp/syscalls"));
	file = (int)must(call_open("file", O_RDWR | O_CREAT, 0600));
	must(SYS(ftruncate, file, pages_in_all(HUGE)));
	/* At a multiple of 2 MiB. */
	area = map_huge(pages_in_all(HUGE), MAP_PRIVATE);
	area = mmap(area, pages_in_all(HUGE), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
	if (area == MAP_FAILED)
		program_cannot("cannot map a file in huge pages");
}

PREPARE(prepare_file_pages)
{
	use_scratch();
	file = scratch_file("file", pages_in_all(PAGE));
	area = map(pages_in_all(PAGE), (int)argument, file);
}

PREPARE(prepare_file_around)
{
	use_scratch();
	file = scratch_file("file", pages_in_all(AROUND));
	area = map(pages_in_all(AROUND), MAP_SHARED, file);
}

static _Noreturn void keep_pages(__attribute__((unused)) void *data)
{
	for (;;)
		call_pause();
}

PREPARE(prepare_copied)
{
	area = argument == HUGE ? map_huge(pages_in_all(HUGE), MAP_PRIVATE) :
				  map_small(pages_in_all(PAGE), MAP_PRIVATE);
	touch(area, pages_in_all((size_t)argument));
	peer_start(keep_pages, NULL);
}

OPERATION(write_page)
{
	((volatile char *)area)[number * (long)PAGE] = 1;
}

OPERATION(read_page)
{
	(void)((volatile char *)area)[number * (long)PAGE];
}

OPERATION(read_around)
{
	(void)((volatile char *)area)[number * (long)AROUND];
}

OPERATION(write_huge)
{
	((volatile char *)area)[number * (long)HUGE] = 1;
}

OPERATION(read_huge)
{
	(void)((volatile char *)area)[number * (long)HUGE];
}

/* ---- pages of a process's own making */

static int handler;

PREPARE(prepare_uffd)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	area = map_small(pages_in_all(PAGE), MAP_PRIVATE);
	other = map_small(PAGE, MAP_PRIVATE);
	touch(other, PAGE);
	handler = (int)offered(SYS(userfaultfd, 0));
	range.range.start = (unsigned long)area;
	range.range.len = pages_in_all(PAGE);
	must(SYS(ioctl, handler, UFFDIO_API, &api));
	must(SYS(ioctl, handler, UFFDIO_REGISTER, &range));
}

static inline void give_page(unsigned long to)
{
	struct uffdio_copy copy = { .dst = to, .src = (unsigned long)other, .len = PAGE };

	must(SYS(ioctl, handler, UFFDIO_COPY, &copy));
}

static void serve_faults(__attribute__((unused)) void *data)
{
	struct uffd_msg fault;

	for (;;) {
		must(SYS(read, handler, &fault, sizeof(fault)));
		give_page(fault.arg.pagefault.address & -PAGE);
	}
}

PREPARE(prepare_uffd_thread)
{
	prepare_uffd(0);
	thread_start(serve_faults, NULL);
}

OPERATION(uffd_copy)
{
	give_page((unsigned long)area + (unsigned long)number * PAGE);
}

/* ---- the rest */

PREPARE(prepare_touched)
{
	area = map_small(CHUNK, MAP_PRIVATE);
	other = map_small(CHUNK, MAP_PRIVATE);
	touch(area, CHUNK);
	touch(other, CHUNK);
}

PREPARE(prepare_dirty)
{
	prepare_file(0);
	area = map(CHUNK, MAP_SHARED, file);
	touch(area, CHUNK);
}

OPERATION(lock_unlock)
{
	must(SYS(mlock, area, CHUNK));
	must(SYS(munlock, area, CHUNK));
}

OPERATION(in_core)
{
	static unsigned char pages[CHUNK / 4096];

	must(SYS(mincore, area, CHUNK, pages));
}

OPERATION(sync_mapping)
{
	must(SYS(msync, area, CHUNK, MS_SYNC));
}

OPERATION(read_memory)
{
	struct iovec from = { area, CHUNK }, to = { other, CHUNK };
	static long self;

	if (!self)
		self = SYS(getpid);
	offered(SYS(process_vm_readv, self, &to, 1, &from, 1, 0));
}

const struct operation mm_operations[] = {
	{ "mmap-munmap", map_unmap, NULL, 0, 40 },
	{ "mmap-touch-munmap", map_touch_unmap, NULL, 0, 8 },
	{ "mmap-file", map_file, prepare_file, 0, 20 },
	{ "munmap-split", split_unmap, prepare_area, 0, 100 },
	{ "mprotect-split", split_protect, prepare_area, 0, 500 },
	{ "mremap-grow", grow_shrink, prepare_grow, 0, 20 },
	{ "mremap-move-64k", move, prepare_move, CHUNK, 16 },
	{ "mremap-move-2m", move, prepare_move, HUGE, 16 },
	{ "brk", break_grow, prepare_break, 0, 32 },
	{ "brk-touch", break_touch, prepare_break, 0, 8 },
	{ "fault-anon", write_page, prepare_anonymous, MAP_PRIVATE, 400 },
	{ "fault-anon-huge", write_huge, prepare_anonymous_huge, 0, 16 },
	{ "fault-anon-read", read_page, prepare_anonymous, MAP_PRIVATE, 500 },
	{ "fault-anon-read-huge", read_huge, prepare_anonymous_huge, 0, 60 },
	{ "fault-shared", write_page, prepare_anonymous, MAP_SHARED, 300 },
	{ "fault-shared-huge", write_huge, prepare_shared_huge, 0, 16 },
	{ "fault-file-read", read_around, prepare_file_around, 0, 80 },
	{ "fault-file-write", write_page, prepare_file_pages, MAP_SHARED, 300 },
	{ "fault-file-cow", write_page, prepare_file_pages, MAP_PRIVATE, 300 },
	{ "fault-cow", write_page, prepare_copied, PAGE, 300 },
	{ "fault-cow-huge", write_huge, prepare_copied, HUGE, 16 },
	{ "userfaultfd-fault", write_page, prepare_uffd_thread, 0, 100 },
	{ "userfaultfd-copy", uffd_copy, prepare_uffd, 0, 200 },
	{ "mlock", lock_unlock, prepare_touched, 0, 60 },
	{ "mincore", in_core, prepare_touched, 0, 200 },
	{ "msync", sync_mapping, prepare_dirty, 0, 300 },
	{ "process-vm-readv", read_memory, prepare_touched, 0, 60 },
	{ 0 },
};
