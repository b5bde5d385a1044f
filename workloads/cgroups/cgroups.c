// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cgroups: the cost of the scheduler's groups, and their fairness (the workload
 * `fairness`).
 *
 * The program mounts cgroup v2 in a mount namespace of its own and makes the
 * groups there, with the controller `cpu` on the way down. Each case has peers:
 * an echo at the other end of two pipes, or tasks that compute for ever.
 *
 * depth: two tasks of one group, so many levels below the root. across: the
 * peer is in a group of its own. fairness: the program computes beside tasks of
 * another group that do, too; the share of the CPU that it got stands beside
 * the share that the weights of the two groups promise. Nothing depends on the
 * seed. Prints one line of JSON.
 */
#include <lab/mark.h>
#include <lab/peer.h>
#include <lab/proc.h>
#include <lab/program.h>

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROOT		"/tmp/cgroups"
#define TRIPS		32	/* to the peer and back: the order of preemption changes seldom */
#define TURNS		375000	/* of a loop of three instructions: 18 ms of a guest's time, some slices */

static void ping_pong(void);
static void compute(void);
static void echo(void);
static void compute_for_ever(void);

/*
 * One case. levels: of the program's group below the root. peers: other tasks;
 * they are in the program's group, or so many levels below the root in another
 * one. The weights are those of the groups of the first level.
 */
struct kind {
	const char *name;
	void (*run)(void);
	void (*peer)(void);
	int levels, weight;
	int peers, peer_levels, peer_weight;
	int count;	/* operations in the window */
};

static const struct kind kinds[] = {
	{ "pipe-pingpong-0", ping_pong, echo, 0, 100, 1, 0, 0, 48 },
	{ "pipe-pingpong-1", ping_pong, echo, 1, 100, 1, 0, 0, 48 },
	{ "pipe-pingpong-3", ping_pong, echo, 3, 100, 1, 0, 0, 48 },
	{ "pipe-pingpong-6", ping_pong, echo, 6, 100, 1, 0, 0, 48 },
	{ "pipe-across-1", ping_pong, echo, 1, 100, 1, 1, 100, 48 },
	{ "pipe-across-3", ping_pong, echo, 3, 100, 1, 3, 100, 48 },
	{ "pipe-across-1-to-3", ping_pong, echo, 1, 100, 1, 1, 300, 48 },
	{ "even", compute, compute_for_ever, 1, 100, 1, 1, 100, 16 },
	{ "1-to-3", compute, compute_for_ever, 1, 100, 1, 1, 300, 16 },
	{ "1-to-4-tasks", compute, compute_for_ever, 1, 100, 4, 1, 100, 16 },
	{ "deep", compute, compute_for_ever, 3, 100, 1, 3, 100, 16 },
	{ 0 },
};

static int there[2], back[2];

static const struct kind *find(const char *name)
{
	for (const struct kind *kind = kinds; kind->name; kind++)
		if (!strcmp(kind->name, name))
			return kind;
	program_misuse(name, "no such case");
}

static void write_file(const char *folder, const char *file, const char *value)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	if (!proc_write(path, value))
		program_unsupported(file, strerror(errno));
}

/* A mount in a namespace of our own leaves nothing behind. */
static void use_groups(void)
{
	mkdir(ROOT, 0755);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		program_unsupported("unshare(CLONE_NEWNS)", strerror(errno));
	if (mount("cgroup2", ROOT, "cgroup2", 0, NULL))
		program_unsupported("cgroup2", strerror(errno));
}

/*
 * Make groups so many levels down, or find them, and put this process into the last one. They stay, so they are named
 * after the case: no process may be in a group that controls others below.
 */
static void enter(const char *side, const char *name, int levels, int weight)
{
	char folder[128] = ROOT, text[16];

	for (int i = 0; i < levels; i++) {
		size_t length = strlen(folder);

		write_file(folder, "cgroup.subtree_control", "+cpu");
		if (i)
			snprintf(folder + length, sizeof(folder) - length, "/below");
		else
			snprintf(folder + length, sizeof(folder) - length, "/%s-%s", name, side);
		if (mkdir(folder, 0755) && errno != EEXIST)
			program_cannot("cannot make the group %s", folder);
		if (!i) {
			snprintf(text, sizeof(text), "%d", weight);
			write_file(folder, "cpu.weight", text);
		}
	}
	write_file(folder, "cgroup.procs", "0");
}

/* data: the case. */
static void be_peer(const void *data)
{
	const struct kind *kind = data;

	if (kind->peer_levels)
		enter("peer", kind->name, kind->peer_levels, kind->peer_weight);
	kind->peer();
}

static void echo(void)
{
	char byte;

	while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
		;
}

static void ping_pong(void)
{
	char byte = 0;

	for (int i = 0; i < TRIPS; i++)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			program_cannot("the peer is gone");
}

static void compute(void)
{
	for (long i = 0; i < TURNS; i++)
		__asm__ volatile("" : "+r"(i));
}

static void compute_for_ever(void)
{
	for (;;)
		compute();
}

static void prepare(const struct kind *kind)
{
	use_groups();
	enter("own", kind->name, kind->levels, kind->weight);
	if (pipe(there) || pipe(back))
		program_cannot("cannot make a pipe");
	for (int i = 0; i < kind->peers; i++)
		peer_start(be_peer, kind);
}

static long long own_time_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void repeat(const struct kind *kind, int count)
{
	for (int i = 0; i < count; i++) {
		kind->run();
		lab_operation_end();
	}
}

static void measure(const struct kind *kind)
{
	struct rusage before = { 0 }, after = { 0 };
	long long start, own, elapsed;

	repeat(kind, kind->count / 4 + 4);
	getrusage(RUSAGE_SELF, &before);
	own = own_time_ns();
	start = program_now_ns();
	lab_window_begin();
	repeat(kind, kind->count);
	lab_window_end();
	elapsed = program_now_ns() - start;
	own = own_time_ns() - own;
	getrusage(RUSAGE_SELF, &after);
	printf("{\"metrics\":{\"operation_time\":%.17g", (double)elapsed / kind->count);
	if (kind->run == compute) {
		printf(",\"share\":%.17g", 100.0 * (double)own / (double)elapsed);
		printf(",\"due\":%.17g", 100.0 * kind->weight / (kind->weight + kind->peer_weight));
	}
	printf(",\"context_switches\":%ld",
	       after.ru_nvcsw - before.ru_nvcsw + after.ru_nivcsw - before.ru_nivcsw);
	printf(",\"ops\":%d}}\n", kind->count);
}

int main(int argc, char **argv)
{
	const struct kind *kind = find(program_case(argc, argv, "NAME"));

	prepare(kind);
	measure(kind);
	_exit(fflush(stdout) ? PROGRAM_CANNOT : PROGRAM_MEASURED);
}
