/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Measurements: opened and closed by marks in the guest's programs. */
#ifndef LAB_WINDOW_H
#define LAB_WINDOW_H

#include "total.h"

#include <stdint.h>

/* As in workloads/include/lab/mark.h. */
enum mark {
	MARK_WINDOW_BEGIN = 1,
	MARK_WINDOW_END = 2,
	MARK_OPERATION_END = 3,
	MARK_CASE_BEGIN = 4,
	MARK_CASE_END = 5,
	MARK_OPERATIONS_AGAIN = 6,
	MARK_READY = 7,
	MARK_BOOTED = 8,
	MARK_MEASURES_BOOT = 9,
	MARK_HOLD = 10,
	MARK_OPERATION_BEGIN = 11,
};

enum kind_of_window {
	WINDOW_OWN,
	WINDOW_CASE,
};

/* One operation of the program's, without its interruptions. */
struct operation {
	struct tally spent;
	uint64_t interruptions;
};

struct window {
	uint64_t sequence;
	uint64_t case_number;
	enum kind_of_window kind;
	struct tally all;
	struct operation *operations;
	uint64_t nr_operations;
	uint64_t of_vcpus[VCPUS_MAX];	/* in rounds: the operations that each ended */
};

/* Set by the part that watches code; called at MARK_READY, before which nothing of the guest is remembered. */
extern void (*windows_ready)(void);

/* The machine is switched on. */
void windows_start(void);
void on_mark(unsigned int vcpu, void *mark);
void windows_finish(void);

#endif
