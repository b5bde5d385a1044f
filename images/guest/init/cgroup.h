/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The cgroup (v2) of the workload's programs. There is one only if a setting asks for it: charging to it costs. */
#ifndef LAB_CGROUP_H
#define LAB_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Make the cgroup, with the controller that a file such as "memory.max" belongs
 * to, and name the file's path; false, with the reason in it, if the kernel has
 * no such controller.
 */
bool cgroup_open(const char *file, char *path, size_t size);

/* Move the calling process into the cgroup, if there is one: 0, or -errno. */
int cgroup_join(void);

#endif
