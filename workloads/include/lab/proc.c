// SPDX-License-Identifier: GPL-2.0-or-later
#include <lab/proc.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool proc_read(const char *path, struct proc_text *into)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0, limit = sizeof(into->text) - 1;
	ssize_t step;

	into->text[0] = '\0';
	if (fd < 0)
		return false;
	while (length < limit && (step = read(fd, into->text + length, limit - length)) > 0)
		length += (size_t)step;
	close(fd);
	into->text[length] = '\0';
	return length > 0;
}

bool proc_write(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t written;
	int error;

	if (fd < 0)
		return false;
	written = write(fd, value, strlen(value));
	error = errno;
	close(fd);
	errno = error;
	return written == (ssize_t)strlen(value);
}

static bool matches(const char *line, const char *key, size_t length)
{
	if (strncmp(line, key, length))
		return false;
	return key[length] == '*' || line[length] == ' ' || line[length] == ':';
}

long long proc_number(const struct proc_text *from, const char *key)
{
	size_t length = strcspn(key, "*");
	long long sum = -1;

	for (const char *line = from->text; *line;) {
		const char *end = strchrnul(line, '\n');

		if (matches(line, key, length))
			sum = (sum < 0 ? 0 : sum) + strtoll(line + strcspn(line, " :\n") + 1, NULL, 10);
		line = *end ? end + 1 : end;
	}
	return sum;
}

void proc_print_increase(const char *name, const char *key, const struct proc_text *before,
			 const struct proc_text *after)
{
	long long was = proc_number(before, key), is = proc_number(after, key);

	if (was < 0 || is < 0)
		fprintf(stderr, "%s: no %s: this kernel does not show %s\n", program_invocation_short_name, name, key);
	else
		printf(",\"%s\":%lld", name, is - was);
}
