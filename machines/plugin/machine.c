// SPDX-License-Identifier: GPL-2.0-or-later
/* Reading the machine from the plugin's arguments: NAME=VALUE, numbers only. */
#include "machine.h"
#include "cache.h"
#include "hold.h"
#include "owner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX	(1U << 24)

struct machine machine = { .model = MODEL_FULL, .costs.overlap = 1 };
uint64_t prices[NR_CHARGES];

const char *const charge_names[NR_CHARGES] = {
	[CHARGE_STLB]				= "stlb_hit",
	[CHARGE_WALK_4K]			= "walk_4k",
	[CHARGE_WALK_2M]			= "walk_2m",
	[CHARGE_WALK_FETCH]			= "walk_fetch",
	[CHARGE_REP_START]			= "rep_start",
	[CHARGE_REP_LONG]			= "rep_long",
	[CHARGE_LINE]				= "rep_line",
	[CHARGE_MEMORY_LINE]			= "rep_memory",
	[CHARGE_FETCH]				= "fetch_l2_hit",
	[CHARGE_MOVE]				= "move",
	[CHARGE_QUEUED]				= "queued",
	[CHARGE_SLEPT]				= "slept",
	[CHARGE_WAITED + LEVEL_L2]		= "l2_hit",
	[CHARGE_WAITED + LEVEL_LLC]		= "llc_hit",
	[CHARGE_WAITED + LEVEL_MEMORY]		= "memory",
	[CHARGE_WAITED + LEVEL_EXPECTED]	= "waited_prefetched",
	[CHARGE_OVERLAPPED + LEVEL_L2]		= "overlapped_l2_hit",
	[CHARGE_OVERLAPPED + LEVEL_LLC]		= "overlapped_llc_hit",
	[CHARGE_OVERLAPPED + LEVEL_MEMORY]	= "overlapped_memory",
	[CHARGE_OVERLAPPED + LEVEL_EXPECTED]	= "prefetched",
};

static const struct {
	const char *name;
	struct geometry *geometry;
	uint32_t unit;		/* of the first number, per entry */
} geometries[] = {
	{ "dtlb_4k",	&machine.dtlb_4k,	1 },
	{ "dtlb_2m",	&machine.dtlb_2m,	1 },
	{ "itlb_4k",	&machine.itlb_4k,	1 },
	{ "itlb_2m",	&machine.itlb_2m,	1 },
	{ "stlb",	&machine.stlb,		1 },
	{ "istlb",	&machine.istlb,		1 },
	{ "l1i",	&machine.l1i,		LINE },
	{ "l1d",	&machine.l1d,		LINE },
	{ "l2",		&machine.l2,		LINE },
	{ "llc",	&machine.llc,		LINE },
};

static const struct {
	const char *name;
	uint32_t *number;
	uint32_t limit;
} numbers[] = {
	{ "streams",	 &machine.streams,	1024 },
	{ "flushes_all", &machine.flushes_all,	1 },
	{ "hold",	 &machine.hold,		1 << 20 },
	{ "quantum",	 &machine.quantum,	100000 },
	{ "between",	 &machine.between,	1 },
	{ "chains",	 &machine.chains,	1 },
};

static const struct {
	const char *name;
	uint64_t *cost;
} costs[] = {
	{ "instruction",	&machine.costs.instruction },
	{ "stlb_hit",		&machine.costs.stlb },
	{ "walk_4k",		&machine.costs.walk_4k },
	{ "walk_2m",		&machine.costs.walk_2m },
	{ "walk_fetch",		&machine.costs.walk_fetch },
	{ "l2_hit",		&machine.costs.l2 },
	{ "llc_hit",		&machine.costs.llc },
	{ "memory",		&machine.costs.memory },
	{ "prefetched",		&machine.costs.prefetched },
	{ "rep_start",		&machine.costs.rep_start },
	{ "rep_long",		&machine.costs.rep_long },
	{ "rep_byte",		&machine.costs.rep_byte },
	{ "rep_line",		&machine.costs.rep_line },
	{ "rep_memory",		&machine.costs.rep_memory },
	{ "move",		&machine.move },
};

/* Addresses and offsets. */
static const struct {
	const char *name;
	uint64_t *place;
} places[] = {
	{ "slab_caches",	&machine.slab_caches },
	{ "percpu",		&machine.percpu },
	{ "slab_cache",		&machine.slab_cache },
	{ "cache_name",		&machine.cache_name },
	{ "cache_size",		&machine.cache_size },
	{ "cache_list",		&machine.cache_list },
	{ "sections",		&machine.sections },
	{ "section_size",	&machine.section_size },
	{ "section_map",	&machine.section_map },
};

static bool read_number(const char *text, char **end, uint64_t limit, uint64_t *number)
{
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*number = strtoull(text, end, 10);
	return !errno && *number <= limit;
}

