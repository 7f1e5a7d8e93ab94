// SPDX-License-Identifier: Apache-2.0
/* Data of sessions: a row for each chunk and one for the position, in the order of (op, seq). What
 * was removed is a row that says so: rows of the id up to it do not exist. */
#include <errno.h>
#include <string.h>

#include "agent/store/clickhouse.h"
#include "agent/store/packed.h"

#define KIND_GONE     0u /* what is older does not exist */
#define KIND_POSITION 0xffffu
#define KIND_GONE_SQL "0"
#define KIND_POSITION_SQL "65535"
#define SEQ_LAST      UINT32_MAX
#define ROW_EXTRA     32  /* bytes of a row beside its chunk */
#define PAGE_ROWS     64  /* of a session that are asked for at once */
#define DAY_NS	      86400000000000ull

static void add_row(struct buf *body, const struct clickhouse *ch, const char *id, uint64_t number,
		    const struct chunk_row *row)
{
	row_add_text(body, ch->host);
	row_add_text(body, id);
	row_add_u64(body, number);
	row_add_u32(body, row->seq);
	row_add_u32(body, row->kind);
	row_add_u64(body, row->identity);
	row_add_u64(body, row->position);
	row_add_u32(body, (uint32_t)row->len + ROW_EXTRA);
	row_add_blob(body, row->z, row->len);
}

struct packed_chunk {
	void *z;
	size_t len;
};

static void free_packed(struct packed_chunk *packed, size_t count)
{
	for (size_t i = 0; packed && i < count; i++)
		free(packed[i].z);
	free(packed);
}

static int pack(const struct store_chunk *chunks, size_t count, struct packed_chunk *packed,
		uint64_t *ret_bytes, struct err *err)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < count; i++) {
		int rc = packed_make(chunks[i].data, chunks[i].len, NULL, &packed[i].z, &packed[i].len);

		if (rc < 0)
			return err_set(err, -rc, "StoreUnavailable", NULL, "a chunk of a session is too large");
		bytes += packed[i].len + ROW_EXTRA;
	}
	*ret_bytes = bytes;
	return 0;
}

static int write_group(struct clickhouse *ch, const char *id, const struct store_chunk *chunks,
		       const struct packed_chunk *packed, size_t count, uint64_t feed_identity,
		       uint64_t feed_position, struct err *err)
{
	const struct chunk_row last = { .seq = SEQ_LAST,
					.kind = KIND_POSITION,
					.identity = feed_identity,
					.position = feed_position };
	cleanup_buf struct buf body = { 0 };
	uint64_t number = journal_begin(ch->journal);

	for (size_t i = 0; i < count; i++) {
		const struct chunk_row row = {
			.seq = (uint32_t)i, .kind = chunks[i].kind, .z = packed[i].z, .len = packed[i].len
		};

		add_row(&body, ch, id, number, &row);
	}
	add_row(&body, ch, id, number, &last);
	return clickhouse_write(ch, CLICKHOUSE_CHUNKS, number, number / DAY_NS, &body, false, err);
}

int clickhouse_session_append(void *ctx, const char *id, const struct store_chunk *chunks,
			      size_t count, uint64_t feed_identity, uint64_t feed_position,
			      struct err *err)
{
	struct packed_chunk *packed = calloc(count + 1, sizeof(*packed));
	uint64_t bytes = 0;
	int rc = packed ? pack(chunks, count, packed, &bytes, err)
			: err_set(err, ENOMEM, NULL, NULL, "no memory to store a session");

	if (rc == 0)
		rc = clickhouse_check_room(ctx, bytes, err);
	if (rc == 0)
		rc = write_group(ctx, id, chunks, packed, count, feed_identity, feed_position, err);
	free_packed(packed, count);
	return rc;
}

