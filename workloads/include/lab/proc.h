/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The kernel's files of numbers, read and compared. */
#ifndef LAB_PROC_H
#define LAB_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* One look at a file such as /proc/vmstat. */
struct proc_text {
	char text[1 << 15];
};

/* False, and an empty text, if the file cannot be read. */
bool proc_read(const char *path, struct proc_text *into);

/* Write a value into a file of the kernel's; false, with errno, if it was refused. */
bool proc_write(const char *path, const char *value);

/* The number after a key at the start of a line; -1 if there is none. A key that ends in `*` is the sum of all such. */
long long proc_number(const struct proc_text *from, const char *key);

/* Print `,"name":increase` of a file's number, or print the reason on stderr if there is none. */
void proc_print_increase(const char *name, const char *key, const struct proc_text *before,
			 const struct proc_text *after);

#endif
