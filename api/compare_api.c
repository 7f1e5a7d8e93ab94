// SPDX-License-Identifier: Apache-2.0
#include "api/compare_api.h"

#include <errno.h>
#include <string.h>

#include "api/api_internal.h"
#include "api/flamegraph.h"
#include "api/http/json_in.h"
#include "api/auth/links.h"
#include "api/render/negotiate.h"
#include "api/render/quality_json.h"
#include "api/http/query.h"
#include "api/render/diff.h"
#include "api/render/html.h"
#include "api/sides.h"

const struct query_spec compare_params[] = {
	SIDES_PARAMS,
	{ .name = "frames", .type = QUERY_WORD, .words = "names raw",
	  .about = "raw: with the interpreter's own functions, whose time else is the Python functions'" },
	{ .name = "threshold", .type = QUERY_NUMBER, .min = 0, .max = 100,
	  .about = "percentage points that count as a change" },
	{ .name = "confidence", .type = QUERY_NUMBER, .min = 0, .max = 1,
	  .about = "of intervals and verdict, 0.5 to 0.99999" },
	{ .name = "baseUnits", .type = QUERY_NUMBER, .min = 0, .max = 1ull << 53,
	  .about = "units of work done on this side, such as requests" },
	{ .name = "comparisonUnits", .type = QUERY_NUMBER, .min = 0, .max = 1ull << 53,
	  .about = "units of work done on this side, such as requests" },
	{ 0 },
};

const struct query_spec compare_flamegraph_params[] = {
	SIDES_PARAMS,
	{ .name = "format", .type = QUERY_WORD, .words = "html svg json flame folded" },
	{ .name = "frames", .type = QUERY_WORD, .words = FLAMEGRAPH_FRAMES_WORDS,
	  .about = FLAMEGRAPH_FRAMES_ABOUT },
	{ .name = "maxNodes", .type = QUERY_UINT, .min = 1, .max = RENDER_NODES_MAX },
	{ .name = "download", .type = QUERY_BOOL },
	{ .name = "tenant", .type = QUERY_TEXT, .min = 1, .max = 64 },
	{ .name = "exp", .type = QUERY_UINT, .min = 1, .max = UINT32_MAX },
	{ .name = "sig", .type = QUERY_TEXT, .min = 1, .max = 128 },
	{ 0 },
};

void compare_function_json(struct json_out *json, const struct compare_function *function)
{
	json_out_open(json, NULL, '{');
	json_out_text(json, "funcName", function->name);
	json_out_text(json, "package", function->package);
	json_out_text(json, "file", function->file);
	json_out_uint(json, "line", function->line);
	json_out_real(json, "basePct", function->base_pct, 4);
	json_out_real(json, "comparisonPct", function->comparison_pct, 4);
	json_out_real(json, "deltaPct", function->delta_pct, 4);
	json_out_real(json, "baseCumulativePct", function->base_cumulative_pct, 4);
	json_out_real(json, "comparisonCumulativePct", function->comparison_cumulative_pct, 4);
	json_out_real(json, "baseValue", function->base_value, 3);
	json_out_real(json, "comparisonValue", function->comparison_value, 3);
	json_out_text(json, "change", compare_change_word(function->change));
	json_out_real(json, "pValue", function->p_value, 9);
	json_out_real(json, "qValue", function->q_value, 9);
	json_out_open(json, "confidenceInterval", '[');
	json_out_real(json, NULL, function->interval[0], 4);
	json_out_real(json, NULL, function->interval[1], 4);
	json_out_close(json, ']');
	json_out_real(json, "costDelta", function->cost_delta_pct, 4);
	json_out_bool(json, "environment", function->environment);
	json_out_bool(json, "cumulative", function->cumulative);
	json_out_close(json, '}');
}

static void functions_json(struct json_out *json, const char *name,
			   const struct compare_function *functions, uint32_t count)
{
	json_out_open(json, name, '[');
	for (uint32_t i = 0; i < count; i++)
		compare_function_json(json, &functions[i]);
	json_out_close(json, ']');
}

