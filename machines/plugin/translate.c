// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Translation.
 *
 * QEMU shows the physical address of an access, but not the size of the page it
 * is in. A page is taken for a huge one if its virtual and its physical address
 * are congruent modulo 2 MiB; every small page is that by chance once in 512
 * times, so the first hits on a huge page check other small pages in it, and
 * regions that were found to have small pages are remembered.
 *
 * Flushes are recognised by their instruction. The page of an invlpg is in a
 * register that cannot be seen everywhere, so after one every entry is compared
 * with the truth when it is used next: if its frame changed, it was flushed,
 * and this use is the miss.
 */
#include "translate.h"
#include "access.h"

#define CODE_KEY	(1ULL << 63)
#define PARTS		(1U << (HUGE_SHIFT - PAGE_SHIFT))

struct layout layout;

static uint64_t epoch_of(const struct vcpu *vcpu, uint64_t address)
{
	return vcpu->epochs[address >> 63];
}

static uint16_t part_of(uint64_t address)
{
	return (uint16_t)((address >> PAGE_SHIFT) & (PARTS - 1));
}

/* Without an array of their own, huge pages share that of the small ones. */
static struct tlb *first_level(struct tlb *small, struct tlb *huge_pages, bool huge)
{
	return huge && huge_pages->ways ? huge_pages : small;
}

static uint64_t physical(const struct access *access)
{
	struct qemu_plugin_hwaddr *address = qemu_plugin_get_hwaddr(access->info, access->address);

	if (!address || qemu_plugin_hwaddr_is_io(address))
		return NOWHERE;
	return qemu_plugin_hwaddr_phys_addr(address);
}

/* --- The size of pages -------------------------------------------------- */

static uint64_t *small_slot(struct vcpu *vcpu, uint64_t region)
{
	return &vcpu->small[region % SMALL_SLOTS];
}

/* Not of the direct map: only the firmware's memory, a few pages, lies otherwise in it. */
static void remember_small(struct vcpu *vcpu, uint64_t address)
{
	uint64_t region = page_of(address, true);

	if (!in_direct_map(address))
		*small_slot(vcpu, region) = tlb_key(region, true, epoch_of(vcpu, address));
}

static bool seems_huge(struct vcpu *vcpu, uint64_t address, uint64_t frame)
{
	uint64_t region = page_of(address, true), key = tlb_key(region, true, epoch_of(vcpu, address));

	if (in_range(&layout.small, address))
		return false;
	if (!congruent(address, frame)) {
		remember_small(vcpu, address);
		return false;
	}
	return *small_slot(vcpu, region) != key;
}

static void forget(struct vcpu *vcpu, uint64_t address, bool huge)
{
	uint64_t page = page_of(address, huge), key = tlb_key(page, huge, epoch_of(vcpu, address));
	struct entry *first = tlb_find(first_level(&vcpu->dtlb_4k, &vcpu->dtlb_2m, huge), page, key);
	struct entry *second = tlb_find(&vcpu->stlb, page, key);

	if (first)
		first->key = 0;
	if (second)
		second->key = 0;
}

/* Whether an entry that was found is still right; it is brought up to date, or forgotten. */
static bool still_right(const struct access *access, struct entry *entry, bool huge)
{
	struct vcpu *vcpu = access->vcpu;
	uint16_t part = part_of(access->address);
	bool sure = !huge || entry->confirmed >= TLB_CONFIRMATIONS || entry->part == part;
	uint64_t frame;

	if (sure && entry->checked == vcpu->page_flushes)
		return true;
	frame = physical(access);
	if (frame == NOWHERE)
		return true;
	if (entry->confirmed == TLB_UNSEEN) {
		entry->frame = frame - offset_in(access->address, huge);
		entry->confirmed = 0;
	}
	if (frame - offset_in(access->address, huge) != entry->frame) {
		if (huge && !congruent(access->address, frame))
			remember_small(vcpu, access->address);
		forget(vcpu, access->address, huge);
		return false;
	}
	entry->checked = vcpu->page_flushes;
	if (!sure) {
		entry->confirmed++;
		entry->part = part;
	}
	return true;
}

/* --- Data --------------------------------------------------------------- */

static struct entry *find_first(const struct access *access, bool huge)
{
	struct vcpu *vcpu = access->vcpu;
	uint64_t page = page_of(access->address, huge);
	struct tlb *tlb = first_level(&vcpu->dtlb_4k, &vcpu->dtlb_2m, huge);
	struct entry *entry = tlb_find(tlb, page, tlb_key(page, huge, epoch_of(vcpu, access->address)));

	return entry && still_right(access, entry, huge) ? entry : NULL;
}

static struct entry *find_second(const struct access *access, bool huge)
{
	struct vcpu *vcpu = access->vcpu;
	uint64_t page = page_of(access->address, huge);
	struct entry *entry = tlb_find(&vcpu->stlb, page, tlb_key(page, huge, epoch_of(vcpu, access->address)));

	if (!entry || !still_right(access, entry, huge))
		return NULL;
	charge(access->site->block, CHARGE_STLB);
	return tlb_put(first_level(&vcpu->dtlb_4k, &vcpu->dtlb_2m, huge), page, entry);
}

/* The line of the entry that a walk ends at. The place of the page tables is not known, so it is made up. */
static uint64_t walk_line(uint64_t page, bool huge)
{
	uint64_t table = ((page >> 9) * 2 + huge) * 0x9e3779b97f4a7c15ULL;

	return 1ULL << 31 | (table >> 39) << 6 | ((page >> 3) & 63);
}

