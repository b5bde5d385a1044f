// SPDX-License-Identifier: GPL-2.0-or-later
/* Confinement of programs: filters of system calls, namespaces, keys, BPF programs, Landlock, ids. */
#include "calls.h"
#include "operations.h"
#include "peers.h"

#include <lab/program.h>

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>

/* ---- seccomp: a system call behind a filter of so many comparisons */

#define COMPARED_MAX	200

static void install(struct sock_filter *code, size_t length)
{
	struct sock_fprog program = { (unsigned short)length, code };

	must(SYS(prctl, PR_SET_NO_NEW_PRIVS, 1));
	offered(SYS(seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

/* Of the number alone: since v5.11 the kernel remembers calls that are always allowed, and need not run the filter. */
PREPARE(prepare_filter_by_number)
{
	static struct sock_filter code[COMPARED_MAX + 2];
	size_t length = 0;

	code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (long i = 0; i < argument; i++, length++)
		code[length] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 100000U + (unsigned int)i, 0, 0);
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	install(code, length);
}

/* Of an argument, too: it runs at each call. */
PREPARE(prepare_filter_by_argument)
{
	static struct sock_filter code[COMPARED_MAX + 2];
	size_t length = 0;

	code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args));
	for (long i = 0; i < argument; i++, length++)
		code[length] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xabcd0000U + (unsigned int)i, 0, 0);
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	install(code, length);
}

OPERATION(filtered)
{
	SYS(getppid);
}

/* ---- namespaces */

OPERATION(unshare_namespaces)
{
	for (int i = 0; i < BATCH; i++)
		offered(SYS(unshare, argument));
}

/* A descriptor keeps each: a thread of the kernel takes them apart, many at once, when it finds the time. */
OPERATION(unshare_network)
{
	offered(SYS(unshare, CLONE_NEWNET));
	must(SYS(openat, AT_FDCWD, "/proc/self/ns/net", O_RDONLY));
}

OPERATION(unshare_mounts)
{
	for (int i = 0; i < BATCH; i++) {
		offered(SYS(unshare, CLONE_NEWNS));
		must(SYS(openat, AT_FDCWD, "/proc/self/ns/mnt", O_RDONLY));
	}
}

/* ---- keys */

static int key;

PREPARE(prepare_key)
{
	key = (int)offered(SYS(add_key, "user", "lab-syscalls", "secret", 6, KEY_SPEC_PROCESS_KEYRING));
}

OPERATION(key_add)
{
	offered(SYS(add_key, "user", "lab-syscalls", "secret", 6, KEY_SPEC_PROCESS_KEYRING));
}

OPERATION(key_read)
{
	static char secret[8];

	must(SYS(keyctl, KEYCTL_READ, key, secret, sizeof(secret)));
}

OPERATION(key_search)
{
	must(SYS(keyctl, KEYCTL_SEARCH, KEY_SPEC_PROCESS_KEYRING, "user", "lab-syscalls", 0));
}

/* ---- BPF */

static int program, map;

static long bpf(int command, union bpf_attr *attributes)
{
	return SYS(bpf, command, attributes, sizeof(*attributes));
}

PREPARE(prepare_bpf)
{
	/* r0 = 0; so many times r0 += 1; exit */
	static struct bpf_insn code[COMPARED_MAX + 2];
	union bpf_attr load = { .prog_type = BPF_PROG_TYPE_SOCKET_FILTER };
	unsigned int length = 0;

	code[length++] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K };
	for (long i = 0; i < argument; i++)
		code[length++] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_ADD | BPF_K, .imm = 1 };
	code[length++] = (struct bpf_insn){ .code = BPF_JMP | BPF_EXIT };
	load.insns = (unsigned long)code;
	load.insn_cnt = length;
	load.license = (unsigned long)"GPL";
	program = (int)offered(bpf(BPF_PROG_LOAD, &load));
}

