// SPDX-License-Identifier: GPL-2.0-or-later
/* Between processes: pipes, sockets of one machine, futexes, queues. A ping-pong has a peer that answers each byte. */
#include "calls.h"
#include "operations.h"
#include "peers.h"

#include <lab/program.h>

#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/uio.h>

static _Alignas(4096) char buffer[64 << 10];
static int to_peer, from_peer;
static struct echo peer;
static struct sink sink;

PREPARE(prepare_pipe)
{
	int ends[2];

	touch(buffer, sizeof(buffer));
	must(SYS(pipe2, ends, 0));
	from_peer = ends[0];
	to_peer = ends[1];
}

PREPARE(prepare_socket)
{
	int ends[2];

	touch(buffer, sizeof(buffer));
	offered(SYS(socketpair, AF_UNIX, argument, 0, ends));
	to_peer = ends[0];
	from_peer = ends[1];
}

PREPARE(prepare_pipe_peer)
{
	int there[2], back[2];

	must(SYS(pipe2, there, 0));
	must(SYS(pipe2, back, 0));
	peer = (struct echo){ there[0], back[1] };
	peer_start(echo, &peer);
	to_peer = there[1];
	from_peer = back[0];
}

PREPARE(prepare_socket_peer)
{
	prepare_socket(argument);
	use_fifo();
	peer = (struct echo){ from_peer, from_peer };
	peer_start(echo, &peer);
	from_peer = to_peer;
}

PREPARE(prepare_pipe_drain)
{
	int there[2], back[2];

	touch(buffer, sizeof(buffer));
	must(SYS(pipe2, there, 0));
	must(SYS(pipe2, back, 0));
	sink = (struct sink){ there[0], back[1], TRIPS * sizeof(buffer) };
	peer_start(drain, &sink);
	to_peer = there[1];
	from_peer = back[0];
}

PREPARE(prepare_socket_drain)
{
	prepare_socket(argument);
	use_fifo();
	sink = (struct sink){ from_peer, from_peer, TRIPS * sizeof(buffer) };
	peer_start(drain, &sink);
	from_peer = to_peer;
}

/* Within one process: no switch. */
OPERATION(to_and_fro)
{
	must(SYS(write, to_peer, buffer, argument));
	must(SYS(read, from_peer, buffer, argument));
}

OPERATION(byte_to_and_fro)
{
	must(SYS(write, to_peer, buffer, 1));
	must(SYS(read, from_peer, buffer, 1));
}

/* A byte to the peer and back. */
OPERATION(ping_pong)
{
	for (int i = 0; i < TRIPS; i++) {
		must(SYS(write, to_peer, buffer, 1));
		must(SYS(read, from_peer, buffer, 1));
	}
}

OPERATION(stream)
{
	for (int i = 0; i < TRIPS; i++)
		must(SYS(write, to_peer, buffer, sizeof(buffer)));
	must(SYS(read, from_peer, buffer, 1));
}

OPERATION(pipe_create)
{
	int ends[2];

	must(SYS(pipe2, ends, 0));
	must(SYS(close, ends[0]));
	must(SYS(close, ends[1]));
}

OPERATION(socket_create)
{
	int ends[2];

	offered(SYS(socketpair, AF_UNIX, SOCK_STREAM, 0, ends));
	must(SYS(close, ends[0]));
	must(SYS(close, ends[1]));
}

PREPARE(prepare_eventfd)
{
	to_peer = (int)offered(SYS(eventfd2, 0, 0));
}

OPERATION(event)
{
	static long one = 1;

	must(SYS(write, to_peer, &one, sizeof(one)));
	must(SYS(read, to_peer, &one, sizeof(one)));
}

/* Futexes, in memory that is shared with the peer, if there is one. */
static struct hand_over {
	_Atomic int turn;
} *shared;

PREPARE(prepare_futex)
{
	shared = (struct hand_over *)map_small(PAGE, MAP_SHARED);
	touch((char *)shared, PAGE);
	atomic_store(&shared->turn, 0);
}

OPERATION(futex_wake)
{
	must(SYS(futex, &shared->turn, FUTEX_WAKE_PRIVATE, 1));
}

static inline void wait_for(int turn)
{
	int now;

	while ((now = atomic_load_explicit(&shared->turn, memory_order_acquire)) != turn)
		SYS(futex, &shared->turn, FUTEX_WAIT, now);
}

static inline void pass_to(int turn)
{
	atomic_store_explicit(&shared->turn, turn, memory_order_release);
	must(SYS(futex, &shared->turn, FUTEX_WAKE, 1));
}

static void take_turns(__attribute__((unused)) void *data)
{
	for (;;) {
		wait_for(1);
		pass_to(0);
	}
}

PREPARE(prepare_hand_over)
{
	prepare_futex(0);
	peer_start(take_turns, NULL);
}

PREPARE(prepare_thread_hand_over)
{
	prepare_futex(0);
	thread_start(take_turns, NULL);
}

