// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The cgroup of the workload's programs: one below the root, for all cases of
 * this guest. Init stays in the root, so that the programs' output in its
 * memory is not charged to them.
 */
#include "cgroup.h"
#include "files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define ROOT	"/sys/fs/cgroup"
#define OWN	ROOT "/lab"

static bool made;

static bool make_group(char *why, size_t size)
{
	if (made)
		return true;
	if (mount("cgroup2", ROOT, "cgroup2", 0, NULL) || mkdir(OWN, 0755)) {
		snprintf(why, size, "the kernel has no cgroup v2: %s: %s", ROOT, strerror(errno));
		return false;
	}
	made = true;
	return true;
}

static bool enable(const char *controller, char *why, size_t size)
{
	char have[512], command[80];
	const char *found = file_word(ROOT "/cgroup.controllers", have, sizeof(have));
	int failed;

	if (!list_has(found, controller, strlen(controller), " ")) {
		snprintf(why, size, "the kernel has no cgroup v2 controller '%s', only '%s'", controller, found);
		return false;
	}
	snprintf(command, sizeof(command), "+%s", controller);
	failed = file_write(ROOT "/cgroup.subtree_control", command);
	if (failed)
		snprintf(why, size, "cannot enable the cgroup v2 controller '%s': %s", controller, strerror(-failed));
	return !failed;
}

bool cgroup_open(const char *file, char *path, size_t size)
{
	char controller[64];

	snprintf(controller, sizeof(controller), "%.*s", (int)strcspn(file, "."), file);
	if (!make_group(path, size) || !enable(controller, path, size))
		return false;
	snprintf(path, size, "%s/%s", OWN, file);
	return true;
}

int cgroup_join(void)
{
	return made ? file_write(OWN "/cgroup.procs", "0") : 0;
}
