// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/store/clickhouse.h"
#include "agent/store/clickhouse_schema.h"
#include "agent/store/folder.h"
#include "agent/store/store_engine.h"

#define MEASURED_NS (600 * NS_PER_S) /* how old a measurement of its own bytes may be */

static uint64_t engine_bytes(void *ctx)
{
	return clickhouse_bytes(ctx, MEASURED_NS);
}

static uint64_t waiting_bytes(void *ctx)
{
	struct clickhouse *ch = ctx;

	return journal_waiting(ch->journal);
}

static void set_budget(void *ctx, uint64_t budget_bytes)
{
	struct clickhouse *ch = ctx;

	atomic_store(&ch->budget_bytes, budget_bytes);
}

static int backup(void *ctx, int *ret_fd, uint64_t *ret_bytes, struct err *err)
{
	struct clickhouse *ch = ctx;

	(void)ret_fd, (void)ret_bytes;
	return err_set(err, ENOTSUP, "StoreUnavailable", NULL,
		       "the data is kept by ClickHouse at %s: back up its database %s there",
		       ch->url.where, ch->url.database);
}

static void seal(void *ctx, const struct store_day *day)
{
	/* Writing needs nothing here. */
}

/* ---- opening --------------------------------------------------------------------------------- */

static void engine_close(void *ctx)
{
	struct clickhouse *ch = ctx;

	clickhouse_sender_stop(&ch->sender);
	journal_close(ch->journal);
	clickhouse_http_destroy(ch->http);
	cleanup_close_fn(&ch->lock_fd);
	cleanup_close_fn(&ch->dir_fd);
	clickhouse_spans_deinit(ch);
	(void)pthread_mutex_destroy(&ch->bytes_lock);
	(void)pthread_mutex_destroy(&ch->spans_lock);
	(void)pthread_mutex_destroy(&ch->days_lock);
	buf_deinit(&ch->own_days.answer);
	free(ch->path);
	free(ch);
}

/* Numbers go on behind those on the server: another data directory may have written them. */
static int raise_number(struct clickhouse *ch, struct err *err)
{
	struct clickhouse_request request = { .whatever = true };
	cleanup_buf struct buf sql = { 0 }, answer = { 0 }, host = { 0 };
	uint64_t number = 0;
	struct bytes in;
	int rc;

	sql_text(&host, ch->host);
	if (host.error)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	buf_printf(&sql,
		   "SELECT " ROW_MARK ", toUInt64(max(n)) FROM (SELECT max(op) AS n FROM "
		   "record_sizes WHERE host = %s UNION ALL SELECT max(op) AS n FROM chunk_sizes "
		   "WHERE host = %s UNION ALL SELECT maxMerge(last) AS n FROM days WHERE host = %s) "
		   "FORMAT RowBinary",
		   host.data, host.data, host.data);
	if (sql.error)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	request.sql = sql.data;
	rc = clickhouse_http_do(ch->http, &request, &answer, NULL, err);
	if (rc < 0)
		return rc;
	in = bytes_of(answer.data, answer.len);
	if (row_read_numbers(&in, &number, 1) != 1)
		return clickhouse_no_answer(ch, err);
	journal_raise(ch->journal, number);
	return 0;
}

/* A server that is away is waited for later; one that refuses is not what was meant. */
static int first_contact(struct clickhouse *ch, struct err *err)
{
	struct err why = { 0 };
	int code = 0, rc = clickhouse_schema_make(ch->http, &code, &why);

	if (rc == -EIO && code == 0) {
		log_warn("%s", why.text);
		return 0;
	}
	if (rc == 0)
		ch->sender.tables_made = true;
	if (rc == 0)
		rc = raise_number(ch, &why);
	if (rc < 0 && err)
		*err = why;
	return rc;
}

static int open_all(struct clickhouse *ch, struct err *err)
{
	int rc = folder_open(ch->path, &ch->dir_fd, err);

	if (rc == 0)
		rc = folder_lock(ch->dir_fd, ch->path, &ch->lock_fd, err);
	if (rc == 0)
		rc = journal_open(ch->dir_fd, ch->path, &ch->journal, err);
	if (rc == 0)
		rc = clickhouse_http_create(&ch->url, &ch->stop, &ch->http, err);
	if (rc < 0)
		return rc;
	ch->sender = (struct clickhouse_sender){ .journal = ch->journal,
						 .http = ch->http,
						 .stop = &ch->stop,
						 .idle = clickhouse_clean,
						 .idle_ctx = ch };
	rc = first_contact(ch, err);
	return rc < 0 ? rc : clickhouse_sender_start(&ch->sender, err);
}

int clickhouse_engine_open(const char *path, const char *url, const char *host,
			   const struct store_ops **ret_ops, void **ret_engine, struct err *err)
{
	static const struct store_ops ops = {
		.is_shared = true,
		.close = engine_close,
		.set_budget = set_budget,
		.put = clickhouse_put,
		.remove = clickhouse_remove,
		.get = clickhouse_get,
		.list = clickhouse_list,
		.session_append = clickhouse_session_append,
		.session_read = clickhouse_session_read,
		.session_position = clickhouse_session_position,
		.session_remove = clickhouse_session_remove,
		.session_copy = clickhouse_session_copy,
		.history_append = clickhouse_history_append,
		.history_roll = clickhouse_history_roll,
		.history_position = clickhouse_history_position,
		.history_days = clickhouse_history_days,
		.history_dictionary = clickhouse_history_dictionary,
		.history_windows = clickhouse_history_windows,
		.history_spans = clickhouse_history_spans,
		.history_seal = seal,
		.history_drop = clickhouse_history_drop,
		.session_bytes = clickhouse_session_bytes,
		.bytes = engine_bytes,
		.waiting_bytes = waiting_bytes,
		.backup = backup,
	};
	struct clickhouse_url parsed;
	struct clickhouse *ch;
	int rc = clickhouse_url_parse(url, &parsed, err);

	if (rc < 0)
		return rc;
	if (strlen(host) >= STORE_HOST_SIZE)
		return err_set(err, EINVAL, NULL, "host", "the host's name is longer than %d bytes",
			       STORE_HOST_SIZE - 1);
	ch = calloc(1, sizeof(*ch));
	if (!ch || !(ch->path = strdup(path))) {
		free(ch);
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	}
	ch->url = parsed;
	strcpy(ch->host, host);
	ch->dir_fd = ch->lock_fd = -1;
	(void)pthread_mutex_init(&ch->bytes_lock, NULL);
	(void)pthread_mutex_init(&ch->spans_lock, NULL);
	(void)pthread_mutex_init(&ch->days_lock, NULL);
	atomic_store(&ch->shrunk, true);
	rc = open_all(ch, err);
	if (rc < 0) {
		engine_close(ch);
		return rc;
	}
	*ret_ops = &ops;
	*ret_engine = ch;
	return 0;
}
