/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Prints the kHz of this machine's TSC. The machines that QEMU's TCG emulates have the same TSC, but cannot measure its
 * rate: the timers that they would compare it with are emulated.
 */
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

/* The TSC at a time in seconds. The shortest pair of readings is the one that nothing interrupted. */
static double tsc_at(double *now_s)
{
	unsigned long long shortest = ~0ull;
	double tsc = 0;

	for (int i = 0; i < 1000; i++) {
		struct timespec now;
		unsigned long long before = __rdtsc();

		clock_gettime(CLOCK_MONOTONIC_RAW, &now);
		unsigned long long taken = __rdtsc() - before;

		if (taken < shortest) {
			shortest = taken;
			tsc = before + taken / 2.0;
			*now_s = now.tv_sec + now.tv_nsec * 1e-9;
		}
	}
	return tsc;
}

int main(void)
{
	struct timespec wait = { 0, 500000000 };
	double began_s, ended_s;
	double first = tsc_at(&began_s);

	nanosleep(&wait, NULL);
	double last = tsc_at(&ended_s);

	printf("%.0f\n", (last - first) / (ended_s - began_s) / 1000);
	return 0;
}
