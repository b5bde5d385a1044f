/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Cases: workloads, one freshly started process after another. */
#ifndef LAB_CASE_H
#define LAB_CASE_H

#include "job.h"

/* Run one case and report it: begin, what it printed, what it did to /proc/vmstat, end. */
void case_run(const struct job *job, const struct job_case *run);

#endif
