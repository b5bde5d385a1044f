// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The report channel: a terminal device in raw mode, written line by line.
 *
 * Workloads may print anything, so bytes that are not UTF-8 become U+FFFD and
 * control characters are escaped: the output is always valid JSON.
 */
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define LINE_MAX_BYTES	32768
#define LINE_RESERVE	64	/* always left for the punctuation that closes a record */
#define STRING_MAX	2048	/* raw bytes of one field */

static int channel = -1;
static char line[LINE_MAX_BYTES];
static size_t used;
static bool fresh;		/* no comma is due before the next key */
static long long lines;

int report_open(const char *device)
{
	struct termios mode;

	channel = open(device, O_WRONLY | O_NOCTTY | O_CLOEXEC);
	if (channel < 0)
		return -errno;
	if (!tcgetattr(channel, &mode)) {
		cfmakeraw(&mode);
		tcsetattr(channel, TCSANOW, &mode);
	}
	return 0;
}

static bool put(const char *bytes, size_t count)
{
	if (used + count > sizeof(line) - LINE_RESERVE)
		return false;
	memcpy(line + used, bytes, count);
	used += count;
	return true;
}

/* Punctuation lives in the reserve, so a record is closed however long its fields were. */
static void put_mark(char mark)
{
	if (used < sizeof(line))
		line[used++] = mark;
}

/* The length of the well-formed UTF-8 character at the start of text, or 0. */
static size_t character(const unsigned char *text, size_t length)
{
	size_t want = text[0] < 0x80 ? 1 : text[0] < 0xc2 ? 0 : text[0] < 0xe0 ? 2 :
		      text[0] < 0xf0 ? 3 : text[0] < 0xf5 ? 4 : 0;

	if (!want || want > length)
		return 0;
	for (size_t i = 1; i < want; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
	    (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
		return 0;
	return want;
}

size_t report_cut(const char *text, size_t length, size_t limit)
{
	size_t end = length < limit ? length : limit;

	/* At most three bytes of a character can precede the cut. */
	for (size_t back = 1; end < length && back <= 3 && back < end; back++) {
		const unsigned char *start = (const unsigned char *)text + end - back;

		if (character(start, length - end + back) > back)
			return end - back;
	}
	return end;
}

static bool put_escaped(const unsigned char *text, size_t size)
{
	char escape[8];

	if (size > 1)
		return put((const char *)text, size);
	if (!size)
		return put("\\ufffd", 6);
	if (*text == '"' || *text == '\\') {
		escape[0] = '\\';
		escape[1] = (char)*text;
		return put(escape, 2);
	}
	if (*text < 0x20 || *text == 0x7f) {
		snprintf(escape, sizeof(escape), "\\u%04x", *text);
		return put(escape, 6);
	}
	return put((const char *)text, 1);
}

static void put_string(const char *text, size_t length)
{
	size_t size;

	length = report_cut(text, length, STRING_MAX);
	put_mark('"');
	for (size_t at = 0; at < length; at += size ? size : 1) {
		size = character((const unsigned char *)text + at, length - at);
		if (!put_escaped((const unsigned char *)text + at, size))
			break;
	}
	put_mark('"');
}

static void put_key(const char *key)
{
	if (!fresh)
		put_mark(',');
	fresh = false;
	put_string(key, strlen(key));
	put_mark(':');
}

void report_begin(const char *type)
{
	used = 0;
	fresh = true;
	put_mark('{');
	report_string("t", type);
}

void report_text(const char *key, const char *text, size_t length)
{
	put_key(key);
	put_string(text, length);
}

void report_string(const char *key, const char *text)
{
	report_text(key, text, strlen(text));
}

void report_number(const char *key, long long value)
{
	char digits[24];

	put_key(key);
	put(digits, (size_t)snprintf(digits, sizeof(digits), "%lld", value));
}

void report_flag(const char *key, bool value)
{
	put_key(key);
	put(value ? "true" : "false", value ? 4 : 5);
}

void report_enter(const char *key)
{
	put_key(key);
	put_mark('{');
	fresh = true;
}

void report_leave(void)
{
	put_mark('}');
	fresh = false;
}

size_t report_length(void)
{
	return used;
}

void report_end(void)
{
	put_mark('}');
	put_mark('\n');
	for (size_t sent = 0; sent < used;) {
		ssize_t step = write(channel, line + sent, used - sent);

		if (step < 0 && errno != EINTR && errno != EAGAIN)
			break;
		if (step > 0)
			sent += (size_t)step;
	}
	lines++;
}

void report_fatal(const char *format, ...)
{
	char error[STRING_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, sizeof(error), format, arguments);
	va_end(arguments);
	report_begin("fatal");
	report_string("error", error);
	report_end();
}

void report_done(void)
{
	long long before = lines;

	report_begin("done");
	report_number("lines", before);
	report_end();
}

void report_drain(void)
{
	tcdrain(channel);
}
