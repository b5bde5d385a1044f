// SPDX-License-Identifier: GPL-2.0-or-later
/* Making the modelled vCPUs, and putting them into the state in which every measurement begins, or that was kept. */
#include "vcpu.h"
#include "memory.h"
#include "total.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_WAYS	64

bool measuring;
struct vcpu *vcpus;
unsigned int nr_vcpus;
struct cache llc;
static struct account together;
struct account *account = &together;
static struct account *accounts;	/* in rounds */
bool rounds;
unsigned int running;

/* The state of a vCPU when something interrupted its program. */
static struct kept {
	struct vcpu vcpu;
	char *arrays;
} *kept;

static bool make(struct vcpu *vcpu)
{
	/*
	 * Everything else goes through the other half. The frames of a program
	 * are chance: by L2's own sets, some would have too many.
	 */
	uint32_t half = machine.l2.entries / 2 >> (PAGE_SHIFT - LINE_SHIFT);
	uint32_t ways = half < PAGE_WAYS ? half : PAGE_WAYS;
	struct geometry pages = { half, ways };

	/* Keys of epoch 0 would match empty entries. */
	vcpu->dtlb_huge = machine.dtlb_2m.ways ? &vcpu->dtlb_2m : &vcpu->dtlb_4k;
	vcpu->epochs[MODE_USER] = vcpu->epochs[MODE_KERNEL] = 1;
	return tlb_make(&vcpu->dtlb_4k, &machine.dtlb_4k) && tlb_make(&vcpu->dtlb_2m, &machine.dtlb_2m) &&
	       tlb_make(&vcpu->itlb_4k, &machine.itlb_4k) && tlb_make(&vcpu->itlb_2m, &machine.itlb_2m) &&
	       tlb_make(&vcpu->stlb, &machine.stlb) && tlb_make(&vcpu->istlb, &machine.istlb) &&
	       cache_make(&vcpu->pages, &pages) && cache_make(&vcpu->l1i, &machine.l1i) &&
	       cache_make(&vcpu->l1d, &machine.l1d) && cache_make(&vcpu->l2, &machine.l2) &&
	       streams_make(&vcpu->streams, machine.streams);
}

static void make_accounts(void)
{
	accounts = memory_get(nr_vcpus, sizeof(*accounts));
	for (unsigned int i = 0; i < nr_vcpus; i++)
		accounts[i].totals = memory_get((size_t)NR_MODES * NR_TOTALS, sizeof(uint64_t));
}

void vcpu_select(unsigned int vcpu)
{
	running = vcpu;
	account = &accounts[vcpu];
	totals.plain = account->totals;
}

bool vcpus_make(unsigned int count, bool in_rounds)
{
	nr_vcpus = count;
	rounds = in_rounds;
	kept = calloc(count, sizeof(*kept));
	vcpus = calloc(count, sizeof(*vcpus));
	if (!kept || !vcpus)
		return false;
	if (rounds)
		make_accounts();
	for (unsigned int i = 0; vcpus && i < count; i++)
		if (!make(&vcpus[i]))
			return false;
	llc.hashed = true;
	return vcpus && cache_make(&llc, &machine.llc);
}

static void cold(struct vcpu *vcpu)
{
	tlb_empty(&vcpu->dtlb_4k);
	tlb_empty(&vcpu->dtlb_2m);
	tlb_empty(&vcpu->itlb_4k);
	tlb_empty(&vcpu->itlb_2m);
	tlb_empty(&vcpu->stlb);
	tlb_empty(&vcpu->istlb);
	cache_empty(&vcpu->pages);
	cache_empty(&vcpu->l1i);
	cache_empty(&vcpu->l1d);
	cache_empty(&vcpu->l2);
	streams_forget(&vcpu->streams);
	memset(vcpu->small, 0, sizeof(vcpu->small));
	memset(&vcpu->run, 0, sizeof(vcpu->run));
	vcpu->code_page = 0;
	vcpu->behind = 0;
}

void vcpus_cold(void)
{
	for (unsigned int i = 0; i < nr_vcpus; i++)
		cold(&vcpus[i]);
	cache_empty(&llc);
	for (unsigned int i = 0; i < (rounds ? nr_vcpus : 1); i++) {
		struct account *one = rounds ? &accounts[i] : account;

		memset(one->counts, 0, sizeof(one->counts));
		memset(one->charges, 0, sizeof(one->charges));
	}
}

/* --- Kept while something interrupts ------------------------------------ */

struct array {
	void *data;
	size_t size;
};

enum { NR_ARRAYS = 11 };

static void arrays_of(const struct vcpu *vcpu, struct array arrays[NR_ARRAYS])
{
	const struct tlb *tlbs[] = { &vcpu->dtlb_4k, &vcpu->dtlb_2m, &vcpu->itlb_4k, &vcpu->itlb_2m, &vcpu->stlb,
				     &vcpu->istlb };
	const struct cache *caches[] = { &vcpu->pages, &vcpu->l1i, &vcpu->l1d, &vcpu->l2 };
	unsigned int at = 0;

	for (unsigned int i = 0; i < 6; i++)
		arrays[at++] = (struct array){ tlbs[i]->entries,
					       (size_t)tlbs[i]->sets * tlbs[i]->ways * sizeof(struct entry) };
	for (unsigned int i = 0; i < 4; i++)
		arrays[at++] = (struct array){ caches[i]->lines,
					       (size_t)caches[i]->sets * caches[i]->ways * sizeof(uint32_t) };
	arrays[at] = (struct array){ vcpu->streams.list, vcpu->streams.count * sizeof(struct stream) };
}

static char *room_for(const struct array arrays[NR_ARRAYS])
{
	size_t size = 0;
	char *room;

	for (int i = 0; i < NR_ARRAYS; i++)
		size += arrays[i].size;
	room = malloc(size);
	if (!room)
		abort();
	return room;
}

void vcpu_keep(const struct vcpu *vcpu)
{
	struct kept *keep = &kept[vcpu - vcpus];
	struct array arrays[NR_ARRAYS];
	char *at;

	arrays_of(vcpu, arrays);
	if (!keep->arrays)
		keep->arrays = room_for(arrays);
	keep->vcpu = *vcpu;
	at = keep->arrays;
	for (int i = 0; i < NR_ARRAYS; at += arrays[i++].size)
		memcpy(at, arrays[i].data, arrays[i].size);
}

void vcpu_restore(struct vcpu *vcpu)
{
	struct array arrays[NR_ARRAYS];
	struct vcpu now = *vcpu;
	const char *at = kept[vcpu - vcpus].arrays;

	arrays_of(vcpu, arrays);
	*vcpu = kept[vcpu - vcpus].vcpu;
	memcpy(vcpu->epochs, now.epochs, sizeof(now.epochs));
	vcpu->page_flushes = now.page_flushes;
	vcpu->space = now.space;
	vcpu->named = now.named;
	for (int i = 0; i < NR_ARRAYS; at += arrays[i++].size)
		memcpy(arrays[i].data, at, arrays[i].size);
}
