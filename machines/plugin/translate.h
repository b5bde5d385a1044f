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

/* It goes to device memory, which is not modelled. */
#define NOWHERE	(~0ULL)

uint64_t translate_slowly(const struct access *access);
uint64_t translate_later(const struct access *access, uint64_t guess);
void enter_code_page(struct vcpu *vcpu, const struct site *site);

void flush_user(unsigned int vcpu, void *unused);
void flush_all(unsigned int vcpu, void *unused);
void flush_page(unsigned int vcpu, void *unused);

struct range {
	uint64_t start, end;
};

static inline bool in_range(const struct range *range, uint64_t address)
{
	return address >= range->start && address < range->end;
}

/*
 * The parts of the kernel's address space, without KASLR. All of memory in order of its
 * addresses takes half of an address space; x86-64 maps it by the largest pages
 * (the kernel's x86_64/mm.rst), arm64 by the smallest, so that single pages can
 * be made read-only (rodata=full in arch/arm64/mm/pageattr.c). The kernel's own
 * image is in huge pages: on arm64 at one place of two, by its version.
 */
struct layout {
	struct range giant;
	struct range small;
	struct range text[2];
};

#define X86_LAYOUT { \
	.giant = { 0xffff888000000000ULL, 0xffffc88000000000ULL }, \
	.text = { { 0xffffffff80000000ULL, 0xffffffffa0000000ULL } }, \
}

#define A64_LAYOUT { \
	.small = { 0xffff000000000000ULL, 0xffff800000000000ULL }, \
	.text = { { 0xffff800080000000ULL, 0xffff800084000000ULL }, { 0xffff800008000000ULL, 0xffff80000c000000ULL } }, \
}

extern struct layout layout;

static inline bool in_direct_map(uint64_t address)
{
	return in_range(&layout.giant, address);
}

/*
 * The page of an address. Machines map the direct map by 1 GiB; a guest, which
 * has less memory than that, by 2 MiB, and where an object lies in it would
 * decide which set of the first level it fills.
 */
static inline unsigned int page_shift(uint64_t address, bool huge)
{
	if (!huge)
		return PAGE_SHIFT;
	return in_direct_map(address) ? GIANT_SHIFT : HUGE_SHIFT;
}

static inline uint64_t page_of(uint64_t address, bool huge)
{
	return address >> page_shift(address, huge);
}

static inline uint64_t offset_in(uint64_t address, bool huge)
{
	return address & ((1ULL << page_shift(address, huge)) - 1);
}

/* True if a huge page can map the address to the frame. */
static inline bool congruent(uint64_t address, uint64_t frame)
{
	return !((address ^ frame) & ((1ULL << page_shift(address, true)) - 1));
}

/* The frame of a recently used page; NOWHERE if it is another one, or in doubt. */
static inline uint64_t translate_small(struct vcpu *vcpu, uint64_t address, uint64_t epoch)
{
	uint64_t page = address >> PAGE_SHIFT;
	struct entry *entry = *tlb_recent(&vcpu->dtlb_4k, page);

	if (entry->key != tlb_key(page, false, epoch) || entry->checked != vcpu->page_flushes)
		return NOWHERE;
	entry->used = ++vcpu->dtlb_4k.uses;
	return entry->frame | (address & ((1ULL << PAGE_SHIFT) - 1));
}

static inline uint64_t translate_huge(struct vcpu *vcpu, uint64_t address, uint64_t epoch)
{
	uint64_t page = page_of(address, true);
	struct entry *entry = *tlb_recent(vcpu->dtlb_huge, page);

	if (entry->key != tlb_key(page, true, epoch) || entry->checked != vcpu->page_flushes ||
	    entry->confirmed < TLB_CONFIRMATIONS)
		return NOWHERE;
	entry->used = ++vcpu->dtlb_huge->uses;
	return entry->frame | offset_in(address, true);
}

/*
 * The physical address of an access, charged for the cost of finding it. Most of
 * the kernel's memory is in huge pages, so there those are tried first.
 */
static inline uint64_t translate(const struct access *access)
{
	struct vcpu *vcpu = access->vcpu;
	bool kernel = access->address >> 63;
	uint64_t epoch = vcpu->epochs[kernel], where;

	where = kernel ? translate_huge(vcpu, access->address, epoch) : translate_small(vcpu, access->address, epoch);
	if (where != NOWHERE)
		return where;
	where = kernel ? translate_small(vcpu, access->address, epoch) : translate_huge(vcpu, access->address, epoch);
	return where != NOWHERE ? where : translate_slowly(access);
}

#endif
