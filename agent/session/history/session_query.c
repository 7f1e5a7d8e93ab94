// SPDX-License-Identifier: Apache-2.0
/* Reading sessions: what runs from memory, what is finished from the store; deleting and waiting.
 */
#include <errno.h>
#include <string.h>

#include "agent/session/continuous/continuous.h"
#include "agent/session/core/session_query.h"
#include "agent/session/records/hosts.h"
#include "agent/session/records/list_cursor.h"
#include "agent/session/records/session_record.h"

/* ---- one ------------------------------------------------------------------------------------- */
static int get_span(struct sessions *s, const char *tenant, const char *id,
		    struct session_info *ret, struct err *err)
{
	int rc = spans_find(s, tenant, id, ret, err);

	return rc == -ENOENT ? session_unknown(err, id) : rc;
}

int sessions_get(struct sessions *s, const char *tenant, const char *id, struct session_info *ret,
		 struct err *err)
{
	int rc = session_get(s, tenant, id, ret, err);

	return rc == -ENOENT ? get_span(s, tenant, id, ret, err) : rc;
}

/* Also of a span that is being filled: continuous profiling goes on, this view of it is gone. */
static int delete_span(struct sessions *s, const char *tenant, const char *id, bool *ret_stopped,
		       struct err *err)
{
	struct session_info span;
	int rc = spans_find(s, tenant, id, &span, err);

	if (rc == -ENOENT)
		return session_unknown(err, id);
	if (rc == 0)
		rc = spans_delete(s, &span, err);
	if (rc == 0)
		*ret_stopped = false;
	return rc;
}

int sessions_delete(struct sessions *s, const char *tenant, const char *id, bool *ret_stopped,
		    struct err *err)
{
	int rc = session_delete(s, tenant, id, ret_stopped, err);

	return rc == -ENOENT ? delete_span(s, tenant, id, ret_stopped, err) : rc;
}

static int wait_for(struct sessions *s, const char *tenant, const char *id, uint64_t timeout_ns,
		    bool started, struct err *err)
{
	struct session_info info;
	int rc = session_wait(s, tenant, id, timeout_ns, started);

	if (rc < 0)
		return err_set(err, ETIMEDOUT, NULL, NULL, "session %s is still %s", id,
			       started ? "waiting to start" : "running");
	rc = sessions_get(s, tenant, id, &info, err);
	if (rc == 0)
		session_info_deinit(&info);
	return rc;
}

int sessions_wait(struct sessions *s, const char *tenant, const char *id, uint64_t timeout_ns,
		  struct err *err)
{
	return wait_for(s, tenant, id, timeout_ns, false, err);
}

int sessions_wait_started(struct sessions *s, const char *tenant, const char *id,
			  uint64_t timeout_ns, struct err *err)
{
	return wait_for(s, tenant, id, timeout_ns, true, err);
}

/* ---- many ------------------------------------------------------------------------------------ */

struct collect {
	struct session_list *list;
	uint32_t limit;
	bool more;
};

static int collect_session(void *ctx, const struct store_record *record)
{
	struct collect *collect = ctx;
	struct session_info info;
	int rc;

	if (collect->list->count == collect->limit) {
		collect->more = true;
		return 0;
	}
	rc = session_record_decode(record->body, record->body_len, &info, NULL);
	if (rc == -EPROTO)
		return 0; /* one unreadable record does not hide the others */
	if (rc == 0)
		collect->list->items[collect->list->count++] = info;
	return rc;
}

/* The store's record of a running session is as old as its start. */
static void refresh_running(struct sessions *s, struct session_list *list)
{
	sessions_scope(s);

	for (uint32_t i = 0; i < list->count; i++) {
		const struct session *session;
		struct session_info fresh;

		if (list->items[i].status != SESSION_RUNNING)
			continue;
		hosts_settle_running(&s->host, &list->items[i]);
		session = session_find(s, list->items[i].tenant, list->items[i].id);
		if (!session || session_describe(s, session, &fresh) < 0)
			continue;
		session_info_deinit(&list->items[i]);
		list->items[i] = fresh;
	}
}

int sessions_list_on_demand(struct sessions *s, const struct session_query *query,
			    struct session_list *ret, struct err *err)
{
	struct session_list list = { 0 };
	struct collect collect = { &list, query->limit, false };
	struct store_query rows = {
		.kind = SESSION_RECORD_KIND,
		.tenant = query->tenant,
		.service = query->service && strcmp(query->service, "*") == 0 ? "host"
									      : query->service,
		.type = query->type >= 0 ? profile_type_info((enum profile_type)query->type)->word
					 : NULL,
		.status = query->status >= 0
				  ? session_status_word((enum session_status)query->status)
				  : NULL,
		.from_ns = query->from_ns,
		.to_ns = query->to_ns,
		.limit = query->limit + 1,
		.every_host = !query->own,
	};
	int rc;

