// SPDX-License-Identifier: GPL-2.0-or-later
/* An object is the value of rax in the block behind a call: that block is translated after the one that calls. */
#include "owner.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

#define FUNCTIONS	32
#define SITE_BITS	13
#define OBJECT_BITS	16

/* Of glib, by value. */
struct bytes {
	uint8_t *data;
	unsigned int length;
};

/* Of QEMU. */
struct one_register {
	void *handle;
	const char *name;
};

struct registers {
	const char *all;	/* of one_register */
	unsigned int count;
};

static struct bytes *(*make_bytes)(void);
static struct bytes *(*set_length)(struct bytes *bytes, unsigned int length);
static struct registers *(*find_registers)(void);
static unsigned int (*register_size)(struct registers *registers);
static int (*read_register)(void *handle, struct bytes *to);

static uint64_t functions[FUNCTIONS];
static int nr_functions;

/* Each place has one: a site that finds its place taken is not watched, and an object takes the place of another. */
static uint64_t sites[1 << SITE_BITS];
static struct {
	uint64_t address, site;
} *objects;

static uint32_t place(uint64_t address, unsigned int bits)
{
	return (uint32_t)((address >> 3) * 0x9e3779b97f4a7c15ULL >> (64 - bits));
}

bool owner_add(const char *address)
{
	char *end;

	if (nr_functions == FUNCTIONS)
		return false;
	functions[nr_functions++] = strtoull(address, &end, 10);
	return end != address && !*end;
}

static bool can_read(void)
{
	static bool asked, can;

	if (!asked)
		can = qemu_find(&make_bytes, "g_byte_array_new") && qemu_find(&set_length, "g_byte_array_set_size") &&
		      qemu_find(&register_size, "g_array_get_element_size") &&
		      qemu_find(&find_registers, "qemu_plugin_get_registers") &&
		      qemu_find(&read_register, "qemu_plugin_read_register");
	asked = true;
	return can;
}

/* By the vCPU that runs. */
static uint64_t rax(void)
{
	static struct bytes *bytes;
	static void *handle;
	uint64_t value = 0;

	if (!bytes) {
		struct registers *registers = find_registers();

		bytes = make_bytes();
		for (unsigned int i = 0; i < registers->count; i++) {
			/* Since version 6 each has another member. */
			const struct one_register *each = (const void *)(registers->all + i * register_size(registers));

			if (!strcmp(each->name, "rax"))
				handle = each->handle;
		}
	}
	set_length(bytes, 0);
	if (handle)
		read_register(handle, bytes);	/* true since version 6, before it the length */
	if (bytes->length == sizeof(value))
		memcpy(&value, bytes->data, sizeof(value));
	return value;
}

static void on_object(unsigned int vcpu, void *data)
{
	uint64_t address = rax();
	uint32_t at = place(address, OBJECT_BITS);

	(void)vcpu;
	objects[at].address = address;
	objects[at].site = ((const struct block *)data)->start;
}

static bool allocates(uint64_t target)
{
	for (int i = 0; i < nr_functions; i++)
		if (functions[i] == target)
			return true;
	return false;
}

void owner_watch(struct qemu_plugin_tb *tb, const struct block *block, uint64_t target)
{
	uint64_t *site = &sites[place(block->start, SITE_BITS)], back = block->start + block->size;

	if (!nr_functions || !can_read())
		return;
	if (!objects)
		objects = memory_get(1UL << OBJECT_BITS, sizeof(*objects));
	if (*site == block->start)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_object, QEMU_READS_REGISTERS, (void *)block);
	site = &sites[place(back, SITE_BITS)];
	if (target && !*site && allocates(target))
		*site = back;
}

uint64_t owner_of(uint64_t object)
{
	uint32_t at = place(object, OBJECT_BITS);

	return objects && objects[at].address == object ? objects[at].site : 0;
}
