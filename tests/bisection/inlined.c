// SPDX-License-Identifier: GPL-2.0-or-later
/* Functions that a compiler may put into their callers, for test_hunks.py. */
static int hidden(struct path *path)
{
	return path->mode;
}

static inline int may(struct path *path, int mask)
{
	return hidden(path) & mask;
}

int kept(struct path *path)
{
	return hidden(path);
}

int walk(struct path *path)
{
	if (may(path, 1) || kept(path))
		return elsewhere(path);
	return 0;
}
