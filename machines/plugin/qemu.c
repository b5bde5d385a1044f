// SPDX-License-Identifier: GPL-2.0-or-later
/* One face for the versions of QEMU's plugin interface. */
#include "qemu.h"
#include "memory.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Read by QEMU after the library's constructors have run, and before anything of it is called. */
__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static struct qemu_plugin_scoreboard *(*scoreboard_new)(size_t element_size);
static void *(*scoreboard_find)(struct qemu_plugin_scoreboard *score, unsigned int vcpu);
static void (*block_inline)(struct qemu_plugin_tb *tb, int op, void *counter, uint64_t add);
static void (*insn_inline)(struct qemu_plugin_insn *insn, int op, void *counter, uint64_t add);
static void (*block_inline_vcpu)(struct qemu_plugin_tb *tb, int op, qemu_plugin_u64 counter, uint64_t add);
static void (*insn_inline_vcpu)(struct qemu_plugin_insn *insn, int op, qemu_plugin_u64 counter, uint64_t add);
static void (*access_inline)(struct qemu_plugin_insn *insn, int which, int op, void *counter, uint64_t add);
static void (*access_inline_vcpu)(struct qemu_plugin_insn *insn, int which, int op, qemu_plugin_u64 counter,
				  uint64_t add);
static const void *(*data_pointer)(const struct qemu_plugin_insn *insn);
static size_t (*data_copy)(const struct qemu_plugin_insn *insn, void *bytes, size_t length);
static void (*register_translation)(qemu_plugin_id_t id, void *cb, void *data);
static void (*register_exit)(qemu_plugin_id_t id, void *cb, void *data);
static void (*reset)(qemu_plugin_id_t id, void *cb, void *data);
static qemu_plugin_id_t own;
static void (*on_translation)(struct qemu_plugin_tb *tb);
static void (*on_ending)(void);
static void (*on_reset)(void);
static unsigned int nr_vcpus = 1;

/* ISO C has no cast from an object's pointer to a function's; POSIX promises that the bits are the same. */
bool qemu_find(void *function, const char *name)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);

	memcpy(function, &symbol, sizeof(symbol));
	return symbol != NULL;
}

/* Version 7 shows by no name of its own, but by QEMU's version. */
static bool has_version_7(void)
{
	struct version {
		int64_t major, minor, micro;
	} **(*query)(void *error), *qemu;

	if (!qemu_find(&query, "qmp_query_version"))
		return false;
	qemu = *query(NULL);
	return qemu->major > 11 || (qemu->major == 11 && qemu->minor >= 1);
}

/* QEMU refuses a plugin older than its oldest supported version, so claim the newest that is recognised. */
__attribute__((constructor)) static void declare_version(void)
{
	static const struct {
		const char *symbol;
		int version;
	} signs[] = {
		{ "qemu_plugin_scoreboard_new", 2 },
		{ "qemu_plugin_read_memory_vaddr", 4 },
		{ "qemu_plugin_write_memory_vaddr", 5 },
		{ "qemu_plugin_set_pc", 6 },
	};

	for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
		if (dlsym(RTLD_DEFAULT, signs[i].symbol))
			qemu_plugin_version = signs[i].version;
	if (has_version_7())
		qemu_plugin_version = 7;
}

bool qemu_adapt(qemu_plugin_id_t id, const qemu_info_t *info, unsigned int *vcpus)
{
	bool found;

	own = id;
	if (!qemu_find(&register_translation, "qemu_plugin_register_vcpu_tb_trans_cb") ||
	    !qemu_find(&register_exit, "qemu_plugin_register_atexit_cb") || !qemu_find(&reset, "qemu_plugin_reset"))
		return false;
	nr_vcpus = (unsigned int)info->system.max_vcpus;
	*vcpus = nr_vcpus;
	if (info->version.cur >= 3)
		found = qemu_find(&data_copy, "qemu_plugin_insn_data");
	else
		found = qemu_find(&data_pointer, "qemu_plugin_insn_data");
	if (qemu_plugin_version == 1)
		return found && qemu_find(&block_inline, "qemu_plugin_register_vcpu_tb_exec_inline") &&
		       qemu_find(&insn_inline, "qemu_plugin_register_vcpu_insn_exec_inline") &&
		       qemu_find(&access_inline, "qemu_plugin_register_vcpu_mem_inline");
	return found && qemu_find(&scoreboard_new, "qemu_plugin_scoreboard_new") &&
	       qemu_find(&scoreboard_find, "qemu_plugin_scoreboard_find") &&
	       qemu_find(&block_inline_vcpu, "qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu") &&
	       qemu_find(&insn_inline_vcpu, "qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu") &&
	       qemu_find(&access_inline_vcpu, "qemu_plugin_register_vcpu_mem_inline_per_vcpu");
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	on_translation(tb);
}

static void translated_7(struct qemu_plugin_tb *tb, void *data)
{
	(void)data;
	on_translation(tb);
}

