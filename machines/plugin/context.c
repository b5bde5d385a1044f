// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Interrupts and tasks, without the kernel's symbols.
 *
 * An interrupt begins in a stub that pushes a byte (its vector, or -1) and calls or jumps at once, which no compiler
 * writes at the start of a block; it ends in the iretq that finds the stub's byte, or, if it came while the program
 * ran, in an iretq that returns to the program. A task is known by the place in its task_struct where __switch_to_asm
 * keeps its stack pointer. It belongs to the program once it has returned to user code, with all its work since the
 * switch to it. A new task may have the place of a dead one: its stack has nothing on it but the data of copy_thread(),
 * and __switch_to_asm, which pops r15 before r14 as no compiler does, tells where these are.
 *
 * On other architectures (a64.c, rv64.c) an interrupt ends in the next return
 * from an exception (eret, sret) of its task, and a task is known by the place
 * of its registers while another one runs. A return leads to user code if the
 * registers that it restored lay at the end of the task's stack (task_pt_regs()
 * in arch/.../include/asm/processor.h).
 *
 * An interrupt runs with interrupts off. The code that runs once it has allowed
 * them does the work that others left: softirqs, and the way to another task.
 * Idle is the task that halts.
 *
 * An interruption of the program finds and leaves caches of its own: the
 * program's are put back after it, so that the time of a tick does not matter.
 */
#include "context.h"
#include "access.h"
#include "chain.h"
#include "memory.h"
#include "vcpu.h"

#include <string.h>

#define ENTRY_STACKS	0xfffffe0000000000ULL	/* the place of the CPU's frame when it leaves user code */
#define ENTRY_STACKS_END 0xfffffe8000000000ULL
#define FRAME		40			/* bytes that an iretq reads, in five loads */
#define FRAME_LOADS	5
#define FRED_PADDING	16			/* bytes above it, if the kernel supports FRED */
#define STACK_STEP	16384			/* bytes; the size of a task's stack is a multiple of it */
#define NEW_STACK	(7 * 8 + 21 * 8)	/* bytes: struct fork_frame of arch/x86/include/asm/switch_to.h */
#define NESTING		8			/* interrupts in interrupts; softirqs allow them */
#define HASH_BITS	12

struct task {
	struct task *next;
	uint64_t address;			/* of its kept stack pointer; 0: not known yet */
	bool user;
	bool idle;
	void *chain;				/* see chain.c */
	uint32_t depth;
	struct {
		uint64_t pushed;		/* the place of the stub's byte */
		bool allows;			/* other interrupts, by now */
	} frames[NESTING];			/* of its interrupts */
};

struct tally contexts[NR_CONTEXTS];
struct tally unprofiled;
uint64_t interruptions;

/* The task that a vCPU executes now. Without rounds, all of it is the first one's. */
struct flow {
	struct task first;
	struct task *current;
	enum context context;
	bool between;				/* operations whose begin the program marks */
	bool kept;				/* the state of the vCPU when its program was interrupted */
	uint64_t interruptions;
	struct tally spent[NR_CONTEXTS];	/* since the window began, up to `since` */
	struct tally since;			/* when it began, or was settled last */
	struct tally segment;			/* of the kernel's thread, since it was switched to */
	struct strings strings;			/* that something interrupted */
	uint32_t frame_loads;
	uint64_t frame_at;
};

static struct task *tasks[1 << HASH_BITS];
static struct flow flows[VCPUS_MAX];
static struct flow *flow = flows;
static uint32_t frame_size, frame_place;	/* see context_set_frame() */

/* --- Accounts ----------------------------------------------------------- */

bool contexts_told_apart(void)
{
	return (nr_vcpus == 1 || rounds) && machine.brackets != BRACKETS_BOOT;
}

void contexts_make(void)
{
	for (unsigned int i = 0; i < VCPUS_MAX; i++)
		flows[i].current = &flows[i].first;
}

void context_select(unsigned int vcpu)
{
	flow = &flows[vcpu];
	aside = flow->context != CONTEXT_PROGRAM;
}

/* Of every vCPU that has one. */
static void each_flow(void (*visit)(void))
{
	unsigned int now = running;

	if (!rounds) {
		visit();
		return;
	}
	for (unsigned int i = 0; i < nr_vcpus; i++) {
		vcpu_select(i);
		context_select(i);
		visit();
	}
	vcpu_select(now);
	context_select(now);
}

static void begin_flow(void)
{
	memset(&flow->segment, 0, sizeof(flow->segment));
	memset(flow->spent, 0, sizeof(flow->spent));
	flow->between = machine.between;
	flow->kept = false;
	flow->interruptions = 0;
	if (flow->between && flow->context == CONTEXT_PROGRAM)
		flow->context = CONTEXT_BETWEEN;
	flow->since = tally_look();
}

