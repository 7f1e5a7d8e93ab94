// SPDX-License-Identifier: Apache-2.0
/* The parts of the ClickHouse engine that need no server: its address, the journal. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/io.h"
#include "agent/store/clickhouse_journal.h"
#include "agent/store/clickhouse_url.h"

struct folder {
	char dir[40];
};

static struct folder new_folder(void)
{
	struct folder f = { "/tmp/profd-journal-XXXXXX" };

	assert_non_null(mkdtemp(f.dir));
	return f;
}

static void remove_folder(const struct folder *f)
{
	char command[64];

	(void)snprintf(command, sizeof(command), "rm -rf '%s'", f->dir);
	assert_int_equal(system(command), 0);
}

/* ---- the address ----------------------------------------------------------------------------- */

static void test_urls(void **state)
{
	static const struct {
		const char *url, *user, *password, *where, *database; /* NULL: refused */
		bool tls;
	} rows[] = {
		{ "clickhouse://db:8123/profd", "", "", "db:8123", "profd", false },
		{ "clickhouse://u@db.example-1.org:8443/P_9", "u", "", "db.example-1.org:8443",
		  "P_9", true },
		{ "clickhouse://u:p@[::1]:8123/d", "u", "p", "[::1]:8123", "d", false },
		{ "clickhouse://u%40x:p%3A%2f%25@10.0.0.1:1/d", "u@x", "p:/%", "10.0.0.1:1", "d",
		  false },
		{ "clickhouse://u:a:b@db:65535/d", "u", "a:b", "db:65535", "d", false },
		{ "clickhouse://u:@db:1/d", "u", "", "db:1", "d", false },
		{ .url = "clickhouse://db/profd" },
		{ .url = "clickhouse://db:8123" },
		{ .url = "clickhouse://db:8123/" },
		{ .url = "clickhouse://db:8123/a/b" },
		{ .url = "clickhouse://db:8123/a?x=1" },
		{ .url = "clickhouse://db:8123/a-b" },
		{ .url = "clickhouse://db:8123/"
			 "01234567890123456789012345678901234567890123456789012345678901234" },
		{ .url = "clickhouse://db:0/d" },
		{ .url = "clickhouse://db:65536/d" },
		{ .url = "clickhouse://db:+1/d" },
		{ .url = "clickhouse://db: 1/d" },
		{ .url = "clickhouse://:8123/d" },
		{ .url = "clickhouse://::1:8123/d" },
		{ .url = "clickhouse://[::1:8123/d" },
		{ .url = "clickhouse://[]:8123/d" },
		{ .url = "clickhouse://d b:8123/d" },
		{ .url = "clickhouse://@db:8123/d" },
		{ .url = "clickhouse://:secret@db:8123/d" },
		{ .url = "clickhouse://u:secret%@db:8123/d" },
		{ .url = "clickhouse://u:secret%0a@db:8123/d" },
		{ .url = "clickhouse://u:secret%4@db:8123/d" },
		{ .url = "clickhouse://u:secret/x@db:8123/d" },
		{ .url = "clickhouse:/db:8123/d" },
		{ .url = "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct clickhouse_url url = { .port = 7 };
		struct err err = { 0 };
		int rc = clickhouse_url_parse(rows[i].url, &url, &err);

		if ((rc == 0) != (rows[i].where != NULL))
			fail_msg("%s: %d", rows[i].url, rc);
		if (rc < 0) {
			assert_int_equal(url.port, 7);
			assert_null(strstr(err.text, "secret"));
			continue;
		}
		assert_string_equal(url.user, rows[i].user);
		assert_string_equal(url.password, rows[i].password);
		assert_string_equal(url.where, rows[i].where);
		assert_string_equal(url.database, rows[i].database);
		assert_int_equal(url.tls, rows[i].tls);
	}
}

/* ---- the journal ----------------------------------------------------------------------------- */

static struct journal *open_journal(const struct folder *f)
{
	cleanup_close int dir = open(f->dir, O_RDONLY | O_DIRECTORY);
	struct journal *journal = NULL;
	struct err err = { 0 };

	if (journal_open(dir, f->dir, &journal, &err) < 0)
		fail_msg("%s", err.text);
	return journal;
}

static uint64_t write_op(struct journal *journal, const char *text)
{
	const struct journal_op op = { .table = 2,
				       .number = journal_begin(journal),
				       .partition = 3,
				       .data = text,
				       .len = strlen(text) };
	struct err err = { 0 };

	assert_int_equal(journal_write(journal, &op, false, &err), 0);
	return op.number;
}

static void check_journal(struct journal *journal, const char *expect)
{
	cleanup_buf struct buf data = { 0 }, seen = { 0 };
	size_t at = 0, end, skipped;
	struct journal_op op;
	uint64_t base, last = 0;

	assert_int_equal(journal_load(journal, &data, &base), 0);
	for (; journal_next_frame(data.data, data.len, at, &op, &end, &skipped); at = end) {
		assert_true(op.number > last && op.number % 2 == 0);
		last = op.number;
		buf_printf(&seen, "%.*s ", (int)op.len, (const char *)op.data);
	}
	buf_add_char(&seen, '\0');
	assert_string_equal(seen.data, expect);
}

static void test_journal_full(void **state)
{
	static const char large_data[200];
	struct folder f = new_folder();
	struct journal *journal = open_journal(&f);
	const struct journal_op large = {
		.table = 1, .number = 2, .data = large_data, .len = sizeof(large_data)
	};
	struct err err = { 0 };
	uint64_t number;
	int rc = 0;

	journal->max_bytes = 4096;
	for (unsigned i = 0; i < 100 && rc == 0; i++) {
		(void)journal_begin(journal);
		rc = journal_write(journal, &large, false, &err);
	}
	assert_int_equal(rc, -ENOSPC);
	assert_string_equal(err.word, "StoreUnavailable");
	assert_true(journal_waiting(journal) <= 4096 && journal_waiting(journal) > 3000);
	/* How something ended may still be said. */
	number = journal_begin(journal);
	assert_true(number > 2);
	assert_int_equal(journal_write(journal, &large, true, &err), 0);
	journal_close(journal);
	remove_folder(&f);
}

/* Power may fail at any byte of the last operation; numbers go on behind the last one. */
static void test_journal_torn(void **state)
{
	struct folder f = new_folder();
	struct journal *journal = open_journal(&f);
	cleanup_free char *whole = NULL;
	char path[80];
	uint64_t before, last, again;
	size_t len;

	before = write_op(journal, "first");
	last = write_op(journal, "second");
	journal_close(journal);
	(void)snprintf(path, sizeof(path), "%s/clickhouse/0000000000000001.journal", f.dir);
	assert_int_equal(io_read_file(AT_FDCWD, path, 1 << 20, &whole, &len), 0);
	assert_int_equal(len, 8 + 48 + 48);
	for (size_t cut = 0; cut <= len; cut++) {
		cleanup_close int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0600);

		assert_int_equal(io_write_all(fd, whole, cut), 0);
		journal = open_journal(&f);
		if (cut >= 56)
			check_journal(journal, cut == len ? "first second " : "first ");
		assert_true(journal->given >= (cut == len ? last : cut >= 56 ? before : 0));
		again = write_op(journal, "again");
		assert_true(cut < 56 || again > before);
		check_journal(journal, cut == len  ? "first second again "
				       : cut >= 56 ? "first again "
						   : "again ");
		journal_close(journal);
		(void)unlink(path);
	}
	remove_folder(&f);
}

/* A bit flips: what lies elsewhere is there. */
static void test_journal_flips(void **state)
{
	cleanup_buf struct buf file = { 0 };
	struct journal_op op = { .table = 1, .number = 2, .data = "one", .len = 3 };

	buf_add_str(&file, "PROFCHJ1");
	journal_add_frame(&file, &op);
	op.number = 4;
	journal_add_frame(&file, &op);
	for (size_t bit = 64; bit < file.len * 8; bit++) {
		unsigned found = 0;
		size_t at = 8, end, skipped;

		file.data[bit / 8] ^= (char)(1 << bit % 8);
		for (; journal_next_frame(file.data, file.len, at, &op, &end, &skipped); at = end) {
			found++;
			assert_int_equal(op.len, 3);
			assert_memory_equal(op.data, "one", 3);
		}
		assert_in_range(found, 1, 2);
		file.data[bit / 8] ^= (char)(1 << bit % 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_urls),
		cmocka_unit_test(test_journal_full),
		cmocka_unit_test(test_journal_torn),
		cmocka_unit_test(test_journal_flips),
	};

	return cmocka_run_group_tests_name("clickhouse_journal", tests, NULL, NULL);
}
