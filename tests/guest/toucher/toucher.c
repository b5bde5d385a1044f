// SPDX-License-Identifier: GPL-2.0-or-later
#include <lab/mark.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Touches PAGES pages, one operation each. */
int main(void)
{
	long pages = atol(getenv("PAGES"));
	char *memory = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FILE *note = fopen("/workload/note.txt", "r");
	char word[32] = "";

	if (!note || !fgets(word, sizeof(word), note))
		return 3;
	lab_window_begin();
	for (long i = 0; i < pages; i++) {
		memory[i << 12] = 1;
		lab_operation_end();
	}
	lab_window_end();
	printf("touched: %ld pages\nthe note says %s\n", pages, word);
	return 0;
}
