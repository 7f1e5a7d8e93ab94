// SPDX-License-Identifier: Apache-2.0
#include "api/flamegraph.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/text.h"
#include "api/api_internal.h"
#include "api/http/compress.h"
#include "api/render/negotiate.h"
#include "api/render/html.h"

/* Clients add durations in whole seconds to times in milliseconds. */
#define SPAN_GRACE_NS NS_PER_S

const struct query_spec flamegraph_params[] = {
	FLAMEGRAPH_VIEW_PARAMS,
	{ 0 },
};

static int letter_value(char c)
{
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	const char *at = c ? strchr(letters, c) : NULL;

	return at ? (int)(at - letters) : -1;
}

static int parse_root(const char *text, struct render_options *options, struct err *err)
{
	if (strlen(text) % HASH_LETTERS)
		return err_set(err, EINVAL, "InvalidParam", "root",
			       "query parameter root must be whole groups of %d letters",
			       HASH_LETTERS);
	for (; *text; text += HASH_LETTERS) {
		uint32_t hash = 0;

		for (unsigned i = 0; i < HASH_LETTERS; i++) {
			int value = letter_value(text[i]);

			if (value < 0)
				return err_set(err, EINVAL, "InvalidParam", "root",
					       "query parameter root must be base64url");
			hash = hash << 6 | (uint32_t)value;
		}
		options->root[options->root_count++] = hash;
	}
	return 0;
}

int flamegraph_value(const struct query *query, enum profile_type type, unsigned first,
		     unsigned *ret, struct err *err)
{
	const struct profile_type_info *info = profile_type_info(type);
	const char *value = query_text(query, "value", info->values[info->value_index].name);
	cleanup_buf struct buf known = { 0 };
	unsigned at = first;

	while (at < info->value_count && strcmp(info->values[at].name, value) != 0)
		at++;
	if (at == info->value_count) {
		for (unsigned i = first; i < info->value_count; i++)
			buf_printf(&known, "%s%s", i > first ? ", " : "", info->values[i].name);
		return err_set(err, EINVAL, "InvalidParam", "value",
			       "a %s profile has no value %.32s, only %s", info->word, value,
			       known.error ? "others" : known.data);
	}
	*ret = at;
	return 0;
}

bool flamegraph_wants_details(const struct query *query)
{
	const char *frames = query_text(query, "frames", "names");

	return strcmp(frames, "details") == 0 || strcmp(frames, "rawDetails") == 0;
}

bool flamegraph_wants_raw(const struct query *query)
{
	return text_begins(query_text(query, "frames", "names"), "raw");
}

int flamegraph_profile(const struct http_call *call, const char *id, struct profile **ret,
		       struct err *err)
{
	return (flamegraph_wants_raw(&call->request->query) ? sessions_profile_raw :
							      sessions_profile)(
		call->api->options.sessions, call->request->tenant, id, ret, err);
}

static int parse_options(const struct query *query, const struct profile *p,
			 struct render_options *options, struct err *err)
{
	const char *root = query_text(query, "root", NULL);
	int rc = flamegraph_value(query, p->meta.type, profile_first_value(p->meta.source),
				  &options->value_index, err);

	if (rc < 0)
		return rc;
	options->details = flamegraph_wants_details(query);
	options->max_nodes = (uint32_t)query_uint(query, "maxNodes", 0);
	options->function = query_text(query, "function", NULL);
	return root ? parse_root(root, options, err) : 0;
}

/* `name:value` pairs; the texts live in @texts. */
static int parse_where(const struct query *query, struct profile_filter *filter, char *texts[8],
		       struct err *err)
{
	const char *pair;

	for (unsigned i = 0; (pair = query_nth(query, "where", i)); i++) {
		const char *colon = strchr(pair, ':');

		if (i == ARRAY_SIZE(filter->where_names))
			return err_set(err, EINVAL, "InvalidParam", "where",
				       "at most %zu filters", ARRAY_SIZE(filter->where_names));
		if (!colon || colon == pair || !colon[1])
			return err_set(err, EINVAL, "InvalidParam", "where",
				       "query parameter where must be attribute:value");
		texts[i] = strdup(pair);
		if (!texts[i])
			return -ENOMEM;
		texts[i][colon - pair] = '\0';
		filter->where_names[i] = texts[i];
		filter->where_values[i] = texts[i] + (colon - pair) + 1;
		filter->where_count = i + 1;
	}
	return 0;
}

