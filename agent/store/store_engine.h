/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of an engine. Each has the contract of its namesake in store.h; arguments have been
 * checked by store.c (ids are harmless as file names, limits hold). */
#ifndef PROFD_STORE_STORE_ENGINE_H
#define PROFD_STORE_STORE_ENGINE_H

#include "agent/store/store.h"

struct store_ops {
	bool is_shared;
	void (*close)(void *engine);
	void (*set_budget)(void *engine, uint64_t budget_bytes);
	int (*put)(void *engine, const struct store_record *record, struct err *err);
	int (*remove)(void *engine, const char *kind, const char *tenant, const char *id,
		      struct err *err);
	int (*get)(void *engine, const char *kind, const char *tenant, const char *id,
		   char **ret_body, size_t *ret_len, struct err *err);
	int (*list)(void *engine, const struct store_query *query, store_visit_fn *visit, void *ctx,
		    uint64_t *ret_total, struct err *err);
	int (*session_append)(void *engine, const char *id, const struct store_chunk *chunks,
			      size_t count, uint64_t feed_identity, uint64_t feed_position,
			      struct err *err);
	int (*session_read)(void *engine, const char *id, store_chunk_fn *visit, void *ctx,
			    unsigned *ret_damaged, struct err *err);
	int (*session_position)(void *engine, const char *id, uint64_t *ret_identity,
				uint64_t *ret_position, struct err *err);
	int (*session_remove)(void *engine, const char *id, struct err *err);
	int (*session_copy)(void *engine, const char *from, const char *to, struct err *err);
	int (*history_append)(void *engine, const struct store_day *day,
			      const struct store_chunk *dictionary, size_t chunk_count,
			      const struct store_window *windows, size_t window_count,
			      uint64_t feed_identity, uint64_t feed_position, struct err *err);
	int (*history_roll)(void *engine, const struct store_day *day, uint64_t from_ns, size_t kept,
			    const struct store_chunk *dictionary, const struct store_ends *ends,
			    const struct store_window *windows, size_t window_count,
			    struct err *err);
	int (*history_position)(void *engine, const struct store_day *day, uint64_t *ret_identity,
				uint64_t *ret_position, struct err *err);
	int (*history_days)(void *engine, bool every_host, store_day_fn *visit, void *ctx,
			    struct err *err);
	int (*history_dictionary)(void *engine, const struct store_day *day, store_chunk_fn *visit,
				  void *ctx, unsigned *ret_damaged, struct err *err);
	int (*history_windows)(void *engine, const struct store_day *day,
			       const struct store_window_query *query, store_window_fn *visit,
			       void *ctx, unsigned *ret_damaged, struct err *err);
	int (*history_spans)(void *engine, const struct store_day *day,
			     const struct store_window_query *query, uint64_t span_ns,
			     store_span_fn *visit, void *ctx, struct err *err);
	void (*history_seal)(void *engine, const struct store_day *day);
	int (*history_drop)(void *engine, const struct store_day *day, struct err *err);
	uint64_t (*session_bytes)(void *engine, const char *id);
	uint64_t (*bytes)(void *engine);
	uint64_t (*waiting_bytes)(void *engine); /* NULL = nothing ever waits */
	int (*backup)(void *engine, int *ret_fd, uint64_t *ret_bytes, struct err *err);
};

/* @path: the folder, created if absent. */
int sqlite_engine_open(const char *path, const struct store_ops **ret_ops, void **ret_engine,
		       struct err *err) must_use;
/* @path: the folder of what waits and of the lock, created if absent; @url: clickhouse://…; @host
 * as in store_open(). */
int clickhouse_engine_open(const char *path, const char *url, const char *host,
			   const struct store_ops **ret_ops, void **ret_engine, struct err *err)
	must_use;
/* store_peek() of this folder. */
int sqlite_engine_peek(const char *path, const char *kind) must_use;

/* The object behind store.h. */
struct store {
	const struct store_ops *ops;
	void *engine;
	bool is_standby;
	_Atomic(char *) refusal; /* owned; set once; NULL = it works */
};

#endif
