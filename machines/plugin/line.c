// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Lines that only one vCPU has ever had cost nothing here: that is for the caches. The directory has a place for
 * each line of the memory that is used; if a set of them is full, the line unused longest goes, and no vCPU has it.
 *
 * The first move of a line in a window is neither counted nor charged: its
 * cause came before. A page that another vCPU had freed is no meeting.
 */
#include "line.h"
#include "round.h"
#include "cache.h"
#include "context.h"
#include "memory.h"
#include "place.h"
#include "vcpu.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SET_BITS	16
#define WAYS		12
#define MEETINGS	(1U << 14)	/* lines that moved, remembered at a time */
#define USES		(1U << 16)	/* instructions at lines, in a window */
#define NAMED		64		/* lines that moved most: only their slab caches are looked up */
#define NOBODY		(-1)

/* By one instruction, of one line. */
struct use {
	uint64_t pc;
	struct use *next;
	uint64_t moves[2];		/* by loads, by stores */
	uint64_t essential;		/* of them: the vCPU then used another one's writes */
	uint64_t atomics;
	uint32_t vcpus;			/* one bit each */
	uint64_t bytes;			/* of the line, one bit each */
};

/* The facts about a line that has moved. */
struct meeting {
	struct line *line;
	uint64_t number, address;
	uint64_t arrives;		/* when its last move ends */
	uint64_t fresh[VCPUS_MAX];	/* bytes that others have written since the vCPU lost it */
	struct use *unproved[VCPUS_MAX];	/* a move not known to be essential */
	struct line_site *loaded[VCPUS_MAX];	/* the load that brought it, if the vCPU has not used it since */
	uint64_t met;			/* moves in the window, with the first */
	uint64_t moves, essential, queued, waited;
	uint64_t taken[VCPUS_MAX];	/* the clock, when a function that takes locks accessed it last; 0: not held */
	uint64_t held, holds;		/* thousandths of cycles until it was released, and how often that was */
	uint32_t readers, writers;
	struct use *uses;
};

struct line {
	uint32_t number;		/* physical address by 64, plus one; 0: the place is free */
	uint32_t used;
	uint16_t holders;		/* one bit each */
	int8_t owner;			/* wrote it last */
	struct meeting *meeting;
};

static struct line (*sets)[WAYS];
static uint32_t uses_of_lines;
static struct meeting *meetings;
static uint32_t nr_meetings, next_meeting;
static struct use *uses;
static uint32_t nr_uses;
static struct meeting *looked_at[VCPUS_MAX];

static void make(void)
{
	sets = memory_get(1UL << SET_BITS, sizeof(*sets));
	meetings = memory_get(MEETINGS, sizeof(*meetings));
	uses = memory_get(USES, sizeof(*uses));
}

static struct line *find(uint64_t number)
{
	uint64_t folded = number ^ number >> SET_BITS;
	struct line *set = sets[folded & ((1U << SET_BITS) - 1)], *oldest = set;

	uses_of_lines++;
	for (int way = 0; way < WAYS; way++) {
		if (set[way].number == (uint32_t)number + 1) {
			set[way].used = uses_of_lines;
			return &set[way];
		}
		/* Compared as ages, so that the count may wrap. */
		if (!set[way].number || uses_of_lines - set[way].used > uses_of_lines - oldest->used)
			oldest = &set[way];
		if (!set[way].number)
			break;
	}
	if (oldest->meeting)
		oldest->meeting->line = NULL;
	*oldest = (struct line){ .number = (uint32_t)number + 1, .used = uses_of_lines, .owner = NOBODY };
	return oldest;
}

/* The one remembered longest makes room, unless its line continues to move in this window. */
static struct meeting *meeting_of(struct line *line, uint64_t number)
{
	struct meeting *made;

	if (line->meeting)
		return line->meeting;
	if (nr_meetings < MEETINGS) {
		made = &meetings[nr_meetings++];
	} else {
		for (uint32_t tries = 0; tries < MEETINGS && meetings[next_meeting].moves; tries++)
			next_meeting = (next_meeting + 1) % MEETINGS;
		made = &meetings[next_meeting];
		next_meeting = (next_meeting + 1) % MEETINGS;
		if (made->line)
			made->line->meeting = NULL;
		for (unsigned int i = 0; i < nr_vcpus; i++)
			if (looked_at[i] == made)
				looked_at[i] = NULL;
	}
	*made = (struct meeting){ .line = line, .number = number };
	line->meeting = made;
	return made;
}

