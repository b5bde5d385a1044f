/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * PID 1 of the tests' machine. It loads modules, mounts the host's root over 9p, read-only, below an overlay in memory,
 * and becomes the program of its arguments: what stands behind `--` on the kernel's command line.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/module.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TRANSPORT "trans=virtio,version=9p2000.L,msize=512000,"

/* The kernel panics without PID 1, and QEMU ends with it. */
static void die(const char *what)
{
	fprintf(stderr, "init: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void load_modules(const char *list)
{
	FILE *names = fopen(list, "r");
	char path[256];

	if (!names)
		die(list);
	while (fgets(path, sizeof(path), names)) {
		path[strcspn(path, "\n")] = 0;
		int module = open(path, O_RDONLY | O_CLOEXEC);
		int flags = strstr(path, ".ko.") ? MODULE_INIT_COMPRESSED_FILE : 0;

		if (module < 0 || (syscall(SYS_finit_module, module, "", flags) && errno != EEXIST))
			die(path);
		close(module);
	}
	fclose(names);
}

static void make(const char *path)
{
	if (mkdir(path, 0755) && errno != EEXIST)
		die(path);
}

static void attach(const char *type, const char *source, const char *where, unsigned long flags, const char *options)
{
	if (mount(source, where, type, flags, options))
		die(where);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		die("no program");
	load_modules("/modules/order");
	attach("tmpfs", "memory", "/memory", 0, "mode=755,size=60%");
	make("/memory/upper");
	make("/memory/work");
	attach("9p", "root", "/host", MS_RDONLY, TRANSPORT "cache=loose");
	attach("overlay", "root", "/root", 0, "lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work");
	attach("proc", "proc", "/root/proc", 0, "");
	attach("sysfs", "sysfs", "/root/sys", 0, "");
	attach("cgroup2", "cgroup2", "/root/sys/fs/cgroup", 0, "");
	attach("devtmpfs", "dev", "/root/dev", 0, "");
	make("/root/dev/pts");
	make("/root/dev/shm");
	attach("devpts", "devpts", "/root/dev/pts", 0, "ptmxmode=666");
	attach("tmpfs", "shm", "/root/dev/shm", 0, "");
	attach("tmpfs", "tmp", "/root/tmp", 0, "size=60%");
	attach("tmpfs", "run", "/root/run", 0, "mode=755");
	attach("9p", "share", "/root/mnt", 0, TRANSPORT "cache=none");
	if (chdir("/root") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		die("cannot change the root");
	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("LANG", "C.UTF-8", 1);
	execv(argv[1], argv + 1);
	die(argv[1]);
}
