/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Recognising the few A64 instructions that are treated apart. context.c has their meaning in a kernel. */
#ifndef LAB_A64_H
#define LAB_A64_H

#include "decode.h"
#include "qemu.h"

#include <stddef.h>
#include <stdint.h>

struct decoded a64_decode(const uint8_t *bytes, size_t size);

/* At translation: a block of the kernel that may begin an interrupt. */
void a64_watch(struct qemu_plugin_tb *tb, size_t count);

/* A block of the kernel that reads the number of an address space, to enter it or to flush it. */
void a64_watch_spaces(struct qemu_plugin_tb *tb, size_t count);

#endif
