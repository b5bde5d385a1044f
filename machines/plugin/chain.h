/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Call chains: how often each block of the program's was executed, by the calls that led there. It takes a callback
 * for each block, so it is done for a profile alone. Of one vCPU, and of x86-64.
 */
#ifndef LAB_CHAIN_H
#define LAB_CHAIN_H

#include "block.h"

#include <stdio.h>

void chain_watch(struct qemu_plugin_tb *tb, struct block *block);

/* The task is a new one. stack: that of context_chain(); NULL: none yet. */
void chain_forget(void *stack);
void chains_begin(void);

/* The calls, each with the one before it, its site and its target; then executions, by call and place of the block. */
void chains_put(FILE *file);

#endif