static void comparison_json(struct json_out *json, const struct side sides[2],
			    const struct compare *c, const char *link)
{
	struct json_warnings warnings = { 0 };

	if (strcmp(sides[0].service, sides[1].service) != 0)
		json_warn(&warnings, "the sides are of different services: %.48s and %.48s", sides[0].service,
			  sides[1].service);
	json_out_open(json, NULL, '{');
	json_out_text(json, "baseProfile", sides[0].label);
	json_out_text(json, "comparisonProfile", sides[1].label);
	json_out_text(json, "profileType", profile_type_info(sides[0].profile->meta.type)->word);
	json_out_text(json, "verdict", compare_verdict_word(c->verdict));
	json_out_text(json, "cause", compare_cause_word(c->cause));
	json_out_text(json, "summary", c->summary);
	json_out_text(json, "flameGraphUrl", *link ? link : NULL);
	functions_json(json, "regressions", c->regressions, c->regression_count);
	functions_json(json, "improvements", c->improvements, c->improvement_count);
	json_out_uint(json, "unchanged", c->unchanged);
	if (c->overall_known)
		json_out_real(json, "overallDelta", c->overall_delta_pct, 4);
	else
		json_out_null(json, "overallDelta");
	json_out_bool(json, "significant", c->overall_significant);
	json_out_real(json, "overallPValue", c->overall_p, 9);
	json_out_bool(json, "insufficientData", c->insufficient_data);
	if (c->min_detectable_points >= 0)
		json_out_real(json, "minDetectable", c->min_detectable_points, 4);
	else
		json_out_null(json, "minDetectable");
	json_out_bool(json, "unsteady", c->unsteady);
	json_out_bool(json, "differentLives", c->different_lives);
	json_out_real(json, "threshold", c->threshold_points, 4);
	json_out_real(json, "confidence", c->confidence, 6);
	json_out_bool(json, "namesInDoubt", c->names_in_doubt);
	functions_json(json, "diluted", c->diluted, c->diluted_count);
	functions_json(json, "doubtful", c->doubtful, c->doubtful_count);
	functions_json(json, "unexplained", c->unexplained, c->unexplained_count);
	json_out_bool(json, "movedPartly", c->moved_partly);
	json_out_open(json, "moved", '[');
	for (uint32_t i = 0; i < c->moved_count; i++) {
		json_out_open(json, NULL, '{');
		json_out_text(json, "from", c->moved[i].from);
		json_out_text(json, "to", c->moved[i].to);
		json_out_real(json, "points", c->moved[i].points, 4);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
	json_out_open(json, "quality", '{');
	quality_json(json, "base", &c->base_quality);
	quality_json(json, "comparison", &c->comparison_quality);
	json_out_close(json, '}');
	warnings_json(json, &warnings);
	json_out_close(json, '}');
}

static int parse_options(const struct query *query, struct compare_options *options,
			 struct err *err)
{
	static const char *const units[] = { "baseUnits", "comparisonUnits" };

	options->threshold_points = query_number(query, "threshold", 0);
	options->confidence = query_number(query, "confidence", 0);
	if (query_has(query, "threshold") && options->threshold_points <= 0)
		return err_set(err, EINVAL, "InvalidParam", "threshold",
			       "query parameter threshold must be above 0");
	if (query_has(query, "confidence") &&
	    (options->confidence < 0.5 || options->confidence > 0.99999))
		return err_set(err, EINVAL, "InvalidParam", "confidence",
			       "query parameter confidence must be from 0.5 to 0.99999");
	if (query_has(query, "baseUnits") != query_has(query, "comparisonUnits"))
		return err_set(err, EINVAL, "InvalidParam",
			       query_has(query, "baseUnits") ? "comparisonUnits" : "baseUnits",
			       "baseUnits and comparisonUnits must be given together");
	for (unsigned i = 0; i < ARRAY_SIZE(units); i++)
		if (query_has(query, units[i]) && query_number(query, units[i], 0) <= 0)
			return err_set(err, EINVAL, "InvalidParam", units[i], "query parameter %s must be above 0",
				       units[i]);
	return 0;
}

int handle_compare(struct http_call *call)
{
	const struct query *query = &call->request->query;
	struct json_out json = json_out_to(&call->answer->body);
	struct compare_options options = { 0 };
	struct side sides[2] = { 0 };
	struct compare comparison;
	char link[LINK_SIZE];
	int rc = parse_options(query, &options, call->err);

	if (rc == 0)
		rc = sides_load_query(call, sides);
	if (rc < 0)
		return rc;
	rc = compare_init(&comparison,
			  &(struct compare_side){ .profile = sides[0].profile,
						  .units = query_number(query, "baseUnits", 0),
						  .runqueue_share = -1 },
			  &(struct compare_side){ .profile = sides[1].profile,
						  .units = query_number(query, "comparisonUnits", 0),
						  .runqueue_share = -1 },
			  &options);
	if (rc == 0) {
		comparison_json(&json, sides, &comparison,
				link_comparison(call->api, call->request, link));
		compare_deinit(&comparison);
		call->answer->content_type = "application/json";
	}
	side_deinit(&sides[0]);
	side_deinit(&sides[1]);
	return rc;
}

static int render_diff(struct http_call *call, const char *format, const struct side sides[2])
{
	const struct diff_options options = {
		.max_nodes = (uint32_t)query_uint(&call->request->query, "maxNodes", 0),
		.details = flamegraph_wants_details(&call->request->query),
		.base_label = sides[0].label,
		.comparison_label = sides[1].label,
	};
	struct http_answer *answer = call->answer;
	const struct render_format *known = render_format_find(format);
	int rc = diff_render(format, sides[0].profile, sides[1].profile, &options, &answer->body);

	if (rc < 0)
		return rc;
	answer->content_type = known->content_type;
	if (strcmp(format, "html") == 0)
		http_answer_header(answer, "Content-Security-Policy", "%s; frame-ancestors 'none'",
				   html_content_policy());
	else if (strcmp(format, "svg") == 0)
		http_answer_header(answer, "Content-Security-Policy", "default-src 'none'");
	http_answer_header(answer, "Referrer-Policy", "no-referrer");
	http_answer_header(answer, "Vary", "Accept, Accept-Encoding");
	if (query_bool(&call->request->query, "download", false))
		http_answer_header(answer, "Content-Disposition",
				   "attachment; filename=\"comparison.%s\"", known->extension);
	return 0;
}

int handle_compare_flamegraph(struct http_call *call)
{
	const struct render_format *format = NULL;
	struct side sides[2] = { 0 };
	int rc = negotiate_format(query_text(&call->request->query, "format", NULL),
				  http_header(call->request, "Accept"), &format, call->err);

	if (rc == 0 && !query_word_in_list(format->name, "html svg json flame folded"))
		rc = err_set(call->err, EINVAL, "NotAcceptable", "Accept",
			     "a comparison can be had as text/html, image/svg+xml, application/json or text/plain");
	if (rc == 0)
		rc = sides_load_query(call, sides);
	if (rc < 0)
		return rc;
	rc = render_diff(call, format->name, sides);
	side_deinit(&sides[0]);
	side_deinit(&sides[1]);
	return rc;
}
