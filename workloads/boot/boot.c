// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * boot: the kernel's way from power-on to its first program, and the memory
 * that it keeps for itself.
 *
 * The boot is over before this program runs. Exact mode's plugin counts it from
 * the first instruction to the mark at init's start; here the kernel's own
 * record of it is read, and the contents of /proc/meminfo and /proc/iomem.
 *
 * The settings of the lab have been applied by then, and init runs. Caches are
 * dropped, so that the archive that the kernel unpacked is all that is left of
 * the page cache.
 *
 * Prints one line of JSON.
 */
#include <lab/mark.h>
#include <lab/proc.h>
#include <lab/program.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/klog.h>

#define USAGE		"usage: boot --case boot"
#define LOG_MAX		(1 << 20)
#define READ_ALL	3	/* SYSLOG_ACTION_READ_ALL */

static const struct {
	const char *metric;
	const char *key;
} fields[] = {
	{ "mem_total_kb",	"MemTotal" },
	{ "mem_available_kb",	"MemAvailable" },
	{ "slab_kb",		"Slab" },
	{ "slab_unreclaimable_kb", "SUnreclaim" },
	{ "percpu_kb",		"Percpu" },
	{ "kernel_stack_kb",	"KernelStack" },
	{ "page_tables_kb",	"PageTables" },
};

static const struct {
	const char *metric;
	const char *name;
} sections[] = {
	{ "kernel_code_kb",	"Kernel code" },
	{ "kernel_rodata_kb",	"Kernel rodata" },
	{ "kernel_data_kb",	"Kernel data" },
	{ "kernel_bss_kb",	"Kernel bss" },
};

/* The kernel's time of a line of its log, `[    0.123456] text`, in ns; -1 if there is no such line. */
static long long logged_at(const char *text)
{
	static char log[LOG_MAX];
	int length = klogctl(READ_ALL, log, sizeof(log) - 1);
	unsigned long seconds, micros;
	const char *found;

	if (length < 0)
		program_cannot("cannot read the kernel's log");
	log[length] = '\0';
	found = strstr(log, text);
	while (found && found > log && found[-1] != '\n')
		found--;
	while (found && *found && *found != '[')
		found++;
	if (!found || sscanf(found, "[%lu.%lu]", &seconds, &micros) != 2)
		return -1;
	return (long long)seconds * 1000000000 + (long long)micros * 1000;
}

static void print_memory(void)
{
	struct proc_text meminfo;

	if (!proc_read("/proc/meminfo", &meminfo))
		program_cannot("cannot read /proc/meminfo");
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		long long value = proc_number(&meminfo, fields[i].key);

		if (value >= 0)
			printf(",\"%s\":%lld", fields[i].metric, value);
	}
}

/* Lines such as `  01000000-01e01fff : Kernel code`. */
static void print_sections(void)
{
	struct proc_text iomem;

	proc_read("/proc/iomem", &iomem);
	for (char *line = strtok(iomem.text, "\n"); line; line = strtok(NULL, "\n")) {
		unsigned long long first, last;
		char *name = strstr(line, " : ");

		if (!name || sscanf(line, " %llx-%llx", &first, &last) != 2 || !last)
			continue;
		for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
			if (!strcmp(name + 3, sections[i].name))
				printf(",\"%s\":%llu", sections[i].metric, (last + 1 - first) / KIB);
	}
}

int main(int argc, char **argv)
{
	const char *name = program_case(argc, argv, USAGE);
	long long booted_ns = logged_at("Run /init as init process");

	lab_measures_boot();
	if (strcmp(name, "boot"))
		program_misuse(name, "there is one, boot");
	if (booted_ns < 0)
		program_cannot("the kernel's log does not say when it started init");
	proc_write("/proc/sys/vm/drop_caches", "3");
	printf("{\"metrics\": {\"boot_time\":%lld", booted_ns);
	print_memory();
	print_sections();
	printf("}}\n");
	return PROGRAM_MEASURED;
}
