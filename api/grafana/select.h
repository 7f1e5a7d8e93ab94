/* SPDX-License-Identifier: Apache-2.0 */
/* A selection of a request: series (service, host, profile type and value), and one profile of all
 * that they hold. Labels are of two kinds. A series has service_name, host, unit, container and the
 * parts of its profile type (`__profile_type__` and so on). Samples have process, thread, state,
 * wait and the other attributes of agent/profile/attribute.h. A matcher of the first kind chooses
 * series; one of the second kind chooses samples, for which the profile is built. One request's
 * thread owns a selection. */
#ifndef PROFD_API_GRAFANA_SELECT_H
#define PROFD_API_GRAFANA_SELECT_H

#include "agent/profile/attribute.h"
#include "agent/session/history.h"
#include "api/grafana/messages.h"
#include "api/grafana/selector.h"
#include "api/grafana/type_ids.h"
#include "api/http/router.h"

/* An attribute of a profile's samples. */
struct sample_label {
	struct attribute attribute;
	bool known; /* else every sample has the empty text */
};
struct sample_label sample_label_find(const struct profile *p, const char *name);
/* The value that the samples of @attrs (index) have, "" = none. */
const char *sample_label_text(const struct profile *p, uint32_t attrs,
			      const struct sample_label *label,
			      char scratch[ATTRIBUTE_SCRATCH_SIZE]);

struct selection {
	struct http_call *call; /* borrowed */
	struct label_selector selector;
	struct type_id id;	   /* of requests that name one */
	uint64_t from_ns, to_ns;   /* realtime */
	struct service_labels_list *places; /* where services run or ran, once somebody asked; owned */
	int error;		   /* of a callback; negative errno */
	bool nothing; /* contradicts itself */
	const struct text_list *call_site;		   /* borrowed */
	const struct text_list *spans; /* borrowed; ids of spans of traces, none = all samples */
	struct sample_label labels[SELECTOR_MATCHERS_MAX]; /* private: by matcher */
	struct sample_label span;			   /* private */
};
void selection_deinit(struct selection *selection);
static inline void cleanup_selection_fn(struct selection *selection)
{
	selection_deinit(selection);
}
#define cleanup_selection __attribute__((__cleanup__(cleanup_selection_fn)))

/* Fills in the time range of @request: without one the last 24 h. InvalidParam: start, end. */
int selection_range(struct selection *selection, const struct querier_request *request) must_use;
/* Reads profile type, selector and time range of @request. InvalidParam with the field. */
int selection_read(struct http_call *call, const struct querier_request *request,
		   struct selection *ret) must_use;

/* Is @name a label of series? */
bool selection_is_series_label(const char *name);
/* Does it have a matcher that chooses samples? */
bool selection_has_sample_matchers(const struct selection *selection);

/* A series with one value of its type. */
struct series_row {
	const char *service, *host; /* borrowed */
	struct type_id id;
};
#define SERIES_LABEL_SIZE 256
/* The value of the label @name of @row, "" = it has none. */
const char *series_label(struct selection *selection, const struct series_row *row,
			 const char *name, char scratch[SERIES_LABEL_SIZE]);
/* Do all matchers of series labels hold? 1 or 0; negative with @err of the call. */
int selection_has_row(struct selection *selection, const struct series_row *row) must_use;

/* The series of @types (bits, 0 = all) that may be selected: what names a profile type is not yet
 * looked at. @step_ns as in struct history_series_query. */
int selection_series(struct selection *selection, uint32_t types, uint64_t step_ns,
		     struct history_series_list *ret) must_use;
/* All samples that are selected as one profile, the caller's. -ENOENT: there are none. */
int selection_profile(struct selection *selection, struct profile **ret) must_use;

#endif