void contexts_begin(void)
{
	memset(&unprofiled, 0, sizeof(unprofiled));
	interruptions = 0;
	each_flow(begin_flow);
	if (rounds)
		aside = flow->context != CONTEXT_PROGRAM;
}

static void settle_as(enum context context)
{
	struct tally now = tally_look();

	tally_add(&flow->spent[context], &flow->since, &now);
	if (context == CONTEXT_THREAD)
		tally_add(&flow->segment, &flow->since, &now);
	flow->since = now;
}

static void contexts_settle(void)
{
	settle_as(flow->context);
}

static const struct tally nothing;
static struct tally sum;

static void add_look(void)
{
	struct tally now = tally_look();

	tally_add(&sum, &nothing, &now);
}

struct tally contexts_look(void)
{
	memset(&sum, 0, sizeof(sum));
	each_flow(add_look);
	return sum;
}

static void end_flow(void)
{
	contexts_settle();
	for (int i = 0; i < NR_CONTEXTS; i++)
		tally_add(&contexts[i], &nothing, &flow->spent[i]);
}

void contexts_end(void)
{
	memset(contexts, 0, sizeof(contexts));
	each_flow(end_flow);
}

struct tally context_program(void)
{
	contexts_settle();
	return flow->spent[CONTEXT_PROGRAM];
}

uint64_t context_interruptions(void)
{
	return flow->interruptions;
}

static bool is_program(enum context context)
{
	return context == CONTEXT_PROGRAM || context == CONTEXT_BETWEEN;
}

static enum context context_of(const struct task *task)
{
	if (task->depth)
		return task->frames[task->depth - 1].allows ? CONTEXT_SOFTIRQ : CONTEXT_INTERRUPT;
	if (!task->user)
		return task->idle ? CONTEXT_IDLE : CONTEXT_THREAD;
	return flow->between ? CONTEXT_BETWEEN : CONTEXT_PROGRAM;
}

/* The profile is the program's. In rounds its counters are off during that; else they continue, and are put right. */
static void set_aside(enum context next)
{
	if (rounds)
		aside = next != CONTEXT_PROGRAM;
	else if (next != CONTEXT_PROGRAM)
		blocks_set_aside();
	else
		blocks_go_on();
}

static void turn_to(enum context next)
{
	struct vcpu *vcpu = &vcpus[running];
	bool leaves = is_program(flow->context), enters = is_program(next);

	if (next == flow->context)
		return;
	if (measuring && leaves && !enters) {
		flow->strings = strings_interrupt(vcpu);
		contexts_settle();
		vcpu_keep(vcpu);
		flow->kept = true;
		set_aside(next);
		if (flow->context == CONTEXT_PROGRAM) {
			interruptions++;
			flow->interruptions++;
		}
	} else if (measuring) {
		contexts_settle();
		if (enters && flow->kept) {
			vcpu_restore(vcpu);
			strings_go_on(vcpu, &flow->strings);
			flow->kept = false;
		}
		if (enters)
			set_aside(next);
	}
	flow->context = next;
	if (rounds)
		aside = next != CONTEXT_PROGRAM;
}

void **context_chain(void)
{
	return &flow->current->chain;
}

void context_operation(bool begins)
{
	flow->between = !begins;
	turn_to(context_of(flow->current));
}

/* A task that sleeps in the middle of an operation waits for it. */
void context_slept(struct block *block, uint64_t millicycles)
{
	if (!measuring || !machine.between || flow->between || flow->context != CONTEXT_IDLE)
		return;
	contexts_settle();
	aside = false;
	charge_times(block, CHARGE_SLEPT, millicycles);
	settle_as(CONTEXT_PROGRAM);
	aside = true;
}

/* Its work since the switch to it was on the program's behalf, too: it is a child's first time, for example. */
static void becomes_program(struct task *task)
{
	if (task->user)
		return;
	task->user = true;
	if (!measuring)
		return;
	contexts_settle();
	if (!flow->between) {
		tally_add(&flow->spent[CONTEXT_PROGRAM], &nothing, &flow->segment);
		tally_add(&unprofiled, &nothing, &flow->segment);
		tally_add(&flow->spent[CONTEXT_THREAD], &flow->segment, &nothing);
	}
}

