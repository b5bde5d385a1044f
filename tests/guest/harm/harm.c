// SPDX-License-Identifier: GPL-2.0-or-later
/* What a program can do to the lab that measures it, as root in its guest. test_bad_input.py says how each must end. */
#include "lab/mark.h"

#include <string.h>
#include <sys/mman.h>

static void marks(void)
{
	lab_window_begin();
	for (;;)
		lab_operation_end();
}

/* Functions of their own, each executed once. */
static void code(void)
{
	static const size_t room = 64 << 20;
	unsigned char *to = mmap(NULL, room, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	lab_window_begin();
	for (unsigned int round = 0;; round++) {
		for (size_t at = 0; at < room; at += 64) {
			memset(to + at, 0x90, 32);
			to[at] = 0xb8;				/* mov $round, %eax */
			memcpy(to + at + 1, &round, sizeof(round));
			to[at + 32] = 0xc3;
			((void (*)(void))(void *)(to + at))();
		}
	}
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "marks"))
		marks();
	code();
}