OPERATION(futex_hand_over)
{
	for (int i = 0; i < TRIPS; i++) {
		pass_to(1);
		wait_for(0);
	}
}

/* System V and POSIX queues. */
static struct {
	long type;
	char text[64];
} message = { .type = 1 };

/* Queues outlive their process, so they get a namespace that does not. */
static void use_own_ipc(void)
{
	SYS(unshare, CLONE_NEWIPC);
}

PREPARE(prepare_semaphore)
{
	use_own_ipc();
	to_peer = (int)offered(SYS(semget, IPC_PRIVATE, 1, 0600));
	semctl(to_peer, 0, SETVAL, 1);
}

OPERATION(semaphore)
{
	static struct sembuf down = { .sem_op = -1 }, up = { .sem_op = 1 };

	must(SYS(semop, to_peer, &down, 1));
	must(SYS(semop, to_peer, &up, 1));
}

PREPARE(prepare_messages)
{
	use_own_ipc();
	to_peer = (int)offered(SYS(msgget, IPC_PRIVATE, 0600));
}

OPERATION(messages)
{
	must(SYS(msgsnd, to_peer, &message, sizeof(message.text), 0));
	must(SYS(msgrcv, to_peer, &message, sizeof(message.text), 0, 0));
}

/*
 * A queue allocates a node for each priority, and keeps the last one: an operation allocates another, and frees that
 * one. If both lie in slabs that are otherwise full, both take the slow path, every time. So many nodes fill a slab of
 * 4 KiB; their places, free again, are enough for two.
 */
#define NODES	64
#define DEPTH	8	/* fs.mqueue.msg_max allows ordinary users 10 */

static int open_queue(void)
{
	struct mq_attr attributes = { .mq_maxmsg = DEPTH, .mq_msgsize = sizeof(message.text) };
	int queue = (int)offered(SYS(mq_open, "lab-syscalls", O_RDWR | O_CREAT, 0600, &attributes));

	SYS(mq_unlink, "lab-syscalls");
	return queue;
}

PREPARE(prepare_queue)
{
	int queues[NODES / DEPTH];

	use_own_ipc();
	for (int i = 0; i < NODES / DEPTH; i++) {
		queues[i] = open_queue();
		for (int priority = 0; priority < DEPTH; priority++)
			must(SYS(mq_timedsend, queues[i], message.text, sizeof(message.text), priority, NULL));
	}
	for (int i = 0; i < NODES; i++)
		must(SYS(mq_timedreceive, queues[i / DEPTH], message.text, sizeof(message.text), NULL, NULL));
	to_peer = queues[0];
}

OPERATION(queue)
{
	must(SYS(mq_timedsend, to_peer, message.text, sizeof(message.text), 0, NULL));
	must(SYS(mq_timedreceive, to_peer, message.text, sizeof(message.text), NULL, NULL));
}

PREPARE(prepare_shm)
{
	use_own_ipc();
	to_peer = (int)offered(SYS(shmget, IPC_PRIVATE, 64 * KIB, 0600));
	must(SYS(shmat, to_peer, NULL, 0));
	must(SYS(shmctl, to_peer, IPC_RMID, NULL));
}

OPERATION(shm_attach)
{
	for (int i = 0; i < BATCH; i++)
		must(SYS(shmdt, must(SYS(shmat, to_peer, NULL, 0))));
}

const struct operation ipc_operations[] = {
	{ "pipe", to_and_fro, prepare_pipe, 1, 400 },
	{ "pipe-64k", to_and_fro, prepare_pipe, 64 << 10, 40 },
	{ "pipe-create", pipe_create, NULL, 0, 100 },
	{ "pipe-pingpong", ping_pong, prepare_pipe_peer, 0, 24 },
	{ "pipe-stream", stream, prepare_pipe_drain, 0, 5 },
	{ "unix", byte_to_and_fro, prepare_socket, SOCK_STREAM, 200 },
	{ "unix-dgram", byte_to_and_fro, prepare_socket, SOCK_DGRAM, 200 },
	{ "unix-create", socket_create, NULL, 0, 80 },
	{ "unix-pingpong", ping_pong, prepare_socket_peer, SOCK_STREAM, 48 },
	{ "unix-dgram-pingpong", ping_pong, prepare_socket_peer, SOCK_DGRAM, 24 },
	{ "unix-stream", stream, prepare_socket_drain, SOCK_STREAM, 20 },
	{ "eventfd", event, prepare_eventfd, 0, 500 },
	{ "futex-wake", futex_wake, prepare_futex, 0, 1000 },
	{ "futex-pingpong", futex_hand_over, prepare_hand_over, 0, 24 },
	{ "futex-pingpong-threads", futex_hand_over, prepare_thread_hand_over, 0, 24 },
	{ "sysv-sem", semaphore, prepare_semaphore, 0, 400 },
	{ "sysv-msg", messages, prepare_messages, 0, 200 },
	{ "sysv-shm", shm_attach, prepare_shm, 0, 24 },
	{ "posix-mq", queue, prepare_queue, 0, 200 },
	{ 0 },
};
