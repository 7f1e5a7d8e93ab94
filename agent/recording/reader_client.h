/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the reader process: one at a time, each with a deadline, its answer record by record.
 *
 * The reader may be killed by the data that it reads (agent/reader/README.md). Then the request
 * fails with -EPIPE, the supervisor starts it again, and the next request goes to the new one. It
 * may hang there: -EHOSTDOWN, at once for some minutes when the same process is to be read again.
 * A late answer to a request that was given up on is dropped. Any thread may ask; requests wait for
 * each other. */
#ifndef PROFD_RECORDING_READER_CLIENT_H
#define PROFD_RECORDING_READER_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/base/err.h"
#include "agent/wire/read_stream.h"

#define READER_ANSWER_BYTES_MAX (512ull << 20) /* of one answer; more is -E2BIG */
#define READER_HUNG_NS                                                                             \
	(300 * NS_PER_S) /* that a process in which the reader hung is not read again */
#define READER_GRACE_MS		7000u /* beyond the deadline: the reader ends itself before this */

struct reader_client;

int reader_client_create(struct reader_client **ret) must_use;
void reader_client_destroy(struct reader_client *client);
CLEANUP_DEFINE(reader_client, struct reader_client *, reader_client_destroy);

/* A new reader; ownership of @fd passes on. -1 = there is none. */
void reader_client_set_channel(struct reader_client *client, int fd);
bool reader_client_is_connected(struct reader_client *client);
/* Waits until there is a reader, at most @timeout_ns. false: there is none. */
bool reader_client_wait(struct reader_client *client, uint64_t timeout_ns);

struct reader_request {
	enum control_kind kind; /* CONTROL_GOROUTINES, _GO_PROFILE, _THREADS or _HEAP */
	uint32_t tgid;
	uint32_t what;	/* CONTROL_GO_PROFILE: enum reader_profile */
	uint32_t flags; /* bits of enum reader_flag */
	uint64_t start_boottime_ns;
	uint32_t deadline_ms; /* 1…60000 */
};

/* Called for every record, in order; borrowed. <0 ends the request with that error. */
typedef int reader_record_fn(void *ctx, const struct read_record *record);
/* 0 = the answer was complete; otherwise everything given to @record is to be dropped. Errors:
 * those of struct control_read_chunk, -EPIPE no reader or it died, -ETIMEDOUT, -EHOSTDOWN, -EPROTO,
 * -E2BIG; @err has a sentence. */
int reader_client_ask(struct reader_client *client, const struct reader_request *request,
		      reader_record_fn *record, void *ctx, struct err *err) must_use;

#endif
