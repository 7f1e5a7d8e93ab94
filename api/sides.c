// SPDX-License-Identifier: Apache-2.0
#include "api/sides.h"

#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/text.h"
#include "agent/session/history.h"
#include "api/api_internal.h"
#include "api/flamegraph.h"
#include "api/services_api.h"

void side_deinit(struct side *side)
{
	side->profile = side->profile ? profile_unref(side->profile) : NULL;
}

/* A session that still runs has no last word; the caller may come back when it should be done. */
static int check_session(struct http_call *call, const char *id, const char *field,
			 struct side *side)
{
	struct session_info info = { 0 };
	int rc = sessions_get(call->api->options.sessions, call->request->tenant, id, &info,
			      call->err);

	if (rc < 0)
		return rc;
	(void)snprintf(side->service, sizeof(side->service), "%s", info.service);
	side->created_at_ns = info.created_at_ns;
	if (info.status == SESSION_RUNNING) {
		rc = err_set(call->err, EBUSY, "NotFinished", field, "session %s is still running",
			     info.id);
		call->err->retry_after_s = session_left_s(&info);
	}
	session_info_deinit(&info);
	return rc;
}

static int check_baseline(struct http_call *call, const char *id, struct side *side)
{
	struct baseline_info info = { 0 };
	int rc = sessions_baseline_get(call->api->options.sessions, call->request->tenant, id, &info,
				       call->err);

	if (rc < 0)
		return rc;
	(void)snprintf(side->service, sizeof(side->service), "%s", info.service);
	side->created_at_ns = info.created_at_ns;
	baseline_info_deinit(&info);
	return 0;
}

int side_load(struct http_call *call, const char *id, const char *field, struct side *ret)
{
	struct side side = { 0 };
	int rc = text_begins(id, "bl-") ? check_baseline(call, id, &side)
					    : check_session(call, id, field, &side);

	if (rc == 0)
		rc = flamegraph_profile(call, id, &side.profile, call->err);
	if (rc < 0) {
		if (call->err->code && !call->err->field[0])
			(void)snprintf(call->err->field, sizeof(call->err->field), "%s", field);
		return rc;
	}
	(void)snprintf(side.label, sizeof(side.label), "%s", id);
	*ret = side;
	return 0;
}

static int check_types(struct http_call *call, struct side sides[2], const char *field)
{
	enum profile_type base = sides[0].profile->meta.type;
	enum profile_type compare = sides[1].profile->meta.type;
	bool same_source = sides[0].profile->meta.source == sides[1].profile->meta.source;

	if (base == compare && same_source)
		return 0;
	side_deinit(&sides[0]);
	side_deinit(&sides[1]);
	if (base == compare)
		return err_set(call->err, EINVAL, "ProfileTypeMismatch", field,
			       "these %s profiles were taken in ways that cannot be compared: from Go's "
			       "own profile, from goroutine states, or by the kernel",
			       profile_type_info(base)->word);
	return err_set(call->err, EINVAL, "ProfileTypeMismatch", field,
		       "a %s profile cannot be compared with a %s profile",
		       profile_type_info(base)->word, profile_type_info(compare)->word);
}

