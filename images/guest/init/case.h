/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Cases: workloads, one freshly started process after another. */
#ifndef LAB_CASE_H
#define LAB_CASE_H

#include "job.h"

#include <stdbool.h>

/* Run one case and report it: begin, its output, its changes of /proc/vmstat, end. */
void case_run(const struct job *job, const struct job_case *run);

/* Run a program that prepares the guest for its cases; false, after a fatal record, when it failed. */
bool setup_run(const struct job *job, const struct job_case *run);

#endif
