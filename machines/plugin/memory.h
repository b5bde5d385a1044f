/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory that grows with a guest's work: its code, its tasks, the operations that it marks. */
#ifndef LAB_MEMORY_H
#define LAB_MEMORY_H

#include <stddef.h>

/* Bytes of all growing memory; more for vCPUs that contend, whose lines take some 30 MiB at once. */
#define MEMORY_MAX		(64UL << 20)
#define MEMORY_MAX_ROUNDS	(160UL << 20)

/* Before anything is taken; else it is MEMORY_MAX. */
void memory_allow(size_t bytes);

/* Zeroed, and never given back. Both end QEMU if a guest needs more than these. */
void *memory_get(size_t count, size_t size);
void *memory_grow(void *array, size_t count, size_t more, size_t size);

#endif
