/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of Pyroscope's querier.v1.QuerierService, as tables: field numbers and names as
 * api/querier/v1/querier.proto, api/types/v1/types.proto and api/google/v1/profile.proto of
 * github.com/grafana/pyroscope (api/v1.6.0) have them. Requests are read from protobuf or JSON into
 * one struct. Answers are written as protobuf and translated to JSON where the client wants JSON
 * (protobuf.dev/programming-guides/json). Pure. */
#ifndef PROFD_API_GRAFANA_MESSAGES_H
#define PROFD_API_GRAFANA_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"
#include "agent/base/err.h"

#define QUERIER_LIST_MAX 256u  /* elements of one list of a request */
#define QUERIER_TEXT_MAX 8192u /* bytes of one text of a request */

struct text_list {
	char **items; /* owned */
	size_t count;
};

/* Everything that a request may say. Absent numbers are 0, absent texts NULL. */
struct querier_request {
	char *type_id;		  /* profile_typeID */
	char *selector;		  /* label_selector, or query of AnalyzeQuery */
	char *name;		  /* of the label whose values are asked for */
	int64_t start_ms, end_ms; /* since 1970 */
	int64_t max_nodes, limit, format, aggregation;
	double step_s;
	bool has_pgo; /* a selector for Go's PGO */
	bool is_async;
	struct text_list matchers, label_names, group_by, call_site, profile_ids, trace_ids,
		span_ids;
	struct querier_request *left, *right; /* of Diff, owned */
};
void querier_request_deinit(struct querier_request *request);
static inline void cleanup_querier_request_fn(struct querier_request *request)
{
	querier_request_deinit(request);
}
#define cleanup_querier_request __attribute__((__cleanup__(cleanup_querier_request_fn)))

struct message_type;

/* A procedure of the service by its name. */
struct querier_call {
	const char *name;
	const struct message_type *request, *answer;
};
/* NULL: no such procedure. The procedures in order, ended by a NULL name: querier_calls. */
const struct querier_call *querier_call_find(const char *name);
extern const struct querier_call querier_calls[];

/* Reads a request of @type. -EINVAL with InvalidBody or InvalidParam and the field in @err: no such
 * message, a text that is not UTF-8 or too long, too many elements. Unknown fields are ignored. */
int querier_request_read(const struct message_type *type, bool json, const char *body, size_t len,
			 struct querier_request *ret, struct err *err) must_use;
/* Appends the JSON of the protobuf message @data. -EPROTO when it is none of @type. */
int querier_answer_json(const struct message_type *type, const void *data, size_t len,
			struct buf *out) must_use;

#endif
