// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The guest's memory is read as its kernel sees it, without KASLR and with four levels of page tables. All struct pages
 * follow each other from VMEMMAP on; in a kernel without CONFIG_SPARSEMEM_VMEMMAP, those of a section do, and
 * mem_section has their place (include/linux/mmzone.h). A page belongs to a slab if the word in the place of its cache
 * is in the kernel's list of caches, so no version's flags have to be known.
 */
#include "place.h"
#include "cache.h"
#include "machine.h"
#include "owner.h"
#include "vcpu.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define VMEMMAP		0xffffea0000000000ULL
#define PAGE_STRUCT	64		/* bytes */
#define HEAD		8		/* the place of compound_head in a struct page */
#define SECTION_SHIFT	27		/* x86-64 */
#define ROOT		4096		/* bytes of each table of sections that mem_section points to */
#define SECTION_FLAGS	0x3fULL
#define CACHES_MAX	1000
#define NAME_MAX	32

static int (*peek_guest)(void *cpu, uint64_t address, void *to, uint64_t length, bool write);
static void *(*get_cpu)(int index);

bool place_peek(uint64_t address, void *to, size_t length)
{
	if (!peek_guest && (!qemu_find(&peek_guest, "cpu_memory_rw_debug") || !qemu_find(&get_cpu, "qemu_get_cpu")))
		return false;
	return !peek_guest(get_cpu((int)running), address, to, length, false);
}

static uint64_t peek(uint64_t address)
{
	uint64_t value = 0;

	return place_peek(address, &value, sizeof(value)) ? value : 0;
}

static bool is_cache(uint64_t address)
{
	uint64_t at = peek(machine.slab_caches);

	for (int i = 0; i < CACHES_MAX && at && at != machine.slab_caches; i++, at = peek(at))
		if (at - machine.cache_list == address)
			return true;
	return false;
}

static void put_name(FILE *file, uint64_t address)
{
	char text[NAME_MAX + 1] = "";

	for (int i = 0; i < NAME_MAX && place_peek(address + (uint64_t)i, &text[i], 1) && text[i]; i++)
		if (text[i] < ' ' || text[i] > '~' || text[i] == '"' || text[i] == '\\')
			text[i] = '?';
	fputs(text, file);
}

/* The struct page of a physical address; 0 for none. */
static uint64_t page_of(uint64_t physical)
{
	uint64_t section = physical >> SECTION_SHIFT, in_root, pages = VMEMMAP;

	if (machine.sections) {
		if (!machine.section_size)
			return 0;
		in_root = ROOT / machine.section_size;
		pages = peek(peek(peek(machine.sections) + section / in_root * 8) + section % in_root * machine.section_size +
			     machine.section_map) & ~SECTION_FLAGS;
	}
	return pages ? pages + (physical >> 12) * PAGE_STRUCT : 0;
}

/* Each: where the object begins in the slab, and where the call that got it returned to. line: its place in the slab. */
static void put_owners(FILE *file, uint64_t address, uint64_t line, uint64_t size)
{
	const char *comma = "";

	fputs(",\"owners\":[", file);
	for (uint64_t object = line - line % size; object < line + LINE; object += size) {
		uint64_t owner = owner_of(address - line + object);

		if (!owner)
			continue;
		fprintf(file, "%s[%" PRIu64 ",%" PRIu64 "]", comma, object, owner);
		comma = ",";
	}
	fputc(']', file);
}

void place_put_slab(FILE *file, uint64_t physical, uint64_t address)
{
	uint64_t page = machine.slab_caches ? page_of(physical) : 0, first = physical >> 12, head, cache, size;

	if (!page)
		return;
	head = peek(page + HEAD);
	if (head & 1) {
		first -= (page - (head - 1)) / PAGE_STRUCT;
		page = head - 1;
	}
	cache = peek(page + machine.slab_cache);
	if (!cache || !is_cache(cache))
		return;
	fputs(",\"cache\":\"", file);
	put_name(file, peek(cache + machine.cache_name));
	size = peek(cache + machine.cache_size) & 0xffffffff;
	first <<= 12;
	fprintf(file, "\",\"size\":%" PRIu64 ",\"slab\":%" PRIu64, size, first);
	if (size)
		put_owners(file, address, physical - first, size);
}

void place_put_cpus(FILE *file)
{
	if (!machine.percpu)
		return;
	fputs(",\"cpus\":[", file);
	for (unsigned int i = 0; i < nr_vcpus; i++)
		fprintf(file, "%s%" PRIu64, i ? "," : "", peek(machine.percpu + 8ULL * i));
	fputc(']', file);
}
