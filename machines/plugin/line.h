/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A directory of lines, as between caches that are kept coherent: which vCPUs
 * have a line, and which one wrote it last. A store to a line that others have
 * moves it, and so does a load of one that another vCPU has written since this
 * one lost it. The machine's file has the cost of a move, and a line is in one
 * place at a time: a vCPU that wants it while it is on its way has to queue.
 */
#ifndef LAB_LINE_H
#define LAB_LINE_H

#include "block.h"
#include "hold.h"
#include "qemu.h"

#include <stdio.h>

/* An instruction of a block that may access memory. */
struct line_site {
	const struct site *site;
	uint64_t pc;
	bool atomic;
	bool leads;		/* a load, and the vCPU's next access of the line was an atomic */
	enum lock_part part;
};

/* At translation. */
void line_watch(struct qemu_plugin_insn *insn, const struct site *site, size_t index, uint64_t pc, bool atomic);

/* The hint of a loop that waits for the line that it read last. */
void on_pause(unsigned int vcpu, void *site);

/* A window begins: the counts until now are forgotten, the places of lines are not. */
void lines_begin(void);

/* The lines that moved in operations of the window, as a JSON array. */
void lines_put(FILE *file);

#endif