/* ENTRIES:WAYS, or for a cache BYTES:WAYS. The ways divide the entries. */
static bool read_geometry(const char *value, struct geometry *geometry, uint32_t unit)
{
	uint64_t size, ways;
	char *end;

	if (!read_number(value, &end, (uint64_t)ENTRIES_MAX * unit, &size) || *end != ':')
		return false;
	if (!read_number(end + 1, &end, size, &ways) || *end)
		return false;
	if (size % unit || (ways && (size / unit) % ways) || !ways != !size)
		return false;
	geometry->entries = (uint32_t)(size / unit);
	geometry->ways = (uint32_t)ways;
	return true;
}

static bool read_word(const char *value, const char *const *words, int count, int *chosen)
{
	for (int i = 0; i < count; i++) {
		if (!strcmp(value, words[i])) {
			*chosen = i;
			return true;
		}
	}
	return false;
}

static bool read_choice(const char *name, const char *value)
{
	static const char *const models[] = { "count", "tlb", "full" };
	static const char *const brackets[] = { "both", "window", "case", "boot" };
	int chosen;

	if (!strcmp(name, "model") && read_word(value, models, 3, &chosen))
		machine.model = (enum model)chosen;
	else if (!strcmp(name, "brackets") && read_word(value, brackets, 4, &chosen))
		machine.brackets = (enum brackets)chosen;
	else
		return false;
	return true;
}

static bool read_argument(const char *name, const char *value)
{
	uint64_t number;
	char *end;

	if (!strcmp(name, "out")) {
		machine.out = value;
		return *value;
	}
	if (!strcmp(name, "allocates"))
		return owner_add(value);
	if (!strcmp(name, "takes") || !strcmp(name, "releases"))
		return hold_add(*name == 't' ? LOCK_TAKES : LOCK_RELEASES, value);
	if (!strcmp(name, "overlap"))
		return read_number(value, &end, 64, &machine.costs.overlap) && !*end && machine.costs.overlap;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (strcmp(name, numbers[i].name))
			continue;
		if (!read_number(value, &end, numbers[i].limit, &number) || *end)
			return false;
		*numbers[i].number = (uint32_t)number;
		return true;
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (!strcmp(name, places[i].name))
			return read_number(value, &end, UINT64_MAX, places[i].place) && !*end;
	for (size_t i = 0; i < sizeof(geometries) / sizeof(geometries[0]); i++)
		if (!strcmp(name, geometries[i].name))
			return read_geometry(value, geometries[i].geometry, geometries[i].unit);
	for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++)
		if (!strcmp(name, costs[i].name))
			return read_number(value, &end, 1U << 30, costs[i].cost) && !*end;
	for (int i = 0; i < NR_CLASSES; i++)
		if (!strcmp(name, class_costs[i]))
			return read_number(value, &end, 1U << 30, &machine.costs.classes[i]) && !*end;
	return read_choice(name, value);
}

uint64_t string_byte_cost(void)
{
	return machine.costs.rep_byte + (machine.model == MODEL_COUNT ? machine.costs.rep_memory / LINE : 0);
}

static void set_prices(void)
{
	const struct costs *costs = &machine.costs;
	const uint64_t levels[NR_LEVELS] = {
		[LEVEL_L2]		= costs->l2,
		[LEVEL_LLC]		= costs->llc,
		[LEVEL_MEMORY]		= costs->memory,
		[LEVEL_EXPECTED]	= costs->prefetched * costs->overlap,
	};

	prices[CHARGE_STLB] = costs->stlb;
	prices[CHARGE_WALK_4K] = costs->walk_4k;
	prices[CHARGE_WALK_2M] = costs->walk_2m;
	prices[CHARGE_WALK_FETCH] = costs->walk_fetch;
	prices[CHARGE_REP_START] = costs->rep_start;
	prices[CHARGE_REP_LONG] = costs->rep_long;
	prices[CHARGE_LINE] = costs->rep_line;
	prices[CHARGE_MEMORY_LINE] = costs->rep_memory;
	prices[CHARGE_FETCH] = costs->l2;
	prices[CHARGE_MOVE] = machine.move;
	prices[CHARGE_QUEUED] = prices[CHARGE_SLEPT] = 1;
	for (int i = 0; i < NR_LEVELS; i++) {
		prices[CHARGE_WAITED + i] = levels[i];
		prices[CHARGE_OVERLAPPED + i] = levels[i] / costs->overlap;
	}
}

/* A page of 2 MiB has an array of its own or shares that of the small ones; every other array must be there. */
static bool complete(void)
{
	if (!machine.out)
		return false;
	if (machine.model >= MODEL_TLB && (!machine.dtlb_4k.ways || !machine.itlb_4k.ways || !machine.stlb.ways))
		return false;
	return machine.model < MODEL_FULL || (machine.l1i.ways && machine.l1d.ways && machine.l2.ways && machine.llc.ways);
}

bool machine_read(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		char *name = strdup(argv[i]);
		char *equals = name ? strchr(name, '=') : NULL;

		/* The copy is kept: the path of the output points into it. */
		if (equals)
			*equals = '\0';
		if (!equals || !read_argument(name, equals + 1)) {
			fprintf(stderr, "cost plugin: cannot use the argument %s\n", argv[i]);
			return false;
		}
	}
	if (complete()) {
		set_prices();
		return true;
	}
	fprintf(stderr, "cost plugin: the machine or out= is not complete\n");
	return false;
}
