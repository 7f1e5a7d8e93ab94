/* SPDX-License-Identifier: Apache-2.0 */
/* Sends what was profiled to receivers: every finished session and every finished span of
 * continuous profiling, once, as OTLP profiles or to Pyroscope, through a spool on disk. One thread
 * for all receivers, in the server process. */
#ifndef PROFD_API_PUSH_H
#define PROFD_API_PUSH_H

#include <stdint.h>

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"
#include "agent/base/err.h"

struct push;
struct sessions;
struct store;

#define PUSH_RECEIVERS_MAX 16

struct push_receiver {
	const char *name; /* [A-Za-z0-9._-]{1,64} */
	const char *kind; /* "otlp", "pyroscope" */
	const char *url;  /* http or https; without a path the usual one of the kind is taken */
	const char *token_file; /* NULL = none */
	uint64_t spool_bytes;
};

struct push_options {
	struct sessions *sessions; /* borrowed, as everything here */
	struct store *store;
	const char *data_dir; /* the spool lies in its folder "spool" */
	const struct push_receiver *receivers;
	unsigned receiver_count;
	uint64_t span_ns; /* of continuous profiling */
};

/* *@ret is NULL when there is no receiver. */
int push_create(const struct push_options *options, struct push **ret, struct err *err) must_use;
/* Ends the transfer under way; what was not sent stays in the spool. Accepts NULL. */
void push_destroy(struct push *push);
CLEANUP_DEFINE(push, struct push *, push_destroy);

/* Adds the metrics of all receivers. Accepts NULL. */
void push_metrics(struct push *push, struct buf *out);

#endif
