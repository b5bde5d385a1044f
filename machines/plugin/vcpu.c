// SPDX-License-Identifier: GPL-2.0-or-later
/* Making the modelled vCPUs, and putting them into the state in which every measurement begins: cold. */
#include "vcpu.h"

#include <stdlib.h>

bool measuring;
struct vcpu *vcpus;
unsigned int nr_vcpus;
struct cache llc;
uint64_t counts[NR_MODES][NR_COUNTERS];
uint64_t penalties;

static bool make(struct vcpu *vcpu)
{
	/* Keys of epoch 0 would match empty entries. */
	vcpu->dtlb_huge = machine.dtlb_2m.ways ? &vcpu->dtlb_2m : &vcpu->dtlb_4k;
	vcpu->epochs[MODE_USER] = vcpu->epochs[MODE_KERNEL] = 1;
	return tlb_make(&vcpu->dtlb_4k, &machine.dtlb_4k) && tlb_make(&vcpu->dtlb_2m, &machine.dtlb_2m) &&
	       tlb_make(&vcpu->itlb_4k, &machine.itlb_4k) && tlb_make(&vcpu->itlb_2m, &machine.itlb_2m) &&
	       tlb_make(&vcpu->stlb, &machine.stlb) && tlb_make(&vcpu->istlb, &machine.istlb) &&
	       cache_make(&vcpu->l1d, &machine.l1d) && cache_make(&vcpu->l2, &machine.l2) &&
	       streams_make(&vcpu->streams, machine.streams);
}

bool vcpus_make(unsigned int count)
{
	nr_vcpus = count;
	vcpus = calloc(count, sizeof(*vcpus));
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
	cache_empty(&vcpu->l1d);
	cache_empty(&vcpu->l2);
	streams_forget(&vcpu->streams);
	memset(vcpu->small, 0, sizeof(vcpu->small));
	memset(&vcpu->run, 0, sizeof(vcpu->run));
	vcpu->code_page = 0;
}

void vcpus_cold(void)
{
	for (unsigned int i = 0; i < nr_vcpus; i++)
		cold(&vcpus[i]);
	cache_empty(&llc);
	memset(counts, 0, sizeof(counts));
	penalties = 0;
}
