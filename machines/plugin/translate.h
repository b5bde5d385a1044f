/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Address translation as the modelled machine does it: lookups, walks, flushes. */
#ifndef LAB_TRANSLATE_H
#define LAB_TRANSLATE_H

#include "qemu.h"
#include "vcpu.h"

/* A data access as QEMU shows it. */
struct access {
	struct vcpu *vcpu;
	const struct site *site;
	qemu_plugin_meminfo_t info;
	uint64_t address;
};

/* Where it goes is device memory, which is not modelled. */
#define NOWHERE	(~0ULL)

uint64_t translate_slowly(const struct access *access);
uint64_t translate_later(const struct access *access, uint64_t guess);
void enter_code_page(struct vcpu *vcpu, const struct site *site);

void flush_user(unsigned int vcpu, void *unused);
void flush_all(unsigned int vcpu, void *unused);
void flush_page(unsigned int vcpu, void *unused);

/* The physical address of an access, charged for what finding it costs. */
static inline uint64_t translate(const struct access *access)
{
	struct vcpu *vcpu = access->vcpu;
	uint64_t page = access->address >> PAGE_SHIFT, huge = access->address >> HUGE_SHIFT;
	uint64_t epoch = vcpu->epochs[access->address >> 63];
	const struct entry *entry = tlb_set(&vcpu->dtlb_4k, page);

	if (entry->key == tlb_key(page, false, epoch) && entry->checked == vcpu->page_flushes)
		return entry->frame | (access->address & ((1ULL << PAGE_SHIFT) - 1));
	entry = tlb_set(vcpu->dtlb_huge, huge);
	if (entry->key == tlb_key(huge, true, epoch) && entry->checked == vcpu->page_flushes &&
	    entry->confirmed >= TLB_CONFIRMATIONS)
		return entry->frame | (access->address & ((1ULL << HUGE_SHIFT) - 1));
	return translate_slowly(access);
}

#endif
