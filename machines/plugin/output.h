/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The output: JSON lines. */
#ifndef LAB_OUTPUT_H
#define LAB_OUTPUT_H

#include "window.h"

#include <stdbool.h>

bool output_open(const char *path, int interface);

/* The classes that the guest's instructions are decoded to, one bit each. */
void output_classes(uint32_t classes);

void output_window(const struct window *window, bool complete);
void output_close(void);

#endif
