/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The job: what this guest shall do, from the file /job.
 *
 * Text lines of TAB-separated fields, the first of which is a keyword:
 *
 *	seed	NUMBER
 *	set	NAME	VALUE
 *	insmod	PATH
 *	env	NAME=VALUE
 *	setup	PROGRAM	[ARGUMENT...]
 *	case	NAME	PROGRAM	[ARGUMENT...]
 *
 * It ends with the file or with a NUL, because the file is padded with NULs to
 * a fixed size: the archive around it then has the same size in every run.
 */
#ifndef LAB_JOB_H
#define LAB_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum step_kind {
	STEP_SET,
	STEP_INSMOD,
};

/* Something done once, before the cases, in the order of the file. */
struct step {
	enum step_kind kind;
	char *name;
	char *value;		/* of a setting */
};

struct job_case {
	char *name;
	char **argv;		/* ends with NULL */
};

struct job {
	uint64_t seed;
	struct step *steps;
	size_t nr_steps;
	char **env;
	size_t nr_env;
	struct job_case *setups;	/* run once, before the cases, unmeasured */
	size_t nr_setups;
	struct job_case *cases;
	size_t nr_cases;
};

/* Read the job; false, after a fatal record, if there is none or it cannot be understood. */
bool job_read(const char *path, struct job *job);

#endif
