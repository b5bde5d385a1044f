// SPDX-License-Identifier: GPL-2.0-or-later
#include <lab/program.h>

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIZE_LIMIT	(1024 * GIB)

_Noreturn void program_cannot(const char *format, ...)
{
	int error = errno;
	va_list arguments;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, error ? ": %s (errno %d)\n" : "\n", strerror(error), error);
	exit(PROGRAM_CANNOT);
}

_Noreturn void program_misuse(const char *name, const char *what)
{
	fprintf(stderr, "%s: case '%s': %s\n", program_invocation_short_name, name, what);
	exit(PROGRAM_MISUSE);
}

_Noreturn void program_unsupported(const char *what, const char *why)
{
	fprintf(stderr, "%s: not supported on this kernel: %s: %s\n", program_invocation_short_name, what, why);
	exit(PROGRAM_UNSUPPORTED);
}

const char *program_case(int argc, char **argv, const char *usage)
{
	static const struct option known[] = {
		{ "case", required_argument, NULL, 'c' },
		{ "help", no_argument,	     NULL, 'h' },
		{ 0 },
	};
	const char *name = NULL;
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) == 'c')
		name = optarg;
	if (option == -1 && name && optind == argc)
		return name;
	fprintf(option == 'h' ? stdout : stderr, "usage: %s --case %s\n", program_invocation_short_name, usage);
	exit(option == 'h' ? PROGRAM_MEASURED : PROGRAM_MISUSE);
}

uint64_t program_seed(void)
{
	const char *text = getenv("LAB_SEED");
	unsigned long long seed;
	char *end;

	if (!text)
		return 0;
	errno = 0;
	seed = strtoull(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end && !errno)
		return seed;
	fprintf(stderr, "%s: LAB_SEED '%s' is not a number\n", program_invocation_short_name, text);
	exit(PROGRAM_MISUSE);
}

uint64_t program_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

const char *program_size(const char *at, size_t *size)
{
	unsigned long number, unit;
	char *end;

	if (*at < '1' || *at > '9')
		return NULL;
	errno = 0;
	number = strtoul(at, &end, 10);
	unit = *end == 'k' ? KIB : *end == 'm' ? MIB : *end == 'g' ? GIB : 0;
	if (errno || !unit || number > SIZE_LIMIT / unit)
		return NULL;
	*size = number * unit;
	return end + 1;
}

long long program_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	long long left = *(const long long *)a, right = *(const long long *)b;

	return (left > right) - (left < right);
}

void program_sort(long long *values, size_t count)
{
	qsort(values, count, sizeof(*values), by_value);
}

long long program_percentile(const long long *sorted, size_t count, unsigned int percent)
{
	return sorted[(count * percent + 99) / 100 - 1];
}
