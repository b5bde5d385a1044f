// SPDX-License-Identifier: GPL-2.0-or-later
/* Blocks live as long as QEMU: code that is translated again finds its counters again. */
#include "block.h"
#include "memory.h"
#include "tlb.h"
#include "vcpu.h"

#define CHUNK		2048
#define HASH_BITS	16

struct chunk {
	struct chunk *next;
	struct counters counters;
	uint64_t *left;			/* their values when something interrupted the program */
	uint32_t used;
	struct block blocks[CHUNK];
};

bool aside;

static struct chunk *first, *last;
static struct block *heads[1 << HASH_BITS];

static struct block **find_head(uint64_t start, uint32_t length)
{
	uint64_t mixed = (start ^ (uint64_t)length << 48) * 0x9e3779b97f4a7c15ULL;

	return &heads[mixed >> (64 - HASH_BITS)];
}

static void add_chunk(void)
{
	struct chunk *chunk = memory_get(1, sizeof(*chunk));

	chunk->left = memory_get(NR_BLOCK_COUNTERS * CHUNK, sizeof(*chunk->left));
	counters_make(&chunk->counters, NR_BLOCK_COUNTERS * CHUNK);
	if (rounds)
		chunk->counters.off = &aside;
	if (last)
		last->next = chunk;
	else
		first = chunk;
	last = chunk;
}

static struct block *new_block(uint64_t start, uint32_t length, uint64_t code)
{
	struct block *block;

	if (!last || last->used == CHUNK)
		add_chunk();
	block = &last->blocks[last->used];
	block->start = start;
	block->length = length;
	block->code = code;
	block->counters = &last->counters;
	block->at = NR_BLOCK_COUNTERS * last->used++;
	for (unsigned int i = 0; i < 2; i++)
		block->sites[i] = (struct site){ block, (start >> PAGE_SHIFT) + i, block_mode(block) };
	return block;
}

/*
 * One block for the same code at the same place. Programs without address
 * randomisation lie at the same addresses; only the measured one runs in its
 * window.
 */
struct block *block_get(uint64_t start, uint32_t length, uint64_t code)
{
	struct block **head = find_head(start, length), *block = *head;

	while (block && (block->start != start || block->length != length || block->code != code))
		block = block->next;
	if (block)
		return block;
	block = new_block(start, length, code);
	block->next = *head;
	*head = block;
	return block;
}

static uint64_t value(const struct block *block, enum block_counter counter)
{
	return counters_sum(block->counters, block->at + (size_t)counter);
}

void blocks_begin(void)
{
	aside = false;
	for (struct chunk *chunk = first; chunk; chunk = chunk->next) {
		for (uint32_t i = 0; i < chunk->used; i++) {
			struct block *block = &chunk->blocks[i];

			block->executions_before = value(block, BLOCK_EXECUTIONS);
			block->instructions_before = value(block, BLOCK_INSTRUCTIONS);
			block->classes_before = value(block, BLOCK_CLASSES);
			block->penalty = block->bytes = block->strings = 0;
		}
	}
}

void blocks_set_aside(void)
{
	aside = true;
	for (struct chunk *chunk = first; chunk; chunk = chunk->next)
		counters_copy(&chunk->counters, chunk->left);
}

/* Blocks made since then had nothing left. */
void blocks_go_on(void)
{
	aside = false;
	for (struct chunk *chunk = first; chunk; chunk = chunk->next) {
		for (uint32_t i = 0; i < chunk->used; i++) {
			struct block *block = &chunk->blocks[i];

			block->executions_before +=
				value(block, BLOCK_EXECUTIONS) - chunk->left[block->at + BLOCK_EXECUTIONS];
			block->instructions_before +=
				value(block, BLOCK_INSTRUCTIONS) - chunk->left[block->at + BLOCK_INSTRUCTIONS];
			block->classes_before += value(block, BLOCK_CLASSES) - chunk->left[block->at + BLOCK_CLASSES];
		}
	}
}

struct work block_work(const struct block *block)
{
	struct work work = { .executions = value(block, BLOCK_EXECUTIONS) - block->executions_before };

	if (block_mode(block) == MODE_USER) {
		work.instructions = value(block, BLOCK_INSTRUCTIONS) - block->instructions_before;
		work.classes = value(block, BLOCK_CLASSES) - block->classes_before;
	} else {
		work.instructions = work.executions * block->weight;
		work.classes = work.executions * block->classes;
	}
	work.instructions += block->strings;
	return work;
}

void blocks_each(void (*visit)(struct block *block))
{
	for (struct chunk *chunk = first; chunk; chunk = chunk->next)
		for (uint32_t i = 0; i < chunk->used; i++)
			visit(&chunk->blocks[i]);
}
