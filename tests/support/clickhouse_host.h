/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts of a fleet in one process: each has a folder of its own and a store that is opened from it.
 * Failures of these functions fail the test. */
#ifndef TESTS_SUPPORT_CLICKHOUSE_HOST_H
#define TESTS_SUPPORT_CLICKHOUSE_HOST_H

#include "agent/base/clock.h"
#include "agent/store/store.h"

#define DAY    20778u
#define MINUTE (60 * NS_PER_S)
#define START  (DAY * 86400ull * NS_PER_S)

static const struct store_day week = { .day = DAY, .retention_days = 7 };

struct host {
	char dir[40], url[96], name[STORE_HOST_SIZE];
	struct store *store;
};

void open_host(struct host *h);
/* With its folder; the store is not open. */
struct host *new_host(const char *name, const char *url);
struct host *begin_host(const char *name, const char *url);
void close_host(struct host *h);
/* Closes the store and removes the folder. */
void end_host(struct host *h);

void put(struct host *h, const char *id, const char *service, uint64_t created_ns,
	 const char *body);
void append(struct host *h, const char *id, const char *text, uint64_t position);
/* A minute of `week`, with a piece of the dictionary. */
void record(struct host *h, const char *service, unsigned minute, const char *data);
/* Waits until others see what it wrote. */
void settle(struct host *h);
/* A store_chunk_fn that adds the data and a blank to a struct buf. */
int see_chunk(void *ctx, const struct store_chunk *chunk);

#endif