/* " FROM chunks WHERE …": the rows of @id that exist. */
static void add_rows_of(struct buf *sql, const char *id)
{
	buf_add_str(sql, " FROM chunks WHERE id = ");
	sql_text(sql, id);
	buf_add_str(sql, " AND op > (SELECT max(op) FROM chunks WHERE id = ");
	sql_text(sql, id);
	buf_add_str(sql, " AND kind = " KIND_GONE_SQL ")");
}

static int no_session(const char *id, struct err *err)
{
	return err_set(err, ENOENT, NULL, NULL, "store: no data of %s", id);
}

int clickhouse_session_position(void *ctx, const char *id, uint64_t *ret_identity,
				uint64_t *ret_position, struct err *err)
{
	struct clickhouse *ch = ctx;
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	struct chunk_row row = { 0 };
	struct bytes in;
	int rc;

	buf_add_str(&sql, "SELECT " ROW_MARK ", op, seq, kind, identity, position, ''");
	add_rows_of(&sql, id);
	buf_add_str(&sql, " AND kind = " KIND_POSITION_SQL
			  " ORDER BY op DESC, seq DESC LIMIT 1 FORMAT RowBinary");
	rc = clickhouse_ask(ch, &sql, &answer, err);
	if (rc < 0)
		return rc;
	in = bytes_of(answer.data, answer.len);
	rc = row_read_chunk(&in, &row);
	if (rc <= 0)
		return rc < 0 ? clickhouse_no_answer(ch, err) : no_session(id, err);
	*ret_identity = row.identity;
	*ret_position = row.position;
	return 0;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

struct session_reader {
	struct clickhouse *ch;
	const char *id;
	store_chunk_fn *visit;
	void *ctx;
	struct packed_reader *packed;
	uint64_t op; /* of the last row */
	uint32_t seq;
	bool any;
	unsigned damaged;
};

static int visit_chunk(struct session_reader *reader, const struct chunk_row *row)
{
	struct store_chunk chunk = { .kind = (enum store_chunk_kind)row->kind };
	cleanup_free void *data = NULL;
	int rc = packed_open(reader->packed, row->z, row->len, &data, &chunk.len);

	if (rc == -EUCLEAN) {
		reader->damaged++;
		return 0;
	}
	chunk.data = data;
	return rc < 0 ? rc : reader->visit(reader->ctx, &chunk);
}

/* The rows behind the last one; how many. */
static int read_page(struct session_reader *reader, struct err *err)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	struct chunk_row row = { 0 };
	struct bytes in;
	int rc, count = 0;

	buf_add_str(&sql, "SELECT " ROW_MARK ", " CHUNK_COLUMNS);
	add_rows_of(&sql, reader->id);
	if (reader->any)
		buf_printf(&sql, " AND (op > %llu OR (op = %llu AND seq > %u))", (unsigned long long)reader->op,
			   (unsigned long long)reader->op, reader->seq);
	buf_printf(&sql, " ORDER BY op, seq LIMIT 1 BY op, seq LIMIT %d FORMAT RowBinary", PAGE_ROWS);
	rc = clickhouse_ask(reader->ch, &sql, &answer, err);
	in = bytes_of(answer.data, answer.len);
	while (rc == 0) {
		rc = row_read_chunk(&in, &row);
		if (rc == 0)
			return count;
		if (rc < 0)
			return clickhouse_no_answer(reader->ch, err);
		count++;
		reader->any = true;
		reader->op = row.op;
		reader->seq = row.seq;
		rc = row.kind == KIND_POSITION ? 0 : visit_chunk(reader, &row);
	}
	return rc;
}

int clickhouse_session_read(void *ctx, const char *id, store_chunk_fn *visit, void *visit_ctx,
			    unsigned *ret_damaged, struct err *err)
{
	struct session_reader reader = { .ch = ctx,
					 .id = id,
					 .visit = visit,
					 .ctx = visit_ctx,
					 .packed = packed_reader_create() };
	int rc;

	do
		rc = read_page(&reader, err);
	while (rc == PAGE_ROWS);
	packed_reader_destroy(reader.packed);
	if (rc < 0)
		return rc;
	if (!reader.any)
		return no_session(id, err);
	if (ret_damaged)
		*ret_damaged = reader.damaged;
	return 0;
}

