// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/io.h"
#include "agent/store/crc32c.h"
#include "agent/store/store.h"
#include "tests/support/store_fixture.h"

/* ---- records --------------------------------------------------------------------------------- */

static void put(struct store_fixture *f, const char *tenant, const char *id, const char *service,
		const char *status, uint64_t created_ns, const char *body)
{
	struct store_record record = {
		.kind = "session",
		.tenant = tenant,
		.id = id,
		.service = service,
		.type = "cpu",
		.status = status,
		.created_ns = created_ns,
		.body = body,
		.body_len = strlen(body),
	};
	struct err err = { 0 };

	if (store_put(f->store, &record, &err) < 0)
		fail_msg("%s", err.text);
}

static int add_id(void *ctx, const struct store_record *record)
{
	struct buf *ids = ctx;

	buf_printf(ids, "%s%s", ids->len ? " " : "", record->id);
	return 0;
}

static void test_records_survive_and_replace(void **state)
{
	struct store_fixture *f = *state;
	cleanup_free char *body = NULL;
	char *untouched = (char *)1;
	struct err err = { 0 };
	size_t len;

	put(f, "default", "a", "web", "running", 10, "{\"n\":1}");
	put(f, "default", "a", "web", "completed", 10, "{\"n\":2}");
	store_fixture_reopen(f);
	assert_int_equal(store_get(f->store, "session", "default", "a", &body, &len, &err), 0);
	assert_string_equal(body, "{\"n\":2}");
	assert_int_equal(len, 7);
	assert_int_equal(store_get(f->store, "session", "other", "a", &untouched, &len, &err),
			 -ENOENT);
	assert_ptr_equal(untouched, (char *)1);
	assert_int_equal(store_delete(f->store, "session", "default", "a", &err), 0);
	assert_int_equal(store_delete(f->store, "session", "default", "a", &err), 0);
	assert_int_equal(store_get(f->store, "session", "default", "a", &untouched, &len, &err),
			 -ENOENT);
}

static void test_list(void **state)
{
	static const struct {
		const char *name;
		struct store_query query;
		const char *expect;
		uint64_t total;
	} rows[] = {
		{ "all of a tenant, newest first", { .tenant = "t1" }, "e d c b a", 5 },
		{ "every tenant", { 0 }, "x e d c b a", 6 },
		{ "limit keeps the total", { .tenant = "t1", .limit = 2 }, "e d", 5 },
		{ "cursor",
		  { .tenant = "t1", .limit = 2, .before_id = "d", .before_ns = 30 },
		  "c b",
		  5 },
		{ "same time: by id",
		  { .tenant = "t1", .before_id = "c", .before_ns = 30 },
		  "b a",
		  5 },
		{ "service", { .tenant = "t1", .service = "db" }, "d", 1 },
		{ "status", { .tenant = "t1", .status = "running" }, "e", 1 },
		{ "type", { .tenant = "t1", .type = "offcpu" }, "", 0 },
		{ "from inclusive, to exclusive",
		  { .tenant = "t1", .from_ns = 20, .to_ns = 40 },
		  "d c b",
		  3 },
		{ "no such tenant", { .tenant = "t3" }, "", 0 },
	};
	struct store_fixture *f = *state;

	put(f, "t1", "a", "web", "completed", 10, "{}");
	put(f, "t1", "b", "web", "completed", 20, "{}");
	put(f, "t1", "c", "web", "completed", 30, "{}");
	put(f, "t1", "d", "db", "completed", 30, "{}");
	put(f, "t1", "e", "web", "running", 40, "{}");
	put(f, "t2", "x", "web", "completed", 50, "{}");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct store_query query = rows[i].query;
		cleanup_buf struct buf ids = { 0 };
		struct err err = { 0 };
		uint64_t total = 99;

		query.kind = "session";
		buf_add_str(&ids, "");
		assert_int_equal(store_list(f->store, &query, add_id, &ids, &total, &err), 0);
		buf_add_char(&ids, '\0');
		if (strcmp(ids.data, rows[i].expect) != 0 || total != rows[i].total)
			fail_msg("%s: got '%s' of %lu", rows[i].name, ids.data, total);
	}
}

/* ---- session data ---------------------------------------------------------------------------- */

struct seen {
	struct buf text;
	unsigned count;
};

static int see(void *ctx, const struct store_chunk *chunk)
{
	struct seen *seen = ctx;

	seen->count++;
	buf_printf(&seen->text, "%d:%.*s ", chunk->kind, (int)(chunk->len > 20 ? 20 : chunk->len),
		   (const char *)chunk->data);
	return 0;
}

static void append(struct store_fixture *f, const char *id, const char *text, uint64_t position)
{
	struct store_chunk chunk = { STORE_CHUNK_SAMPLES, text, strlen(text) };
	struct err err = { 0 };

	if (store_session_append(f->store, id, &chunk, 1, 7, position, &err) < 0)
		fail_msg("%s", err.text);
}

