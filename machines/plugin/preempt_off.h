/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The longest time for which a kernel with CONFIG_PREEMPT_COUNT takes no other task: preempt_count() is not 0. It is
 * known of x86-64 guests with one vCPU.
 */
#ifndef LAB_PREEMPT_OFF_H
#define LAB_PREEMPT_OFF_H

#include "qemu.h"
#include "span.h"

#include <stdbool.h>

extern struct spans preempt_off;

void preempt_off_begin(void);		/* a window */
bool preempt_off_known(void);		/* of the whole window */

/* At translation of the kernel's code. site: the instruction. */
void preempt_off_watch(struct qemu_plugin_insn *insn, const struct span_site *site);

#endif