/* Both levels missed. */
static void charge_walk(struct vcpu *vcpu, struct block *block, uint64_t page, bool huge)
{
	enum level level;

	charge(block, huge ? CHARGE_WALK_2M : CHARGE_WALK_4K);
	if (machine.model < MODEL_FULL) {
		charge(block, CHARGE_WALK_FETCH);
		return;
	}
	level = walker_level(vcpu, walk_line(page, huge));
	if (level != LEVEL_L1D)
		charge(block, (enum charge)(CHARGE_WAITED + level));
}

static struct entry *walk(const struct access *access, uint64_t frame)
{
	struct vcpu *vcpu = access->vcpu;
	bool huge = seems_huge(vcpu, access->address, frame);
	uint64_t page = page_of(access->address, huge);
	struct entry entry = {
		.key = tlb_key(page, huge, epoch_of(vcpu, access->address)),
		.frame = frame - offset_in(access->address, huge),
		.checked = vcpu->page_flushes,
		.part = part_of(access->address),
	};

	account->counts[access->site->mode][huge ? DTLB_WALKS_2M : DTLB_WALKS_4K]++;
	charge(access->site->block, CHARGE_STLB);
	charge_walk(vcpu, access->site->block, page, huge);
	tlb_put(&vcpu->stlb, page, &entry);
	return tlb_put(first_level(&vcpu->dtlb_4k, &vcpu->dtlb_2m, huge), page, &entry);
}

static uint64_t through(const struct entry *entry, uint64_t address, bool huge)
{
	return entry->frame + offset_in(address, huge);
}

/* Both sizes are looked for, level by level, as hardware does. */
uint64_t translate_slowly(const struct access *access)
{
	struct entry *entry;
	uint64_t frame;

	run_finish(access->vcpu);
	for (int huge = 1; huge >= 0; huge--) {
		entry = find_first(access, huge);
		if (entry)
			return through(entry, access->address, huge);
	}
	frame = physical(access);
	if (frame == NOWHERE)
		return NOWHERE;
	account->counts[access->site->mode][DTLB_L1_MISSES]++;
	for (int huge = 1; huge >= 0; huge--) {
		entry = find_second(access, huge);
		if (entry)
			return through(entry, access->address, huge);
	}
	walk(access, frame);
	return frame;
}

/*
 * After an access QEMU no longer shows its physical address. If no
 * entry has it, it is guessed, and put right by the next access that is seen:
 * it is as before the last flush, or else behind the page before.
 */
uint64_t translate_later(const struct access *access, uint64_t guess)
{
	struct vcpu *vcpu = access->vcpu;
	const struct entry *flushed;
	struct entry *entry;

	for (int huge = 1; huge >= 0; huge--) {
		uint64_t page = page_of(access->address, huge);

		entry = tlb_find(first_level(&vcpu->dtlb_4k, &vcpu->dtlb_2m, huge), page,
				 tlb_key(page, huge, epoch_of(vcpu, access->address)));
		if (entry)
			return through(entry, access->address, huge);
	}
	if (guess == NOWHERE)
		return NOWHERE;
	flushed = tlb_flushed(&vcpu->stlb, page_of(access->address, false), false);
	if (in_direct_map(access->address))
		guess = access->address - layout.giant.start;
	else if (flushed && flushed->key)
		guess = through(flushed, access->address, false);
	account->counts[access->site->mode][DTLB_L1_MISSES]++;
	entry = walk(access, guess);
	if (!congruent(access->address, guess)) {
		entry->confirmed = TLB_UNSEEN;
		entry->checked--;
	}
	return guess;
}

/* --- Code --------------------------------------------------------------- */

/* The kernel's text is mapped by huge pages, modules and programs are not. */
static bool huge_code(uint64_t address)
{
	return in_range(&layout.text[0], address) || in_range(&layout.text[1], address);
}

/*
 * Noticed at the first memory access in another page than the last one's. A call
 * writes and a return reads, so no page that is entered and left by them is missed.
 */
void enter_code_page(struct vcpu *vcpu, const struct site *site)
{
	uint64_t address = site->page << PAGE_SHIFT;
	bool huge = huge_code(address);
	/* Apart from the data's in a shared second level, since these have no frame. */
	uint64_t page = page_of(address, huge), key = tlb_key(page, huge, epoch_of(vcpu, address)) | CODE_KEY;
	struct tlb *first = first_level(&vcpu->itlb_4k, &vcpu->itlb_2m, huge);
	struct tlb *second = vcpu->istlb.ways ? &vcpu->istlb : &vcpu->stlb;
	struct entry entry = { .key = key };

	vcpu->code_page = site->page;
	if (tlb_find(first, page, key))
		return;
	account->counts[site->mode][ITLB_L1_MISSES]++;
	if (!tlb_find(second, page, key)) {
		account->counts[site->mode][ITLB_WALKS]++;
		charge_walk(vcpu, site->block, page, huge);
		tlb_put(second, page, &entry);
	}
	tlb_put(first, page, &entry);
	charge(site->block, CHARGE_STLB);
}

/* --- Flushes ------------------------------------------------------------ */

/* Without address-space numbers, which the guest's CPU does not have, each switch flushes all but the kernel's. */
void flush_user(unsigned int vcpu, void *unused)
{
	(void)unused;
	run_finish(vcpu_of(vcpu));
	vcpu_of(vcpu)->epochs[MODE_USER]++;
	vcpu_of(vcpu)->code_page = 0;
}

void flush_all(unsigned int vcpu, void *unused)
{
	flush_user(vcpu, unused);
	vcpu_of(vcpu)->epochs[MODE_KERNEL]++;
}

void flush_page(unsigned int vcpu, void *unused)
{
	if (machine.flushes_all)
		flush_all(vcpu, unused);
	vcpu_of(vcpu)->page_flushes++;
}
