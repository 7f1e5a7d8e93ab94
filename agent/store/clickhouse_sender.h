/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that does on the server what the journal holds, in order, and makes the tables first.
 * An operation that the server cannot take for a reason of its own (away, full, busy) is tried
 * again for ever, after 1 s to 60 s. An operation that it refuses for its content is set aside
 * after three tries. */
#ifndef PROFD_STORE_CLICKHOUSE_SENDER_H
#define PROFD_STORE_CLICKHOUSE_SENDER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "agent/base/err.h"
#include "agent/store/clickhouse_http.h"
#include "agent/store/clickhouse_journal.h"

struct clickhouse_sender {
	struct journal *journal; /* borrowed, likewise below */
	struct clickhouse_http *http;
	atomic_bool *stop;
	void (*idle)(void *ctx); /* called when nothing waits, about once a minute; may ask the server */
	void *idle_ctx;
	bool tables_made;

	pthread_t thread;
	bool running;
	/* under the journal's lock */
	bool failing, poked;
	uint64_t tries; /* that failed */
	uint64_t failed_ns; /* monotonic, of the last */
	uint64_t refused; /* operations that were set aside */
	struct err why;
};

int clickhouse_sender_start(struct clickhouse_sender *sender, struct err *err) must_use;
/* Waits a moment for what waits if the server takes it, then ends the thread. */
void clickhouse_sender_stop(struct clickhouse_sender *sender);
/* Until all is done that was written before: so readers see it. At most about 5 s; at once where
 * the server could not be reached within the last second. -EIO with the reason. */
int clickhouse_sender_wait(struct clickhouse_sender *sender, struct err *err) must_use;

#endif
