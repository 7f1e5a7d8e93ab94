// SPDX-License-Identifier: Apache-2.0
#include "api/sides.h"

#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/session/history.h"
#include "api/api_internal.h"

void side_deinit(struct side *side)
{
	side->profile = side->profile ? profile_unref(side->profile) : NULL;
}

/* A session that still runs has no last word; the caller may come back when it should be done. */
static int check_session(struct http_call *call, const char *id, const char *field, struct side *side)
{
	struct session_info info = { 0 };
	int rc = sessions_get(call->api->options.sessions, call->request->tenant, id, &info,
			      call->err);

	if (rc < 0)
		return rc;
	(void)snprintf(side->service, sizeof(side->service), "%s", info.service);
	side->created_at_ns = info.created_at_ns;
	if (info.status == SESSION_RUNNING) {
		uint64_t done_s = info.duration_ns / NS_PER_S;
		unsigned left_s = info.requested_duration_s > done_s
					  ? (unsigned)(info.requested_duration_s - done_s) + 1
					  : 1;

		rc = err_set(call->err, EBUSY, "NotFinished", field, "session %s is still running",
			     info.id);
		call->err->retry_after_s = left_s;
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
	int rc = strncmp(id, "bl-", 3) == 0 ? check_baseline(call, id, &side)
					    : check_session(call, id, field, &side);

	if (rc == 0)
		rc = sessions_profile(call->api->options.sessions, call->request->tenant, id,
				      &side.profile, call->err);
	if (rc < 0) {
		if (call->err->code && !call->err->field[0])
			(void)snprintf(call->err->field, sizeof(call->err->field), "%s", field);
		return rc;
	}
	(void)snprintf(side.label, sizeof(side.label), "%s", id);
	*ret = side;
	return 0;
}

int sides_load(struct http_call *call, const char *base_id, const char *base_field,
	       const char *compare_id, const char *compare_field, struct side ret[2])
{
	cleanup_side struct side base = { 0 };
	cleanup_side struct side compare = { 0 };
	int rc = side_load(call, base_id, base_field, &base);

	if (rc == 0)
		rc = side_load(call, compare_id, compare_field, &compare);
	if (rc < 0)
		return rc;
	if (base.profile->meta.type != compare.profile->meta.type)
		return err_set(call->err, EINVAL, "ProfileTypeMismatch", compare_field,
			       "a %s profile cannot be compared with a %s profile",
			       profile_type_info(base.profile->meta.type)->word,
			       profile_type_info(compare.profile->meta.type)->word);
	ret[0] = base;
	ret[1] = compare;
	base.profile = compare.profile = NULL;
	return 0;
}
