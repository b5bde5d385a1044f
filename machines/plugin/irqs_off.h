/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The longest time for which a vCPU takes no interrupts: EFLAGS.IF is clear. It is known of x86-64 guests with one vCPU.
 */
#ifndef LAB_IRQS_OFF_H
#define LAB_IRQS_OFF_H

#include "decode.h"
#include "span.h"

#include <stdbool.h>

extern struct spans irqs_off;
extern bool irqs_off_known;

/* At translation of the kernel's code, before anything is counted. site: the instruction. */
void irqs_off_watch_block(struct qemu_plugin_tb *tb, size_t count);
void irqs_off_watch(struct qemu_plugin_insn *insn, enum turn turn, const struct span_site *site);

#endif
