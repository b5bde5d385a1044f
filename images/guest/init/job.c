// SPDX-License-Identifier: GPL-2.0-or-later
/* Reading the job. Nothing is done before all of it has been understood. */
#include "job.h"
#include "files.h"
#include "report.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS_MAX	256

char job_cases[JOB_MAX];
static char text[JOB_MAX];

struct line {
	const char *file;
	size_t number;
	char *fields[FIELDS_MAX + 1];
	size_t nr_fields;
};

/* One more element at the end of an array; NULL when memory is out. */
static void *grow(void *array, size_t count, size_t size)
{
	return reallocarray(array, count + 1, size);
}

static bool bad(const struct line *line, const char *what)
{
	report_fatal("%s line %zu: %s: %.200s", line->file, line->number, what, line->fields[0]);
	return false;
}

static bool take_seed(struct job *job, const struct line *line)
{
	char *end;

	if (line->nr_fields != 2 || !isdigit((unsigned char)line->fields[1][0]))
		return bad(line, "needs one number");
	errno = 0;
	job->seed = strtoull(line->fields[1], &end, 10);
	if (*end || errno)
		return bad(line, "needs a number of 64 bits");
	return true;
}

static bool take_setting(struct job *job, const struct line *line)
{
	struct job_setting *settings;

	if (line->nr_fields != 3)
		return bad(line, "needs a name and a value");
	settings = grow(job->settings, job->nr_settings, sizeof(*settings));
	if (!settings)
		return bad(line, "does not fit into memory");
	job->settings = settings;
	settings[job->nr_settings++] = (struct job_setting){ .name = line->fields[1], .value = line->fields[2] };
	return true;
}

static bool take_env(struct job *job, const struct line *line)
{
	char **env;

	if (line->nr_fields != 2 || !strchr(line->fields[1], '='))
		return bad(line, "needs NAME=VALUE");
	env = grow(job->env, job->nr_env, sizeof(*env));
	if (!env)
		return bad(line, "does not fit into memory");
	job->env = env;
	env[job->nr_env++] = line->fields[1];
	return true;
}

/* One more program to run: its argument list begins at a field of the line. */
static bool add_program(struct job_case **list, size_t *count, const struct line *line, size_t first)
{
	size_t words = line->nr_fields - first;
	struct job_case *programs = grow(*list, *count, sizeof(*programs));
	char **argv = calloc(words + 1, sizeof(*argv));

	if (programs)
		*list = programs;
	if (!programs || !argv)
		return bad(line, "does not fit into memory");
	memcpy(argv, line->fields + first, words * sizeof(*argv));
	programs[(*count)++] = (struct job_case){ .name = line->fields[first - 1], .argv = argv };
	return true;
}

static bool take_case(struct job *job, const struct line *line)
{
	if (line->nr_fields < 3)
		return bad(line, "needs a name and a program");
	return add_program(&job->cases, &job->nr_cases, line, 2);
}

static bool take_setup(struct job *job, const struct line *line)
{
	if (line->nr_fields < 2)
		return bad(line, "needs a program");
	return add_program(&job->setups, &job->nr_setups, line, 1);
}

static bool take_line(struct job *job, const struct line *line)
{
	const char *keyword = line->fields[0];

	if (!strcmp(keyword, "seed"))
		return take_seed(job, line);
	if (!strcmp(keyword, "set"))
		return take_setting(job, line);
	if (!strcmp(keyword, "env"))
		return take_env(job, line);
	if (!strcmp(keyword, "setup"))
		return take_setup(job, line);
	if (!strcmp(keyword, "case"))
		return take_case(job, line);
	return bad(line, "unknown keyword");
}

static bool split(char *start, struct line *line)
{
	line->nr_fields = 0;
	memset(line->fields, 0, sizeof(line->fields));
	for (char *field = start; field;) {
		if (line->nr_fields == FIELDS_MAX)
			return bad(line, "has too many fields");
		line->fields[line->nr_fields++] = strsep(&field, "\t");
	}
	return true;
}

static bool load(const char *path, char *buffer)
{
	ssize_t length = file_read(path, buffer, JOB_MAX);

	if (length < 0)
		report_fatal("cannot read %s: %s", path, strerror((int)-length));
	return length >= 0;
}

static bool take(const char *path, char *buffer, struct job *job)
{
	struct line line = { .file = path };

	if (strlen(buffer) == JOB_MAX - 1) {
		report_fatal("%s is longer than %d bytes", path, JOB_MAX - 2);
		return false;
	}
	for (char *rest = buffer; rest && *rest;) {
		char *start = strsep(&rest, "\n");

		line.number++;
		if (*start && (!split(start, &line) || !take_line(job, &line)))
			return false;
	}
	return true;
}

bool job_read(struct job *job)
{
	return load("/job", text) && take("/job", text, job);
}

bool job_load_cases(void)
{
	return load("/cases", job_cases);
}

bool job_take_cases(struct job *job)
{
	return take("/cases", job_cases, job);
}
