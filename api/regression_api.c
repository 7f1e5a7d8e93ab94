// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/text.h"
#include "agent/base/ulid.h"
#include "agent/profile/compare/regression_check.h"
#include "agent/session/history.h"
#include "agent/store/store.h"
#include "api/api_internal.h"
#include "api/baselines_api.h"
#include "api/compare_api.h"
#include "api/http/json_in.h"
#include "api/render/quality_json.h"
#include "api/sides.h"

#define KIND	     "report"
#define REPORTS_MAX  1000 /* of one tenant; the oldest go */
#define REPORT_ID_SIZE 32

struct gate {
	const char *baseline_id, *compare_id;
	struct regression_thresholds thresholds;
	struct json_warnings warnings;
};

static int parse_thresholds(const cJSON *body, struct gate *gate, struct err *err)
{
	const cJSON *object = cJSON_GetObjectItemCaseSensitive(body, "thresholds");
	struct regression_thresholds *t = &gate->thresholds;
	int rc;

	*t = regression_thresholds_default();
	if (!object || cJSON_IsNull(object))
		return 0;
	if (!cJSON_IsObject(object))
		return err_set(err, EINVAL, "InvalidParam", "thresholds",
			       "member thresholds must be an object");
	rc = json_in_number(object, "functionDeltaPct", false, 0, 100, &t->function_delta_pct, err);
	if (rc == 0)
		rc = json_in_number(object, "newHotspotMinPct", false, 0, 100,
				    &t->new_hotspot_min_pct, err);
	if (rc == 0)
		rc = json_in_number(object, "criticalDeltaPct", false, 0, 100,
				    &t->critical_delta_pct, err);
	if (rc == 0)
		rc = json_in_number(object, "criticalHotspotPct", false, 0, 100,
				    &t->critical_hotspot_pct, err);
	json_in_unknown(object, "functionDeltaPct newHotspotMinPct criticalDeltaPct criticalHotspotPct",
			&gate->warnings);
	return rc;
}

static int parse_gate(const cJSON *body, struct gate *gate, struct err *err)
{
	int rc = json_in_text(body, "baselineId", true, 127, &gate->baseline_id, err);

	if (rc == 0)
		rc = json_in_text(body, "compareId", true, 127, &gate->compare_id, err);
	if (rc == 0)
		rc = parse_thresholds(body, gate, err);
	if (rc == 0)
		json_in_unknown(body, "baselineId compareId thresholds", &gate->warnings);
	return rc;
}

static void elements_json(struct json_out *json, const char *name,
			  const struct compare_function **functions, uint32_t count)
{
	json_out_open(json, name, '[');
	for (uint32_t i = 0; i < count; i++)
		compare_function_json(json, functions[i]);
	json_out_close(json, ']');
}

static void report_json(struct json_out *json, const char *id, const struct side sides[2],
			const char *label, const char *compare_label, const struct compare *comparison,
			const struct regression_report *report, const struct gate *gate)
{
	const struct regression_thresholds *t = &gate->thresholds;

	json_out_open(json, NULL, '{');
	json_out_text(json, "reportId", id);
	json_out_text(json, "baselineId", sides[0].label);
	json_out_text(json, "baselineLabel", label);
	json_out_text(json, "compareId", sides[1].label);
	json_out_text(json, "compareLabel", compare_label);
	json_out_text(json, "profileType", profile_type_info(sides[0].profile->meta.type)->word);
	json_out_text(json, "service", sides[1].service);
	json_out_time(json, "createdAt", clock_realtime_ns());
	json_out_bool(json, "regressionDetected", report->severity != REGRESSION_NONE);
	json_out_text(json, "severity", regression_severity_word(report->severity));
	elements_json(json, "changedFunctions", report->changed, report->changed_count);
	elements_json(json, "newHotspots", report->hotspots, report->hotspot_count);
	json_out_text(json, "verdict", compare_verdict_word(comparison->verdict));
	json_out_text(json, "summary", comparison->summary);
	json_out_bool(json, "insufficientData", comparison->insufficient_data);
	json_out_open(json, "thresholds", '{');
	json_out_real(json, "functionDeltaPct", t->function_delta_pct, 4);
	json_out_real(json, "newHotspotMinPct", t->new_hotspot_min_pct, 4);
	json_out_real(json, "criticalDeltaPct", t->critical_delta_pct, 4);
	json_out_real(json, "criticalHotspotPct", t->critical_hotspot_pct, 4);
	json_out_close(json, '}');
	json_out_open(json, "quality", '{');
	quality_json(json, "base", &comparison->base_quality);
	quality_json(json, "comparison", &comparison->comparison_quality);
	json_out_close(json, '}');
	warnings_json(json, &gate->warnings);
	json_out_close(json, '}');
}

