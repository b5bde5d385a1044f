/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What lies at a place in the guest's memory, as its kernel knows: the slab cache of an object, the variables of a CPU. */
#ifndef LAB_PLACE_H
#define LAB_PLACE_H

#include <stdint.h>
#include <stdio.h>

/* By the guest's vCPU that runs. Each is a part of a JSON object, with a comma before it; nothing where it is not known. */
void place_put_slab(FILE *file, uint64_t physical);
void place_put_cpus(FILE *file);

#endif