/* NULL if a window has more of them than are counted apart. */
static struct use *use_of(struct meeting *meeting, const struct line_site *at, uint64_t bytes)
{
	struct use *use = meeting->uses;

	while (use && use->pc != at->pc)
		use = use->next;
	if (!use) {
		if (nr_uses == USES)
			return NULL;
		use = &uses[nr_uses++];
		*use = (struct use){ .pc = at->pc, .next = meeting->uses };
		meeting->uses = use;
	}
	use->vcpus |= 1U << running;
	use->bytes |= bytes;
	return use;
}

static void move(struct meeting *meeting, struct line_site *at, bool store, uint64_t bytes)
{
	enum mode mode = (enum mode)at->site->mode;
	uint64_t waits = meeting->arrives > account->clock ? meeting->arrives - account->clock : 0;
	bool counts = measuring && !aside;
	struct use *use;

	if (measuring && !meeting->met++)
		return;
	if (waits)
		charge_times(at->site->block, CHARGE_QUEUED, waits);
	charge(at->site->block, CHARGE_MOVE);
	if (!store) {
		meeting->loaded[running] = at;
		if (at->leads)
			round_keep();
	}
	meeting->arrives = account->clock;
	if (!counts)
		return;
	account->counts[mode][MOVES]++;
	account->counts[mode][CONTENDED_ATOMICS] += at->atomic;
	meeting->moves++;
	meeting->queued += waits;
	use = use_of(meeting, at, bytes);
	if (use)
		use->moves[store]++;
	meeting->unproved[running] = use;
}

/* True if the vCPU wanted the data that the last move brought, not only its neighbour. */
static void prove(struct meeting *meeting, const struct line_site *at, uint64_t bytes)
{
	struct use *use = meeting->unproved[running];

	if (!use || !(meeting->fresh[running] & bytes))
		return;
	meeting->unproved[running] = NULL;
	use->essential++;
	meeting->essential++;
	account->counts[at->site->mode][ESSENTIAL_MOVES]++;
}

static void note(struct meeting *meeting, const struct line_site *at, bool store, uint64_t bytes)
{
	struct use *use;

	*(store ? &meeting->writers : &meeting->readers) |= 1U << running;
	if (store && at->atomic && (use = use_of(meeting, at, bytes)))
		use->atomics++;
}

static void note_hold(struct meeting *meeting, const struct line_site *at, bool store)
{
	uint64_t *taken = &meeting->taken[running];

	if (at->part == LOCK_TAKES) {
		*taken = account->clock;
	} else if (at->part == LOCK_RELEASES && store && *taken) {
		if (measuring && !aside) {
			meeting->held += account->clock - *taken;
			meeting->holds++;
		}
		*taken = 0;
	}
}

/* A load whose value a compare-and-exchange rests on, as in a loop that counts users. */
static void learn(struct meeting *meeting, const struct line_site *at)
{
	struct line_site **load = &meeting->loaded[running];

	if (*load && at->atomic)
		(*load)->leads = true;
	*load = NULL;
}

static void written(struct line *line, uint64_t bytes)
{
	struct meeting *meeting = line->meeting;
	uint32_t others = line->holders & ~(1U << running);

	for (unsigned int i = 0; meeting && i < nr_vcpus; i++) {
		if (i == running)
			continue;
		if (others & 1U << i) {
			meeting->fresh[i] = 0;
			meeting->unproved[i] = NULL;
		}
		meeting->fresh[i] |= bytes;
	}
	line->holders = (uint16_t)(1U << running);
	line->owner = (int8_t)running;
}

