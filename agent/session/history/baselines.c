// SPDX-License-Identifier: Apache-2.0
/* Baselines: a record, and a copy of the session's data under the baseline's id, so that it
 * survives the session. The record embeds the session's own record as it was. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/base/parse.h"
#include "agent/base/ulid.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/core/sessions.h"
#include "agent/session/history/keep_names.h"
#include "agent/session/history/session_profile.h"
#include "agent/session/records/list_cursor.h"
#include "agent/session/records/record_json.h"
#include "agent/session/records/session_record.h"

#define BASELINE_KIND	"baseline"
#define LISTED_MAX	1000u
#define LABEL_MAX	200u
#define DESCRIPTION_MAX 2000u

void baseline_info_deinit(struct baseline_info *info)
{
	free(info->description);
	free(info->top_functions);
	info->description = info->top_functions = NULL;
}

static int unknown_baseline(struct err *err, const char *id)
{
	return err_set(err, ENOENT, "UnknownBaseline", NULL, "no baseline '%.64s'", id);
}

/* ---- the record ------------------------------------------------------------------------------ */

static char *encode(const struct baseline_info *info, const struct session_info *session)
{
	cleanup(json) cJSON *json = cJSON_CreateObject();
	cleanup_free char *embedded = session_record_encode(session, NULL);
	cJSON *tags;
	char number[24];

	if (!embedded)
		return NULL;
	(void)cJSON_AddNumberToObject(json, "version", 1);
	(void)cJSON_AddStringToObject(json, "id", info->id);
	(void)cJSON_AddStringToObject(json, "label", info->label);
	(void)cJSON_AddStringToObject(json, "description", info->description);
	(void)snprintf(number, sizeof(number), "%" PRIu64, info->created_at_ns);
	(void)cJSON_AddStringToObject(json, "createdNs", number);
	tags = cJSON_AddArrayToObject(json, "tags");
	for (uint32_t i = 0; i < info->tag_count; i++)
		(void)cJSON_AddItemToArray(tags, cJSON_CreateString(info->tags[i]));
	if (info->top_functions)
		(void)cJSON_AddStringToObject(json, "topFunctions", info->top_functions);
	(void)cJSON_AddRawToObject(json, "session", embedded);
	return json ? cJSON_PrintUnformatted(json) : NULL;
}

static int decode_session(const cJSON *json, struct session_info *ret)
{
	cleanup_free char *text =
		cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(json, "session"));

	return text ? session_record_decode(text, strlen(text), ret, NULL) : -EPROTO;
}

static int fill_texts(const cJSON *json, struct baseline_info *info)
{
	const cJSON *top = cJSON_GetObjectItemCaseSensitive(json, "topFunctions"), *tag;

	cJSON_ArrayForEach(tag, cJSON_GetObjectItemCaseSensitive(json, "tags"))
	{
		const char *text = cJSON_GetStringValue(tag);

		if (text && info->tag_count < BASELINE_TAGS_MAX)
			(void)snprintf(info->tags[info->tag_count++], BASELINE_TAG_SIZE, "%s",
				       text);
	}
	info->description = strdup(record_text(json, "description"));
	info->top_functions = cJSON_IsString(top) ? strdup(top->valuestring) : NULL;
	if (info->description && (info->top_functions || !cJSON_IsString(top)))
		return 0;
	baseline_info_deinit(info);
	return -ENOMEM;
}

/* @session may be NULL. */
static int decode(const char *body, size_t len, struct baseline_info *ret,
		  struct session_info *session)
{
	cleanup(json) cJSON *json = cJSON_ParseWithLength(body, len);
	struct baseline_info info = { 0 };
	struct session_info source;
	int rc = cJSON_IsObject(json) ? decode_session(json, &source) : -EPROTO;

	if (rc < 0)
		return rc;
	(void)snprintf(info.id, sizeof(info.id), "%s", record_text(json, "id"));
	(void)snprintf(info.label, sizeof(info.label), "%s", record_text(json, "label"));
	info.created_at_ns = strtoull(record_text(json, "createdNs"), NULL, 10);
	memcpy(info.tenant, source.tenant, sizeof(info.tenant));
	memcpy(info.session_id, source.id, sizeof(info.session_id));
	memcpy(info.service, source.service, sizeof(info.service));
	info.type = source.type;
	info.duration_ns = source.duration_ns;
	info.sample_count = source.sample_count;
	info.total_value = source.total_value;
	rc = fill_texts(json, &info);
	if (rc < 0 || !session)
		session_info_deinit(&source);
	else
		*session = source;
	if (rc == 0)
		*ret = info;
	return rc;
}

