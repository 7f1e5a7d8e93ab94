/* SPDX-License-Identifier: Apache-2.0 */
/* The records table of state.db. Writes go through one connection behind a mutex, reads through a
 * few read-only connections. */
#ifndef PROFD_STORE_SQLITE_RECORDS_H
#define PROFD_STORE_SQLITE_RECORDS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sqlite3.h>

#include "agent/store/store.h"

#define SQLITE_READERS_MAX 4u
#define SQLITE_TOTALS_MAX  16u

struct sqlite_total {
	bool valid;
	uint64_t key, changes, count;
};

struct sqlite_records {
	char *path;
	pthread_mutex_t write_lock; /* writer, put_stmt, remove_stmt */
	sqlite3 *writer;
	sqlite3_stmt *put_stmt, *remove_stmt;
	_Atomic uint64_t changes; /* grows with every write */
	pthread_mutex_t read_lock; /* idle, totals */
	sqlite3 *idle[SQLITE_READERS_MAX];
	unsigned idle_count;
	struct sqlite_total totals[SQLITE_TOTALS_MAX]; /* of queries asked last */
	unsigned next_total;
};

/* -EUCLEAN: the file is damaged (the caller sets it aside and tries again). @records is zeroed by
 * the caller and released with sqlite_records_close() in any case. */
int sqlite_records_open(struct sqlite_records *records, const char *path, struct err *err) must_use;
void sqlite_records_close(struct sqlite_records *records);
int sqlite_records_put(struct sqlite_records *records, const struct store_record *record,
		       struct err *err) must_use;
int sqlite_records_remove(struct sqlite_records *records, const char *kind, const char *tenant,
			  const char *id, struct err *err) must_use;
int sqlite_records_get(struct sqlite_records *records, const char *kind, const char *tenant,
		       const char *id, char **ret_body, size_t *ret_len, struct err *err) must_use;
int sqlite_records_list(struct sqlite_records *records, const struct store_query *query,
			store_visit_fn *visit, void *ctx, uint64_t *ret_total,
			struct err *err) must_use;

#endif
