// SPDX-License-Identifier: GPL-2.0-or-later
/* String instructions by length: over lines in the nearest cache that holds them, and over memory not used before. */
#include "measure.h"
#include "sample.h"

#include <stddef.h>

struct strings {
	char *to, *from;
	char *begin, *end;	/* of fresh memory */
	uint64_t bytes;
};

#define STRING(name, instruction, unit)                                                                     \
	static void name(uint64_t count, void *context)                                                    \
	{                                                                                                  \
		struct strings *strings = context;                                                         \
                                                                                                           \
		while (count--) {                                                                          \
			void *to = strings->to, *from = strings->from;                                     \
			uint64_t left = strings->bytes / (unit);                                           \
                                                                                                           \
			asm volatile(instruction : "+D"(to), "+S"(from), "+c"(left) : "a"(0L) : "memory"); \
		}                                                                                          \
	}

STRING(stosb, "rep stosb", 1)
STRING(stosq, "rep stosq", 8)
STRING(movsb, "rep movsb", 1)
STRING(movsq, "rep movsq", 8)

/* The next page of memory each time. */
static void fresh(uint64_t count, void *context)
{
	struct strings *strings = context;

	while (count--) {
		void *to = strings->to;
		uint64_t left = strings->bytes / 8;

		asm volatile("rep stosq" : "+D"(to), "+c"(left) : "a"(0L) : "memory");
		strings->to += strings->bytes;
		if (strings->to == strings->end)
			strings->to = strings->begin;
	}
}

void measure_strings(void)
{
	static const uint32_t thorough[] = { 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536 };
	static const uint32_t rough[] = { 16, 64, 256, 1024, 4096, 16384 };
	static const struct {
		const char *name;
		work_fn *work;
	} all[] = { { "rep_stosb", stosb }, { "rep_stosq", stosq }, { "rep_movsb", movsb }, { "rep_movsq", movsq } };
	const uint32_t *lengths = quick ? rough : thorough;
	size_t number = quick ? COUNT(rough) : COUNT(thorough);
	struct strings strings = { .to = arena, .from = arena + 128 * KIB, .begin = arena, .end = arena + arena_bytes };

	if (!arena)
		return;
	for (size_t i = 0; i < COUNT(all); i++)
		for (size_t k = 0; k < number; k++) {
			strings.bytes = lengths[k];
			measure(&(struct bench){ .name = all[i].name, .work = all[i].work, .context = &strings,
						 .x = lengths[k], .warm = 4 });
		}
	strings.bytes = SMALL_PAGE;
	measure(&(struct bench){ .name = "rep_fresh_page", .work = fresh, .context = &strings });
}
