// SPDX-License-Identifier: GPL-2.0-or-later
/* A system call, and a comparison of strings whose place the seed moves; test_shares.py says whose cost it is. */
#include <lab/mark.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Compares a string of the environment, whose place and length the seed moves. */
static int compare(void)
{
	const char *pad = getenv("LAB_PAD");
	char *copy = strdup(pad ? pad : "");
	volatile int sum = 0;
	double begin;

	copy[strlen(copy) > 60 ? 60 : 0] = 'y';
	begin = seconds();
	lab_window_begin();
	for (int i = 0; i < 2000; i++) {
		syscall(SYS_getppid);
		sum += strcmp(pad, copy);
		lab_operation_end();
	}
	lab_window_end();
	printf("{\"metrics\": {\"rate\": %.3f}}\n", 2000 / (seconds() - begin));
	return 0;
}

/* Works for two thousandths of a second of guest time, whatever it gets done. */
static int race(void)
{
	double begin = seconds();
	int count = 0;

	lab_window_begin();
	while (seconds() - begin < 0.002) {
		syscall(SYS_getppid);
		count++;
		lab_operation_end();
	}
	lab_window_end();
	printf("{\"metrics\": {\"rate\": %d}}\n", count);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "compare"))
		return compare();
	if (argc == 2 && !strcmp(argv[1], "race"))
		return race();
	fputs("cannot do that\n", stderr);
	return 3;
}
