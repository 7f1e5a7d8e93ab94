// SPDX-License-Identifier: Apache-2.0
/* A server's answers: whatever they are, rows end inside them, texts are texts and blobs lie in the
 * answer. The first byte says which question they answer. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/cleanup.h"
#include "agent/store/clickhouse_rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink;

static void touch_text(const char *text)
{
	sink = (uint8_t)strlen(text);
}

static void touch(const void *data, size_t len)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++)
		sink ^= bytes[i];
}

static int read_record(struct bytes *in)
{
	struct store_record row = { 0 };
	int rc = row_read_record(in, &row);

	if (rc > 0) {
		touch_text(row.host), touch_text(row.tenant), touch_text(row.id);
		touch_text(row.service), touch_text(row.type), touch_text(row.status);
		touch(row.body, row.body_len);
	}
	return rc;
}

static int read_chunk(struct bytes *in)
{
	struct chunk_row row = { 0 };
	int rc = row_read_chunk(in, &row);

	if (rc > 0)
		touch(row.z, row.len);
	return rc;
}

static int read_history(struct bytes *in)
{
	struct history_row row = { 0 };
	int rc = row_read_history(in, &row);

	if (rc > 0) {
		touch_text(row.service), touch_text(row.type), touch_text(row.owners);
		touch(row.minutes, row.minutes_len);
		touch(row.z, row.len);
	}
	return rc;
}

static int read_totals(struct bytes *in)
{
	struct totals_row row = { 0 };
	int rc = row_read_totals(in, &row);
	struct total_item item;
	struct bytes items;

	if (rc > 0) {
		touch_text(row.host), touch_text(row.service), touch_text(row.type);
		touch_text(row.owners);
		touch(row.minutes, row.minutes_len);
		items = bytes_of(row.items, row.items_len);
		while (row_read_total_item(&items, &item))
			sink ^= (uint8_t)item.ts;
		if (bytes_left(&items))
			abort();
	}
	return rc;
}

static int read_day(struct bytes *in)
{
	struct day_row row = { 0 };
	int rc = row_read_day(in, &row);

	if (rc > 0 && strlen(row.host) >= STORE_HOST_SIZE)
		abort();
	return rc;
}

static int read_numbers(struct bytes *in)
{
	uint64_t numbers[5];

	return row_read_numbers(in, numbers, ARRAY_SIZE(numbers));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int (*const readers[])(struct bytes *) = { read_record, read_chunk, read_history,
							  read_day, read_numbers, read_totals };
	cleanup_free uint8_t *copy = NULL;
	struct bytes in;
	size_t left;
	int rc = 1;

	if (size < 1)
		return 0;
	/* Its end is the end of what may be read. */
	copy = malloc(size);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	in = bytes_of(copy + 1, size - 1);
	while (rc > 0) {
		left = bytes_left(&in);
		rc = readers[copy[0] % ARRAY_SIZE(readers)](&in);
		if (rc > 0 && bytes_left(&in) >= left)
			abort();
		if (rc == 0 && left)
			abort();
	}
	return 0;
}
