// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * madvise(), each advice a case. Advice that changes pages gets the next 64 KiB
 * of a large area each time; advice that changes mappings is taken back each
 * time.
 */
#include "calls.h"
#include "operations.h"
#include "peers.h"

#include <lab/program.h>

#include <sys/mman.h>

#define CHUNK		(64 * KIB)
#define PAIR(on, off)	((long)(on) << 16 | (off))

/* Since v5.14, v6.1 and v6.13: newer than many C libraries. */
#define ADVICE_POPULATE_READ	22
#define ADVICE_POPULATE_WRITE	23
#define ADVICE_COLLAPSE		25
#define ADVICE_GUARD_INSTALL	102
#define ADVICE_GUARD_REMOVE	103

static char *area;

static size_t chunks_in_all(size_t size)
{
	return (size_t)operations_in_all * size;
}

PREPARE(prepare_untouched)
{
	area = map_small(chunks_in_all(CHUNK), MAP_PRIVATE);
}

PREPARE(prepare_private)
{
	prepare_untouched(0);
	touch(area, chunks_in_all(CHUNK));
}

PREPARE(prepare_pageout)
{
	prepare_private(0);
	fold_page_counts();
}

PREPARE(prepare_shared)
{
	area = map_small(chunks_in_all(CHUNK), MAP_SHARED);
	touch(area, chunks_in_all(CHUNK));
}

PREPARE(prepare_remove)
{
	prepare_shared(0);
	drain_free_pages();
}

PREPARE(prepare_file)
{
	int file;

	use_scratch();
	file = scratch_file("file", chunks_in_all(CHUNK));
	area = mmap(NULL, chunks_in_all(CHUNK), PROT_READ, MAP_SHARED, file, 0);
	if (area == MAP_FAILED)
		program_cannot("cannot map a file");
}

PREPARE(prepare_collapse)
{
	area = map_small(chunks_in_all(HUGE), MAP_PRIVATE);
	touch(area, chunks_in_all(HUGE));
	offered(SYS(madvise, area, chunks_in_all(HUGE), MADV_HUGEPAGE));
}

OPERATION(next)
{
	offered(SYS(madvise, area + number * (long)CHUNK, CHUNK, argument));
}

OPERATION(next_huge)
{
	offered(SYS(madvise, area + number * (long)HUGE, HUGE, argument));
}

OPERATION(on_and_off)
{
	for (int i = 0; i < BATCH; i++) {
		offered(SYS(madvise, area + CHUNK, CHUNK, argument >> 16));
		offered(SYS(madvise, area + CHUNK, CHUNK, argument & 0xffff));
	}
}

const struct operation madvise_operations[] = {
	{ "madvise-dontneed", next, prepare_private, MADV_DONTNEED, 80 },
	{ "madvise-free", next, prepare_private, MADV_FREE, 80 },
	{ "madvise-cold", next, prepare_private, MADV_COLD, 80 },
	{ "madvise-pageout", next, prepare_pageout, MADV_PAGEOUT, 60 },
	{ "madvise-remove", next, prepare_remove, MADV_REMOVE, 60 },
	{ "madvise-willneed", next, prepare_file, MADV_WILLNEED, 80 },
	{ "madvise-populate-read", next, prepare_untouched, ADVICE_POPULATE_READ, 60 },
	{ "madvise-populate-write", next, prepare_untouched, ADVICE_POPULATE_WRITE, 40 },
	{ "madvise-collapse", next_huge, prepare_collapse, ADVICE_COLLAPSE, 6 },
	{ "madvise-hugepage", on_and_off, prepare_private, PAIR(MADV_HUGEPAGE, MADV_NOHUGEPAGE), 32 },
	{ "madvise-sequential", on_and_off, prepare_private, PAIR(MADV_SEQUENTIAL, MADV_NORMAL), 32 },
	{ "madvise-dontfork", on_and_off, prepare_private, PAIR(MADV_DONTFORK, MADV_DOFORK), 32 },
	{ "madvise-dontdump", on_and_off, prepare_private, PAIR(MADV_DONTDUMP, MADV_DODUMP), 32 },
	{ "madvise-wipeonfork", on_and_off, prepare_private, PAIR(MADV_WIPEONFORK, MADV_KEEPONFORK), 32 },
	{ "madvise-mergeable", on_and_off, prepare_private, PAIR(MADV_MERGEABLE, MADV_UNMERGEABLE), 32 },
	{ "madvise-guard", on_and_off, prepare_untouched, PAIR(ADVICE_GUARD_INSTALL, ADVICE_GUARD_REMOVE), 16 },
	{ 0 },
};
