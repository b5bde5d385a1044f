/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The job: the work of this guest. /job says how the guest is made ready,
 * which is the same for every seed; /cases has the programs that then run in it.
 *
 * Text lines of TAB-separated fields, the first of which is a keyword:
 *
 *	set	NAME	VALUE				(/job)
 *	env	NAME=VALUE
 *	setup	PROGRAM	[ARGUMENT...]
 *	seed	NUMBER					(/cases)
 *	case	NAME	PROGRAM	[ARGUMENT...]
 *
 * A file ends with its last byte or with a NUL, because it is padded with NULs
 * to a fixed size: the archive around it then has the same size in every run.
 */
#ifndef LAB_JOB_H
#define LAB_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Applied once, before the cases, in the order of the file. */
struct job_setting {
	char *name;
	char *value;
};

struct job_case {
	char *name;
	char **argv;		/* ends with NULL */
};

struct job {
	uint64_t seed;
	struct job_setting *settings;
	size_t nr_settings;
	char **env;
	size_t nr_env;
	struct job_case *setups;	/* run once, before the cases, unmeasured */
	size_t nr_setups;
	struct job_case *cases;
	size_t nr_cases;
};

#define JOB_MAX	(1 << 20)

/*
 * The text of /cases. The lab writes that of another seed over it in a guest
 * that continues from a kept state (lab/guests/snapshot.py), so nothing may
 * have looked at its contents before.
 */
extern char job_cases[JOB_MAX];

/* Read /job; false, after a fatal record, if there is none or it cannot be understood. */
bool job_read(struct job *job);

/* Read /cases, and look at nothing of it. */
bool job_load_cases(void);

/* Parse the loaded text. */
bool job_take_cases(struct job *job);

#endif
