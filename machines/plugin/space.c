// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Numbers of address spaces are in registers that cannot be seen everywhere. The
 * kernel reads one from the mm_struct of its space just before it uses it
 * (ASID() in arch/arm64/include/asm/mmu.h), and the address of that names the space.
 * A space whose mm_struct is freed is flushed before; the next one in its place
 * begins with nothing.
 */
#include "space.h"
#include "memory.h"
#include "vcpu.h"

#define HASH_BITS	10

struct space {
	struct space *next;
	uint64_t name;
	uint64_t epoch;
};

static struct space *heads[1 << HASH_BITS];
static uint64_t last_epoch = 1;		/* at first, of the space that ran before any was seen */
static uint64_t flushed_until;		/* epochs up to this one are over */

static struct space *find_space(uint64_t name)
{
	struct space **head = &heads[(name * 0x9e3779b97f4a7c15ULL) >> (64 - HASH_BITS)], *space = *head;

	while (space && space->name != name)
		space = space->next;
	if (space)
		return space;
	space = memory_get(1, sizeof(*space));
	space->name = name;
	space->next = *head;
	*head = space;
	return space;
}

/* space: NULL if it has no name, so that it does not come back. */
static void run_in(struct vcpu *vcpu, struct space *space)
{
	uint64_t epoch = space && space->epoch > flushed_until ? space->epoch : ++last_epoch;

	if (space)
		space->epoch = epoch;
	vcpu->space = space;
	vcpu->epochs[MODE_USER] = epoch;
	vcpu->code_page = 0;
}

static struct space *named(struct vcpu *vcpu)
{
	uint64_t name = vcpu->named;

	vcpu->named = 0;
	return name ? find_space(name) : NULL;
}

void on_space_named(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused)
{
	(void)info;
	(void)unused;
	vcpu_of(vcpu)->named = address;
}

void on_space_entered(unsigned int vcpu, void *unused)
{
	(void)unused;
	run_in(vcpu_of(vcpu), named(vcpu_of(vcpu)));
}

static void flush_spaces(void)
{
	flushed_until = last_epoch;
	for (unsigned int i = 0; i < nr_vcpus; i++)
		run_in(&vcpus[i], vcpus[i].space);
}

/* A space without a name is flushed together with all others. */
void on_space_flushed(unsigned int vcpu, void *unused)
{
	struct space *space = named(vcpu_of(vcpu));

	(void)unused;
	if (!space) {
		flush_spaces();
		return;
	}
	space->epoch = 0;
	for (unsigned int i = 0; i < nr_vcpus; i++)
		if (vcpus[i].space == space)
			run_in(&vcpus[i], space);
}

void on_spaces_flushed(unsigned int vcpu, void *unused)
{
	(void)vcpu;
	(void)unused;
	flush_spaces();
	for (unsigned int i = 0; i < nr_vcpus; i++)
		vcpus[i].epochs[MODE_KERNEL]++;
}

/* The page is in a register, which a plugin cannot see: translate.c finds it. */
void on_page_flushed(unsigned int vcpu, void *unused)
{
	(void)vcpu;
	(void)unused;
	for (unsigned int i = 0; i < nr_vcpus; i++)
		vcpus[i].page_flushes++;
}
