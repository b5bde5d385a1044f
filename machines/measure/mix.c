// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Plain code as a kernel has it: short functions that look up an object in a hash table, walk and change lists and a
 * tree, count references, search a bitmap and write a number as text. All data is in the nearest cache.
 *
 * The cost of a mispredicted return among such code is its addition to it.
 *
 * The number of its instructions comes from running it once in single steps.
 */
#include "measure.h"
#include "sample.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

enum {
	OBJECTS = 64,
	BUCKETS = 32,
	WORDS = 4,
};

struct list {
	struct list *next, *previous;
};

struct object {
	struct list all;
	struct object *chain;
	struct object *child[2];
	uint64_t key, references, flags, size;
	char name[16];
};

static struct object objects[OBJECTS];
static struct object *buckets[BUCKETS];
static struct object *root;
static struct list used;
static uint64_t bitmap[WORDS];

static NOINLINE void list_remove(struct list *entry)
{
	entry->next->previous = entry->previous;
	entry->previous->next = entry->next;
}

static NOINLINE void list_append(struct list *head, struct list *entry)
{
	entry->previous = head->previous;
	entry->next = head;
	head->previous->next = entry;
	head->previous = entry;
}

static NOINLINE int format(char *to, uint64_t value)
{
	char digits[20];
	int length = 0;

	do {
		digits[length++] = (char)('0' + (value & 15));
		value >>= 4;
	} while (value);
	for (int i = 0; i < length; i++)
		to[i] = digits[length - 1 - i];
	to[length] = 0;
	return length;
}

static NOINLINE bool same(const char *one, const char *other)
{
	while (*one && *one == *other) {
		one++;
		other++;
	}
	return *one == *other;
}

static NOINLINE uint64_t hash(const char *name)
{
	uint64_t sum = 0;

	for (; *name; name++)
		sum = sum * 31 + (unsigned char)*name;
	return sum % BUCKETS;
}

static NOINLINE struct object *look_up(const char *name)
{
	struct object *object = buckets[hash(name)];

	while (object && !same(object->name, name))
		object = object->chain;
	return object;
}

static NOINLINE struct object *find(uint64_t key)
{
	struct object *object = root;

	while (object && object->key != key)
		object = object->child[key > object->key];
	return object;
}

static NOINLINE int take_bit(void)
{
	for (int i = 0; i < WORDS; i++)
		if (~bitmap[i]) {
			int bit = __builtin_ctzll(~bitmap[i]);

			bitmap[i] |= (uint64_t)1 << bit;
			return i * 64 + bit;
		}
	return -1;
}

static NOINLINE bool put(struct object *object)
{
	if (--object->references)
		return false;
	object->flags &= ~(uint64_t)1;
	return true;
}

static NOINLINE void use(struct object *object, int slot)
{
	object->references++;
	if (!(object->flags & 1)) {
		object->flags |= 1;
		object->size = 0;
	}
	object->size += (uint64_t)slot;
	list_remove(&object->all);
	list_append(&used, &object->all);
	put(object);
}

enum { PLACES = 5 };	/* between the steps of an operation */

/* A return to elsewhere than behind its call, as spec_rstack_overflow makes them. */
static NOINLINE __attribute__((naked)) void redirect(void)
{
	asm("call 1f\n\t"
	    "int3\n"
	    "1:\tlea 8(%rsp), %rsp\n\t"
	    "ret");
}

static inline __attribute__((always_inline)) void between(bool redirects)
{
	if (redirects)
		redirect();
}

static inline __attribute__((always_inline)) void operate(uint64_t key, bool redirects)
{
	char name[20];
	struct object *object;
	int slot = take_bit();

	between(redirects);
	format(name, key);
	between(redirects);
	object = look_up(name);
	between(redirects);
	if (object)
		use(object, slot);
	between(redirects);
	object = find(key ^ 5);
	between(redirects);
	if (object)
		use(object, slot);
	bitmap[slot / 64] &= ~((uint64_t)1 << slot % 64);
}

static void fill(void)
{
	used.next = used.previous = &used;
	for (uint64_t i = 0; i < OBJECTS; i++) {
		struct object *object = &objects[i], **link = &root;
		uint64_t bucket;

		object->key = (i * 37 % OBJECTS) + 4096;
		format(object->name, object->key);
		bucket = hash(object->name);
		object->chain = buckets[bucket];
		buckets[bucket] = object;
		while (*link)
			link = &(*link)->child[object->key > (*link)->key];
		*link = object;
		list_append(&used, &object->all);
	}
	bitmap[0] = 0xffff;
}

static inline __attribute__((always_inline)) void operate_on_all(uint64_t count, bool redirects)
{
	while (count--)
		for (uint64_t i = 0; i < OBJECTS; i++)
			operate(4096 + i, redirects);
}

static void mix(uint64_t count, void *context)
{
	(void)context;
	operate_on_all(count, false);
}

static void mix_redirected(uint64_t count, void *context)
{
	(void)context;
	operate_on_all(count, true);
}

static volatile uint64_t steps;

static void step(int number)
{
	(void)number;
	steps++;
}

#define TRAP_FLAG "0x100"

/* Executed instructions, by the CPU's trap flag: each one raises SIGTRAP. */
static uint64_t count_instructions(uint64_t count)
{
	struct sigaction action = { .sa_handler = step }, before;

	sigaction(SIGTRAP, &action, &before);
	steps = 0;
	asm volatile("pushfq\n\torq $" TRAP_FLAG ", (%%rsp)\n\tpopfq" : : : "cc", "memory");
	mix(count, NULL);
	asm volatile("pushfq\n\tandq $~" TRAP_FLAG ", (%%rsp)\n\tpopfq" : : : "cc", "memory");
	sigaction(SIGTRAP, &before, NULL);
	return steps;
}

void prepare_mix(void)
{
	fill();
	mix(4, NULL);
	/* The code around the loop counts once in each. */
	fact_number("mix_places", PLACES * OBJECTS);
	fact_number("mix_instructions", count_instructions(2) - count_instructions(1));
}

void measure_mix(void)
{
	measure(&(struct bench){ .name = "mix", .work = mix, .warm = 100 });
	measure(&(struct bench){ .name = "mix_redirected", .work = mix_redirected, .warm = 100 });
}