/* ---- kept reports ---------------------------------------------------------------------------- */

struct oldest {
	char id[REPORT_ID_SIZE];
	unsigned seen;
};

/* The list comes newest first: the last one seen is the oldest. */
static int visit(void *ctx, const struct store_record *record)
{
	struct oldest *oldest = ctx;

	(void)snprintf(oldest->id, sizeof(oldest->id), "%s", record->id);
	oldest->seen++;
	return 0;
}

static int save(struct http_call *call, const char *id, enum profile_type type,
		const struct buf *body)
{
	struct store *store = call->api->options.store;
	const char *tenant = call->request->tenant;
	const struct store_record record = {
		.kind = KIND, .tenant = tenant, .id = id, .service = "",
		.type = profile_type_info(type)->word, .status = "",
		.created_ns = clock_realtime_ns(), .body = body->data, .body_len = body->len,
	};
	const struct store_query all = { .kind = KIND, .tenant = tenant };
	struct oldest oldest = { 0 };
	uint64_t total = 0;
	int rc;

	if (!store)
		return 0;
	rc = store_put(store, &record, call->err);
	if (rc < 0)
		return rc;
	if (store_list(store, &all, visit, &oldest, &total, NULL) == 0 && oldest.seen > REPORTS_MAX)
		(void)!store_delete(store, KIND, tenant, oldest.id, NULL);
	return 0;
}

int handle_get_report(struct http_call *call)
{
	cleanup_free char *text = NULL;
	struct store *store = call->api->options.store;
	size_t len = 0;
	int rc = -ENOENT;

	if (store && text_begins(call->request->path[0], "rpt-"))
		rc = store_get(store, KIND, call->request->tenant, call->request->path[0], &text, &len,
			       call->err);
	if (rc == -ENOENT || rc == -EINVAL)
		return err_set(call->err, ENOENT, "UnknownReport", "reportId",
			       "there is no such report");
	if (rc < 0)
		return rc;
	buf_add(&call->answer->body, text, len);
	call->answer->content_type = "application/json";
	return 0;
}

/* ---- check ----------------------------------------------------------------------------------- */

/* The gate's first side is a baseline; its label is what people call it. */
static int baseline_label(struct http_call *call, const char *id, char *out, size_t size)
{
	struct baseline_info info = { 0 };
	int rc;

	if (!text_begins(id, "bl-"))
		return err_set(call->err, ENOENT, "UnknownBaseline", "baselineId",
			       "there is no such baseline");
	rc = sessions_baseline_get(call->api->options.sessions, call->request->tenant, id, &info,
				   call->err);
	if (rc < 0)
		return rc;
	(void)snprintf(out, size, "%s", info.label);
	baseline_info_deinit(&info);
	return 0;
}

static int check(struct http_call *call, const struct gate *gate, const char *label,
		 const char *compare_label, const struct side sides[2])
{
	const struct compare_side base = { .profile = sides[0].profile, .runqueue_share = -1 };
	const struct compare_side other = { .profile = sides[1].profile, .runqueue_share = -1 };
	const struct compare_options options = { 0 };
	struct json_out json = json_out_to(&call->answer->body);
	struct regression_report report;
	struct compare comparison;
	char id[REPORT_ID_SIZE] = "rpt-";
	int rc = compare_init(&comparison, &base, &other, &options);

	if (rc < 0)
		return rc;
	ulid_make(clock_realtime_ns(), id + 4);
	rc = regression_check_init(&report, &comparison, &gate->thresholds);
	if (rc == 0) {
		report_json(&json, id, sides, label, compare_label, &comparison, &report, gate);
		regression_check_deinit(&report);
		rc = save(call, id, sides[0].profile->meta.type, &call->answer->body);
	}
	compare_deinit(&comparison);
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	return rc;
}

int handle_check_regression(struct http_call *call)
{
	struct gate gate = { 0 };
	struct side sides[2] = { 0 };
	cleanup(json) cJSON *body = NULL;
	char label[256], other[256] = "";
	int rc = json_in_object(call->request->body, call->request->body_len, &body, call->err);

	if (rc == 0)
		rc = parse_gate(body, &gate, call->err);
	if (rc == 0)
		rc = baseline_label(call, gate.baseline_id, label, sizeof(label));
	if (rc == 0)
		rc = sides_load(call, gate.baseline_id, "baselineId", gate.compare_id, "compareId",
				sides);
	if (rc == 0 && text_begins(gate.compare_id, "bl-"))
		rc = baseline_label(call, gate.compare_id, other, sizeof(other));
	if (rc == 0)
		rc = check(call, &gate, label, *other ? other : gate.compare_id, sides);
	side_deinit(&sides[0]);
	side_deinit(&sides[1]);
	return rc;
}
