// SPDX-License-Identifier: GPL-2.0-or-later
/* io_uring, with the buffers registered beforehand or not. */
#include "engine.h"

#include <lab/program.h>

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int ring;
static struct io_uring_sqe *entries;
static const struct io_uring_cqe *completions;
static unsigned int *sq_tail, *sq_array, *cq_head;
static const unsigned int *cq_tail;
static unsigned int sq_mask, cq_mask;

static void *map_ring(size_t length, off_t what)
{
	void *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, what);

	if (mapped == MAP_FAILED)
		program_cannot("cannot map the rings of io_uring");
	return mapped;
}

static void map_rings(const struct io_uring_params *given)
{
	char *sq = map_ring(given->sq_off.array + given->sq_entries * sizeof(*sq_array), IORING_OFF_SQ_RING);
	char *cq = map_ring(given->cq_off.cqes + given->cq_entries * sizeof(*completions), IORING_OFF_CQ_RING);

	entries = map_ring(given->sq_entries * sizeof(*entries), IORING_OFF_SQES);
	sq_tail = (unsigned int *)(sq + given->sq_off.tail);
	sq_array = (unsigned int *)(sq + given->sq_off.array);
	sq_mask = *(unsigned int *)(sq + given->sq_off.ring_mask);
	cq_head = (unsigned int *)(cq + given->cq_off.head);
	cq_tail = (unsigned int *)(cq + given->cq_off.tail);
	cq_mask = *(unsigned int *)(cq + given->cq_off.ring_mask);
	completions = (struct io_uring_cqe *)(cq + given->cq_off.cqes);
}

/* All buffers as one: pinned here, until the ring is closed. */
static void register_buffers(const struct queue *queue)
{
	struct iovec all = { .iov_base = queue->buffers, .iov_len = queue->length };

	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &all, 1))
		program_cannot("cannot register %zu bytes with io_uring", queue->length);
}

static void uring_set_up(const struct queue *queue)
{
	struct io_uring_params params = { 0 };

	ring = (int)syscall(SYS_io_uring_setup, queue->depth, &params);
	if (ring < 0)
		program_cannot("cannot set up io_uring");
	map_rings(&params);
	if (queue->registered)
		register_buffers(queue);
}

static void uring_submit(const struct queue *queue, unsigned int slot, uint64_t offset)
{
	unsigned int tail = *sq_tail, index = tail & sq_mask;

	entries[index] = (struct io_uring_sqe){
		.opcode = queue->registered ? IORING_OP_READ_FIXED : IORING_OP_READ,
		.fd = queue->fd,
		.off = offset,
		.addr = (uintptr_t)(queue->buffers + slot * queue->size),
		.len = (uint32_t)queue->size,
		.user_data = slot,
	};
	sq_array[index] = index;
	__atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring, 1U, 0U, 0U, NULL, 0UL) != 1)
		program_cannot("cannot submit a read");
}

static unsigned int uring_reap(const struct queue *queue, struct done *done)
{
	unsigned int head = *cq_head, count = 0;

	if (head == __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) &&
	    syscall(SYS_io_uring_enter, ring, 0U, 1U, IORING_ENTER_GETEVENTS, NULL, 0UL) < 0)
		program_cannot("cannot wait for reads");
	while (count < queue->depth && head != __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE)) {
		const struct io_uring_cqe *completion = &completions[head++ & cq_mask];

		done[count].slot = (unsigned int)completion->user_data;
		done[count++].result = completion->res;
	}
	__atomic_store_n(cq_head, head, __ATOMIC_RELEASE);
	return count;
}

const struct engine engine_uring = {
	.name = "uring",
	.can_register = true,
	.set_up = uring_set_up,
	.submit = uring_submit,
	.reap = uring_reap,
};