OPERATION(bpf_run)
{
	static const char packet[64];
	union bpf_attr run = { .test = { .data_size_in = sizeof(packet), .data_in = (unsigned long)packet } };

	run.test.prog_fd = (unsigned int)program;
	run.test.repeat = 1;
	offered(SYS(bpf, BPF_PROG_TEST_RUN, &run, sizeof(run)));
}

PREPARE(prepare_map)
{
	union bpf_attr create = { .map_type = (unsigned int)argument, .key_size = 4, .value_size = 8 };

	create.max_entries = 1024;
	map = (int)offered(bpf(BPF_MAP_CREATE, &create));
}

OPERATION(bpf_map_update)
{
	static unsigned int index;
	static unsigned long value;
	union bpf_attr element = { .map_fd = (unsigned int)map };

	element.key = (unsigned long)&index;
	element.value = (unsigned long)&value;
	index = (unsigned int)number & 1023;
	must(SYS(bpf, BPF_MAP_UPDATE_ELEM, &element, sizeof(element)));
	must(SYS(bpf, BPF_MAP_LOOKUP_ELEM, &element, sizeof(element)));
}

/* ---- Landlock: a file opened below a folder that is allowed */

PREPARE(prepare_landlock)
{
	struct landlock_ruleset_attr handled = { .handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE };
	struct landlock_path_beneath_attr below = { .allowed_access = LANDLOCK_ACCESS_FS_READ_FILE };
	long rules;

	use_scratch();
	close(scratch_file("file", 0));
	rules = SYS(landlock_create_ruleset, &handled, sizeof(handled), 0);
	if (rules < 0)
		not_supported("Landlock", strerror((int)-rules));
	below.parent_fd = (int)must(call_open(".", O_PATH | O_DIRECTORY));
	must(SYS(landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &below, 0));
	must(SYS(prctl, PR_SET_NO_NEW_PRIVS, 1));
	must(SYS(landlock_restrict_self, rules, 0));
}

OPERATION(open_close)
{
	must(SYS(close, must(SYS(openat, AT_FDCWD, "file", O_RDONLY))));
}

/* ---- ids and random numbers */

OPERATION(set_user)
{
	offered(SYS(setresuid, -1, argument, -1));
}

OPERATION(get_capabilities)
{
	static struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	static struct __user_cap_data_struct data[2];

	must(SYS(capget, &header, data));
}

OPERATION(random_bytes)
{
	static char bytes[32];

	must(SYS(getrandom, bytes, sizeof(bytes), 0));
}

const struct operation security_operations[] = {
	{ "seccomp-number-10", filtered, prepare_filter_by_number, 10, 800 },
	{ "seccomp-argument-10", filtered, prepare_filter_by_argument, 10, 600 },
	{ "seccomp-argument-200", filtered, prepare_filter_by_argument, COMPARED_MAX, 300 },
	{ "unshare-uts", unshare_namespaces, NULL, CLONE_NEWUTS, 20 },
	{ "unshare-mount", unshare_mounts, NULL, 0, 40 },
	{ "unshare-net", unshare_network, NULL, 0, 16 },
	{ "key-add", key_add, prepare_key, 0, 100 },
	{ "key-read", key_read, prepare_key, 0, 300 },
	{ "key-search", key_search, prepare_key, 0, 200 },
	{ "bpf-run", bpf_run, prepare_bpf, 100, 100 },
	{ "bpf-map-array", bpf_map_update, prepare_map, BPF_MAP_TYPE_ARRAY, 200 },
	{ "bpf-map-hash", bpf_map_update, prepare_map, BPF_MAP_TYPE_HASH, 150 },
	{ "landlock-open", open_close, prepare_landlock, 0, 120 },
	{ "setresuid", set_user, NULL, 0, 100 },
	{ "capget", get_capabilities, NULL, 0, 500 },
	{ "getrandom", random_bytes, NULL, 0, 150 },
	{ 0 },
};
