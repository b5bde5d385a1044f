// SPDX-License-Identifier: GPL-2.0-or-later
/* Processes and threads: made, replaced, ended and waited for. */
#include "calls.h"
#include "operations.h"
#include "peers.h"

#include <lab/program.h>

#include <elf.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define VMAS		200
#define STACK		(64 * KIB)

static int status;
static struct rusage usage;
static struct utsname name;
static struct tms times_used;

OPERATION(parent_id)
{
	SYS(getppid);
}

OPERATION(get_name)
{
	must(SYS(uname, &name));
}

OPERATION(get_usage)
{
	must(SYS(getrusage, RUSAGE_SELF, &usage));
}

/*
 * Ticks charge the time, and if all of them fell into user code, or none did, the kernel need not divide it: both
 * kinds are there from here on.
 */
PREPARE(prepare_usage)
{
	static volatile unsigned int work;

	do {
		while (++work % 4096)
			;
		must(SYS(getrusage, RUSAGE_SELF, &usage));
	} while (!(usage.ru_utime.tv_sec || usage.ru_utime.tv_usec) || !(usage.ru_stime.tv_sec || usage.ru_stime.tv_usec));
}

OPERATION(get_times)
{
	must(SYS(times, &times_used));
}

OPERATION(set_name)
{
	must(SYS(prctl, PR_SET_NAME, "syscalls"));
}

OPERATION(pidfd)
{
	must(SYS(close, offered(SYS(pidfd_open, argument ? argument : SYS(getppid), 0))));
}

/* Memory that a fork has to copy the page tables of: so many MiB in small pages. */
PREPARE(prepare_memory)
{
	if (argument)
		touch(map_small((size_t)argument * MIB, MAP_PRIVATE), (size_t)argument * MIB);
}

/* Mappings that do not merge, a page of each in use. */
PREPARE(prepare_vmas)
{
	char *memory = map_small(2 * VMAS * PAGE, MAP_PRIVATE);

	touch(memory, 2 * VMAS * PAGE);
	for (size_t i = 0; i < VMAS / 2; i++)
		must(SYS(mprotect, memory + 4 * i * PAGE, 2 * PAGE, PROT_READ));
}

OPERATION(fork_exit)
{
	long child = must(call_fork());

	if (!child)
		SYS(exit, 0);
	must(SYS(wait4, child, &status, 0, NULL));
}

OPERATION(fork_exits)
{
	for (int i = 0; i < BATCH; i++)
		fork_exit(argument, number);
}

/* A program of one instruction or two: the whole cost of exec is the kernel's. */
static const struct {
	Elf64_Ehdr header;
	Elf64_Phdr segment;
	unsigned char code[16];
} tiny_program = {
	.header = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_EXEC,
		.e_machine = ARCH_ELF_MACHINE,
		.e_version = EV_CURRENT,
		.e_entry = 0x400000 + sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr),
		.e_phoff = sizeof(Elf64_Ehdr),
		.e_ehsize = sizeof(Elf64_Ehdr),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 1,
	},
	.segment = {
		.p_type = PT_LOAD,
		.p_flags = PF_R | PF_X,
		.p_vaddr = 0x400000,
		.p_filesz = sizeof(tiny_program),
		.p_memsz = sizeof(tiny_program),
		.p_align = PAGE,
	},
	.code = ARCH_EXIT,
};

PREPARE(prepare_program)
{
	int fd;

	use_scratch();
	fd = open("tiny", O_WRONLY | O_CREAT | O_TRUNC, 0755);
	if (fd < 0 || write(fd, &tiny_program, sizeof(tiny_program)) != sizeof(tiny_program) || close(fd))
		program_cannot("cannot write a program");
}

static char *const no_arguments[] = { (char *)"tiny", NULL }, *const no_environment[] = { NULL };

static _Noreturn void become_tiny(void)
{
	SYS(execve, "tiny", no_arguments, no_environment);
	for (;;)
		SYS(exit, 1);
}

static void wait_for_success(long child)
{
	must(SYS(wait4, child, &status, 0, NULL));
	if (status)
		call_failed("execve", -ENOEXEC);
}

OPERATION(fork_exec)
{
	long child = must(call_fork());

	if (!child)
		become_tiny();
	wait_for_success(child);
}

/* The work of vfork(), which must not be called from a function that returns: the child gets a stack of its own. */
static char *stack;

static long clone_on_stack(unsigned long flags, _Atomic int *tid, void (*run)(void))
{
	struct clone_args arguments = {
		.flags = flags & ~(unsigned long)CSIGNAL,
		.exit_signal = flags & CSIGNAL,
		.child_tid = (unsigned long)tid,
		.stack = (unsigned long)stack,
		.stack_size = STACK,
	};

	return arch_clone3(&arguments, sizeof(arguments), run);
}

static _Noreturn void leave(void)
{
	for (;;)
		SYS(exit, 0);
}

PREPARE(prepare_stack)
{
	stack = map_small(STACK, MAP_PRIVATE);
	touch(stack, STACK);
}

static _Noreturn void stay(__attribute__((unused)) void *data)
{
	for (;;)
		call_pause();
}

/*
 * The child wakes the parent up when it becomes another program. Under SCHED_BATCH it never has to give way to it. And
 * one process stays: without its counters for each CPU, those of the child may be all in their memory, and each that
 * ends wakes a thread of the kernel to give that back.
 */
PREPARE(prepare_vfork)
{
	const struct sched_param none = { 0 };

	prepare_program(0);
	prepare_stack(0);
	must(SYS(sched_setscheduler, 0, SCHED_BATCH, &none));
	peer_start(stay, NULL);
}

OPERATION(vfork_exec)
{
	wait_for_success(offered(clone_on_stack(CLONE_VM | CLONE_VFORK | SIGCHLD, NULL, become_tiny)));
}

OPERATION(vfork_exit)
{
	for (int i = 0; i < BATCH; i++)
		must(SYS(wait4, offered(clone_on_stack(CLONE_VM | CLONE_VFORK | SIGCHLD, NULL, leave)), &status, 0, NULL));
}

/* Joined as pthread_join() does: the kernel clears the id, and wakes the waiting thread. */
OPERATION(thread_create)
{
	static const unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
					   CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
	static _Atomic int running;

	for (int i = 0; i < BATCH; i++) {
		atomic_store(&running, 1);
		offered(clone_on_stack(flags, &running, leave));
		while (atomic_load(&running))
			SYS(futex, &running, FUTEX_WAIT, 1, NULL);
	}
}

const struct operation process_operations[] = {
	{ "getppid", parent_id, NULL, 0, 2000 },
	{ "uname", get_name, NULL, 0, 800 },
	{ "getrusage", get_usage, prepare_usage, 0, 800 },
	{ "times", get_times, prepare_usage, 0, 800 },
	{ "prctl-set-name", set_name, NULL, 0, 500 },
	{ "pidfd-open", pidfd, NULL, 0, 200 },
	{ "fork-exit", fork_exits, prepare_memory, 0, 8 },
	{ "fork-exit-8m", fork_exit, prepare_memory, 8, 12 },
	{ "fork-exit-64m", fork_exit, prepare_memory, 64, 3 },
	{ "fork-exit-200-vmas", fork_exit, prepare_vmas, 0, 12 },
	{ "fork-exec", fork_exec, prepare_program, 0, 20 },
	{ "vfork-exec", vfork_exec, prepare_vfork, 0, 100 },
	{ "vfork-exit", vfork_exit, prepare_stack, 0, 96 },
	{ "thread-create", thread_create, prepare_stack, 0, 20 },
	{ 0 },
};
