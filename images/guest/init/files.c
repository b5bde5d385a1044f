// SPDX-License-Identifier: GPL-2.0-or-later
/* Small files of /proc and /sys, whole. */
#include "files.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

ssize_t file_read(const char *path, char *buffer, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t step = 0;

	buffer[0] = '\0';
	if (fd < 0)
		return -errno;
	while (length < size - 1) {
		step = read(fd, buffer + length, size - 1 - length);
		if (step < 0)
			step = -errno;
		if (step <= 0)
			break;
		length += (size_t)step;
	}
	close(fd);
	buffer[length] = '\0';
	return step < 0 ? step : (ssize_t)length;
}

const char *file_word(const char *path, char *buffer, size_t size)
{
	ssize_t length = file_read(path, buffer, size);
	char *start = buffer;

	while (length > 0 && isspace((unsigned char)buffer[length - 1]))
		buffer[--length] = '\0';
	while (isspace((unsigned char)*start))
		start++;
	return start;
}

int file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int error = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		error = -errno;
	close(fd);
	return error;
}

bool list_has(const char *list, const char *word, size_t length, const char *separators)
{
	size_t found;

	for (const char *at = list; *at; at += found + !!at[found]) {
		found = strcspn(at, separators);
		if (found == length && !memcmp(at, word, length))
			return true;
	}
	return false;
}
