// SPDX-License-Identifier: Apache-2.0
#include "agent/store/clickhouse_rows.h"

#include <errno.h>
#include <string.h>

#define TEXT_MAX (1u << 20) /* bytes of a text column */

void row_add_blob(struct buf *out, const void *data, size_t len)
{
	buf_add_varint(out, len);
	buf_add(out, data, len);
}

void row_add_text(struct buf *out, const char *text)
{
	row_add_blob(out, text, text ? strlen(text) : 0);
}

int row_begin(struct bytes *in)
{
	if (!in->failed && bytes_left(in) == 0)
		return 0;
	return bytes_u32(in) == ROW_MARK_NUMBER && !in->failed ? 1 : -EPROTO;
}

const void *row_blob(struct bytes *in, size_t max, size_t *ret_len)
{
	uint64_t len = bytes_varint(in);
	const void *at = NULL;

	if (len > max)
		in->failed = true;
	else
		at = bytes_take(in, len);
	*ret_len = at ? len : 0;
	return at;
}

const char *row_text(struct bytes *in)
{
	size_t len;
	const char *text = row_blob(in, TEXT_MAX, &len);

	if (!text || len == 0 || memchr(text, '\0', len) != text + len - 1) {
		in->failed = true;
		return "";
	}
	return text;
}

static int end_row(const struct bytes *in)
{
	return in->failed ? -EPROTO : 1;
}

int row_read_record(struct bytes *in, struct store_record *ret)
{
	int rc = row_begin(in);

	if (rc <= 0)
		return rc;
	ret->host = row_text(in);
	ret->tenant = row_text(in);
	ret->id = row_text(in);
	ret->service = row_text(in);
	ret->type = row_text(in);
	ret->status = row_text(in);
	ret->created_ns = bytes_u64(in);
	ret->body = row_blob(in, SIZE_MAX, &ret->body_len);
	return end_row(in);
}

int row_read_chunk(struct bytes *in, struct chunk_row *ret)
{
	int rc = row_begin(in);

	if (rc <= 0)
		return rc;
	ret->op = bytes_u64(in);
	ret->seq = bytes_u32(in);
	ret->kind = bytes_u32(in);
	ret->identity = bytes_u64(in);
	ret->position = bytes_u64(in);
	ret->z = row_blob(in, ROW_BLOB_MAX, &ret->len);
	return end_row(in);
}

static struct row_numbers take_numbers(struct bytes *in)
{
	struct row_numbers ret;

	ret.samples = bytes_u64(in);
	ret.lost = bytes_u64(in);
	ret.value = (int64_t)bytes_u64(in);
	ret.profiled_ms = bytes_u32(in);
	ret.size = bytes_u32(in);
	return ret;
}

int row_read_history(struct bytes *in, struct history_row *ret)
{
	int rc = row_begin(in);

	if (rc <= 0)
		return rc;
	ret->host = row_text(in);
	ret->row = bytes_u8(in);
	ret->ts = bytes_u32(in);
	ret->op = bytes_u64(in);
	ret->seq = bytes_u32(in);
	ret->kept = bytes_u32(in);
	ret->service = row_text(in);
	ret->type = row_text(in);
	ret->owners = row_text(in);
	ret->numbers = take_numbers(in);
	ret->minutes = row_blob(in, ROW_BLOB_MAX, &ret->minutes_len);
	ret->z = row_blob(in, ROW_BLOB_MAX, &ret->len);
	return end_row(in);
}

#define TOTAL_ITEM_BYTES 52u

int row_read_totals(struct bytes *in, struct totals_row *ret)
{
	int rc = row_begin(in);
	uint64_t count;

	if (rc <= 0)
		return rc;
	ret->host = row_text(in);
	ret->row = bytes_u8(in);
	ret->ts = bytes_u32(in);
	ret->op = bytes_u64(in);
	ret->seq = bytes_u32(in);
	ret->service = row_text(in);
	ret->type = row_text(in);
	ret->owners = row_text(in);
	ret->size = bytes_u32(in);
	ret->minutes = row_blob(in, ROW_BLOB_MAX, &ret->minutes_len);
	count = bytes_varint(in);
	if (count > bytes_left(in) / TOTAL_ITEM_BYTES)
		return -EPROTO;
	ret->items_len = count * TOTAL_ITEM_BYTES;
	ret->items = bytes_take(in, ret->items_len);
	return end_row(in);
}

bool row_read_total_item(struct bytes *in, struct total_item *ret)
{
	if (bytes_left(in) < TOTAL_ITEM_BYTES)
		return false;
	ret->ts = bytes_u32(in);
	ret->op = bytes_u64(in);
	ret->seq = bytes_u32(in);
	ret->kept = bytes_u32(in);
	ret->numbers = take_numbers(in);
	return true;
}

int row_read_day(struct bytes *in, struct day_row *ret)
{
	int rc = row_begin(in);

	if (rc <= 0)
		return rc;
	ret->host = row_text(in);
	ret->day = bytes_u32(in);
	ret->retention_days = bytes_u32(in);
	ret->bytes = bytes_u64(in);
	if (strlen(ret->host) >= STORE_HOST_SIZE)
		in->failed = true;
	return end_row(in);
}

int row_read_numbers(struct bytes *in, uint64_t *ret, size_t count)
{
	int rc = row_begin(in);

	for (size_t i = 0; rc > 0 && i < count; i++)
		ret[i] = bytes_u64(in);
	return rc <= 0 ? rc : end_row(in);
}
