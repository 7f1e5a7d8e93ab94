/* SPDX-License-Identifier: Apache-2.0 */
/* The tools: each asks the API as its caller would, and makes a compact answer of it with units,
 * quality and what to ask next. */
#ifndef PROFD_API_MCP_TOOLS_H
#define PROFD_API_MCP_TOOLS_H

#include <cjson/cJSON.h>

#include "api/http/router.h"

#define TOOL_ANSWER_MAX 20000u /* bytes of one answer: fewer than 8,000 tokens */

struct tool_call {
	struct http_call *call; /* borrowed */
	const cJSON *arguments; /* an object or NULL, borrowed */
	cJSON *result;		/* the answer, an object */
	struct err *err;
};

struct tool {
	const char *name, *title, *description;
	const char *schema; /* JSON of its arguments */
	bool starts;	    /* takes a profile: role profile */
	int (*run)(struct tool_call *t);
};
/* Ended by a NULL name. */
extern const struct tool tools[];

#endif
