// SPDX-License-Identifier: GPL-2.0-or-later
#include "span.h"
#include "machine.h"
#include "vcpu.h"

/* The count at the begin of a block of the kernel's is taken back as far as it is behind the instruction. */
static struct moment behind(const struct span_site *site)
{
	struct moment moment = moment_look();
	uint32_t instructions;

	if (!site->block)
		return moment;
	instructions = site->block->weight - site->instructions;
	moment.instructions -= instructions;
	moment.millicycles -= instructions * machine.costs.instruction + site->block->classes - site->classes;
	return moment;
}

void spans_begin(struct spans *spans)
{
	spans->longest = (struct span){ 0 };
	if (spans->forbidden)
		spans->since = moment_look();
}

void spans_forbid(struct spans *spans, const struct span_site *site)
{
	if (!spans->forbidden && measuring) {
		spans->since = behind(site);
		spans->since_at = site->address;
	}
	spans->forbidden = true;
}

void spans_allow(struct spans *spans, const struct span_site *site)
{
	bool ends = spans->forbidden && measuring;
	struct moment now;

	spans->forbidden = false;
	if (!ends)
		return;
	now = behind(site);
	if (now.millicycles - spans->since.millicycles > spans->longest.millicycles)
		spans->longest = (struct span){ now.millicycles - spans->since.millicycles,
						now.instructions - spans->since.instructions, spans->since_at,
						site->address };
}
