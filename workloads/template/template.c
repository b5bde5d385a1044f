#include <lab/mark.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	size_t length = argc == 3 && !strcmp(argv[2], "large") ? 16 << 20 : 64 << 10;
	double begin = seconds();

	lab_window_begin();
	for (int i = 0; i < 20; i++) {
		char *area = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (area == MAP_FAILED)
			return 1;
		memset(area, 1, length);
		munmap(area, length);
		lab_operation_end();
	}
	lab_window_end();
	printf("{\"metrics\": {\"throughput\": %.3f}}\n", 20 / (seconds() - begin));
	return 0;
}