/* Its first time in a window shows only when it halts. */
static void becomes_idle(struct task *task)
{
	if (task->idle || task->user)
		return;
	task->idle = true;
	if (!measuring)
		return;
	contexts_settle();
	tally_add(&flow->spent[CONTEXT_IDLE], &nothing, &flow->segment);
	tally_add(&flow->spent[CONTEXT_THREAD], &flow->segment, &nothing);
}

void context_in_program(void)
{
	becomes_program(flow->current);
	flow->current->depth = 0;
	turn_to(context_of(flow->current));
}

/* --- Interrupts --------------------------------------------------------- */

static void on_interrupt(unsigned int vcpu, void *unused)
{
	(void)vcpu;
	(void)unused;
	if (flow->current->depth < NESTING) {
		flow->current->frames[flow->current->depth].pushed = 0;
		flow->current->frames[flow->current->depth++].allows = false;
	}
	turn_to(CONTEXT_INTERRUPT);
}

static void on_pushed(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused)
{
	(void)vcpu;
	(void)info;
	(void)unused;
	if (flow->current->depth)
		flow->current->frames[flow->current->depth - 1].pushed = address;
}

static bool on_entry_stack(uint64_t address)
{
	return address >= ENTRY_STACKS && address < ENTRY_STACKS_END;
}

/* A frame by which the kernel returns to user code lies at the end of the task's stack, or where the CPU put it. */
static bool returns_to_user(uint64_t frame)
{
	uint64_t end = (frame + FRAME) & 4095;

	return on_entry_stack(frame) || !end || end == 4096 - FRED_PADDING;
}

static void on_returned(uint64_t frame)
{
	uint32_t depth = flow->current->depth;

	if (returns_to_user(frame)) {
		if (!depth || on_entry_stack(flow->current->frames[0].pushed))
			context_in_program();
		return;
	}
	while (depth && flow->current->frames[depth - 1].pushed + sizeof(uint64_t) != frame)
		depth--;
	if (!depth)	/* of a fault in the kernel */
		return;
	flow->current->depth = depth - 1;
	turn_to(context_of(flow->current));
}

/* An iretq's own loads are the interrupt's: it is over after the last. */
static void on_frame_load(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused)
{
	(void)vcpu;
	(void)info;
	(void)unused;
	if (!flow->frame_loads)
		flow->frame_at = address;
	if (++flow->frame_loads < FRAME_LOADS)
		return;
	flow->frame_loads = 0;
	on_returned(flow->frame_at);
}

static void on_iret(unsigned int vcpu, void *unused)
{
	(void)vcpu;
	(void)unused;
	flow->frame_loads = 0;
}

static void on_sysret(unsigned int vcpu, void *unused)
{
	(void)vcpu;
	(void)unused;
	if (!flow->current->user || flow->current->depth)
		context_in_program();
}

static void on_allowed(unsigned int vcpu, void *unused)
{
	(void)vcpu;
	(void)unused;
	if (!flow->current->depth)
		return;
	flow->current->frames[flow->current->depth - 1].allows = true;
	turn_to(CONTEXT_SOFTIRQ);
}

static void on_idle(unsigned int vcpu, void *unused)
{
	(void)vcpu;
	(void)unused;
	if (flow->current->depth)
		return;
	becomes_idle(flow->current);
	turn_to(context_of(flow->current));
}

static void on_frame_register(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused)
{
	(void)vcpu;
	(void)info;
	(void)unused;
	flow->frame_at = address - frame_place;
}

static void on_eret(unsigned int vcpu, void *unused)
{
	(void)vcpu;
	(void)unused;
	if (!((flow->frame_at + frame_size) % STACK_STEP)) {
		if (!flow->current->user || flow->current->depth)
			context_in_program();
		return;
	}
	if (!flow->current->depth)	/* of a fault in the kernel */
		return;
	flow->current->depth--;
	turn_to(context_of(flow->current));
}

/* --- Tasks -------------------------------------------------------------- */

static struct task **find_head(uint64_t address)
{
	return &tasks[(address * 0x9e3779b97f4a7c15ULL) >> (64 - HASH_BITS)];
}

static struct task *find_task(uint64_t address)
{
	struct task **head = find_head(address), *task = *head;

	while (task && task->address != address)
		task = task->next;
	if (task)
		return task;
	task = memory_get(1, sizeof(*task));
	task->address = address;
	task->next = *head;
	*head = task;
	return task;
}

/* Only this shows the place of the task that runs when watching begins. */
static void on_leave_task(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused)
{
	struct task *task;

	(void)vcpu;
	(void)info;
	(void)unused;
	if (flow->current->address)
		return;
	task = find_task(address);
	task->user = flow->current->user;
	task->idle = flow->current->idle;
	task->chain = flow->current->chain;
	task->depth = flow->current->depth;
	memcpy(task->frames, flow->current->frames, sizeof(task->frames));
	flow->current = task;
}

