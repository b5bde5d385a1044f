/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory accesses: the callbacks of generated code. */
#ifndef LAB_ACCESS_H
#define LAB_ACCESS_H

#include "qemu.h"
#include "vcpu.h"

/* A string instruction in a block. */
struct string_site {
	const struct site *site;
	bool stores;		/* else its reads count */
	uint8_t size;
	uint64_t next;		/* of a jump's target: where its last iteration would continue */
};

void on_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *site);
void on_load(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *site);
void on_store(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *site);
void on_chasing_load(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *site);
void on_string(unsigned int vcpu, void *string_site);
void on_string_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *string_site);
void on_leading_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *string_site);
void strings_begin(void);
void strings_finish(void);

/* A string instruction that something interrupts, to continue after it. */
struct strings {
	struct run run;
	struct block *mover[NR_MODES];
};

struct strings strings_interrupt(const struct vcpu *vcpu);
void strings_go_on(struct vcpu *vcpu, const struct strings *strings);

void run_look_up(struct vcpu *vcpu);

static inline void run_finish(struct vcpu *vcpu)
{
	if (vcpu->run.at)
		run_look_up(vcpu);
}

/* The place where the page walker finds a line. */
enum level walker_level(struct vcpu *vcpu, uint64_t line);

#endif