int sides_load(struct http_call *call, const char *base_id, const char *base_field,
	       const char *compare_id, const char *compare_field, struct side ret[2])
{
	int rc = side_load(call, base_id, base_field, &ret[0]);

	if (rc < 0)
		return rc;
	rc = side_load(call, compare_id, compare_field, &ret[1]);
	if (rc < 0) {
		side_deinit(&ret[0]);
		return rc;
	}
	return check_types(call, ret, compare_field);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Names of one side's parameters. */
struct side_params {
	const char *id, *service, *from, *to, *where;
};

static const struct side_params side_params[2] = {
	{ "baseProfileId", "baseService", "baseFrom", "baseTo", "baseWhere" },
	{ "comparisonProfileId", "comparisonService", "comparisonFrom", "comparisonTo",
	  "comparisonWhere" },
};

static int window_of(struct http_call *call, const struct side_params *params,
		     struct history_window *ret)
{
	const struct query *query = &call->request->query;
	const char *own = service_asked(call, params->service),
		   *service = own ? own : service_asked(call, "service");
	const char *missing = !query_has(query, params->from)	? params->id
			      : !query_has(query, params->to)	? params->to
			      : !service			? params->service
			      : !query_has(query, "profileType") ? "profileType"
								 : NULL;

	if (missing)
		return err_set(call->err, EINVAL, "InvalidParam", missing,
			       "a side is %s, or %s and %s with service and profileType; %s is missing",
			       params->id, params->from, params->to, missing);
	*ret = (struct history_window){
		.tenant = call->request->tenant,
		.service = service,
		.type = (enum profile_type)query_uint(query, "profileType", 0),
		.from_ns = query_uint(query, params->from, 0),
		.to_ns = query_uint(query, params->to, 0),
		.raw = flamegraph_wants_raw(query),
	};
	if (ret->from_ns >= ret->to_ns)
		return err_set(call->err, EINVAL, "InvalidParam", params->to, "%s must lie after %s",
			       params->to, params->from);
	return 0;
}

/* Sums of fewer minutes than this say too little: single samples are compared instead, where they
 * are kept. */
#define MINUTES_ENOUGH_NS (20 * 60 * NS_PER_S)

static int load_window(struct http_call *call, const struct side_params *params, struct side *ret)
{
	struct history_window window;
	char from[CLOCK_RFC3339_SIZE], to[CLOCK_RFC3339_SIZE];
	int rc = window_of(call, params, &window);

	window.timed = rc == 0 && window.to_ns - window.from_ns < MINUTES_ENOUGH_NS;
	if (rc == 0)
		rc = sessions_window_profile(call->api->options.sessions, &window, &ret->profile,
					     call->err);
	if (rc < 0)
		return rc;
	clock_format_rfc3339(window.from_ns, from);
	clock_format_rfc3339(window.to_ns, to);
	(void)snprintf(ret->service, sizeof(ret->service), "%s", window.service);
	(void)snprintf(ret->label, sizeof(ret->label), "%s/%s/%s/%s", window.service,
		       profile_type_info(window.type)->word, from, to);
	ret->created_at_ns = window.from_ns;
	return 0;
}

/* Keeps the samples that `attribute:value` allows. */
static int narrow(struct http_call *call, const char *field, struct side *side)
{
	const char *where = query_text(&call->request->query, field, NULL);
	const char *colon = where ? strchr(where, ':') : NULL;
	struct profile *part = NULL;
	char name[128];
	struct profile_filter filter = { .where_names = { name }, .where_count = 1 };
	int rc;

	if (!where)
		return 0;
	if (!colon || colon == where || !colon[1] || (size_t)(colon - where) >= sizeof(name))
		return err_set(call->err, EINVAL, "InvalidParam", field,
			       "query parameter %s must be attribute:value", field);
	memcpy(name, where, (size_t)(colon - where));
	name[colon - where] = '\0';
	filter.where_values[0] = colon + 1;
	rc = profile_select(side->profile, &filter, &part);
	if (rc == -EINVAL)
		return err_set(call->err, EINVAL, "InvalidParam", field,
			       "this profile has no attribute %s", name);
	if (rc < 0)
		return rc;
	side_deinit(side);
	side->profile = part;
	return 0;
}

static int load_side(struct http_call *call, const struct side_params *params, struct side *ret)
{
	const char *id = query_text(&call->request->query, params->id, NULL);
	int rc = id ? side_load(call, id, params->id, ret) : load_window(call, params, ret);

	if (rc < 0)
		return rc;
	rc = narrow(call, params->where, ret);
	if (rc < 0)
		side_deinit(ret);
	return rc;
}

int sides_load_query(struct http_call *call, struct side ret[2])
{
	struct history_window window;
	int rc = 0;

	/* Missing parameters are reported before anything is looked up. */
	for (unsigned i = 0; rc == 0 && i < ARRAY_SIZE(side_params); i++)
		if (!query_has(&call->request->query, side_params[i].id))
			rc = window_of(call, &side_params[i], &window);
	if (rc == 0)
		rc = load_side(call, &side_params[0], &ret[0]);
	if (rc < 0)
		return rc;
	rc = load_side(call, &side_params[1], &ret[1]);
	if (rc < 0) {
		side_deinit(&ret[0]);
		return rc;
	}
	return check_types(call, ret, "comparisonProfileId");
}
