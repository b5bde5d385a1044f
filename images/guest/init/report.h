/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The report: one JSON object per line on the report channel.
 *
 * A record is begun, given its fields in order, and ended; only then does it
 * leave. Every line is bounded, for any content of a field: a long string is cut,
 * and callers that must not lose text send it in pieces of REPORT_PIECE.
 */
#ifndef LAB_REPORT_H
#define LAB_REPORT_H

#include <stdbool.h>
#include <stddef.h>

#define REPORT_PIECE	1024	/* raw bytes of text per record */
#define REPORT_FLUSH	4096	/* a record this long is better continued in another */

int report_open(const char *device);
void report_begin(const char *type);
void report_text(const char *key, const char *text, size_t length);
void report_string(const char *key, const char *text);
void report_number(const char *key, long long value);
void report_flag(const char *key, bool value);
void report_enter(const char *key);
void report_leave(void);
size_t report_length(void);
void report_end(void);
void report_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));
void report_done(void);
void report_drain(void);

/* The length of the longest start of text, at most limit, that ends between two characters. */
size_t report_cut(const char *text, size_t length, size_t limit);

#endif
