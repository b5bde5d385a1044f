/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The classes of A64 instructions. */
#ifndef LAB_A64_CLASS_H
#define LAB_A64_CLASS_H

#include "class.h"

#include <stdint.h>

enum class a64_class(uint32_t word);

#endif