static void on_enter_task(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused)
{
	(void)vcpu;
	(void)info;
	(void)unused;
	if (address == flow->current->address + sizeof(uint64_t))	/* the other one of a pair */
		return;
	if (measuring)
		contexts_settle();
	memset(&flow->segment, 0, sizeof(flow->segment));
	flow->current = find_task(address);
	turn_to(context_of(flow->current));
}

static bool is_new_stack(uint64_t pointer)
{
	uint64_t end = (pointer + NEW_STACK) % STACK_STEP;

	return !end || end == STACK_STEP - FRED_PADDING;
}

static void on_pop(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *unused)
{
	(void)vcpu;
	(void)info;
	(void)unused;
	if (!is_new_stack(address) || !flow->current->user)
		return;
	if (measuring)
		contexts_settle();
	flow->current->user = false;
	flow->current->depth = 0;
	chain_forget(flow->current->chain);
	turn_to(CONTEXT_THREAD);
}

/* --- Translation -------------------------------------------------------- */

static enum turn turn_at(struct qemu_plugin_tb *tb, size_t index, size_t count)
{
	uint8_t bytes[INSTRUCTION_MAX];

	if (index >= count)
		return TURN_NONE;
	return turn_decode(bytes, qemu_instruction_bytes(qemu_plugin_tb_get_insn(tb, index), bytes, sizeof(bytes)));
}

void context_set_frame(uint32_t size, uint32_t place)
{
	frame_size = size;
	frame_place = place;
}

void context_watch_interrupt(struct qemu_plugin_tb *tb)
{
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_interrupt, QEMU_NO_REGISTERS, NULL);
}

/* An interrupt's stub. Between push and call the block may end, if the guest's clock is due then. */
void context_watch_block(struct qemu_plugin_tb *tb, size_t count)
{
	struct qemu_plugin_insn *push;
	bool cleared = false;
	enum turn after;
	size_t at = 0;

	for (enum turn turn; (turn = turn_at(tb, at, count)) == TURN_PAD || turn == TURN_CLD; at++)
		cleared |= turn == TURN_CLD;
	if (turn_at(tb, at, count) != TURN_PUSH_BYTE)
		return;
	after = turn_at(tb, at + 1, count);
	/* Before Linux 6.0 the stubs of the local APIC's interrupts have no cld, but a place for clac. */
	if (after != TURN_JUMP && !(after == TURN_CALL && at) && !(cleared && at + 1 == count))
		return;
	push = qemu_plugin_tb_get_insn(tb, at);
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_interrupt, QEMU_NO_REGISTERS, NULL);
	qemu_plugin_register_vcpu_mem_cb(push, on_pushed, QEMU_NO_REGISTERS, QEMU_ALL, NULL);
}

void context_watch(struct qemu_plugin_insn *insn, enum turn turn)
{
	static struct qemu_plugin_insn *pop;

	if (turn == TURN_POP_R14 && pop)
		qemu_plugin_register_vcpu_mem_cb(pop, on_pop, QEMU_NO_REGISTERS, QEMU_ALL, NULL);
	pop = turn == TURN_POP_R15 ? insn : NULL;
	switch (turn) {
	case TURN_IRET:
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_iret, QEMU_NO_REGISTERS, NULL);
		qemu_plugin_register_vcpu_mem_cb(insn, on_frame_load, QEMU_NO_REGISTERS, QEMU_ALL, NULL);
		break;
	case TURN_SYSRET:
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_sysret, QEMU_NO_REGISTERS, NULL);
		break;
	case TURN_ALLOW:
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_allowed, QEMU_NO_REGISTERS, NULL);
		break;
	case TURN_HALT:
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_idle, QEMU_NO_REGISTERS, NULL);
		break;
	case TURN_FRAME:
		qemu_plugin_register_vcpu_mem_cb(insn, on_frame_register, QEMU_NO_REGISTERS, QEMU_ALL, NULL);
		break;
	case TURN_ERET:
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_eret, QEMU_NO_REGISTERS, NULL);
		break;
	case TURN_LEAVE_TASK:
		qemu_plugin_register_vcpu_mem_cb(insn, on_leave_task, QEMU_NO_REGISTERS, QEMU_ALL, NULL);
		break;
	case TURN_ENTER_TASK:
		qemu_plugin_register_vcpu_mem_cb(insn, on_enter_task, QEMU_NO_REGISTERS, QEMU_ALL, NULL);
		break;
	default:
		break;
	}
}
