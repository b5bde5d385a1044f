/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Small files of /proc and /sys, whole. */
#ifndef LAB_FILES_H
#define LAB_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Read a file into a buffer and end it with a NUL: its length, or -errno. Longer files are cut. */
ssize_t file_read(const char *path, char *buffer, size_t size);

/* Like file_read, without the white space around it; an empty string when it cannot be read. */
const char *file_word(const char *path, char *buffer, size_t size);

/* Write a string in one write(): 0, or -errno. */
int file_write(const char *path, const char *text);

/* True if a list from such a file has a word; separators: the characters between its words. */
bool list_has(const char *list, const char *word, size_t length, const char *separators);

#endif
