// SPDX-License-Identifier: Apache-2.0
#include "agent/rights.h"

#include <linux/capability.h>
#include <stdbool.h>

#include "agent/base/cleanup.h"
#include "agent/base/log.h"
#include "agent/base/privileges.h"
#include "symbolize/sandbox.h"

static const struct {
	unsigned number;
	const char *name, *without;
} rights[] = {
	{ CAP_SYS_PTRACE, "CAP_SYS_PTRACE",
	  "the mappings, goroutines and heaps of other users' programs cannot be read" },
	{ CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH",
	  "programs that only their owner may read have no names and no unwind rows" },
	{ CAP_CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE",
	  "files of deleted programs and of containers cannot be opened through map_files" },
	{ CAP_SYSLOG, "CAP_SYSLOG", "functions of the kernel have no names" },
};

/* No capability, but a part of the sandbox that a kernel may lack: told in the same form. */
static void print_landlock(FILE *out)
{
	bool found = sandbox_has_landlock();

	(void)fprintf(out, "%-22s %-3s%s\n", "landlock", found ? "yes" : "no",
		      found ? ""
			    : " boot a kernel with CONFIG_SECURITY_LANDLOCK and with landlock in its lsm= "
			      "list; instead: the symbolizer is kept from files by its user, its root "
			      "directory and its system-call filter");
}

void rights_print(FILE *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(rights); i++) {
		bool held = privileges_has(rights[i].number);

		(void)fprintf(out, "%-22s %-3s%s%s\n", rights[i].name, held ? "yes" : "no",
			      held ? "" : " give it in AmbientCapabilities= of the unit, or run as root; instead: ",
			      held ? "" : rights[i].without);
	}
	print_landlock(out);
}

void rights_warn(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(rights); i++)
		if (!privileges_has(rights[i].number))
			log_warn("without %s %s: give it in AmbientCapabilities= of the unit, or run as root",
				 rights[i].name, rights[i].without);
}
