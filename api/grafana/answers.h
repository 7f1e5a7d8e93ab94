/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of the querier calls, each appended to @out as a protobuf message of the call
 * (messages.h). Negative errno with @err of the call; what is not there is an empty answer. */
#ifndef PROFD_API_GRAFANA_ANSWERS_H
#define PROFD_API_GRAFANA_ANSWERS_H

#include "api/grafana/messages.h"
#include "api/http/router.h"

typedef int answer_fn(struct http_call *call, const struct querier_request *request,
		      struct buf *out);

/* lists.c */
answer_fn answer_profile_types, answer_label_names, answer_label_values, answer_series,
	answer_profile_stats, answer_analyze_query;
/* time_series.c */
answer_fn answer_select_series;
/* merges.c */
answer_fn answer_merge_stacktraces, answer_merge_profile, answer_diff;

#endif