/* Rows and bytes. */
static int measure(struct clickhouse *ch, const char *id, uint64_t ret[2], struct err *err)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 };
	struct bytes in;
	int rc;

	buf_add_str(&sql, "SELECT " ROW_MARK ", toUInt64(count()), toUInt64(sum(size))");
	add_rows_of(&sql, id);
	buf_add_str(&sql, " FORMAT RowBinary");
	rc = clickhouse_ask(ch, &sql, &answer, err);
	if (rc < 0)
		return rc;
	in = bytes_of(answer.data, answer.len);
	return row_read_numbers(&in, ret, 2) == 1 ? 0 : clickhouse_no_answer(ch, err);
}

uint64_t clickhouse_session_bytes(void *ctx, const char *id)
{
	uint64_t found[2] = { 0 };

	return measure(ctx, id, found, NULL) == 0 ? found[1] : 0;
}

/* ---- removing and copying -------------------------------------------------------------------- */

int clickhouse_session_remove(void *ctx, const char *id, struct err *err)
{
	struct clickhouse *ch = ctx;
	cleanup_buf struct buf sql = { 0 };
	uint64_t number = journal_begin(ch->journal);

	/* Behind the last row of whoever wrote it, by that host's own numbers. Sent again, it finds
	 * itself, or leaves alone what came later. */
	buf_add_str(&sql, "INSERT INTO chunks (host, id, op, seq, kind, identity, position, size, "
			  "z) SELECT host, id, max(op) + 1, "
			  "toUInt32(0), toUInt32(" KIND_GONE_SQL
			  "), toUInt64(0), toUInt64(0), toUInt32(0), '' FROM chunks WHERE id = ");
	sql_text(&sql, id);
	buf_add_str(&sql, " AND (host != ");
	sql_text(&sql, ch->host);
	buf_printf(&sql,
		   " OR op < %llu) GROUP BY host, id HAVING argMax(kind, op) != " KIND_GONE_SQL,
		   (unsigned long long)number);
	atomic_store(&ch->shrunk, true);
	return clickhouse_write(ch, 0, number, 0, &sql, true, err);
}

static int check_copy(struct clickhouse *ch, const char *from, const char *to, struct err *err)
{
	uint64_t source[2], target[2];
	int rc = measure(ch, from, source, err);

	if (rc == 0)
		rc = measure(ch, to, target, err);
	if (rc < 0)
		return rc;
	if (source[0] == 0)
		return no_session(from, err);
	if (target[0])
		return err_set(err, EEXIST, NULL, NULL, "store: there is data of %s already", to);
	return clickhouse_check_room(ch, source[1], err);
}

int clickhouse_session_copy(void *ctx, const char *from, const char *to, struct err *err)
{
	struct clickhouse *ch = ctx;
	cleanup_buf struct buf sql = { 0 };
	uint64_t number;
	int rc = check_copy(ch, from, to, err);

	if (rc < 0)
		return rc;
	number = journal_begin(ch->journal);
	buf_add_str(
		&sql,
		"INSERT INTO chunks (host, id, op, seq, kind, identity, position, size, z) SELECT ");
	sql_text(&sql, ch->host);
	buf_add_str(&sql, ", ");
	sql_text(&sql, to);
	buf_printf(&sql,
		   ", toUInt64(%llu), toUInt32(rowNumberInAllBlocks()), kind, identity, position, "
		   "size, z FROM (SELECT *",
		   (unsigned long long)number);
	add_rows_of(&sql, from);
	buf_add_str(&sql, " ORDER BY op, seq LIMIT 1 BY op, seq)");
	rc = clickhouse_write(ch, 0, number, 0, &sql, false, err);
	if (rc == 0)
		/* The source may be deleted then. Where it takes longer, the journal's order still holds
		 * on this host. */
		(void)!clickhouse_sender_wait(&ch->sender, NULL);
	return rc;
}