/* ---- creating -------------------------------------------------------------------------------- */

static int check_request(const struct baseline_request *r, struct err *err)
{
	if (!r->label || !*r->label || strlen(r->label) > LABEL_MAX)
		return err_set(err, EINVAL, "InvalidParam", "label", "required, at most %u bytes",
			       LABEL_MAX);
	if (r->description && strlen(r->description) > DESCRIPTION_MAX)
		return err_set(err, EINVAL, "InvalidParam", "description", "at most %u bytes",
			       DESCRIPTION_MAX);
	if (r->tag_count > BASELINE_TAGS_MAX)
		return err_set(err, EINVAL, "InvalidParam", "tags", "at most %d tags",
			       BASELINE_TAGS_MAX);
	for (uint32_t i = 0; i < r->tag_count; i++)
		if (!parse_is_name(r->tags[i]))
			return err_set(err, EINVAL, "InvalidParam", "tags",
				       "a tag has 1 to 64 characters of A-Z a-z 0-9 . _ -");
	if (r->top_functions && strlen(r->top_functions) > BASELINE_TEXT_MAX)
		return err_set(err, EINVAL, "InvalidParam", "topFunctions", "at most %u bytes",
			       BASELINE_TEXT_MAX);
	return 0;
}

static int check_session(const struct baseline_request *r, const struct session_info *session,
			 struct err *err)
{
	if (session->status == SESSION_RUNNING) {
		(void)err_set(err, EBUSY, "NotFinished", "sessionId", "session %s is still running",
			      session->id);
		if (err)
			err->retry_after_s = session_left_s(session);
		return -EBUSY;
	}
	if (session->status == SESSION_FAILED)
		return err_set(err, EINVAL, "SessionFailed", "sessionId",
			       "session %s failed: %.200s", session->id, session->failure);
	if (session->type != r->type)
		return err_set(err, EINVAL, "ProfileTypeMismatch", "profileType",
			       "session %s is of type %s", session->id,
			       profile_type_info(session->type)->word);
	return 0;
}

static int check_count(struct sessions *s, const char *tenant, struct err *err)
{
	struct store_query query = { .kind = BASELINE_KIND, .tenant = tenant, .every_host = true };
	uint64_t total = 0;
	int rc = store_list(s->store, &query, NULL, NULL, &total, err);

	if (rc == 0 && total >= s->options.baselines)
		return err_set(err, ENOSPC, "LimitReached", NULL,
			       "there are %u baselines already, which is the limit: delete one",
			       s->options.baselines);
	return rc;
}

static int fill(const struct baseline_request *r, const struct session_info *session,
		struct baseline_info *info)
{
	info->created_at_ns = clock_realtime_ns();
	strcpy(info->id, "bl-");
	ulid_make(info->created_at_ns, info->id + strlen("bl-"));
	(void)snprintf(info->label, sizeof(info->label), "%s", r->label);
	memcpy(info->tenant, session->tenant, sizeof(info->tenant));
	memcpy(info->session_id, session->id, sizeof(info->session_id));
	memcpy(info->service, session->service, sizeof(info->service));
	info->type = session->type;
	info->duration_ns = session->duration_ns;
	info->sample_count = session->sample_count;
	info->total_value = session->total_value;
	info->is_latest = true;
	for (uint32_t i = 0; i < r->tag_count; i++)
		(void)snprintf(info->tags[info->tag_count++], BASELINE_TAG_SIZE, "%s", r->tags[i]);
	info->description = strdup(r->description ? r->description : "");
	info->top_functions = r->top_functions ? strdup(r->top_functions) : NULL;
	return info->description && (info->top_functions || !r->top_functions) ? 0 : -ENOMEM;
}

/* Names that cannot be had now are asked for when the baseline is shown. */
static int copy_span(struct sessions *s, const struct session_info *span, const char *to,
		     struct err *err)
{
	struct session_info copied = *span;
	struct err ignored = { 0 };
	int rc = spans_copy(s, span, to, err);

	(void)snprintf(copied.id, sizeof(copied.id), "%s", to);
	if (rc == 0)
		(void)!keep_names(s, &copied, &ignored);
	return rc;
}

