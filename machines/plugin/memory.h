/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory for what grows with what a guest does: its code, its tasks, the operations that it marks. */
#ifndef LAB_MEMORY_H
#define LAB_MEMORY_H

#include <stddef.h>

#define MEMORY_MAX	(64UL << 20)	/* bytes, of all that a guest makes grow */

/* Zeroed, and never given back. Both end QEMU where a guest makes more than MEMORY_MAX grow. */
void *memory_get(size_t count, size_t size);
void *memory_grow(void *array, size_t count, size_t more, size_t size);

#endif
