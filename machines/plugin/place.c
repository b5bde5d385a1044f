// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The guest's memory is read as its kernel sees it, without KASLR and with four levels of page tables: all struct pages
 * follow each other from VMEMMAP on. A page belongs to a slab if what would be its cache is in the kernel's list of
 * caches, so no version's flags have to be known.
 */
#include "place.h"
#include "machine.h"
#include "vcpu.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define VMEMMAP		0xffffea0000000000ULL
#define PAGE_STRUCT	64		/* bytes */
#define HEAD		8		/* where a struct page has its compound_head */
#define CACHES_MAX	1000
#define NAME_MAX	32

static int (*peek_guest)(void *cpu, uint64_t address, void *to, uint64_t length, bool write);
static void *(*get_cpu)(int index);

static bool find(void *function, const char *name)
{
	void *symbol = dlsym(RTLD_DEFAULT, name);

	memcpy(function, &symbol, sizeof(symbol));
	return symbol;
}

bool place_peek(uint64_t address, void *to, size_t length)
{
	if (!peek_guest && (!find(&peek_guest, "cpu_memory_rw_debug") || !find(&get_cpu, "qemu_get_cpu")))
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

void place_put_slab(FILE *file, uint64_t physical)
{
	uint64_t page = VMEMMAP + (physical >> 12) * PAGE_STRUCT, head, cache;

	if (!machine.slab_caches)
		return;
	head = peek(page + HEAD);
	if (head & 1)
		page = head - 1;
	cache = peek(page + machine.slab_cache);
	if (!cache || !is_cache(cache))
		return;
	fputs(",\"cache\":\"", file);
	put_name(file, peek(cache + machine.cache_name));
	fprintf(file, "\",\"size\":%" PRIu64 ",\"slab\":%" PRIu64, peek(cache + machine.cache_size) & 0xffffffff,
		(uint64_t)((page - VMEMMAP) / PAGE_STRUCT << 12));
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