static int store_baseline(struct sessions *s, const struct baseline_info *info,
			  const struct session_info *session, struct err *err)
{
	cleanup_free char *body = encode(info, session);
	struct store_record record = {
		.kind = BASELINE_KIND,
		.tenant = info->tenant,
		.id = info->id,
		.service = info->service,
		.type = profile_type_info(info->type)->word,
		.status = "completed",
		.created_ns = info->created_at_ns,
		.body = body,
	};
	int rc;

	if (!body)
		return err_set(err, ENOMEM, "StoreUnavailable", NULL, "no memory for a baseline");
	record.body_len = strlen(body);
	/* The data first: a record without data must not exist, data without record only costs
	 * space. */
	if (session_info_is_span(session)) {
		rc = copy_span(s, session, info->id, err);
	} else {
		(void)pthread_mutex_lock(&s->file_lock);
		rc = store_session_copy(s->store, info->session_id, info->id, err);
		(void)pthread_mutex_unlock(&s->file_lock);
	}
	/* Deleted since it was looked at: only a session that has taken nothing has no data. */
	if (rc == -ENOENT && session->sample_count)
		return err_set(err, ENOENT, "UnknownSession", "sessionId", "no session '%.64s'", session->id);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	rc = store_put(s->store, &record, err);
	if (rc < 0)
		(void)!store_session_remove(s->store, info->id, NULL);
	return rc;
}

int sessions_baseline_create(struct sessions *s, const struct baseline_request *request,
			     struct baseline_info *ret, struct err *err)
{
	struct baseline_info info = { 0 };
	struct session_info session;
	int rc = check_request(request, err);

	if (rc == 0)
		rc = sessions_get(s, request->tenant, request->session_id, &session, err);
	if (rc == -ENOENT)
		return err_set(err, ENOENT, "UnknownSession", "sessionId", "no session '%.64s'",
			       request->session_id);
	if (rc < 0)
		return rc;
	rc = check_session(request, &session, err);
	if (rc == 0)
		rc = check_count(s, request->tenant, err);
	if (rc == 0 && fill(request, &session, &info) < 0)
		rc = err_set(err, ENOMEM, "StoreUnavailable", NULL, "no memory for a baseline");
	if (rc == 0)
		rc = store_baseline(s, &info, &session, err);
	session_info_deinit(&session);
	if (rc < 0)
		baseline_info_deinit(&info);
	else
		*ret = info;
	return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */
static int copy_id(void *ctx, const struct store_record *record)
{
	(void)snprintf(ctx, SESSION_ID_SIZE, "%s", record->id);
	return 0;
}

static int set_latest(struct sessions *s, struct baseline_info *info, struct err *err)
{
	char latest[SESSION_ID_SIZE] = "";
	struct store_query query = { .kind = BASELINE_KIND,
				     .tenant = info->tenant,
				     .service = info->service,
				     .type = profile_type_info(info->type)->word,
				     .limit = 1,
				     .every_host = true };
	int rc = store_list(s->store, &query, copy_id, latest, NULL, err);

	info->is_latest = rc == 0 && strcmp(latest, info->id) == 0;
	return rc;
}

static int get(struct sessions *s, const char *tenant, const char *id, struct baseline_info *ret,
	       struct session_info *session, struct err *err)
{
	cleanup_free char *body = NULL;
	size_t len;
	int rc = store_get(s->store, BASELINE_KIND, tenant, id, &body, &len, err);

	if (rc == -ENOENT)
		return unknown_baseline(err, id);
	if (rc == 0 && decode(body, len, ret, session) < 0)
		rc = err_set(err, EPROTO, "StoreUnavailable", NULL,
			     "the record of %s cannot be read", id);
	return rc;
}

int sessions_baseline_get(struct sessions *s, const char *tenant, const char *id,
			  struct baseline_info *ret, struct err *err)
{
	struct baseline_info info;
	int rc = get(s, tenant, id, &info, NULL, err);

	if (rc < 0)
		return rc;
	rc = set_latest(s, &info, err);
	if (rc < 0)
		baseline_info_deinit(&info);
	else
		*ret = info;
	return rc;
}

int baseline_session_info(struct sessions *s, const char *tenant, const char *id,
			  struct session_info *ret, struct err *err)
{
	struct baseline_info info;
	int rc = get(s, tenant, id, &info, ret, err);

	if (rc < 0)
		return rc;
	memcpy(ret->id, info.id, sizeof(ret->id));
	baseline_info_deinit(&info);
	return 0;
}

int sessions_baseline_delete(struct sessions *s, const char *tenant, const char *id,
			     struct err *err)
{
	struct baseline_info info;
	int rc = get(s, tenant, id, &info, NULL, err);

