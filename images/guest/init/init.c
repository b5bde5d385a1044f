// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The guest's first and only resident program.
 *
 * It is started by the kernel as PID 1 from an archive in memory, applies the
 * settings in /job, runs the cases in /cases one after another, reports each as
 * JSON lines on a serial port, and switches the guest off. There is no
 * shell, no udev and no other daemon, so nothing runs beside the workload.
 *
 * Every error becomes a record; this program itself never ends, since
 * the end of PID 1 is a kernel panic and would be blamed on the kernel.
 *
 * Kernel command line: lab.report=NAME chooses the device under /dev that the
 * report goes to (default ttyS1); reboot=t with QEMU's -no-reboot makes the
 * power-off immediate.
 */
#include "case.h"
#include "files.h"
#include "job.h"
#include "report.h"
#include "seed.h"
#include "settings.h"

#include <lab/mark.h>

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define CMDLINE_MAX	4096
#define REPORT_DEFAULT	"ttyS1"

static const struct {
	const char *type;
	const char *target;
	const char *options;
} mounts[] = {
	{ "proc",	"/proc",	NULL },
	{ "sysfs",	"/sys",		NULL },
	{ "debugfs",	"/sys/kernel/debug", NULL },
	{ "devtmpfs",	"/dev",		NULL },
	{ "tmpfs",	"/tmp",		"mode=1777" },
	{ "tmpfs",	"/run",		"mode=0755" },
	{ "tmpfs",	"/dev/shm",	"mode=1777" },
};

/* A kernel may have mounted some already (CONFIG_DEVTMPFS_MOUNT), and may lack others: both will show later. */
static void mount_all(void)
{
	for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
		mkdir(mounts[i].target, 0755);
		mount(mounts[i].type, mounts[i].target, mounts[i].type, 0, mounts[i].options);
	}
}

/* Without /dev/console in the archive, init starts with no standard descriptors. */
static void open_standard(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

/* Any socket's ioctl() will do; one of AF_INET would have a kernel without it look for a module. */
static void start_loopback(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	ioctl(fd, SIOCSIFFLAGS, &request);
	close(fd);
}

static void open_report(const char *cmdline)
{
	const char *option = strstr(cmdline, "lab.report=");
	const char *name = option ? option + strlen("lab.report=") : REPORT_DEFAULT;
	char device[128], message[256];
	int failed;

	snprintf(device, sizeof(device), "/dev/%.*s", (int)strcspn(name, " \n"), name);
	failed = report_open(device);
	if (!failed)
		return;
	/* The console is the last place to say it. */
	snprintf(message, sizeof(message), "lab: cannot open the report channel %s: %s\n", device,
		 strerror(-failed));
	file_write("/dev/console", message);
}

static long long memory_kb(void)
{
	char text[512];
	const char *total;

	file_read("/proc/meminfo", text, sizeof(text));
	total = strstr(text, "MemTotal:");
	return total ? strtoll(total + strlen("MemTotal:"), NULL, 10) : 0;
}

static void say_hello(const char *cmdline)
{
	struct utsname name = { .release = "" };
	char buffer[64];

	uname(&name);
	report_begin("hello");
	report_string("release", name.release);
	report_string("clocksource",
		      file_word("/sys/devices/system/clocksource/clocksource0/current_clocksource",
				buffer, sizeof(buffer)));
	report_number("mem_kb", memory_kb());
	report_string("cmdline", cmdline);
	report_number("cpus", sysconf(_SC_NPROCESSORS_ONLN));
	report_end();
}

/* Everything is tried, so that one boot names every setting that is refused. */
static bool prepare(const struct job *job)
{
	bool ready = true;

	settings_calm();
	for (size_t i = 0; i < job->nr_settings; i++)
		ready &= setting_apply(job->settings[i].name, job->settings[i].value);
	settings_show();
	return ready;
}

/*
 * All before this is the same for every seed and every choice of cases. The lab
 * may hold the machine here, keep its state, and have it continue with other
 * cases (lab/guests/snapshot.py). A jump ends QEMU's unit of translation, so
 * that the machine stops before its target.
 */
__attribute__((noinline)) static void get_ready(void)
{
	lab_hold();
	__asm__ volatile(LAB_JUMP " guest_goes_on\n\t"
			 ".globl guest_goes_on\n"
			 "guest_goes_on:" ::: "memory");
	lab_ready();
}

static void work(void)
{
	struct job job = { .seed = 0 };

	if (!job_read(&job) || !prepare(&job))
		return;
	for (size_t i = 0; i < job.nr_setups; i++)
		if (!setup_run(&job, &job.setups[i]))
			return;
	if (!job_load_cases())
		return;
	get_ready();
	if (!job_take_cases(&job))
		return;
	seed_hold_pages(job.seed);
	settings_wait_idle();
	for (size_t i = 0; i < job.nr_cases; i++)
		case_run(&job, &job.cases[i]);
}

int main(void)
{
	static char buffer[CMDLINE_MAX];
	const char *cmdline;

	if (getpid() != 1) {
		fputs("init: this is the first program of a lab guest, started by its kernel\n", stderr);
		return 2;
	}
	lab_booted();
	mount_all();
	open_standard();
	start_loopback();
	cmdline = file_word("/proc/cmdline", buffer, sizeof(buffer));
	open_report(cmdline);
	say_hello(cmdline);
	work();
	report_done();
	report_drain();
	for (;;) {
		reboot(RB_AUTOBOOT);
		pause();
	}
}
