/* SPDX-License-Identifier: Apache-2.0 */
/* A profile in the format the client asked for, with the options that all such calls share. */
#ifndef PROFD_API_FLAMEGRAPH_H
#define PROFD_API_FLAMEGRAPH_H

#include "api/router.h"

/* Query parameters of a call that answers with a rendered profile. */
extern const struct query_spec flamegraph_params[];

/* Chooses the format, applies where, groupBy, from and to, renders into the answer. @name is the stem of a
 * downloaded file's name. */
int flamegraph_answer(struct http_call *call, struct profile *p, const char *name) must_use;
/* Renders @p (borrowed) in a fixed format, as a file. */
int flamegraph_file(struct http_call *call, const struct profile *p, const char *format,
		    const char *name) must_use;

/* GET …/{profileId}/flamegraph */
http_handler_fn handle_flamegraph;

#endif