static void read_all(struct store_fixture *f, const char *id, const char *expect,
		     unsigned expect_damaged)
{
	struct seen seen = { 0 };
	unsigned damaged = 99;
	struct err err = { 0 };

	buf_add_str(&seen.text, "");
	assert_int_equal(store_session_read(f->store, id, see, &seen, &damaged, &err), 0);
	buf_add_char(&seen.text, '\0');
	assert_string_equal(seen.text.data, expect);
	assert_int_equal(damaged, expect_damaged);
	buf_deinit(&seen.text);
}

static void test_chunks_and_position(void **state)
{
	struct store_fixture *f = *state;
	uint64_t identity = 0, position = 0;
	struct err err = { 0 };
	cleanup_free char *large = malloc(300001);

	assert_int_equal(store_session_position(f->store, "sess-1", &identity, &position, &err),
			 -ENOENT);
	append(f, "sess-1", "one", 100);
	append(f, "sess-1", "two", 200);
	memset(large, 'x', 300000);
	large[300000] = '\0';
	append(f, "sess-1", large, 300);
	read_all(f, "sess-1", "4:one 4:two 4:xxxxxxxxxxxxxxxxxxxx ", 0);
	store_fixture_reopen(f);
	assert_int_equal(store_session_position(f->store, "sess-1", &identity, &position, &err), 0);
	assert_int_equal(identity, 7);
	assert_int_equal(position, 300);
	assert_true(store_session_bytes(f->store, "sess-1") < 1000); /* compressed */
	assert_int_equal(store_session_copy(f->store, "sess-1", "bl-1", &err), 0);
	assert_int_equal(store_session_copy(f->store, "sess-1", "bl-1", &err), -EEXIST);
	assert_int_equal(store_session_copy(f->store, "sess-2", "bl-2", &err), -ENOENT);
	assert_int_equal(store_session_remove(f->store, "sess-1", &err), 0);
	assert_int_equal(store_session_remove(f->store, "sess-1", &err), 0);
	read_all(f, "bl-1", "4:one 4:two 4:xxxxxxxxxxxxxxxxxxxx ", 0);
	assert_int_equal(store_session_read(f->store, "sess-1", see, NULL, NULL, &err), -ENOENT);
}

static void test_ids_cannot_leave_the_folder(void **state)
{
	static const char *const ids[] = {
		"",
		"../state",
		"a/b",
		"A",
		"x.y",
		"a b",
		"0123456789012345678901234567890123456789012345678901234567890123"
	};
	struct store_fixture *f = *state;
	struct err err = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		assert_int_equal(store_session_append(f->store, ids[i], NULL, 0, 0, 0, &err),
				 -EINVAL);
		assert_int_equal(store_session_remove(f->store, ids[i], &err), -EINVAL);
	}
}

static void log_path(const struct store_fixture *f, char path[128])
{
	(void)snprintf(path, 128, "%s/sessions/sess-1.log", f->dir);
}

/* Power may fail at any byte of the last group: then the state before it holds, and appending goes
 * on. */
static void test_torn_tail(void **state)
{
	struct store_fixture *f = *state;
	char path[128];
	struct stat before, after;
	cleanup_free char *whole = NULL;
	size_t len;

	log_path(f, path);
	append(f, "sess-1", "first", 100);
	assert_int_equal(stat(path, &before), 0);
	append(f, "sess-1", "second", 200);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(io_read_file(AT_FDCWD, path, 1 << 20, &whole, &len), 0);
	for (off_t cut = before.st_size; cut < after.st_size; cut++) {
		cleanup_close int fd = open(path, O_WRONLY | O_TRUNC);
		uint64_t identity, position;
		struct err err = { 0 };

		assert_int_equal(io_write_all(fd, whole, (size_t)cut), 0);
		read_all(f, "sess-1", "4:first ", 0);
		assert_int_equal(
			store_session_position(f->store, "sess-1", &identity, &position, &err), 0);
		assert_int_equal(position, 100);
		append(f, "sess-1", "again", 150);
		read_all(f, "sess-1", "4:first 4:again ", 0);
	}
}

/* Every single bit: reading never fails, never gives wrong bytes, and loses at most one chunk, or
 * the last group when its commit record is hit. */
static void test_bit_flips(void **state)
{
	static const char *const allowed[] = {
		"4:one 4:two 4:three ",
		"4:two 4:three ",
		"4:one 4:three ",
		"4:one 4:two ",
	};
	struct store_fixture *f = *state;
	char path[128];
	cleanup_free char *whole = NULL;
	cleanup_close int fd = -1;
	size_t len;

	log_path(f, path);
	append(f, "sess-1", "one", 100);
	append(f, "sess-1", "two", 200);
	append(f, "sess-1", "three", 300);
	assert_int_equal(io_read_file(AT_FDCWD, path, 1 << 20, &whole, &len), 0);
	fd = open(path, O_RDWR);
	for (size_t bit = 64; bit < len * 8; bit++) {
		char flipped = (char)(whole[bit / 8] ^ 1 << bit % 8);
		struct seen seen = { 0 };
		bool found = false;
		struct err err = { 0 };

		assert_int_equal(pwrite(fd, &flipped, 1, (off_t)(bit / 8)), 1);
		assert_int_equal(store_session_read(f->store, "sess-1", see, &seen, NULL, &err), 0);
		buf_add_char(&seen.text, '\0');
		for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
			found |= strcmp(seen.text.data, allowed[i]) == 0;
		if (!found)
			fail_msg("bit %zu: '%s'", bit, seen.text.data);
		buf_deinit(&seen.text);
		assert_int_equal(pwrite(fd, whole + bit / 8, 1, (off_t)(bit / 8)), 1);
	}
}

