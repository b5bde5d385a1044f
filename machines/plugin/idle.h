/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The moment in which a vCPU becomes idle.
 *
 * When all vCPUs are idle, QEMU's main thread moves the clock to the next
 * timer. If it looks between a CPU's halt and the count of its last
 * instructions, which takes a busy host, these count twice. So a vCPU halts
 * only while that thread sleeps, and nothing but the vCPU will wake it.
 */
#ifndef LAB_IDLE_H
#define LAB_IDLE_H

#include "qemu.h"

/* At translation: the instruction halts its vCPU. */
void idle_watch(struct qemu_plugin_insn *insn);

#endif