	if (rc < 0)
		return rc;
	baseline_info_deinit(&info);
	/* The record goes last, so that what could not be deleted can be deleted again. */
	rc = store_session_remove(s->store, id, err);
	if (rc == 0)
		rc = store_delete(s->store, BASELINE_KIND, tenant, id, err);
	profile_cache_drop(&s->cache, id);
	return rc;
}

/* ---- listing: they are few, so all are read and the page is cut here --------------------------
 */

struct listing {
	const struct baseline_query *query;
	struct baseline_list *list;
	uint64_t cursor_ns; /* of the last item of the page before */
	const char *cursor_id; /* its id, borrowed from the query; NULL = the first page */
	bool more;
};

static bool has_tag(const struct baseline_info *info, const char *tag)
{
	for (uint32_t i = 0; i < info->tag_count; i++)
		if (strcmp(info->tags[i], tag) == 0)
			return true;
	return false;
}

/* Does it stand on a page before, in the order of the store? */
static bool is_seen(const struct listing *listing, const struct baseline_info *info)
{
	int order;

	if (!listing->cursor_id)
		return false;
	if (info->created_at_ns != listing->cursor_ns)
		order = info->created_at_ns < listing->cursor_ns ? -1 : 1;
	else
		order = strcmp(info->id, listing->cursor_id);
	return listing->query->oldest_first ? order <= 0 : order >= 0;
}

static int list_one(void *ctx, const struct store_record *record)
{
	struct listing *listing = ctx;
	struct baseline_list *list = listing->list;
	struct baseline_info info;
	int rc = decode(record->body, record->body_len, &info, NULL);

	if (rc < 0)
		return rc == -EPROTO ? 0 : rc;
	if (listing->query->tag && !has_tag(&info, listing->query->tag)) {
		baseline_info_deinit(&info);
		return 0;
	}
	list->total++;
	if (is_seen(listing, &info)) {
		baseline_info_deinit(&info);
		return 0;
	}
	if (list->count == listing->query->limit) {
		listing->more = true;
		baseline_info_deinit(&info);
		return 0;
	}
	list->items[list->count++] = info;
	return 0;
}

static void set_cursor(struct baseline_list *list)
{
	const struct baseline_info *last = &list->items[list->count - 1];

	list_cursor_write(list->next_cursor, sizeof(list->next_cursor), last->created_at_ns, last->id);
}

int sessions_baseline_list(struct sessions *s, const struct baseline_query *query,
			   struct baseline_list *ret, struct err *err)
{
	struct baseline_list list = { 0 };
	struct listing listing = { .query = query, .list = &list };
	struct store_query rows = {
		.kind = BASELINE_KIND,
		.tenant = query->tenant,
		.service = query->service && strcmp(query->service, "*") == 0 ? "host"
									      : query->service,
		.type = query->type >= 0 ? profile_type_info((enum profile_type)query->type)->word
					 : NULL,
		.every_host = true,
		.oldest_first = query->oldest_first,
	};
	int rc;

	if (query->limit < 1 || query->limit > LISTED_MAX)
		return err_set(err, EINVAL, "InvalidParam", "limit", "must be 1…%u, got %u",
			       LISTED_MAX, query->limit);
	rc = list_cursor_parse(query->cursor, &listing.cursor_ns, &listing.cursor_id, err);
	if (rc < 0)
		return rc;
	list.items = calloc(query->limit, sizeof(*list.items));
	if (!list.items)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for a list");
	rc = store_list(s->store, &rows, list_one, &listing, NULL, err);
	for (uint32_t i = 0; rc == 0 && i < list.count; i++)
		rc = set_latest(s, &list.items[i], err);
	if (rc < 0) {
		baseline_list_deinit(&list);
		return rc;
	}
	if (listing.more)
		set_cursor(&list);
	*ret = list;
	return 0;
}

void baseline_list_cut(struct baseline_list *list, uint32_t count)
{
	for (uint32_t i = count; i < list->count; i++)
		baseline_info_deinit(&list->items[i]);
	list->count = count;
	set_cursor(list);
}

uint64_t sessions_build_budget_ns(const struct sessions *s)
{
	return s->options.build_budget_ns;
}

void baseline_list_deinit(struct baseline_list *list)
{
	for (uint32_t i = 0; i < list->count; i++)
		baseline_info_deinit(&list->items[i]);
	free(list->items);
	*list = (struct baseline_list){ 0 };
}