static void exited(qemu_plugin_id_t id, void *data)
{
	(void)id;
	(void)data;
	on_ending();
}

static void exited_7(void *data)
{
	(void)data;
	on_ending();
}

static void was_reset(qemu_plugin_id_t id)
{
	(void)id;
	on_reset();
}

static void was_reset_7(void *data)
{
	(void)data;
	on_reset();
}

/* Older versions ignore a third argument. */
void qemu_on_translation(void (*call)(struct qemu_plugin_tb *tb))
{
	on_translation = call;
	register_translation(own, qemu_plugin_version < 7 ? (void *)translated : (void *)translated_7, NULL);
}

void qemu_on_exit(void (*call)(void))
{
	on_ending = call;
	register_exit(own, qemu_plugin_version < 7 ? (void *)exited : (void *)exited_7, NULL);
}

void qemu_reset(void (*call)(void))
{
	on_reset = call;
	reset(own, qemu_plugin_version < 7 ? (void *)was_reset : (void *)was_reset_7, NULL);
}

size_t qemu_instruction_bytes(const struct qemu_plugin_insn *insn, uint8_t *bytes, size_t limit)
{
	size_t size = qemu_plugin_insn_size(insn);

	if (size > limit)
		size = limit;
	if (data_copy)
		return data_copy(insn, bytes, size);
	memcpy(bytes, data_pointer(insn), size);
	return size;
}

/*
 * With several vCPUs, QEMU 10.0 hands an inline counter's scaled vCPU number to
 * the operation behind it in the block. There, callbacks count instead.
 */
static bool always_by_callback;

static bool by_callback(void)
{
	return always_by_callback || (scoreboard_new && nr_vcpus > 1);
}

void qemu_count_by_callbacks(void)
{
	always_by_callback = true;
}

struct addition {
	const struct counters *counters;
	size_t index;
	uint64_t add;
};

static struct addition *addition(const struct counters *counters, size_t index, uint64_t add)
{
	struct addition *made = memory_get(1, sizeof(*made));

	*made = (struct addition){ counters, index, add };
	return made;
}

/* All vCPUs share one thread. */
static void add_on_execution(unsigned int vcpu, void *data)
{
	const struct addition *addition = data;

	(void)vcpu;
	if (!addition->counters->off || !*addition->counters->off)
		addition->counters->plain[addition->index] += addition->add;
}

static void add_on_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	(void)info;
	(void)address;
	add_on_execution(vcpu, data);
}

void counters_make(struct counters *counters, size_t count)
{
	counters->count = count;
	if (scoreboard_new && !by_callback())
		counters->score = scoreboard_new(count * sizeof(uint64_t));
	else
		counters->plain = memory_get(count, sizeof(uint64_t));
}

static const uint64_t *values(const struct counters *counters)
{
	return counters->plain ? counters->plain : scoreboard_find(counters->score, 0);
}

uint64_t counters_sum(const struct counters *counters, size_t index)
{
	return values(counters)[index];
}

void counters_copy(const struct counters *counters, uint64_t *to)
{
	memcpy(to, values(counters), counters->count * sizeof(*to));
}

static qemu_plugin_u64 scored(const struct counters *counters, size_t index)
{
	return (qemu_plugin_u64){ counters->score, index * sizeof(uint64_t) };
}

void counters_add_on_block(struct qemu_plugin_tb *tb, const struct counters *counters, size_t index, uint64_t add)
{
	if (by_callback())
		qemu_plugin_register_vcpu_tb_exec_cb(tb, add_on_execution, QEMU_NO_REGISTERS,
						     addition(counters, index, add));
	else if (counters->plain)
		block_inline(tb, QEMU_INLINE_ADD, &counters->plain[index], add);
	else
		block_inline_vcpu(tb, QEMU_INLINE_ADD, scored(counters, index), add);
}

void counters_add_on_insn(struct qemu_plugin_insn *insn, const struct counters *counters, size_t index,
			  uint64_t add)
{
	if (by_callback())
		qemu_plugin_register_vcpu_insn_exec_cb(insn, add_on_execution, QEMU_NO_REGISTERS,
						       addition(counters, index, add));
	else if (counters->plain)
		insn_inline(insn, QEMU_INLINE_ADD, &counters->plain[index], add);
	else
		insn_inline_vcpu(insn, QEMU_INLINE_ADD, scored(counters, index), add);
}

void counters_add_on_access(struct qemu_plugin_insn *insn, int which, const struct counters *counters,
			    size_t index, uint64_t add)
{
	if (by_callback())
		qemu_plugin_register_vcpu_mem_cb(insn, add_on_access, QEMU_NO_REGISTERS, which,
						 addition(counters, index, add));
	else if (counters->plain)
		access_inline(insn, which, QEMU_INLINE_ADD, &counters->plain[index], add);
	else
		access_inline_vcpu(insn, which, QEMU_INLINE_ADD, scored(counters, index), add);
}
