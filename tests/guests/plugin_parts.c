// SPDX-License-Identifier: GPL-2.0-or-later
/* Parts of the cost plugin without QEMU, for test_plugin_arm64.py: one answer for each line that is read. */
#include "a64.h"
#include "a64_class.h"
#include "space.h"
#include "vcpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct vcpu both[2];
struct vcpu *vcpus = both;
unsigned int nr_vcpus = 2, running;
bool rounds;

static void decode(uint32_t word)
{
	static const char *const kinds[NR_KINDS] = {
		[KIND_PLAIN]		= "plain",
		[KIND_MARK]		= "mark",
		[KIND_ENTER_SPACE]	= "enter",
		[KIND_FLUSH_SPACE]	= "space",
		[KIND_FLUSH_SPACES]	= "spaces",
		[KIND_FLUSH_ITS_PAGE]	= "page",
	};
	struct decoded decoded = a64_decode((const uint8_t *)&word, sizeof(word));
	enum class class = a64_class(word);

	printf("%s %s\n", class == CLASS_NONE ? "-" : class_costs[class], kinds[decoded.kind]);
}

/* A vCPU enters or flushes the space of a name (0: not known); prints the epochs of both vCPUs afterwards. */
static void run(const char *what, unsigned int vcpu, uint64_t name)
{
	on_space_named(vcpu, 0, name, NULL);
	if (!strcmp(what, "enter"))
		on_space_entered(vcpu, NULL);
	else if (!strcmp(what, "flush"))
		on_space_flushed(vcpu, NULL);
	else
		on_spaces_flushed(vcpu, NULL);
	for (int i = 0; i < 2; i++)
		printf("%" PRIu64 " %" PRIu64 "%c", both[i].epochs[MODE_USER], both[i].epochs[MODE_KERNEL], i ? '\n' : ' ');
}

int main(void)
{
	char what[16];
	unsigned int vcpu;
	uint64_t name;

	while (scanf("%15s %u %" SCNx64, what, &vcpu, &name) == 3)
		if (!strcmp(what, "decode"))
			decode((uint32_t)name);
		else
			run(what, vcpu, name);
	return 0;
}
