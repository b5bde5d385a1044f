// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The versions of QEMU's plugin interface without QEMU, for test_plugin.py, which compiles it with MAJOR and MINOR.
 * Prints the version that the plugin claims, then each callback that got what QEMU of that version hands over.
 */
#include "qemu.c"

#include <stdio.h>

static struct {
	int64_t major, minor, micro;
} version = { MAJOR, MINOR, 0 }, *versions = &version;
static void *translation, *end, *dropped;

void *qmp_query_version(void *error)
{
	(void)error;
	return &versions;
}

#if MAJOR > 10
void qemu_plugin_scoreboard_new(void)
{
}

void qemu_plugin_set_pc(void)
{
}
#endif

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void *cb)
{
	translation = id == 5 ? cb : NULL;
}

void qemu_plugin_register_atexit_cb(uint64_t id, void *cb)
{
	end = id == 5 ? cb : NULL;
}

void qemu_plugin_reset(uint64_t id, void *cb)
{
	dropped = id == 5 ? cb : NULL;
}

static void on_block(struct qemu_plugin_tb *tb)
{
	if (tb == (void *)&version)
		puts("translation");
}

static void on_end(void)
{
	puts("exit");
}

static void on_drop(void)
{
	puts("reset");
}

int main(void)
{
	qemu_info_t info = { .version = { 0, qemu_plugin_version } };
	unsigned int vcpus;

	printf("%d\n", qemu_plugin_version);
	qemu_adapt(5, &info, &vcpus);
	qemu_on_translation(on_block);
	qemu_on_exit(on_end);
	qemu_reset(on_drop);
	if (qemu_plugin_version < 7) {
		((void (*)(uint64_t, void *))translation)(5, &version);
		((void (*)(uint64_t, void *))end)(5, NULL);
		((void (*)(uint64_t))dropped)(5);
	} else {
		((void (*)(void *, void *))translation)(&version, NULL);
		((void (*)(void *))end)(NULL);
		((void (*)(void *))dropped)(NULL);
	}
	return 0;
}
