/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QEMU's plugin interface, as much of it as is used here, in all its versions.
 *
 * Version 1 (up to QEMU 8.x) adds inline to a plain pointer and shows the bytes
 * of an instruction by pointer; since version 2 inline operations go to
 * scoreboards, one element per vCPU; since version 3 the bytes are copied out;
 * since version 7 (QEMU 11.1) all callbacks get data of the plugin's own.
 * The differences are looked up when the plugin is loaded, so that one binary
 * runs under all of them, and the build needs nothing of QEMU.
 */
#ifndef LAB_QEMU_H
#define LAB_QEMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
struct qemu_plugin_scoreboard;

typedef struct qemu_info_t {
	const char *target_name;
	struct {
		int min;
		int cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus;
		int max_vcpus;
	} system;
} qemu_info_t;

/* A counter inside a scoreboard: passed by value, since version 2. */
typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;

enum {
	QEMU_INLINE_ADD = 0,
	QEMU_NO_REGISTERS = 0,
	QEMU_READS_REGISTERS = 1,
	/*
	 * The kind of an instruction's accesses. The two apart are mixed up in version 1 (reads give writes, and
	 * writes give all), so of an instruction that does both, "one of two" gives either.
	 */
	QEMU_ONE_OF_TWO = 1,
	QEMU_ALL = 3,
};

typedef void (*qemu_exec_cb)(unsigned int vcpu, void *data);
typedef void (*qemu_mem_cb)(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);

/* The same in all versions. */
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, qemu_exec_cb cb, int flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, qemu_exec_cb cb, int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, qemu_mem_cb cb, int flags, int rw,
				      void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *address);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *address);

/* --- The differences, behind one face ----------------------------------- */

/* An array of 64-bit counters that generated code can add to. */
struct counters {
	struct qemu_plugin_scoreboard *score;	/* since version 2 */
	uint64_t *plain;			/* version 1 */
	size_t count;
	const bool *off;			/* not counted while this is true; NULL: always. By callbacks only */
};

/* A function of this process by its name, such as one that QEMU exports and its plugin interface lacks: false if none. */
bool qemu_find(void *function, const char *name);

bool qemu_adapt(qemu_plugin_id_t id, const qemu_info_t *info, unsigned int *vcpus);

void qemu_on_translation(void (*call)(struct qemu_plugin_tb *tb));
void qemu_on_exit(void (*call)(void));
void qemu_reset(void (*call)(void));	/* drops all callbacks and all translated code */

/* From now on counters are added to by callbacks, which see where counters point to when they are called. */
void qemu_count_by_callbacks(void);
size_t qemu_instruction_bytes(const struct qemu_plugin_insn *insn, uint8_t *bytes, size_t limit);

void counters_make(struct counters *counters, size_t count);
uint64_t counters_sum(const struct counters *counters, size_t index);
void counters_copy(const struct counters *counters, uint64_t *to);
void counters_add_on_block(struct qemu_plugin_tb *tb, const struct counters *counters, size_t index, uint64_t add);
void counters_add_on_insn(struct qemu_plugin_insn *insn, const struct counters *counters, size_t index,
			  uint64_t add);
void counters_add_on_access(struct qemu_plugin_insn *insn, int which, const struct counters *counters,
			    size_t index, uint64_t add);

#endif
