// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Call chains without symbols or frame pointers. A block that ends in a call
 * puts a frame on a stack of its task's own, and one that ends in a return
 * takes away those down to the frame that it returns to. User code enters the
 * kernel as by a call. An exception of the kernel's own leaves a block in the
 * middle, which may have looked like a call; its iretq goes back into that
 * block and takes the frame away.
 *
 * Tail calls leave no frame: the site of the next call tells of them, as it is
 * in another function than the target of the call before.
 */
#include "chain.h"
#include "context.h"
#include "memory.h"
#include "vcpu.h"

#include <inttypes.h>
#include <string.h>

#define FRAMES_MAX	256
#define STEP		4096
#define HASH_BITS	16
#define FROM_USER	0	/* no code lies there */

/* A call, with all calls that led to it. */
struct call {
	uint32_t before;	/* its number, 0: none is known */
	uint32_t next;		/* of the same hash */
	uint64_t site, target;
};

struct execution {
	uint32_t call;
	uint32_t next;		/* of the same hash */
	const struct block *block;
	uint64_t times;
};

struct frame {
	uint32_t call;
	const struct block *site;
	uint64_t back;		/* the address that it returns to */
};

struct stack {
	struct frame frames[FRAMES_MAX];
	uint32_t depth;
	uint32_t window;	/* that it is of */
	const struct block *before;
};

/* Both from 1. */
static struct call *calls;
static struct execution *executions;
static uint32_t nr_calls, calls_room, nr_executions, executions_room;
static uint32_t call_heads[1 << HASH_BITS], execution_heads[1 << HASH_BITS];
static uint32_t window;

static uint32_t *head(uint32_t *heads, uint64_t one, uint64_t other)
{
	uint64_t mixed = (one ^ other * 0xc2b2ae3d27d4eb4fULL) * 0x9e3779b97f4a7c15ULL;

	return &heads[mixed >> (64 - HASH_BITS)];
}

static uint32_t find_call(uint32_t before, uint64_t site, uint64_t target)
{
	uint32_t *first = head(call_heads, site ^ target << 1, before);

	for (uint32_t at = *first; at; at = calls[at].next)
		if (calls[at].before == before && calls[at].site == site && calls[at].target == target)
			return at;
	if (++nr_calls >= calls_room) {
		calls = memory_grow(calls, calls_room, STEP, sizeof(*calls));
		calls_room += STEP;
	}
	calls[nr_calls] = (struct call){ before, *first, site, target };
	return *first = nr_calls;
}

static void count(uint32_t call, const struct block *block)
{
	uint32_t *first = head(execution_heads, (uintptr_t)block, call);

	for (uint32_t at = *first; at; at = executions[at].next) {
		if (executions[at].call == call && executions[at].block == block) {
			executions[at].times++;
			return;
		}
	}
	if (++nr_executions >= executions_room) {
		executions = memory_grow(executions, executions_room, STEP, sizeof(*executions));
		executions_room += STEP;
	}
	executions[nr_executions] = (struct execution){ call, *first, block, 1 };
	*first = nr_executions;
}

static uint32_t call_of(const struct stack *stack)
{
	return stack->depth ? stack->frames[stack->depth - 1].call : 0;
}

static void push(struct stack *stack, const struct block *target, uint64_t back)
{
	const struct block *site = stack->before;

	if (stack->depth < FRAMES_MAX) {
		uint32_t call = find_call(call_of(stack), site->start, target->start);

		stack->frames[stack->depth++] = (struct frame){ call, site, back };
	}
}

static bool returns_to(const struct frame *frame, uint64_t address)
{
	return frame->back == address || (address > frame->site->start && address < frame->site->start + frame->site->size);
}

/* Down to the frame that is returned to; none if no call was seen that belongs to it. */
static void pop(struct stack *stack, uint64_t address)
{
	for (uint32_t depth = stack->depth; depth && stack->frames[depth - 1].back != FROM_USER; depth--) {
		if (returns_to(&stack->frames[depth - 1], address)) {
			stack->depth = depth - 1;
			return;
		}
	}
}

static void leave_kernel(struct stack *stack)
{
	while (stack->depth && stack->frames[--stack->depth].back != FROM_USER)
		;
}

static void follow(struct stack *stack, const struct block *block)
{
	const struct block *before = stack->before;

	if (block_mode(block) != block_mode(before)) {
		if (block_mode(block) == MODE_KERNEL)
			push(stack, block, FROM_USER);
		else
			leave_kernel(stack);
	} else if (before->leap == LEAP_CALL) {
		push(stack, block, before->start + before->size);
	} else if (before->leap == LEAP_RETURN) {
		pop(stack, block->start);
	}
}

static struct stack *stack_of_task(void)
{
	void **place = context_chain();
	struct stack *stack;

	if (!*place)
		*place = memory_get(1, sizeof(struct stack));
	stack = *place;
	if (stack->window != window) {
		stack->window = window;
		stack->depth = 0;
		stack->before = NULL;
	}
	return stack;
}

static void on_chain(unsigned int vcpu, void *data)
{
	const struct block *block = data;
	struct stack *stack;

	(void)vcpu;
	if (!measuring || aside)
		return;
	stack = stack_of_task();
	if (stack->before)
		follow(stack, block);
	stack->before = block;
	count(call_of(stack), block);
}

void chain_forget(void *stack)
{
	if (stack)
		((struct stack *)stack)->window = 0;
}

void chain_watch(struct qemu_plugin_tb *tb, struct block *block)
{
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_chain, QEMU_NO_REGISTERS, block);
}

void chains_begin(void)
{
	window++;
	nr_calls = nr_executions = 0;
	memset(call_heads, 0, sizeof(call_heads));
	memset(execution_heads, 0, sizeof(execution_heads));
}

void chains_put(FILE *file)
{
	const char *comma = "";

	fputs("[", file);
	for (uint32_t i = 1; i <= nr_calls; i++)
		fprintf(file, "%s[%" PRIu32 ",%" PRIu64 ",%" PRIu64 "]", i > 1 ? "," : "", calls[i].before,
			calls[i].site, calls[i].target);
	fputs("],\"executions\":[", file);
	for (uint32_t i = 1; i <= nr_executions; i++) {
		if (executions[i].block->printed) {
			fprintf(file, "%s[%" PRIu32 ",%" PRIu32 ",%" PRIu64 "]", comma, executions[i].call,
				executions[i].block->printed - 1, executions[i].times);
			comma = ",";
		}
	}
	fputs("]", file);
}
