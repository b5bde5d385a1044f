// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Every run of instructions with interrupts off between the marks of a window, by brute force: before each instruction
 * QEMU is asked for the register that says so. With count=ADDRESS,offset=ADDRESS, every run without preemption: QEMU is
 * asked for preempt_count, whose address is the sum of count and of the word at offset. For QEMU 7.2, x86-64 and one
 * vCPU. It has nothing in common with machines/plugin but the interface. A line for each run: the number of the window,
 * the instructions, the address of the last one.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLAGS_REGISTER	17	/* of GDB's */
#define INTERRUPT_FLAG	0x200
#define NEED_RESCHED	0x80000000u	/* inverted, in preempt_count */

struct tb;
struct insn;
struct bytes {			/* GByteArray */
	uint8_t *data;
	unsigned int length;
};

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*cb)(uint64_t id, struct tb *tb));
void qemu_plugin_register_vcpu_insn_exec_cb(struct insn *insn, void (*cb)(unsigned int vcpu, void *data), int flags,
					    void *data);
size_t qemu_plugin_tb_n_insns(const struct tb *tb);
struct insn *qemu_plugin_tb_get_insn(const struct tb *tb, size_t index);
size_t qemu_plugin_insn_size(const struct insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct insn *insn);
const uint8_t *qemu_plugin_insn_data(const struct insn *insn);

static void *(*get_cpu)(int index);
static int (*read_register)(void *cpu, struct bytes *to, int number);
static struct bytes *(*new_bytes)(void);
static struct bytes *(*set_size)(struct bytes *bytes, unsigned int size);
static int (*read_memory)(void *cpu, uint64_t address, void *to, uint64_t length, bool write);

static struct bytes *bytes;
static FILE *file;
static bool inside;
static uint64_t window, length, last;
static uint64_t count, offset;

static bool preemptible(void)
{
	uint64_t distance;
	uint32_t value;

	if (read_memory(get_cpu(0), offset, &distance, sizeof(distance), false) ||
	    read_memory(get_cpu(0), count + distance, &value, sizeof(value), false))
		abort();
	return !(value & ~NEED_RESCHED);
}

static bool allowed(void)
{
	uint32_t flags;

	if (offset)
		return preemptible();
	set_size(bytes, 0);
	read_register(get_cpu(0), bytes, FLAGS_REGISTER);
	memcpy(&flags, bytes->data, sizeof(flags));
	return flags & INTERRUPT_FLAG;
}

static void end(void)
{
	if (length)
		fprintf(file, "%llu %llu %llu\n", (unsigned long long)window, (unsigned long long)length,
			(unsigned long long)last);
	fflush(file);
	length = 0;
}

/* Each iteration of a string is seen as an instruction. */
static void on_instruction(unsigned int vcpu, void *address)
{
	uint64_t at = (uintptr_t)address;

	(void)vcpu;
	if (!inside)
		return;
	if (allowed())
		end();
	else if (!length || at != last)
		length++;
	last = at;
}

static void on_mark(unsigned int vcpu, void *code)
{
	(void)vcpu;
	if ((uintptr_t)code == 1) {
		inside = true;
		window++;
	} else if ((uintptr_t)code == 2) {
		inside = false;
		end();
	}
}

static void on_translate(uint64_t id, struct tb *tb)
{
	static const uint8_t start[] = { 0x0f, 0x1f, 0x80 }, magic[] = { 0x42, 0x41, 0x4c };

	(void)id;
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct insn *insn = qemu_plugin_tb_get_insn(tb, i);
		const uint8_t *data = qemu_plugin_insn_data(insn);

		if (qemu_plugin_insn_size(insn) == 7 && !memcmp(data, start, 3) && !memcmp(data + 4, magic, 3))
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, 0, (void *)(uintptr_t)data[3]);
		else
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_instruction, 0,
							       (void *)(uintptr_t)qemu_plugin_insn_vaddr(insn));
	}
}

static void find(void *function, const char *name)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);

	if (!symbol)
		abort();
	memcpy(function, &symbol, sizeof(symbol));
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	(void)info;
	if (argc < 1 || strncmp(argv[0], "out=", 4))
		return 1;
	file = fopen(argv[0] + 4, "w");
	if (!file)
		return 1;
	if (argc == 3 && (sscanf(argv[1], "count=%" SCNx64, &count) != 1 ||
			  sscanf(argv[2], "offset=%" SCNx64, &offset) != 1))
		return 1;
	find(&get_cpu, "qemu_get_cpu");
	find(&read_register, "x86_cpu_gdb_read_register");
	find(&new_bytes, "g_byte_array_new");
	find(&set_size, "g_byte_array_set_size");
	find(&read_memory, "cpu_memory_rw_debug");
	bytes = new_bytes();
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	return 0;
}
