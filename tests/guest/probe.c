// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Programs whose counters can be worked out by hand: what lies between the marks is written in assembly, to the
 * instruction. test_plugin.py does the sums.
 *
 *   loads PAGES PASSES   one load in each of so many small pages, so many times
 *   huge PAGES           one load in each 4 KiB of so many huge pages
 *   remap TIMES          stores in two huge pages, which change places each time
 *   stores PAGES         one store in each of so many pages that were never touched: each faults
 *   strings BYTES COUNT  rep movsb of so many bytes, so many times
 *   chase LINES          dependent loads, a line in each of so many pages
 *   classes TIMES        one instruction of each class that a program may use, so many times
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define HUGE	(2UL << 20)
#define PAGE	4096UL

/* In the same statement as what is measured: the compiler would put its own instructions between two. */
#define MARK(code)	".byte 0x0f, 0x1f, 0x80, " #code ", 0x42, 0x41, 0x4c\n"
/* At the beginning of a cache line: where the compiler puts it decides nothing. */
#define BEGIN		".balign 64\n" MARK(1)
#define OPERATION	MARK(3)
#define END		MARK(2)

static char *map(size_t length, int advice)
{
	char *start = mmap(NULL, length + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (start == MAP_FAILED)
		exit(1);
	start = (char *)(((uintptr_t)start + HUGE - 1) & ~(HUGE - 1));
	madvise(start, length, advice);
	return start;
}

/* Begin right after a tick of the timer, which moves this clock, so that none falls into the window. */
static void after_tick(void)
{
	struct timespec before, now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &before);
	do
		clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	while (now.tv_nsec == before.tv_nsec);
}

static void loads(char *at, long count, long passes)
{
	__asm__ volatile(BEGIN
			 "1: mov %0, %%rax\n"
			 "mov %1, %%rcx\n"
			 "2: mov (%%rax), %%rdx\n"
			 "add $4096, %%rax\n"
			 "dec %%rcx\n"
			 "jnz 2b\n"
			 "dec %2\n"
			 "jnz 1b\n"
			 OPERATION END
			 : "+r"(at), "+r"(count), "+r"(passes) : : "rax", "rcx", "rdx", "memory", "cc");
}

/*
 * At the same address, without a flush of all: the kernel flushes the one page that it takes away. The page that was
 * freed last is the one that it gives out first.
 */
static void remap(char *at, long times)
{
	__asm__ volatile(BEGIN : : : "memory");
	for (long i = 0; i < times; i++) {
		madvise(at, HUGE, MADV_DONTNEED);
		madvise(at + HUGE, HUGE, MADV_DONTNEED);
		for (size_t offset = 0; offset < 2 * HUGE; offset += HUGE)
			for (size_t page = 0; page < 5; page++)
				*(volatile char *)(at + offset + page * PAGE) = 1;
	}
	__asm__ volatile(OPERATION END : : : "memory");
}

static void stores(char *at, long count)
{
	__asm__ volatile(BEGIN
			 "1: movb $1, (%0)\n"
			 "add $4096, %0\n"
			 "dec %1\n"
			 "jnz 1b\n"
			 END
			 : "+r"(at), "+r"(count) : : "memory", "cc");
}

static void strings(char *to, char *from, long bytes, long count)
{
	__asm__ volatile(BEGIN
			 "1: mov %0, %%rdi\n"
			 "mov %1, %%rsi\n"
			 "mov %2, %%rcx\n"
			 "rep movsb\n"
			 "dec %3\n"
			 "jnz 1b\n"
			 END
			 : "+r"(to), "+r"(from), "+r"(bytes), "+r"(count) :
			 : "rdi", "rsi", "rcx", "memory", "cc");
}

static void chase(char *at, long hops)
{
	__asm__ volatile(BEGIN
			 "1: mov (%0), %0\n"
			 "dec %1\n"
			 "jnz 1b\n"
			 END
			 : "+r"(at), "+r"(hops) : : "memory", "cc");
}

