// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Memory accesses, and string instructions. A miss stalls for as long as the
 * machine's file says. An access that crosses a line or a page counts where it
 * begins.
 */
#include "access.h"
#include "context.h"
#include "total.h"
#include "translate.h"

/* --- Caches ------------------------------------------------------------- */

/* A string asks for its lines in order by itself, so it does not matter to it which the prefetcher expected. */
static enum level beyond_l2(struct vcpu *vcpu, uint64_t line, enum mode mode, bool string)
{
	bool expected = streams_expected(&vcpu->streams, line);
	bool found = cache_use(&llc, line);

	account->counts[mode][L2_MISSES]++;
	if (!found)
		account->counts[mode][LLC_MISSES]++;
	if (expected)
		account->counts[mode][PREFETCHED]++;
	if (expected && !string)
		return LEVEL_EXPECTED;
	return found ? LEVEL_LLC : LEVEL_MEMORY;
}

static enum level line_level(struct vcpu *vcpu, uint64_t line, enum mode mode, bool string)
{
	if (cache_used_last(&vcpu->l1d, line))
		return LEVEL_L1D;
	run_finish(vcpu);
	if (cache_use(&vcpu->l1d, line))
		return LEVEL_L1D;
	account->counts[mode][L1D_MISSES]++;
	if (cache_use(&vcpu->l2, line))
		return LEVEL_L2;
	return beyond_l2(vcpu, line, mode, string);
}

/* A fetch of the page walker goes the same way, and is not a load of the program's. */
enum level walker_level(struct vcpu *vcpu, uint64_t line)
{
	if (cache_use(&vcpu->l1d, line))
		return LEVEL_L1D;
	if (cache_use(&vcpu->l2, line))
		return LEVEL_L2;
	return cache_use(&llc, line) ? LEVEL_LLC : LEVEL_MEMORY;
}

/* --- Loads and stores --------------------------------------------------- */

static inline void take(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, const struct site *site,
			enum counter counter, bool waits)
{
	struct access access = { vcpu_of(cpu), site, info, address };
	uint64_t where;
	enum level level;

	account->counts[site->mode][counter]++;
	if (access.vcpu->code_page != site->page)
		enter_code_page(access.vcpu, site);
	where = translate(&access);
	if (machine.model < MODEL_FULL || where == NOWHERE)
		return;
	level = line_level(access.vcpu, where >> LINE_SHIFT, (enum mode)site->mode, false);
	if (level == LEVEL_L2 && counter == STORES)
		charge(site->block, CHARGE_LINE);	/* nothing waits for a store */
	else if (level != LEVEL_L1D)
		charge(site->block, (enum charge)((waits ? CHARGE_WAITED : CHARGE_OVERLAPPED) + level));
}

void on_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *site)
{
	if (measuring)
		take(vcpu, info, address, site, qemu_plugin_mem_is_store(info) ? STORES : LOADS, false);
}

void on_load(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *site)
{
	if (measuring)
		take(vcpu, info, address, site, LOADS, false);
}

void on_store(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *site)
{
	if (measuring)
		take(vcpu, info, address, site, STORES, false);
}

void on_chasing_load(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *site)
{
	if (measuring)
		take(vcpu, info, address, site, LOADS, true);
}

/* --- String instructions ------------------------------------------------ */

#define LONG	128	/* bytes: Zen 4 changes its way of moving them between 64 and 128 (lab machine measure) */

/*
 * Each iteration is translated as if it were an instruction of its own, and all
 * but the first lead their block. Callbacks see the first; the rest only add
 * their bytes inline, and are looked up afterwards from where the first began.
 */

static uint64_t bytes_of(enum mode mode)
{
	return counters_sum(&totals, total_at(mode, TOTAL_BYTES));
}

/* The bytes moved since the last look go to the block that began the string. */
static void settle(enum mode mode)
{
	uint64_t now = bytes_of(mode), bytes = now - account->settled[mode];

	account->settled[mode] = now;
	account->clock += bytes * string_byte_cost();
	/* The rest of a string that was interrupted before the window began. */
	if (!account->mover[mode]) {
		if (!aside)
			unprofiled.modes[mode].bytes += bytes;
		return;
	}
	if (!aside)
		account->mover[mode]->bytes += bytes;
	if (bytes >= LONG && !account->known_long[mode]) {
		account->known_long[mode] = true;
		charge(account->mover[mode], CHARGE_REP_LONG);
	}
}

void strings_begin(void)
{
	for (int mode = 0; mode < NR_MODES; mode++) {
		account->mover[mode] = NULL;
		account->settled[mode] = bytes_of((enum mode)mode);
	}
}

static void take_line(struct vcpu *vcpu, uint64_t where, const struct site *site)
{
	enum level level = line_level(vcpu, where >> LINE_SHIFT, (enum mode)site->mode, true);

	if (level != LEVEL_L1D)
		charge(site->block, level == LEVEL_MEMORY ? CHARGE_MEMORY_LINE : CHARGE_LINE);
}

