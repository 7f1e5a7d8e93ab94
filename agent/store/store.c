// SPDX-License-Identifier: Apache-2.0
#include "agent/store/store.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "agent/store/store_engine.h"

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

void store_close(struct store *store)
{
	if (!store)
		return;
	store->ops->close(store->engine);
	free(store->refusal);
	free(store);
}

bool store_is_shared(const struct store *store)
{
	return store->ops->is_shared || store->is_standby;
}

bool store_is_standby(const struct store *store)
{
	return store->is_standby;
}

void store_refuse(struct store *store, const char *why)
{
	char *none = NULL, *text = strdup(why);

	if (!atomic_compare_exchange_strong(&store->refusal, &none, text))
		free(text);
}

static bool is_refused(struct store *store)
{
	return atomic_load(&store->refusal) != NULL;
}

static int refuse(struct store *store, struct err *err)
{
	return err_set(err, EIO, "StoreUnavailable", NULL, "%s", atomic_load(&store->refusal));
}

int store_try(struct store *store, struct err *err)
{
	cleanup_free char *body = NULL;
	size_t len;
	int rc = store_get(store, "probe", "", "store", &body, &len, err);

	if (rc == -ENOENT && err)
		*err = (struct err){ 0 };
	return rc == -ENOENT ? 0 : rc;
}

void store_set_budget(struct store *store, uint64_t budget_bytes)
{
	store->ops->set_budget(store->engine, budget_bytes);
}

int store_put(struct store *store, const struct store_record *record, struct err *err)
{
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->put(store->engine, record, err);
}

int store_delete(struct store *store, const char *kind, const char *tenant, const char *id,
		 struct err *err)
{
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->remove(store->engine, kind, tenant, id, err);
}

int store_get(struct store *store, const char *kind, const char *tenant, const char *id,
	      char **ret_body, size_t *ret_len, struct err *err)
{
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->get(store->engine, kind, tenant, id, ret_body, ret_len, err);
}

int store_list(struct store *store, const struct store_query *query, store_visit_fn *visit,
	       void *ctx, uint64_t *ret_total, struct err *err)
{
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->list(store->engine, query, visit, ctx, ret_total, err);
}

int store_session_append(struct store *store, const char *id, const struct store_chunk *chunks,
			 size_t count, uint64_t feed_identity, uint64_t feed_position,
			 struct err *err)
{
	if (!is_store_id(id))
		return bad_id(err);
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->session_append(store->engine, id, chunks, count, feed_identity,
					  feed_position, err);
}

int store_session_read(struct store *store, const char *id, store_chunk_fn *visit, void *ctx,
		       unsigned *ret_damaged, struct err *err)
{
	if (!is_store_id(id))
		return bad_id(err);
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->session_read(store->engine, id, visit, ctx, ret_damaged, err);
}

int store_session_position(struct store *store, const char *id, uint64_t *ret_identity,
			   uint64_t *ret_position, struct err *err)
{
	if (!is_store_id(id))
		return bad_id(err);
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->session_position(store->engine, id, ret_identity, ret_position, err);
}

int store_session_remove(struct store *store, const char *id, struct err *err)
{
	if (!is_store_id(id))
		return bad_id(err);
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->session_remove(store->engine, id, err);
}

int store_session_copy(struct store *store, const char *from, const char *to, struct err *err)
{
	if (!is_store_id(from) || !is_store_id(to))
		return bad_id(err);
	if (is_refused(store))
		return refuse(store, err);
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
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->history_append(store->engine, day, dictionary, chunk_count, windows,
					  window_count, feed_identity, feed_position, err);
}

int store_history_roll(struct store *store, const struct store_day *day, uint64_t from_ns,
		       size_t kept, const struct store_chunk *dictionary,
		       const struct store_ends *ends, const struct store_window *windows,
		       size_t window_count, struct err *err)
{
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->history_roll(store->engine, day, from_ns, kept, dictionary, ends,
					windows, window_count, err);
}

int store_history_position(struct store *store, const struct store_day *day, uint64_t *ret_identity,
			   uint64_t *ret_position, struct err *err)
{
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->history_position(store->engine, day, ret_identity, ret_position, err);
}

int store_history_days(struct store *store, bool every_host, store_day_fn *visit, void *ctx,
		       struct err *err)
{
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->history_days(store->engine, every_host, visit, ctx, err);
}

int store_history_dictionary(struct store *store, const struct store_day *day,
			     store_chunk_fn *visit, void *ctx, unsigned *ret_damaged,
			     struct err *err)
{
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->history_dictionary(store->engine, day, visit, ctx, ret_damaged, err);
}

int store_history_windows(struct store *store, const struct store_day *day,
			  const struct store_window_query *query, store_window_fn *visit, void *ctx,
			  unsigned *ret_damaged, struct err *err)
{
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->history_windows(store->engine, day, query, visit, ctx, ret_damaged, err);
}

int store_history_spans(struct store *store, const struct store_day *day,
			const struct store_window_query *query, uint64_t span_ns,
			store_span_fn *visit, void *ctx, struct err *err)
{
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->history_spans(store->engine, day, query, span_ns, visit, ctx, err);
}

void store_history_seal(struct store *store, const struct store_day *day)
{
	store->ops->history_seal(store->engine, day);
}

int store_history_drop(struct store *store, const struct store_day *day, struct err *err)
{
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->history_drop(store->engine, day, err);
}

int store_backup(struct store *store, int *ret_fd, uint64_t *ret_bytes, struct err *err)
{
	if (is_refused(store))
		return refuse(store, err);
	return store->ops->backup(store->engine, ret_fd, ret_bytes, err);
}
