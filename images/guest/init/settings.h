/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Settings: the properties of this guest outside the kernel image. */
#ifndef LAB_SETTINGS_H
#define LAB_SETTINGS_H

#include <stdbool.h>

/* Keep khugepaged and proactive compaction out of the cases, if the kernel has them. */
void settings_calm(void);

/* Apply a setting and read it back; reports the value in force, or why it was refused. */
bool setting_apply(const char *name, const char *value);

/*
 * Wait until the kernel has nothing of its own to do. Distributors' kernels test
 * their cryptography in a thread for half a minute after boot, which would take
 * half the CPU from the first cases. Reports "idle" as "yes", or "no" after a
 * minute of guest time.
 */
void settings_wait_idle(void);

/* Report the settings that every measurement of memory depends on, requested or not. */
void settings_show(void);

#endif