/* Without caches: half of L2 has the pages that strings went through last. Pages in it cost nothing more. */
static void take_page(struct vcpu *vcpu, uint64_t where, uint64_t bytes, const struct site *site)
{
	uint64_t lines = (bytes + LINE - 1) / LINE;

	if (vcpu->pages.ways && !cache_use(&vcpu->pages, where >> PAGE_SHIFT))
		charge_times(site->block, CHARGE_MEMORY_LINE, lines);
}

static void take_range(struct access *access, uint64_t end)
{
	uint64_t step = machine.model == MODEL_FULL ? LINE : 1ULL << PAGE_SHIFT;
	uint64_t guess = NOWHERE, where, next;

	for (; access->address < end; access->address = next) {
		where = translate_later(access, guess);
		if (where == NOWHERE)
			return;
		next = (access->address | (step - 1)) + 1;
		if (machine.model == MODEL_FULL)
			take_line(access->vcpu, where, access->site);
		else
			take_page(access->vcpu, where, (next < end ? next : end) - access->address, access->site);
		guess = where + (next - access->address);
	}
}

/* Before any access that could miss the lines that the string has brought, and before the next string. */
void run_look_up(struct vcpu *vcpu)
{
	struct run run = vcpu->run;
	const struct site *site = run.at->site;
	uint64_t bytes = bytes_of((enum mode)site->mode) - run.bytes;

	vcpu->run.at = NULL;
	for (int store = 0; store < 2 && machine.model >= MODEL_TLB; store++) {
		struct access access = { vcpu, site, run.info[store], run.start[store] };

		if (access.address)
			take_range(&access, access.address + bytes);
	}
}

void strings_finish(void)
{
	for (unsigned int i = 0; i < nr_vcpus; i++)
		if (!rounds || i == running)
			run_finish(&vcpus[i]);
	settle(MODE_USER);
	settle(MODE_KERNEL);
}

/* Its work so far is looked up as if it were all. */
struct strings strings_interrupt(const struct vcpu *vcpu)
{
	struct strings strings = { vcpu->run, { account->mover[MODE_USER], account->mover[MODE_KERNEL] } };
	struct run *run = &strings.run;
	uint64_t done = run->at ? bytes_of((enum mode)run->at->site->mode) - run->bytes : 0;

	for (int store = 0; store < 2; store++)
		if (run->start[store])
			run->start[store] += done;
	return strings;
}

void strings_go_on(struct vcpu *vcpu, const struct strings *strings)
{
	strings_finish();
	memcpy(account->mover, strings->mover, sizeof(account->mover));
	account->known_long[MODE_USER] = account->known_long[MODE_KERNEL] = true;
	vcpu->run = strings->run;
	if (vcpu->run.at)
		vcpu->run.bytes = bytes_of((enum mode)vcpu->run.at->site->mode);
}

void on_string(unsigned int vcpu, void *string_site)
{
	const struct string_site *at = string_site;
	enum mode mode = (enum mode)at->site->mode;

	if (!measuring)
		return;
	run_finish(vcpu_of(vcpu));
	/* The rest of a string that was interrupted before the window began has no other place. */
	if (!account->mover[mode])
		account->mover[mode] = at->site->block;
	settle(mode);
	account->mover[mode] = at->site->block;
	account->known_long[mode] = false;
	vcpu_of(vcpu)->run = (struct run){ .at = at, .bytes = account->settled[mode] };
	account->counts[at->site->mode][STRINGS]++;
	if (!aside)
		at->site->block->strings++;
	charge(at->site->block, CHARGE_REP_START);
}

static void take_string(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
			const struct string_site *at)
{
	struct access access = { vcpu_of(vcpu), at->site, info, address };
	struct run run = vcpu_of(vcpu)->run;
	bool store = qemu_plugin_mem_is_store(info);

	if (machine.model < MODEL_TLB)
		return;
	if (run.at == at && !run.start[store]) {
		run.start[store] = address;
		run.info[store] = info;
	}
	/* Its physical address can be had only now, when its run is still at its beginning. */
	vcpu_of(vcpu)->run.at = NULL;
	translate(&access);
	vcpu_of(vcpu)->run = run;
}

void on_string_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *string_site)
{
	if (measuring)
		take_string(vcpu, info, address, string_site);
}

/* A jump's target leads its block from its first iteration on: it begins wherever it does not continue. */
void on_leading_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *string_site)
{
	struct string_site *at = string_site;

	if (!measuring)
		return;
	if (qemu_plugin_mem_is_store(info) == at->stores) {
		if (address != at->next)
			on_string(vcpu, at);
		at->next = address + at->size;
	}
	take_string(vcpu, info, address, at);
}
