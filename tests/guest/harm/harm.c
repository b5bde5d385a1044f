// SPDX-License-Identifier: GPL-2.0-or-later
/* What a program can do to the lab that measures it, as root in its guest. test_bad_input.py says how each must end. */
#include "lab/mark.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <unistd.h>

#define REPORT_PORT	0x2f8

static void marks(void)
{
	lab_window_begin();
	for (;;)
		lab_operation_end();
}

static void windows(void)
{
	for (;;) {
		lab_window_begin();
		lab_operation_end();
		lab_window_end();
	}
}

/* Functions of their own, each executed once. */
static void code(void)
{
	static const size_t room = 64 << 20;
	unsigned char *to = mmap(NULL, room, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	lab_window_begin();
	for (unsigned int round = 0;; round++) {
		for (size_t at = 0; at < room; at += 64) {
			memset(to + at, 0x90, 32);
			to[at] = 0xb8;				/* mov $round, %eax */
			memcpy(to + at + 1, &round, sizeof(round));
			to[at + 32] = 0xc3;
			((void (*)(void))(void *)(to + at))();
		}
	}
}

static void console(void)
{
	static const char line[] = "<0>a line of the console, again and again, until somebody stops it\n";
	int kmsg = open("/dev/kmsg", O_WRONLY);

	while (write(kmsg, line, sizeof(line) - 1) > 0)
		;
	for (;;)
		pause();
}

/* Past init, which bounds what it passes on: to the port itself. */
static void report(void)
{
	static const char record[] = "{\"t\":\"out\",\"case\":\"report\",\"line\":\"\"}\n";

	ioperm(REPORT_PORT, 8, 1);
	for (;;)
		outsb(REPORT_PORT, record, sizeof(record) - 1);
}

static void output(void)
{
	for (;;)
		puts("{\"metrics\":{\"done\":1}}");
}

static void number(void)
{
	printf("{\"metrics\":{\"done\":");
	for (int i = 0; i < 100000; i++)
		putchar('9');
	puts("}}");
}

static void forks(void)
{
	for (;;)
		fork();
}

static void memory(void)
{
	for (;;)
		memset(malloc(16 << 20), 1, 16 << 20);
}

/* Every port that is not the console's or the report's own. */
static void ports(void)
{
	unsigned int random = 1;

	iopl(3);
	for (;;) {
		random = random * 1664525 + 1013904223;
		if ((random >> 16 & 0xfff8) != 0x3f8)
			outl(random, (unsigned short)(random >> 16 & 0xfffc));
	}
}

static const struct {
	const char *name;
	void (*run)(void);
} harms[] = {
	{ "marks", marks },
	{ "windows", windows },
	{ "code", code },
	{ "console", console },
	{ "report", report },
	{ "output", output },
	{ "number", number },
	{ "forks", forks },
	{ "memory", memory },
	{ "ports", ports },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(harms) / sizeof(harms[0]); i++)
		if (argc == 2 && !strcmp(argv[1], harms[i].name))
			harms[i].run();
	return 0;
}
