/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Recognising the few RISC-V instructions that are treated apart. context.c has their meaning in a kernel. */
#ifndef LAB_RV64_H
#define LAB_RV64_H

#include "decode.h"
#include "qemu.h"

#include <stddef.h>
#include <stdint.h>

struct decoded rv64_decode(const uint8_t *bytes, size_t size);

/* At translation: a block of the kernel that may begin an interrupt. */
void rv64_watch(struct qemu_plugin_tb *tb, size_t count);

#endif
