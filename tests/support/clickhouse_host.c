// SPDX-License-Identifier: Apache-2.0
#include "tests/support/clickhouse_host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/buf.h"

void open_host(struct host *h)
{
	struct err err = { 0 };

	if (store_open(h->dir, h->url, h->name, &h->store, &err) < 0)
		fail_msg("%s", err.text);
}

struct host *new_host(const char *name, const char *url)
{
	struct host *h = calloc(1, sizeof(*h));

	assert_non_null(h);
	strcpy(h->dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/profd-fleet-XXXXXX"
						     : "/tmp/profd-fleet-XXXXXX");
	assert_non_null(mkdtemp(h->dir));
	(void)snprintf(h->url, sizeof(h->url), "%s", url);
	(void)snprintf(h->name, sizeof(h->name), "%s", name);
	return h;
}

struct host *begin_host(const char *name, const char *url)
{
	struct host *h = new_host(name, url);

	open_host(h);
	return h;
}

void close_host(struct host *h)
{
	store_close(h->store);
	h->store = NULL;
}

void end_host(struct host *h)
{
	char command[64];

	close_host(h);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", h->dir);
	assert_int_equal(system(command), 0);
	free(h);
}

void put(struct host *h, const char *id, const char *service, uint64_t created_ns,
		const char *body)
{
	const struct store_record record = { .kind = "session",
					     .tenant = "default",
					     .id = id,
					     .service = service,
					     .type = "cpu",
					     .status = "completed",
					     .created_ns = created_ns,
					     .body = body,
					     .body_len = strlen(body) };
	struct err err = { 0 };

	if (store_put(h->store, &record, &err) < 0)
		fail_msg("%s", err.text);
}

void append(struct host *h, const char *id, const char *text, uint64_t position)
{
	const struct store_chunk chunk = { STORE_CHUNK_SAMPLES, text, strlen(text) };
	struct err err = { 0 };

	if (store_session_append(h->store, id, &chunk, 1, 7, position, &err) < 0)
		fail_msg("%s", err.text);
}

void record(struct host *h, const char *service, unsigned minute, const char *data)
{
	const struct store_window window = { .service = service,
					     .type = "cpu",
					     .owners = ",default:19,",
					     .from_ns = START + minute * MINUTE,
					     .samples = strlen(data),
					     .value = 10,
					     .profiled_ms = 60000,
					     .data = data,
					     .len = strlen(data) };
	const struct store_chunk piece = { STORE_CHUNK_STACKS, "dict", 4 };
	struct err err = { 0 };

	if (store_history_append(h->store, &week, &piece, 1, &window, 1, 5, minute, &err) < 0)
		fail_msg("%s", err.text);
}

void settle(struct host *h)
{
	while (store_waiting_bytes(h->store))
		clock_sleep_ns(NS_PER_MS);
}

int see_chunk(void *ctx, const struct store_chunk *chunk)
{
	buf_printf(ctx, "%.*s ", (int)chunk->len, (const char *)chunk->data);
	return 0;
}
