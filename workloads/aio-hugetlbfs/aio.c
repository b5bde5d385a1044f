// SPDX-License-Identifier: GPL-2.0-or-later
/* Linux aio, as databases have used it since v2.6. */
#include "engine.h"

#include <lab/program.h>

#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static aio_context_t context;
static struct iocb iocbs[DEPTH_MAX];

static void aio_set_up(const struct queue *queue)
{
	if (syscall(SYS_io_setup, queue->depth, &context))
		program_cannot("cannot set up aio");
	for (unsigned int slot = 0; slot < queue->depth; slot++) {
		iocbs[slot].aio_data = slot;
		iocbs[slot].aio_lio_opcode = IOCB_CMD_PREAD;
		iocbs[slot].aio_fildes = (uint32_t)queue->fd;
		iocbs[slot].aio_buf = (uintptr_t)(queue->buffers + slot * queue->size);
		iocbs[slot].aio_nbytes = queue->size;
	}
}

static void aio_submit(const struct queue *queue, unsigned int slot, uint64_t offset)
{
	struct iocb *iocb = &iocbs[slot];

	(void)queue;
	iocb->aio_offset = (int64_t)offset;
	if (syscall(SYS_io_submit, context, 1L, &iocb) != 1)
		program_cannot("cannot submit a read");
}

static unsigned int aio_reap(const struct queue *queue, struct done *done)
{
	static struct io_event events[DEPTH_MAX];
	long count = syscall(SYS_io_getevents, context, 1L, (long)queue->depth, events, NULL);

	if (count < 1)
		program_cannot("cannot get the events of reads");
	for (long i = 0; i < count; i++) {
		done[i].slot = (unsigned int)events[i].data;
		done[i].result = events[i].res;
	}
	return (unsigned int)count;
}

const struct engine engine_aio = {
	.name = "read",
	.set_up = aio_set_up,
	.submit = aio_submit,
	.reap = aio_reap,
};
