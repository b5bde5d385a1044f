// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Settings. The kernel accepts some values and does something else (fewer huge
 * pages than were asked for, a sysctl clamped to its range), so each is read
 * back and compared; a measurement under other settings than asked is none.
 */
#include "settings.h"
#include "files.h"
#include "report.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/module.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THP	"/sys/kernel/mm/transparent_hugepage/"
#define VALUE_MAX	1024

#define IDLE_WINDOW_NS	100000000
#define IDLE_WINDOWS	2	/* quiet ones in a row */
#define IDLE_WINDOWS_MAX 600	/* a minute */

#ifndef MODULE_INIT_COMPRESSED_FILE
#define MODULE_INIT_COMPRESSED_FILE 4
#endif

static const struct {
	const char *name;
	const char *path;
} files[] = {
	{ "thp",		THP "enabled" },
	{ "thp.defrag",		THP "defrag" },
	{ "thp.khugepaged",	THP "khugepaged/scan_sleep_millisecs" },
	{ "hugepages",		"/proc/sys/vm/nr_hugepages" },
	{ "lru_gen",		"/sys/kernel/mm/lru_gen/enabled" },
};

#define NR_SHOWN	3	/* the first of them are reported unasked */

/* Reported unasked too, where the kernel has them. Nobody sets them by these names. */
static const struct {
	const char *name;
	const char *path;
} facts[] = {
	{ "thp.shmem",		THP "shmem_enabled" },
	{ "overcommit",		"/proc/sys/vm/overcommit_memory" },
	{ "swappiness",		"/proc/sys/vm/swappiness" },
	{ "sched.features",	"/sys/kernel/debug/sched/features" },
};

/* As sysctl(8): dots separate folders, and a slash stands for a dot inside a name. */
static bool sysctl_path(const char *name, char *path, size_t size)
{
	int length = snprintf(path, size, "/proc/sys/%s", name);

	if (length < 0 || (size_t)length >= size)
		return false;
	for (char *at = path + strlen("/proc/sys/"); *at; at++)
		*at = *at == '.' ? '/' : *at == '/' ? '.' : *at;
	return !strstr(path, "/../");
}

static bool setting_path(const char *name, char *path, size_t size)
{
	if (!strncmp(name, "sysctl.", 7))
		return sysctl_path(name + 7, path, size);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		if (!strcmp(files[i].name, name)) {
			snprintf(path, size, "%s", files[i].path);
			return true;
		}
	}
	return false;
}

/* The value in force: of a choice like "always [madvise] never", the word in brackets. */
static const char *setting_value(const char *path, char *buffer, size_t size)
{
	const char *value = file_word(path, buffer, size);
	char *left = strchr(buffer, '[');
	char *right = left ? strchr(left, ']') : NULL;

	if (!right || strchr(right, '['))
		return value;
	*right = '\0';
	return left + 1;
}

static const char *next_word(const char *text, size_t *length)
{
	while (isspace((unsigned char)*text))
		text++;
	*length = strcspn(text, " \t\n");
	return text;
}

static bool same_word(const char *a, size_t a_length, const char *b, size_t b_length)
{
	char *a_end, *b_end;
	long long a_number, b_number;

	if (a_length == b_length && !memcmp(a, b, a_length))
		return true;
	if (!a_length || !b_length)
		return false;
	a_number = strtoll(a, &a_end, 0);
	b_number = strtoll(b, &b_end, 0);
	return a_end == a + a_length && b_end == b + b_length && a_number == b_number;
}

/* Equal word by word: sysctls separate with TABs what is written with spaces. */
static bool same_value(const char *a, const char *b)
{
	size_t a_length, b_length;

	do {
		a = next_word(a, &a_length);
		b = next_word(b, &b_length);
		if (!same_word(a, a_length, b, b_length))
			return false;
		a += a_length;
		b += b_length;
	} while (a_length);
	return true;
}

static void show(const char *type, const char *name, const char *value, const char *error)
{
	report_begin(type);
	report_string("name", name);
	report_string("value", value);
	if (error)
		report_string("error", error);
	report_end();
}

bool setting_apply(const char *name, const char *value)
{
	char path[512], buffer[VALUE_MAX], error[VALUE_MAX + 64];
	const char *now;
	int failed;

	if (!setting_path(name, path, sizeof(path))) {
		show("refused", name, value, "no such setting");
		return false;
	}
	failed = file_write(path, value);
	if (failed) {
		snprintf(error, sizeof(error), "%s: %s", path, strerror(-failed));
		show("refused", name, value, error);
		return false;
	}
	now = setting_value(path, buffer, sizeof(buffer));
	if (!same_value(now, value)) {
		snprintf(error, sizeof(error), "reads back as '%s'", now);
		show("refused", name, value, error);
		return false;
	}
	show("setting", name, now, NULL);
	return true;
}

/*
 * Both threads wake up after seconds: which case they hit would depend on how
 * long the cases before it took, so on the other arm's speed. Kernels without
 * them do without; the job may set either to something else.
 */
void settings_calm(void)
{
	file_write(THP "khugepaged/scan_sleep_millisecs", "600000");
	file_write("/proc/sys/vm/compaction_proactiveness", "0");
}

/* Ticks that any CPU has spent on anything but idling, from the first line of /proc/stat. */
static long long busy_ticks(void)
{
	char text[512];
	long long user, nice, system, irq, softirq;

	file_read("/proc/stat", text, sizeof(text));
	if (sscanf(text, "cpu %lld %lld %lld %*d %*d %lld %lld", &user, &nice, &system, &irq, &softirq) != 5)
		return 0;
	return user + nice + system + irq + softirq;
}

void settings_wait_idle(void)
{
	struct timespec window = { .tv_nsec = IDLE_WINDOW_NS };
	long long before = busy_ticks();
	int quiet = 0;

	for (int i = 0; i < IDLE_WINDOWS_MAX && quiet < IDLE_WINDOWS; i++) {
		long long now;

		clock_nanosleep(CLOCK_MONOTONIC, 0, &window, NULL);
		now = busy_ticks();
		quiet = now - before <= 1 ? quiet + 1 : 0;
		before = now;
	}
	show("setting", "idle", quiet < IDLE_WINDOWS ? "no" : "yes", NULL);
}

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), tail = strlen(end);

	return length >= tail && !strcmp(text + length - tail, end);
}

bool setting_insmod(const char *path)
{
	bool packed = ends_with(path, ".xz") || ends_with(path, ".zst") || ends_with(path, ".gz");
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	long failed = -1;

	if (fd >= 0) {
		failed = syscall(SYS_finit_module, fd, "", packed ? MODULE_INIT_COMPRESSED_FILE : 0);
		if (failed && errno == EEXIST)
			failed = 0;
	}
	if (failed)
		report_fatal("cannot load the module %s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
	return !failed;
}

void settings_show(void)
{
	char buffer[VALUE_MAX];

	for (size_t i = 0; i < NR_SHOWN; i++) {
		const char *value = setting_value(files[i].path, buffer, sizeof(buffer));

		if (*value)
			show("setting", files[i].name, value, NULL);
	}
	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		const char *value = setting_value(facts[i].path, buffer, sizeof(buffer));

		if (*value)
			show("setting", facts[i].name, value, NULL);
	}
}