/*
 * In each turn: two atomics, two fences, a division, a pause, a vector, an indirect call and a plain return, a
 * segment, the time, and three returns that what is before them redirects, as retpolines, safe returns and retpolines
 * that return in a thunk do.
 */
static void classes(long *at, long times)
{
	__asm__ volatile(BEGIN
			 "1: lock addq $1, (%0)\n"
			 "xchg %%rax, (%0)\n"
			 "lfence\n"
			 "mfence\n"
			 "xor %%edx, %%edx\n"
			 "mov $7, %%eax\n"
			 "mov $3, %%ecx\n"
			 "div %%rcx\n"
			 "pause\n"
			 "movups (%0), %%xmm0\n"
			 "lea 2f(%%rip), %%rcx\n"
			 "call *%%rcx\n"			/* ret, at 2 */
			 "mov %%ds, %%ecx\n"
			 "mov %%ecx, %%ds\n"
			 "rdtsc\n"
			 "lea 3f(%%rip), %%rcx\n"
			 "call 4f\n"				/* mov, ret: to 3 */
			 "ud2\n"
			 "3: lea 8f(%%rip), %%rcx\n"
			 "call 9f\n"				/* mov, jmp, ret: to 8 */
			 "ud2\n"
			 "8: call 5f\n"			/* call 6, lea, ret: behind this */
			 "jmp 7f\n"
			 "2: ret\n"
			 "4: mov %%rcx, (%%rsp)\n"
			 "ret\n"
			 "9: mov %%rcx, (%%rsp)\n"
			 "%{disp32%} jmp 2b\n"
			 "5: call 6f\n"
			 "ud2\n"
			 "6: lea 8(%%rsp), %%rsp\n"
			 "ret\n"
			 "7: dec %1\n"
			 "jnz 1b\n"
			 END
			 : "+r"(at), "+r"(times) : : "rax", "rcx", "rdx", "xmm0", "memory", "cc");
}

/* The line in the next page is a few lines further on: no stream, and no two in one cache set. */
static char *chain(long lines)
{
	char *start = map((size_t)lines * PAGE, MADV_NOHUGEPAGE);

	for (long i = 0; i < lines; i++)
		*(char **)(start + i * (long)(PAGE + 320)) = start + (i + 1) % lines * (long)(PAGE + 320);
	return start;
}

int main(int argc, char **argv)
{
	long first = argc > 2 ? atol(argv[2]) : 0, second = argc > 3 ? atol(argv[3]) : 0;
	const char *what = argc > 1 ? argv[1] : "";
	char *at, *from;

	if (!strcmp(what, "loads")) {
		at = map((size_t)first * PAGE, MADV_NOHUGEPAGE);
		memset(at, 1, (size_t)first * PAGE);
		after_tick();
		loads(at, first, second);
	} else if (!strcmp(what, "huge")) {
		at = map((size_t)first * HUGE, MADV_HUGEPAGE);
		memset(at, 1, (size_t)first * HUGE);
		after_tick();
		loads(at, first * 512, 1);
	} else if (!strcmp(what, "remap")) {
		at = map(2 * HUGE, MADV_HUGEPAGE);
		memset(at, 1, 2 * HUGE);
		after_tick();
		remap(at, first);
	} else if (!strcmp(what, "stores")) {
		at = map((size_t)first * PAGE, MADV_NOHUGEPAGE);
		after_tick();
		stores(at, first);
	} else if (!strcmp(what, "strings")) {
		at = map((size_t)first, MADV_NOHUGEPAGE);
		from = map((size_t)first, MADV_NOHUGEPAGE);
		memset(at, 1, (size_t)first);
		memset(from, 1, (size_t)first);
		after_tick();
		strings(at, from, first, second);
	} else if (!strcmp(what, "chase")) {
		at = chain(first);
		after_tick();
		chase(at, 2 * first);
	} else if (!strcmp(what, "classes")) {
		at = map(PAGE, MADV_NOHUGEPAGE);
		memset(at, 1, PAGE);
		after_tick();
		classes((long *)at, first);
	} else {
		return 2;
	}
	puts("{\"metrics\":{\"done\":1}}");
	return 0;
}
