// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <linux/perf_event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "agent/collect/kernel/mmap_records.h"

struct raw {
	_Alignas(8) uint8_t bytes[256];
	size_t len;
};

static void put(struct raw *raw, const void *data, size_t len)
{
	memcpy(raw->bytes + raw->len, data, len);
	raw->len += len;
}

static void put_u32(struct raw *raw, uint32_t value)
{
	put(raw, &value, sizeof(value));
}

static void put_u64(struct raw *raw, uint64_t value)
{
	put(raw, &value, sizeof(value));
}

static void begin(struct raw *raw, uint32_t type, uint16_t misc)
{
	struct perf_event_header header = { .type = type, .misc = misc };

	raw->len = 0;
	put(raw, &header, sizeof(header));
}

static void finish(struct raw *raw, const char *text, uint64_t time_ns)
{
	char padded[64] = { 0 };
	uint16_t size;

	strcpy(padded, text);
	put(raw, padded, (strlen(text) + 8) & ~7ul);
	put_u32(raw, 70);
	put_u32(raw, 71);
	put_u64(raw, time_ns);
	size = (uint16_t)raw->len;
	memcpy(raw->bytes + offsetof(struct perf_event_header, size), &size, sizeof(size));
}

static struct raw map_record(uint64_t start, uint64_t bytes, uint32_t prot, uint16_t misc)
{
	struct raw raw;

	begin(&raw, PERF_RECORD_MMAP2, misc);
	put_u32(&raw, 70);
	put_u32(&raw, 71);
	put_u64(&raw, start);
	put_u64(&raw, bytes);
	put_u64(&raw, 0x3000);
	put_u32(&raw, 8);
	put_u32(&raw, 1);
	put_u64(&raw, 4711);
	put_u64(&raw, 99);
	put_u32(&raw, prot);
	put_u32(&raw, 2);
	finish(&raw, "/usr/lib/x.so", 123456);
	return raw;
}

static void a_mapping_is_read(void **state)
{
	cleanup(mmap_batch) struct mmap_batch batch = { 0 };
	struct raw raw = map_record(0x10000, 0x2000, PROT_READ | PROT_EXEC, 0);
	const struct mmap_record *record;

	assert_int_equal(mmap_batch_parse(&batch, raw.bytes, raw.len), 1);
	record = &batch.records[0];
	assert_int_equal(record->kind, MMAP_RECORD_MAP);
	assert_int_equal(record->tgid, 70);
	assert_int_equal(record->tid, 71);
	assert_true(record->start_va == 0x10000 && record->end_va == 0x12000);
	assert_true(record->pgoff_fo == 0x3000);
	assert_int_equal(record->dev_major, 8);
	assert_int_equal(record->dev_minor, 1);
	assert_true(record->inode == 4711 && record->inode_generation == 99);
	assert_true(record->time_ns == 123456);
	assert_string_equal(batch.texts + record->path_at, "/usr/lib/x.so");
}

static void exec_is_told_from_a_new_name(void **state)
{
	cleanup(mmap_batch) struct mmap_batch batch = { 0 };
	struct raw raw;

	for (int exec = 0; exec < 2; exec++) {
		begin(&raw, PERF_RECORD_COMM, exec ? PERF_RECORD_MISC_COMM_EXEC : 0);
		put_u32(&raw, 70);
		put_u32(&raw, 70);
		finish(&raw, "sort", 77);
		assert_int_equal(mmap_batch_parse(&batch, raw.bytes, raw.len), exec);
	}
	assert_int_equal(batch.count, 1);
	assert_int_equal(batch.records[0].kind, MMAP_RECORD_EXEC);
	assert_true(batch.records[0].time_ns == 77);
	assert_string_equal(batch.texts + batch.records[0].path_at, "sort");
}

static void lost_records_are_counted(void **state)
{
	cleanup(mmap_batch) struct mmap_batch batch = { 0 };
	struct raw raw;

	begin(&raw, PERF_RECORD_LOST, 0);
	put_u64(&raw, 5);
	put_u64(&raw, 42);
	finish(&raw, "", 77);
	assert_int_equal(mmap_batch_parse(&batch, raw.bytes, raw.len), 0);
	assert_true(batch.lost == 42);
}

static void what_is_no_mapping_is_refused(void **state)
{
	cleanup(mmap_batch) struct mmap_batch batch = { 0 };
	static const struct {
		uint64_t start, bytes;
		uint32_t prot;
		uint16_t misc;
		int rc;
	} cases[] = {
		{ 0x1000, 0, PROT_EXEC, 0, -EPROTO },
		{ UINT64_MAX - 10, 0x1000, PROT_EXEC, 0, -EPROTO },
		{ 0x1000, 0x1000, PROT_READ, 0, 0 },
		/* A build-id in the place of the inode was not asked for. */
		{ 0x1000, 0x1000, PROT_EXEC, PERF_RECORD_MISC_MMAP_BUILD_ID, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct raw raw = map_record(cases[i].start, cases[i].bytes, cases[i].prot,
					    cases[i].misc);

		assert_int_equal(mmap_batch_parse(&batch, raw.bytes, raw.len), cases[i].rc);
		assert_int_equal(batch.count, 0);
	}
}

/* A record cut anywhere, with its size field adjusted or not, is refused or bounded. */
static void cut_records_are_refused(void **state)
{
	cleanup(mmap_batch) struct mmap_batch batch = { 0 };
	struct raw raw = map_record(0x10000, 0x2000, PROT_EXEC, 0);

	for (size_t len = 0; len < raw.len; len++) {
		cleanup_free uint8_t *cut = malloc(len ? len : 1);
		uint16_t size = (uint16_t)len;

		assert_non_null(cut);
		memcpy(cut, raw.bytes, len);
		assert_int_equal(mmap_batch_parse(&batch, cut, len), -EPROTO);
		if (len < sizeof(struct perf_event_header))
			continue;
		memcpy(cut + offsetof(struct perf_event_header, size), &size, sizeof(size));
		(void)!mmap_batch_parse(&batch, cut, len);
	}
	for (size_t i = 0; i < batch.count; i++)
		assert_true(batch.records[i].end_va > batch.records[i].start_va);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_mapping_is_read),
		cmocka_unit_test(exec_is_told_from_a_new_name),
		cmocka_unit_test(lost_records_are_counted),
		cmocka_unit_test(what_is_no_mapping_is_refused),
		cmocka_unit_test(cut_records_are_refused),
	};

	return cmocka_run_group_tests_name("mmap_records", tests, NULL, NULL);
}
