// SPDX-License-Identifier: Apache-2.0
#include "agent/store/store.h"

#include <errno.h>
#include <string.h>

#include "agent/store/store_engine.h"

struct store {
	const struct store_ops *ops;
	void *engine;
};

static bool is_store_id(const char *id)
{
	size_t len = strlen(id);

	return len > 0 && len < STORE_ID_SIZE &&
	       strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

static int bad_id(struct err *err)
{
	return err_set(err, EINVAL, "InvalidParam", "id", "not an id of this store");
}

static const char clickhouse_scheme[] = "clickhouse:";

static bool is_clickhouse(const char *url)
{
	return url && strncmp(url, clickhouse_scheme, strlen(clickhouse_scheme)) == 0;
}

/* The folder of an embedded store, NULL: @url is of no store that is known. */
static const char *folder_of(const char *data_dir, const char *url)
{
	static const char sqlite_scheme[] = "sqlite:";

	if (!url || !*url)
		return data_dir;
	if (strncmp(url, sqlite_scheme, strlen(sqlite_scheme)) != 0)
		return NULL;
	return url[strlen(sqlite_scheme)] ? url + strlen(sqlite_scheme) : data_dir;
}

int store_peek(const char *data_dir, const char *url, const char *kind)
{
	const char *path = folder_of(data_dir, url);

	if (is_clickhouse(url))
		return -EOPNOTSUPP;
	return path ? sqlite_engine_peek(path, kind) : -EINVAL;
}

static int open_engine(struct store *store, const char *data_dir, const char *url, const char *host, struct err *err)
{
	const char *path = folder_of(data_dir, url);

	if (is_clickhouse(url))
		return clickhouse_engine_open(data_dir, url, host, &store->ops, &store->engine, err);
	/* No more of it: it may hold a password. */
	if (!path)
		return err_set(err, EINVAL, NULL, "url", "store url: only sqlite:PATH and clickhouse://… are known");
	return sqlite_engine_open(path, &store->ops, &store->engine, err);
}

int store_open(const char *data_dir, const char *url, const char *host, struct store **ret, struct err *err)
{
	struct store *store = calloc(1, sizeof(*store));
	int rc;

	if (!store)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	rc = open_engine(store, data_dir, url, host, err);
	if (rc < 0) {
		free(store);
		return rc;
	}
	*ret = store;
	return 0;
}

void store_close(struct store *store)
{
	if (!store)
		return;
	store->ops->close(store->engine);
	free(store);
}

bool store_is_shared(const struct store *store)
{
	return store->ops->is_shared;
}

void store_set_budget(struct store *store, uint64_t budget_bytes)
{
	store->ops->set_budget(store->engine, budget_bytes);
}

int store_put(struct store *store, const struct store_record *record, struct err *err)
{
	return store->ops->put(store->engine, record, err);
}

int store_delete(struct store *store, const char *kind, const char *tenant, const char *id,
		 struct err *err)
{
	return store->ops->remove(store->engine, kind, tenant, id, err);
}

int store_get(struct store *store, const char *kind, const char *tenant, const char *id,
	      char **ret_body, size_t *ret_len, struct err *err)
{
	return store->ops->get(store->engine, kind, tenant, id, ret_body, ret_len, err);
}

int store_list(struct store *store, const struct store_query *query, store_visit_fn *visit,
	       void *ctx, uint64_t *ret_total, struct err *err)
{
	return store->ops->list(store->engine, query, visit, ctx, ret_total, err);
}

int store_session_append(struct store *store, const char *id, const struct store_chunk *chunks,
			 size_t count, uint64_t feed_identity, uint64_t feed_position,
			 struct err *err)
{
	if (!is_store_id(id))
		return bad_id(err);
	return store->ops->session_append(store->engine, id, chunks, count, feed_identity,
					  feed_position, err);
}

int store_session_read(struct store *store, const char *id, store_chunk_fn *visit, void *ctx,
		       unsigned *ret_damaged, struct err *err)
{
	if (!is_store_id(id))
		return bad_id(err);
	return store->ops->session_read(store->engine, id, visit, ctx, ret_damaged, err);
}

int store_session_position(struct store *store, const char *id, uint64_t *ret_identity,
			   uint64_t *ret_position, struct err *err)
{
	if (!is_store_id(id))
		return bad_id(err);
	return store->ops->session_position(store->engine, id, ret_identity, ret_position, err);
}

int store_session_remove(struct store *store, const char *id, struct err *err)
{
	if (!is_store_id(id))
		return bad_id(err);
	return store->ops->session_remove(store->engine, id, err);
}

int store_session_copy(struct store *store, const char *from, const char *to, struct err *err)
{
	if (!is_store_id(from) || !is_store_id(to))
		return bad_id(err);
	return store->ops->session_copy(store->engine, from, to, err);
}

uint64_t store_session_bytes(struct store *store, const char *id)
{
	return is_store_id(id) ? store->ops->session_bytes(store->engine, id) : 0;
}

uint64_t store_bytes(struct store *store)
{
	return store->ops->bytes(store->engine);
}

uint64_t store_waiting_bytes(struct store *store)
{
	return store->ops->waiting_bytes ? store->ops->waiting_bytes(store->engine) : 0;
}

int store_history_append(struct store *store, const struct store_day *day,
			 const struct store_chunk *dictionary, size_t chunk_count,
			 const struct store_window *windows, size_t window_count,
			 uint64_t feed_identity, uint64_t feed_position, struct err *err)
{
	return store->ops->history_append(store->engine, day, dictionary, chunk_count, windows,
					  window_count, feed_identity, feed_position, err);
}

int store_history_roll(struct store *store, const struct store_day *day, uint64_t from_ns, size_t kept,
		       const struct store_chunk *dictionary, const struct store_ends *ends,
		       const struct store_window *windows, size_t window_count, struct err *err)
{
	return store->ops->history_roll(store->engine, day, from_ns, kept, dictionary, ends,
					windows, window_count, err);
}

int store_history_position(struct store *store, const struct store_day *day, uint64_t *ret_identity,
			   uint64_t *ret_position, struct err *err)
{
	return store->ops->history_position(store->engine, day, ret_identity, ret_position, err);
}

int store_history_days(struct store *store, bool every_host, store_day_fn *visit, void *ctx,
		       struct err *err)
{
	return store->ops->history_days(store->engine, every_host, visit, ctx, err);
}

int store_history_dictionary(struct store *store, const struct store_day *day,
			     store_chunk_fn *visit, void *ctx, unsigned *ret_damaged,
			     struct err *err)
{
	return store->ops->history_dictionary(store->engine, day, visit, ctx, ret_damaged, err);
}

int store_history_windows(struct store *store, const struct store_day *day,
			  const struct store_window_query *query, store_window_fn *visit, void *ctx,
			  unsigned *ret_damaged, struct err *err)
{
	return store->ops->history_windows(store->engine, day, query, visit, ctx, ret_damaged, err);
}

int store_history_spans(struct store *store, const struct store_day *day,
			const struct store_window_query *query, uint64_t span_ns,
			store_span_fn *visit, void *ctx, struct err *err)
{
	return store->ops->history_spans(store->engine, day, query, span_ns, visit, ctx, err);
}

void store_history_seal(struct store *store, const struct store_day *day)
{
	store->ops->history_seal(store->engine, day);
}

int store_history_drop(struct store *store, const struct store_day *day, struct err *err)
{
	return store->ops->history_drop(store->engine, day, err);
}

int store_backup(struct store *store, int *ret_fd, uint64_t *ret_bytes, struct err *err)
{
	return store->ops->backup(store->engine, ret_fd, ret_bytes, err);
}