static int check_span(const struct query *query, const struct flamegraph_span *span,
		      struct err *err)
{
	static const char *const names[] = { "from", "to" };
	char from[CLOCK_RFC3339_SIZE], to[CLOCK_RFC3339_SIZE];

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		uint64_t at_ns = query_uint(query, names[i], span->from_ns);

		if (at_ns + SPAN_GRACE_NS >= span->from_ns && at_ns <= span->to_ns + SPAN_GRACE_NS)
			continue;
		clock_format_rfc3339(span->from_ns, from);
		clock_format_rfc3339(span->to_ns, to);
		return err_set(err, EINVAL, "InvalidParam", names[i],
			       "query parameter %s must lie in the profile, from %s to %s", names[i],
			       from, to);
	}
	if (query_has(query, "from") && query_has(query, "to") &&
	    query_uint(query, "from", 0) >= query_uint(query, "to", 0))
		return err_set(err, EINVAL, "InvalidParam", "to", "to must lie after from");
	return 0;
}

/* Only the waits of an io profile have times of their own; bytes and operations are summed by
 * seconds and places. */
static int check_timed_value(const struct query *query, const struct profile *p, struct err *err)
{
	const struct profile_type_info *info = profile_type_info(p->meta.type);
	const char *main_value = info->values[info->value_index].name;

	if (p->meta.type != PROFILE_IO || !(query_has(query, "from") || query_has(query, "to")) ||
	    strcmp(query_text(query, "value", main_value), main_value) == 0)
		return 0;
	return err_set(
		err, ENODATA, "DetailExpired", "value",
		"of an io profile only %s is known by time: ask for other values without from and to",
		main_value);
}

/* The part of @p that was asked for; a new reference. */
static int select_part(struct http_call *call, struct profile *p,
		       const struct flamegraph_span *span, struct profile **ret)
{
	const struct query *query = &call->request->query;
	struct profile_filter filter = {
		.from_ns = query_uint(query, "from", 0),
		.to_ns = query_uint(query, "to", 0),
		.group_by = query_text(query, "groupBy", NULL),
	};
	char *texts[ARRAY_SIZE(filter.where_names)] = { 0 };
	int rc = parse_where(query, &filter, texts, call->err);

	if (rc == 0)
		rc = check_span(query, span, call->err);
	if (rc == 0)
		rc = check_timed_value(query, p, call->err);
	if (rc == 0 && !filter.from_ns && !filter.to_ns && !filter.group_by && !filter.where_count) {
		*ret = profile_ref(p);
	} else if (rc == 0) {
		rc = profile_select(p, &filter, ret);
		if (rc == -EINVAL)
			rc = err_set(call->err, EINVAL, "InvalidParam",
				     filter.group_by && !filter.where_count ? "groupBy" : "where",
				     "this profile has no such attribute");
		else if (rc == -ENODATA)
			rc = err_set(call->err, ENODATA, "DetailExpired", "from",
				     p->meta.grain_ns ? "the times of this profile's single samples are not kept any "
							"more, only sums of minutes: ask from and to whole minutes"
						      : "the times of this profile's samples are not kept; "
							"ask without from and to");
	}
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		free(texts[i]);
	return rc;
}

static void offer_file(struct http_answer *answer, const struct render_format *format,
		       const char *name)
{
	char stem[128];
	size_t n = 0;

	for (; *name && n + 1 < sizeof(stem); name++)
		stem[n++] = isalnum((unsigned char)*name) || strchr("._-", *name) ? *name : '_';
	stem[n] = '\0';
	http_answer_header(answer, "Content-Disposition", "attachment; filename=\"%s.%s\"", stem,
			   format->extension);
}

int flamegraph_write(struct http_call *call, const struct profile *p,
		     const struct render_options *options, render_fn *render, int level)
{
	struct http_answer *answer = call->answer;
	struct gzip gzip;
	int rc, end;

	http_answer_stream(answer, call->api->options.data_dir, &call->api->answer_files);
	if (level == 0) {
		rc = render(p, options, &answer->body, call->err);
	} else {
		rc = gzip_begin(&gzip, level, &answer->body);
		if (rc == 0) {
			rc = render(p, options, &gzip.plain, call->err);
			end = gzip_end(&gzip);
			rc = rc < 0 ? rc : end;
		}
	}
	end = http_answer_end(answer);
	return rc < 0 ? rc : end;
}

