// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Settings. The kernel accepts some values and does something else (fewer huge
 * pages than requested, a sysctl clamped to its range), so each is read back
 * and compared; a measurement under other settings is not the requested one.
 */
#include "settings.h"
#include "cgroup.h"
#include "files.h"
#include "report.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define THP	"/sys/kernel/mm/transparent_hugepage/"
#define DEBUGFS	"/sys/kernel/debug/"
#define SECURITYFS "/sys/kernel/security"
#define VULNERABILITIES "/sys/devices/system/cpu/vulnerabilities/"
#define VALUE_MAX	1024

#define IDLE_WINDOW_NS	100000000
#define IDLE_WINDOWS	2	/* quiet ones in a row */
#define IDLE_WINDOWS_MAX 600	/* a minute */

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

/* Reported without a request, too, if the kernel has them. No setting has these names. */
static const struct {
	const char *name;
	const char *path;
} facts[] = {
	{ "thp.shmem",		THP "shmem_enabled" },
	{ "overcommit",		"/proc/sys/vm/overcommit_memory" },
	{ "swappiness",		"/proc/sys/vm/swappiness" },
	{ "sched.features",	DEBUGFS "sched/features" },
};

/* One setting, and its outcome. */
struct attempt {
	const char *name;
	const char *value;
	const char *now;		/* the value in force */
	char buffer[VALUE_MAX];
	char error[VALUE_MAX + 640];	/* why it was refused */
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

/* mthp.64k: whether folios of that size are made. */
static bool folio_path(const char *name, char *path, size_t size)
{
	char *unit;
	unsigned long number = strtoul(name, &unit, 10);

	if (unit == name || (strcmp(unit, "k") && strcmp(unit, "m")))
		return false;
	snprintf(path, size, THP "hugepages-%lukB/enabled", *unit == 'm' ? number << 10 : number);
	return true;
}

static bool setting_path(const char *name, char *path, size_t size)
{
	if (!strncmp(name, "mthp.", 5))
		return folio_path(name + 5, path, size);
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

/* Cut a text to the only part of it between two brackets; NULL if there is none, or more than one. */
static const char *bracketed(char *text, char open, char close)
{
	char *left = strchr(text, open);
	char *right = left ? strchr(left, close) : NULL;

	if (!right || strchr(right, open))
		return NULL;
	*right = '\0';
	return left + 1;
}

/* The value in force: of a choice like "always [madvise] never", the word in brackets. */
static const char *setting_value(const char *path, char *buffer, size_t size)
{
	const char *value = file_word(path, buffer, size);
	const char *chosen = bracketed(buffer, '[', ']');

	return chosen ? chosen : value;
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

/* Equal word by word: sysctls separate with TABs the words that are written with spaces. */
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

static bool refuse(struct attempt *attempt, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(attempt->error, sizeof(attempt->error), format, arguments);
	va_end(arguments);
	return false;
}

static bool reads_back_as(struct attempt *attempt, const char *found)
{
	return refuse(attempt, "reads back as '%.*s'", (int)strcspn(found, "\n"), found);
}

static bool write_to(struct attempt *attempt, const char *path, const char *text)
{
	int failed = file_write(path, text);

	return !failed || refuse(attempt, "%s: %s", path, strerror(-failed));
}

static bool apply_file(struct attempt *attempt)
{
	char path[512];

	if (!setting_path(attempt->name, path, sizeof(path)))
		return refuse(attempt, "no such setting");
	if (!write_to(attempt, path, attempt->value))
		return false;
	attempt->now = setting_value(path, attempt->buffer, sizeof(attempt->buffer));
	return same_value(attempt->now, attempt->value) || reads_back_as(attempt, attempt->now);
}

/* The scheduler's features are words in one file: NAME, or NO_NAME for a feature that is off. */
static bool apply_feature(struct attempt *attempt)
{
	const char *path = DEBUGFS "sched/features", *list;
	bool off = !strcmp(attempt->value, "0");
	char word[128];

	/* Before commit 8a99b6833c88 ("sched: Move SCHED_DEBUG sysctl to debugfs") (in v5.13). */
	if (!access(DEBUGFS "sched_features", F_OK))
		path = DEBUGFS "sched_features";
	snprintf(word, sizeof(word), "%s%s", off ? "NO_" : "", attempt->name + strlen("sched_feat."));
	if (!write_to(attempt, path, word))
		return false;
	list = file_word(path, attempt->buffer, sizeof(attempt->buffer));
	return list_has(list, word, strlen(word), " ") || reads_back_as(attempt, off ? "1" : "0");
}

/* Files for yes and no take 1 and 0, and read "Y" and "N". */
static bool same_switch(const char *now, const char *value)
{
	return (!strcmp(now, "Y") && strchr("1yY", *value) && strlen(value) == 1) ||
	       (!strcmp(now, "N") && strchr("0nN", *value) && strlen(value) == 1);
}

/* Some files take commands and cannot be read: only their acceptance is known. */
static bool apply_debugfs(struct attempt *attempt)
{
	const char *chosen;
	char path[512];

	snprintf(path, sizeof(path), DEBUGFS "%s", attempt->name + strlen("debugfs."));
	if (!write_to(attempt, path, attempt->value))
		return false;
	if (file_read(path, attempt->buffer, sizeof(attempt->buffer)) < 0)
		return true;
	attempt->now = setting_value(path, attempt->buffer, sizeof(attempt->buffer));
	if (same_value(attempt->now, attempt->value) || same_switch(attempt->now, attempt->value))
		return true;
	/* sched/preempt reads "none voluntary (full)". */
	chosen = bracketed(attempt->buffer, '(', ')');
	attempt->now = chosen ? chosen : attempt->now;
	return same_value(attempt->now, attempt->value) || reads_back_as(attempt, attempt->now);
}

/* A number of bytes with its unit, as cgroup files take it: 64M reads back as 67108864. */
static bool same_size(const char *now, size_t now_length, const char *value, size_t length)
{
	static const char units[] = "kmgt";
	const char *unit;
	char *end, *now_end;
	unsigned long long bytes = strtoull(value, &end, 10);

	unit = length && end == value + length - 1 ? strchr(units, tolower((unsigned char)*end)) : NULL;
	if (!unit || !isdigit((unsigned char)*value))
		return false;
	bytes <<= 10 * (unit - units + 1);
	return strtoull(now, &now_end, 10) == bytes && now_end == now + now_length;
}

/* The file may have more words than were written: cpu.max adds the period, io.max the other limits. */
static bool begins_with_value(const char *now, const char *value)
{
	size_t now_length, length;

	for (value = next_word(value, &length); length; value = next_word(value + length, &length)) {
		now = next_word(now, &now_length);
		if (!same_word(now, now_length, value, length) && !same_size(now, now_length, value, length))
			return false;
		now += now_length;
	}
	return true;
}

static bool apply_cgroup(struct attempt *attempt)
{
	char path[512];

	if (!cgroup_open(attempt->name + strlen("cgroup."), path, sizeof(path)))
		return refuse(attempt, "%s", path);
	if (!write_to(attempt, path, attempt->value))
		return false;
	attempt->now = file_word(path, attempt->buffer, sizeof(attempt->buffer));
	return begins_with_value(attempt->now, attempt->value) || reads_back_as(attempt, attempt->now);
}

/* The kernel adds security modules of its own, and leaves out those that it lacks. */
static bool check_lsm(struct attempt *attempt)
{
	size_t length;

	mkdir(SECURITYFS, 0755);
	mount("securityfs", SECURITYFS, "securityfs", 0, NULL);
	attempt->now = file_word(SECURITYFS "/lsm", attempt->buffer, sizeof(attempt->buffer));
	for (const char *name = attempt->value; *name; name += length + (name[length] == ',')) {
		length = strcspn(name, ",");
		if (!list_has(attempt->now, name, length, ","))
			return reads_back_as(attempt, attempt->now);
	}
	return true;
}

/* The kernel's beliefs about its CPU, and its mitigations. */
static void show_vulnerabilities(void)
{
	struct dirent **files;
	int count = scandir(VULNERABILITIES, &files, NULL, alphasort);
	char name[288], path[320], text[VALUE_MAX];

	for (int i = 0; i < count; i++) {
		if (*files[i]->d_name != '.') {
			snprintf(name, sizeof(name), "vulnerability.%s", files[i]->d_name);
			snprintf(path, sizeof(path), VULNERABILITIES "%s", files[i]->d_name);
			show("setting", name, file_word(path, text, sizeof(text)), NULL);
		}
		free(files[i]);
	}
	if (count >= 0)
		free(files);
}

/* Every out-of-order processor needs the mitigation of Spectre v1, so it tells whether there are any. */
static bool check_mitigations(struct attempt *attempt)
{
	const char *now = file_word(VULNERABILITIES "spectre_v1", attempt->buffer, sizeof(attempt->buffer));
	bool off = !strcmp(attempt->value, "off");

	if (!off)
		show_vulnerabilities();
	/* auto;no_user_kernel and the like leave out some. */
	if (!off && strchr(attempt->value, ';'))
		return true;
	if (strncmp(now, off ? "Mitigation" : "Vulnerable", strlen("Mitigation")))
		return true;
	return refuse(attempt, "spectre_v1 reads back as '%s'", now);
}

static bool begins_with(const char *text, const char *start)
{
	return !strncmp(text, start, strlen(start));
}

static bool apply(struct attempt *attempt)
{
	if (begins_with(attempt->name, "sched_feat."))
		return apply_feature(attempt);
	if (begins_with(attempt->name, "debugfs."))
		return apply_debugfs(attempt);
	if (begins_with(attempt->name, "cgroup."))
		return apply_cgroup(attempt);
	if (!strcmp(attempt->name, "cmdline.lsm"))
		return check_lsm(attempt);
	if (!strcmp(attempt->name, "cmdline.mitigations"))
		return check_mitigations(attempt);
	return apply_file(attempt);
}

bool setting_apply(const char *name, const char *value)
{
	static struct attempt attempt;

	attempt.name = name;
	attempt.value = attempt.now = value;
	if (!apply(&attempt)) {
		show("refused", name, value, attempt.error);
		return false;
	}
	show("setting", name, attempt.now, NULL);
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
