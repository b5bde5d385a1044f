// SPDX-License-Identifier: GPL-2.0-or-later
/* IPv4 over the loopback interface, and netlink. */
#include "calls.h"
#include "operations.h"
#include "peers.h"

#include <lab/program.h>

#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define CHUNK		(64 << 10)
#define MESSAGES	16
#define DATAGRAM	1400

static _Alignas(4096) char buffer[CHUNK];
static int pair[2], option;
static struct echo peer;
static struct sink sink;
static struct sockaddr_in address;

PREPARE(prepare_pair)
{
	touch(buffer, sizeof(buffer));
	loopback_pair((int)argument, pair);
}

PREPARE(prepare_peer)
{
	prepare_pair(argument);
	use_fifo_with_softirqs();
	peer = (struct echo){ pair[1], pair[1] };
	peer_start(echo, &peer);
}

/* Buffers of a fixed size, which the kernel does not tune. */
PREPARE(prepare_stream)
{
	int size = CHUNK;

	prepare_pair(argument);
	setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	setsockopt(pair[1], SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	use_fifo_with_softirqs();
	sink = (struct sink){ pair[1], pair[1], TRIPS * sizeof(buffer) };
	peer_start(drain, &sink);
}

OPERATION(ping_pong)
{
	for (int i = 0; i < TRIPS; i++) {
		must(SYS(write, pair[0], buffer, 1));
		must(SYS(read, pair[0], buffer, 1));
	}
}

/* Within one process: no switch. */
OPERATION(to_and_fro)
{
	must(SYS(write, pair[0], buffer, 1));
	must(SYS(read, pair[1], buffer, sizeof(buffer)));
}

OPERATION(stream)
{
	for (int i = 0; i < TRIPS; i++)
		must(SYS(write, pair[0], buffer, sizeof(buffer)));
	must(SYS(read, pair[0], buffer, 1));
}

/* So many datagrams, then one byte back: more would not fit the receiver's buffer, and be lost. */
static struct iovec datagram = { buffer, DATAGRAM };
static struct mmsghdr datagrams[MESSAGES] = {
	[0 ... MESSAGES - 1] = { .msg_hdr = { .msg_iov = &datagram, .msg_iovlen = 1 } },
};

static _Noreturn void acknowledge(__attribute__((unused)) void *data)
{
	for (;;) {
		SYS(recvmmsg, pair[1], datagrams, MESSAGES, 0, NULL);
		SYS(write, pair[1], buffer, 1);
	}
}

PREPARE(prepare_datagrams)
{
	prepare_pair(argument);
	use_fifo_with_softirqs();
	peer_start(acknowledge, NULL);
}

OPERATION(send_datagrams)
{
	for (int i = 0; i < BATCH; i++) {
		must(SYS(sendmmsg, pair[0], datagrams, MESSAGES, 0));
		must(SYS(read, pair[0], buffer, 1));
	}
}

/* Within one process: no switch. */
OPERATION(transfer)
{
	for (int i = 0; i < BATCH; i++) {
		must(SYS(write, pair[0], buffer, sizeof(buffer)));
		for (long left = sizeof(buffer); left > 0;)
			left -= must(SYS(read, pair[1], buffer, sizeof(buffer)));
	}
}

OPERATION(many_messages)
{
	static struct iovec part = { buffer, 1 };
	static struct mmsghdr messages[MESSAGES] = {
		[0 ... MESSAGES - 1] = { .msg_hdr = { .msg_iov = &part, .msg_iovlen = 1 } },
	};

	must(SYS(sendmmsg, pair[0], messages, MESSAGES, 0));
	must(SYS(recvmmsg, pair[1], messages, MESSAGES, 0, NULL));
}

/* A server that takes connections, and answers one byte of each. */
static _Noreturn void serve(__attribute__((unused)) void *data)
{
	char byte;

	for (;;) {
		long fd = SYS(accept4, pair[1], NULL, NULL, 0);

		SYS(read, fd, &byte, 1);
		SYS(write, fd, &byte, 1);
		SYS(read, fd, &byte, 1);
		SYS(close, fd);
	}
}

PREPARE(prepare_server)
{
	socklen_t length = sizeof(address);

	use_loopback();
	pair[1] = (int)must(SYS(socket, AF_INET, SOCK_STREAM, 0));
	address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	must(SYS(bind, pair[1], &address, sizeof(address)));
	must(SYS(getsockname, pair[1], &address, &length));
	must(SYS(listen, pair[1], 64));
	peer_start(serve, NULL);
}

/* Closed by a reset, so that no connection is left to wait for its end. */
OPERATION(connect_close)
{
	static const struct linger reset = { .l_onoff = 1 };

	for (int i = 0; i < BATCH; i++) {
		long fd = must(SYS(socket, AF_INET, SOCK_STREAM, 0));

		must(SYS(setsockopt, fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)));
		must(SYS(connect, fd, &address, sizeof(address)));
		must(SYS(write, fd, buffer, 1));
		must(SYS(read, fd, buffer, 1));
		must(SYS(close, fd));
	}
}

PREPARE(prepare_loopback)
{
	use_loopback();
}

OPERATION(create_close)
{
	must(SYS(close, must(SYS(socket, AF_INET, argument, 0))));
}

OPERATION(get_option)
{
	static socklen_t length = sizeof(option);

	must(SYS(getsockopt, pair[0], SOL_SOCKET, SO_SNDBUF, &option, &length));
}

OPERATION(set_option)
{
	static const int one = 1;

	must(SYS(setsockopt, pair[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
}

/* A request of rtnetlink: the facts about the loopback interface. */
static struct {
	struct nlmsghdr header;
	struct ifinfomsg interface;
} request = {
	.header = { .nlmsg_len = sizeof(request), .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST },
	.interface = { .ifi_family = AF_UNSPEC, .ifi_index = 1 },
};

PREPARE(prepare_netlink)
{
	touch(buffer, sizeof(buffer));
	use_loopback();
	pair[0] = (int)offered(SYS(socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
}

OPERATION(netlink)
{
	must(SYS(write, pair[0], &request, sizeof(request)));
	must(SYS(read, pair[0], buffer, sizeof(buffer)));
}

const struct operation net_operations[] = {
	{ "socket-tcp", create_close, prepare_loopback, SOCK_STREAM, 100 },
	{ "socket-udp", create_close, prepare_loopback, SOCK_DGRAM, 100 },
	{ "getsockopt", get_option, prepare_pair, SOCK_STREAM, 800 },
	{ "setsockopt", set_option, prepare_pair, SOCK_STREAM, 500 },
	{ "udp", to_and_fro, prepare_pair, SOCK_DGRAM, 100 },
	{ "udp-pingpong", ping_pong, prepare_peer, SOCK_DGRAM, 12 },
	{ "udp-sendmmsg-16", many_messages, prepare_pair, SOCK_DGRAM, 16 },
	{ "udp-stream", send_datagrams, prepare_datagrams, SOCK_DGRAM, 16 },
	{ "tcp", to_and_fro, prepare_pair, SOCK_STREAM, 60 },
	{ "tcp-64k", transfer, prepare_pair, SOCK_STREAM, 24 },
	{ "tcp-pingpong", ping_pong, prepare_peer, SOCK_STREAM, 12 },
	{ "tcp-stream", stream, prepare_stream, SOCK_STREAM, 20 },
	{ "tcp-connect", connect_close, prepare_server, 0, 30 },
	{ "netlink-getlink", netlink, prepare_netlink, 0, 60 },
	{ 0 },
};