static int render(struct http_call *call, const struct profile *p,
		  const struct render_format *format, const struct render_options *options,
		  const char *name, bool download)
{
	bool packed = !format->packed && negotiate_gzip(http_header(call->request, "Accept-Encoding"));
	/* The request says which data and which view. */
	const char *const texts[] = { call->request->tenant, call->request->target, format->name,
				      packed ? "gzip" : "" };
	struct answer_key key = answer_key_of(p, texts, ARRAY_SIZE(texts));
	struct http_answer *answer = call->answer;
	int rc = 0;

	if (!answer_cache_get(call->api->answers, &key, &answer->body)) {
		rc = flamegraph_write(call, p, options, format->render, packed ? 1 : 0);
		if (rc == 0 && !answer->has_file)
			answer_cache_put(call->api->answers, &key, answer->body.data,
					 answer->body.len);
	}
	if (rc == -ENOENT)
		return err_set(call->err, ENOENT, "NotFound", "root",
			       "the path in root leads nowhere in this profile");
	if (rc == -ENOTSUP && !call->err->code)
		return err_set(call->err, ENOTSUP, "ProfileTypeMismatch", "format",
			       "this profile cannot be written as %s", format->name);
	if (rc < 0)
		return rc;
	if (packed)
		http_answer_header(answer, "Content-Encoding", "gzip");
	answer->content_type = format->content_type;
	answer->no_compress = format->packed || packed;
	if (strcmp(format->name, "html") == 0) {
		http_answer_header(answer, "Content-Security-Policy", "%s; frame-ancestors 'none'",
				   html_content_policy());
		http_answer_header(answer, "Referrer-Policy", "no-referrer");
		http_answer_header(answer, "Cross-Origin-Opener-Policy", "same-origin");
	} else if (strcmp(format->name, "svg") == 0) {
		http_answer_header(answer, "Content-Security-Policy", "default-src 'none'");
	}
	http_answer_header(answer, "Vary", "Accept, Accept-Encoding");
	if (format->download || download)
		offer_file(answer, format, name);
	return 0;
}

int flamegraph_answer(struct http_call *call, struct profile *p, const struct flamegraph_span *span,
		      const char *name)
{
	const struct query *query = &call->request->query;
	cleanup(profile) struct profile *part = NULL;
	const struct render_format *format = NULL;
	struct render_options options = { 0 };
	int rc = negotiate_format(query_text(query, "format", NULL),
				  http_header(call->request, "Accept"), &format, call->err);

	if (rc == 0)
		rc = parse_options(query, p, &options, call->err);
	if (rc == 0)
		rc = select_part(call, p, span, &part);
	if (rc < 0)
		return rc;
	return render(call, part, format, &options, name, query_bool(query, "download", false));
}

int flamegraph_file(struct http_call *call, const struct profile *p, const char *format,
		    const char *name)
{
	const struct render_options options = { .value_index = profile_value_index(p) };

	return render(call, p, render_format_find(format), &options, name, true);
}

/* A profile knows the time that was covered; its session, from when to when that was. */
static void find_span(struct http_call *call, const struct profile *p, struct flamegraph_span *ret)
{
	struct session_info info = { 0 };
	struct err none = { 0 };

	*ret = (struct flamegraph_span){ p->meta.start_ns, p->meta.start_ns + p->meta.duration_ns };
	if (sessions_get(call->api->options.sessions, call->request->tenant, call->request->path[0],
			 &info, &none) < 0)
		return; /* a baseline */
	if (info.started_at_ns && info.started_at_ns < ret->from_ns)
		ret->from_ns = info.started_at_ns;
	if (info.status == SESSION_RUNNING)
		ret->to_ns = clock_realtime_ns();
	else if (info.completed_at_ns > ret->to_ns)
		ret->to_ns = info.completed_at_ns;
	session_info_deinit(&info);
}

int handle_flamegraph(struct http_call *call)
{
	struct flamegraph_span span;
	const struct http_request *request = call->request;
	cleanup(profile) struct profile *p = NULL;
	int rc = flamegraph_profile(call, request->path[0], &p, call->err);

	if (rc < 0)
		return rc;
	find_span(call, p, &span);
	return flamegraph_answer(call, p, &span, request->path[0]);
}