static void on_line(unsigned int told, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	struct qemu_plugin_hwaddr *physical = qemu_plugin_get_hwaddr(info, address);
	bool store = qemu_plugin_mem_is_store(info);
	struct line_site *at = data;
	unsigned int size = 1U << qemu_plugin_mem_size_shift(info);
	struct meeting *meeting;
	uint64_t where, bytes;
	struct line *line;
	uint32_t me = 1U << running;
	bool mine, others;

	(void)told;
	if (!physical || qemu_plugin_hwaddr_is_io(physical))
		return;
	where = qemu_plugin_hwaddr_phys_addr(physical);
	bytes = (size >= LINE ? ~0ULL : (1ULL << size) - 1) << (where % LINE);
	line = find(where >> LINE_SHIFT);
	mine = line->holders & me;
	others = line->holders & ~me;
	if (line->meeting)
		learn(line->meeting, at);
	if (others && (store || (!mine && line->owner != NOBODY && line->owner != (int)running)))
		move(meeting_of(line, where >> LINE_SHIFT), at, store, bytes);
	meeting = line->meeting;
	if (meeting) {
		meeting->address = address - where % LINE;
		prove(meeting, at, bytes);
		note_hold(meeting, at, store);
		if (measuring && !aside)
			note(meeting, at, store, bytes);
	}
	if (store) {
		written(line, bytes);
	} else {
		line->holders |= (uint16_t)me;
		looked_at[running] = meeting;
	}
}

void on_pause(unsigned int told, void *data)
{
	enum mode mode = (enum mode)((const struct site *)data)->mode;

	(void)told;
	if (!measuring || aside)
		return;
	account->counts[mode][WAITED] += machine.costs.classes[CLASS_PAUSE];
	if (looked_at[running])
		looked_at[running]->waited += machine.costs.classes[CLASS_PAUSE];
}

void line_watch(struct qemu_plugin_insn *insn, const struct site *site, size_t index, uint64_t pc, bool atomic)
{
	struct block *block = site->block;

	if (!sets)
		make();
	if (!block->lines)
		block->lines = memory_get(block->length, sizeof(*block->lines));
	block->lines[index] = (struct line_site){ .site = site, .pc = pc, .atomic = atomic, .part = hold_part(pc) };
	qemu_plugin_register_vcpu_mem_cb(insn, on_line, QEMU_NO_REGISTERS, QEMU_ALL, &block->lines[index]);
}

void lines_begin(void)
{
	for (uint32_t i = 0; i < nr_meetings; i++) {
		struct meeting *meeting = &meetings[i];

		memset(meeting->unproved, 0, sizeof(meeting->unproved));
		meeting->met = meeting->moves = meeting->essential = meeting->queued = meeting->waited = 0;
		meeting->readers = meeting->writers = 0;
		meeting->held = meeting->holds = 0;
		meeting->uses = NULL;
	}
	nr_uses = 0;
}

/* --- Output ------------------------------------------------------------- */

static int by_moves(const void *a, const void *b)
{
	const struct meeting *one = *(const struct meeting *const *)a, *other = *(const struct meeting *const *)b;

	if (one->moves != other->moves)
		return one->moves < other->moves ? 1 : -1;
	return one->number < other->number ? -1 : one->number > other->number;
}

static void put_uses(FILE *file, const struct meeting *meeting)
{
	for (const struct use *use = meeting->uses; use; use = use->next)
		fprintf(file, "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%u,%" PRIu64 "]",
			use == meeting->uses ? "" : ",", use->pc, use->moves[0], use->moves[1], use->essential,
			use->atomics, use->vcpus, use->bytes);
}

void lines_put(FILE *file)
{
	const struct meeting **moved = calloc(nr_meetings ? nr_meetings : 1, sizeof(*moved));
	uint32_t count = 0;

	if (!moved)
		abort();
	for (uint32_t i = 0; i < nr_meetings; i++)
		if (meetings[i].moves)
			moved[count++] = &meetings[i];
	qsort(moved, count, sizeof(*moved), by_moves);
	fputc('[', file);
	for (uint32_t i = 0; i < count; i++) {
		const struct meeting *meeting = moved[i];

		fprintf(file, "%s{\"line\":%" PRIu64 ",\"address\":%" PRIu64 ",\"readers\":%u,\"writers\":%u"
			",\"moves\":%" PRIu64 ",\"essential\":%" PRIu64 ",\"queued\":%" PRIu64 ",\"waited\":%" PRIu64
			",\"held\":%" PRIu64 ",\"holds\":%" PRIu64
			"", i ? "," : "", meeting->number << LINE_SHIFT, meeting->address, meeting->readers,
			meeting->writers, meeting->moves, meeting->essential, meeting->queued, meeting->waited,
			meeting->held, meeting->holds);
		if (i < NAMED)
			place_put_slab(file, meeting->number << LINE_SHIFT, meeting->address);
		fputs(",\"uses\":[", file);
		put_uses(file, meeting);
		fputs("]}", file);
	}
	fputc(']', file);
	free(moved);
}
