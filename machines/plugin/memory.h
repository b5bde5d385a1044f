/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory that grows with a guest's work: its code, its tasks, the operations that it marks. */
#ifndef LAB_MEMORY_H
#define LAB_MEMORY_H

#include <stddef.h>

#define MEMORY_MAX	(64UL << 20)	/* bytes of all growing memory */

/* Zeroed, and never given back. Both end QEMU if a guest needs more than MEMORY_MAX. */
void *memory_get(size_t count, size_t size);
void *memory_grow(void *array, size_t count, size_t more, size_t size);

#endif