/* ---- opening and limits ---------------------------------------------------------------------- */

static void test_damaged_state_is_set_aside(void **state)
{
	struct store_fixture *f = *state;
	char path[128], command[160];
	char *body = NULL;
	struct err err = { 0 };

	put(f, "default", "a", "web", "running", 10, "{}");
	append(f, "sess-1", "kept", 1);
	store_close(f->store);
	(void)snprintf(path, sizeof(path), "%s/state.db", f->dir);
	cleanup_close int fd = open(path, O_WRONLY);
	char junk[4096];
	memset(junk, 0x5a, sizeof(junk));
	assert_int_equal(pwrite(fd, junk, sizeof(junk), 0), sizeof(junk));
	f->store = NULL;
	store_fixture_reopen(f);
	assert_int_equal(store_get(f->store, "session", "default", "a", &body, NULL, &err),
			 -ENOENT);
	(void)snprintf(command, sizeof(command), "ls %s/state.db.damaged-* >/dev/null", f->dir);
	assert_int_equal(system(command), 0);
	read_all(f, "sess-1", "4:kept ", 0);
}

static void test_newer_format_is_refused(void **state)
{
	struct store_fixture *f = *state;
	struct store *store = (struct store *)1;
	char command[160];
	struct err err = { 0 };

	store_close(f->store);
	f->store = NULL;
	/* user_version is the big-endian word at byte 60 of the header (SQLite file format 1.3). */
	(void)snprintf(command, sizeof(command),
		       "printf '\\000\\000\\000\\143' | dd of=%s/state.db bs=1 seek=60 "
		       "conv=notrunc 2>/dev/null",
		       f->dir);
	assert_int_equal(system(command), 0);
	assert_int_equal(store_open(f->dir, NULL, "", &store, &err), -EPROTO);
	assert_non_null(strstr(err.text, "newer profd"));
	assert_ptr_equal(store, (struct store *)1);
}

static void test_one_daemon_per_folder(void **state)
{
	struct store_fixture *f = *state;
	struct store *second = (struct store *)1;
	struct err err = { 0 };

	assert_int_equal(store_open(f->dir, NULL, "", &second, &err), -EBUSY);
	assert_non_null(strstr(err.text, "in use"));
	assert_int_equal(store_open(f->dir, "postgres://x", "", &second, &err), -EINVAL);
	assert_ptr_equal(second, (struct store *)1);
}

static void test_budget(void **state)
{
	struct store_fixture *f = *state;
	cleanup_free char *noise = malloc(1 << 20);
	struct store_chunk chunk = { STORE_CHUNK_SAMPLES, noise, 1 << 20 };
	struct err err = { 0 };
	uint64_t x = 88172645463325252ull;
	int rc = 0;

	for (size_t i = 0; i < 1 << 20; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		noise[i] = (char)x;
	}
	store_set_budget(f->store, 4 << 20);
	for (int i = 0; i < 10 && rc == 0; i++)
		rc = store_session_append(f->store, "sess-1", &chunk, 1, 0, 0, &err);
	assert_int_equal(rc, -ENOSPC);
	assert_non_null(strstr(err.text, "disk_budget"));
	assert_true(store_bytes(f->store) < 5 << 20);
	assert_int_equal(store_session_remove(f->store, "sess-1", &err), 0);
	assert_int_equal(store_session_append(f->store, "sess-2", &chunk, 1, 0, 0, &err), 0);
}

static void test_crc32c(void **state)
{
	uint8_t zeros[32] = { 0 }, ones[32];

	/* RFC 3720 B.4 */
	memset(ones, 0xff, sizeof(ones));
	assert_int_equal(crc32c(0, zeros, 32), 0x8a9136aa);
	assert_int_equal(crc32c(0, ones, 32), 0x62a8ab43);
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
}

#define test(name)                                                                                 \
	cmocka_unit_test_setup_teardown(name, store_fixture_setup, store_fixture_teardown)

int main(void)
{
	const struct CMUnitTest interface[] = {
		test(test_records_survive_and_replace),
		test(test_list),
		test(test_chunks_and_position),
		test(test_ids_cannot_leave_the_folder),
		test(test_budget),
	};
	const struct CMUnitTest files[] = { /* of the embedded engine */
		test(test_torn_tail),
		test(test_bit_flips),
		test(test_damaged_state_is_set_aside),
		test(test_newer_format_is_refused),
		test(test_one_daemon_per_folder),
		cmocka_unit_test(test_crc32c),
	};
	int failed = store_fixture_run_on_engines(interface, ARRAY_SIZE(interface));

	return failed + cmocka_run_group_tests_name("store", files, NULL, NULL);
}
