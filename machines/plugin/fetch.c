// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Instruction fetch. While branches are predicted, fetch runs ahead of
 * execution, and a line that comes from L2 is there in time. It is late if
 * fetch begins again: behind a return that could not be predicted, and at
 * entries to and exits from the kernel. There the core waits for each missing
 * line, until fetch is ahead again.
 *
 * Code is looked up by virtual address, and taken to be in L2 if it is not in
 * L1i.
 */
#include "fetch.h"
#include "vcpu.h"

#define AHEAD	4	/* blocks, some twenty instructions */

static void miss(struct vcpu *vcpu, struct block *block)
{
	enum mode mode = block_mode(block);

	account->counts[mode][L1I_MISSES]++;
	if (!vcpu->behind)
		return;
	account->counts[mode][FETCH_STALLS]++;
	charge(block, CHARGE_FETCH);
}

void on_block(unsigned int cpu, void *data)
{
	struct vcpu *vcpu = vcpu_of(cpu);
	struct block *block = data;
	uint64_t last = (block->start + block->size - 1) >> LINE_SHIFT;

	if (!measuring)
		return;
	if (vcpu->mode != block_mode(block)) {
		vcpu->mode = block_mode(block);
		vcpu->behind = AHEAD;
	}
	for (uint64_t line = block->start >> LINE_SHIFT; line <= last; line++)
		if (!cache_use(&vcpu->l1i, line))
			miss(vcpu, block);
	if (block->redirects)
		vcpu->behind = AHEAD;
	else if (vcpu->behind)
		vcpu->behind--;
}

void on_redirection(unsigned int cpu, void *target)
{
	vcpu_of(cpu)->redirected = (uint64_t)(uintptr_t)target;
}

void on_return(unsigned int cpu, void *data)
{
	struct vcpu *vcpu = vcpu_of(cpu);
	struct block *block = data;

	if (vcpu->redirected != block->start)
		return;
	vcpu->redirected = 0;
	if (!measuring)
		return;
	vcpu->behind = AHEAD;
	account->counts[block_mode(block)][REDIRECTED]++;
	if (!aside)
		block->penalty += machine.costs.classes[CLASS_MISPREDICTION];
}