	if (query->limit < 1 || query->limit > 100)
		return err_set(err, EINVAL, "InvalidParam", "limit", "must be 1…100, got %u",
			       query->limit);
	rc = list_cursor_parse(query->cursor, &rows.before_ns, &rows.before_id, err);
	if (rc < 0)
		return rc;
	list.items = calloc(query->limit + 1, sizeof(*list.items));
	if (!list.items)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for a list");
	rc = store_list(s->store, &rows, collect_session, &collect, &list.total, err);
	if (rc < 0) {
		session_list_deinit(&list);
		return rc;
	}
	refresh_running(s, &list);
	if (collect.more) {
		const struct session_info *last = &list.items[list.count - 1];

		list_cursor_write(list.next_cursor, sizeof(list.next_cursor), last->created_at_ns, last->id);
	}
	*ret = list;
	return 0;
}

/* Items of the page that lie behind the cursor, newest first; on equal times larger ids first. */
static bool is_before(uint64_t a_ns, const char *a_id, uint64_t b_ns, const char *b_id)
{
	return a_ns != b_ns ? a_ns > b_ns : strcmp(a_id, b_id) > 0;
}

/* The first span behind the cursor. */
static size_t first_span(const struct span_list *spans, const struct store_query *cursor)
{
	size_t span = 0;

	for (; cursor->before_id && span < spans->count; span++) {
		uint64_t from_ns = spans->data[span].from_ns;
		char id[SESSION_ID_SIZE] = "";

		if (from_ns == cursor->before_ns)
			span_id(spans, &spans->data[span], id);
		if (is_before(cursor->before_ns, cursor->before_id, from_ns, id))
			break;
	}
	return span;
}

static int merge_spans(const struct sessions *s, const char *tenant, const struct span_list *spans,
		       const struct store_query *cursor, uint32_t limit, struct session_list *list)
{
	struct session_info *merged = calloc(limit + 1, sizeof(*merged));
	size_t span = first_span(spans, cursor);
	uint32_t own = 0, count = 0;

	if (!merged)
		return -ENOMEM;
	while (count < limit && (own < list->count || span < spans->count)) {
		const struct session_info *next = own < list->count ? &list->items[own] : NULL;
		const struct span *view = span < spans->count ? &spans->data[span] : NULL;
		char id[SESSION_ID_SIZE];

		if (next && view)
			span_id(spans, view, id);
		if (next && (!view || is_before(next->created_at_ns, next->id, view->from_ns, id)))
			merged[count++] = list->items[own++];
		else
			span_describe(s, tenant, spans, &spans->data[span++], &merged[count++]);
	}
	if (own < list->count || span < spans->count || spans->more || list->next_cursor[0])
		list_cursor_write(list->next_cursor, sizeof(list->next_cursor),
				  merged[count - 1].created_at_ns, merged[count - 1].id);
	for (; own < list->count; own++)
		session_info_deinit(&list->items[own]);
	free(list->items);
	list->items = merged;
	list->count = count;
	list->total += spans->total;
	return 0;
}

int sessions_list(struct sessions *s, const struct session_query *query, struct session_list *ret,
		  struct err *err)
{
	struct span_query views = { .tenant = query->tenant,
				    .service = query->service,
				    .type = query->type,
				    .status = query->status,
				    .own = query->own,
				    .from_ns = query->from_ns,
				    .to_ns = query->to_ns,
				    .limit = query->limit };
	struct store_query cursor = { 0 };
	struct span_list spans = { 0 };
	struct session_list list;
	int rc = sessions_list_on_demand(s, query, &list, err);

	if (rc < 0)
		return rc;
	rc = list_cursor_parse(query->cursor, &cursor.before_ns, &cursor.before_id, err);
	views.before_ns = cursor.before_ns;
	if (rc == 0)
		rc = spans_collect(s, &views, &spans, err);
	if (rc == 0 && spans.total &&
	    merge_spans(s, query->tenant, &spans, &cursor, query->limit, &list) < 0)
		rc = err_set(err, ENOMEM, NULL, NULL, "no memory for a list");
	span_list_deinit(&spans);
	if (rc < 0)
		session_list_deinit(&list);
	else
		*ret = list;
	return rc;
}

void session_list_deinit(struct session_list *list)
{
	for (uint32_t i = 0; i < list->count; i++)
		session_info_deinit(&list->items[i]);
	free(list->items);
	*list = (struct session_list){ 0 };
}
