// SPDX-License-Identifier: Apache-2.0
/* The bottom layer: strict parsing, clocks, tables, buffers, the channel and the shared ring. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "agent/base/buf.h"
#include "agent/base/bytes.h"
#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "agent/base/parse.h"
#include "agent/base/ring.h"
#include "agent/base/recent_map.h"
#include "agent/base/u64map.h"
#include "agent/base/ulid.h"

static void parse_numbers(void **state)
{
	static const struct {
		const char *text;
		int rc;
		uint64_t value;
	} rows[] = {
		{ "0", 0, 0 },		{ "3600", 0, 3600 }, { "3601", -ERANGE, 0 },
		{ "", -EINVAL, 0 },	{ " 1", -EINVAL, 0 }, { "1 ", -EINVAL, 0 },
		{ "+1", -EINVAL, 0 },	{ "-1", -EINVAL, 0 }, { "1e3", -EINVAL, 0 },
		{ "0x10", -EINVAL, 0 }, { "99999999999999999999", -ERANGE, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t value = 77;

		if (parse_u64(rows[i].text, 0, 3600, &value) != rows[i].rc)
			fail_msg("'%s'", rows[i].text);
		assert_int_equal(value, rows[i].rc ? 77 : rows[i].value);
	}
}

static void parse_units(void **state)
{
	uint64_t value = 0;

	assert_int_equal(parse_size_bytes("64M", &value), 0);
	assert_int_equal(value, 64u << 20);
	assert_int_equal(parse_size_bytes("2G", &value), 0);
	assert_int_equal(value, 2ull << 30);
	assert_int_equal(parse_size_bytes("99999999999T", &value), -ERANGE);
	assert_int_equal(parse_size_bytes("1MB", &value), -EINVAL);
	assert_int_equal(parse_duration_ns("7d", &value), 0);
	assert_int_equal(value, 7 * 86400 * NS_PER_S);
	assert_int_equal(parse_duration_ns("10", &value), -EINVAL);
	assert_int_equal(parse_duration_ns("10 s", &value), -EINVAL);
}

static void parse_utf8(void **state)
{
	static const struct {
		const char *text;
		size_t len;
		bool valid;
	} rows[] = {
		{ "abc", 3, true },	       { "gr\xc3\xbc\xc3\x9f", 6, true },
		{ "\xe2\x82\xac", 3, true },   { "\xf0\x9f\x94\xa5", 4, true },
		{ "\xc0\xaf", 2, false },      { "\xed\xa0\x80", 3, false }, /* overlong, surrogate */
		{ "\xf4\x90\x80\x80", 4, false }, { "\xe2\x82", 2, false },
		{ "a\0b", 3, false },	       { "\x80", 1, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (parse_is_utf8(rows[i].text, rows[i].len) != rows[i].valid)
			fail_msg("row %zu", i);
}

static void clock_is_set(void **state)
{
	const struct clock_triple from = { .monotonic_ns = 5, .boottime_ns = 7, .realtime_ns = 1000 };
	/* it slept for 90 of 100 */
	const struct clock_triple same = { 15, 107, 1100 }, ahead = { 15, 107, 1150 },
				  back = { 15, 107, 40 };

	assert_int_equal(clock_set_ns(&from, &same), 0);
	assert_int_equal(clock_set_ns(&from, &ahead), 50);
	assert_int_equal(clock_set_ns(&from, &back), -1060);
}

static void clock_round_trip(void **state)
{
	static const char *const bad[] = { "",
					   "20x6",
					   "2026-02-30T00:00:00Z",
					   "1969-12-31T23:59:59Z",
					   "10000-01-01T00:00:00Z",
					   "2026-01-01T24:00:00Z",
					   "2026-01-01T00:00:00",
					   "2026-01-01T00:00:00+25:00",
					   "2026-01-01T00:00:00.Z",
					   "yesterday" };
	static const char *const far[] = { "9999999999", "253402300799", "2262-04-12T00:00:00Z",
					   "2500-12-31T23:59:59.9Z", "2999-01-01T00:00:00Z",
					   "9999-12-31T23:59:59-23:59" };
	char text[CLOCK_RFC3339_SIZE];
	uint64_t ns = 0;

	assert_int_equal(clock_parse_rfc3339("2026-11-21T16:47:21.123Z", &ns), 0);
	clock_format_rfc3339(ns, text);
	assert_string_equal(text, "2026-11-21T16:47:21.123Z");
	assert_int_equal(clock_parse_rfc3339("2026-11-21T18:47:21.123+02:00", &ns), 0);
	clock_format_rfc3339(ns, text);
	assert_string_equal(text, "2026-11-21T16:47:21.123Z");
	assert_int_equal(clock_parse_rfc3339("1700000000", &ns), 0);
	assert_int_equal(ns, 1700000000ull * NS_PER_S);
	assert_int_equal(clock_parse_rfc3339("9223372035", &ns), 0);
	assert_int_equal(ns, 9223372035ull * NS_PER_S);
	/* Times beyond the range of int64_t become INT64_MAX. */
	for (size_t i = 0; i < ARRAY_SIZE(far); i++) {
		assert_int_equal(clock_parse_rfc3339(far[i], &ns), 0);
		assert_int_equal(ns, INT64_MAX);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (clock_parse_rfc3339(bad[i], &ns) != -EINVAL)
			fail_msg("accepted '%s'", bad[i]);
}

/* Processes begin one after another: neither their numbers and starts, nor parts of other
 * identities, may meet in one hash. (64 bits: of a million random ones, two are equal once in 37
 * million tries.) */
static void hashes_of_small_numbers(void **state)
{
	enum { SEEDS = 1000, VALUES = 1000 };
	struct u64map seen = { 0 };
	uint64_t met;

	for (uint64_t seed = 0; seed < SEEDS; seed++)
		for (uint64_t value = 0; value < VALUES; value++) {
			const uint64_t hash = hash_combine(1000 + seed, 100000 + value);

			if (u64map_get(&seen, hash, &met))
				fail_msg("%" PRIu64 ", %" PRIu64 " and %" PRIu64 ", %" PRIu64, 1000 + seed, 100000 + value,
					 1000 + met / VALUES, 100000 + met % VALUES);
			assert_int_equal(u64map_put(&seen, hash, seed * VALUES + value), 0);
		}
	u64map_deinit(&seen);
	assert_true(hash_combine(1, 2) != hash_combine(2, 1));
}

/* The table against a plain array, with deletions in the middle of probe runs. */
static void u64map_against_array(void **state)
{
	enum { KEYS = 512 };
	static uint64_t expected[KEYS];
	static bool present[KEYS];
	struct u64map map = { 0 };
	uint64_t value, random = 1;

	for (int i = 0; i < 20000; i++) {
		size_t key;

		random = hash_mix64(random + 1);
		key = random % KEYS;
		if (random >> 32 & 1) {
			assert_int_equal(u64map_put(&map, key, random), 0);
			expected[key] = random;
			present[key] = true;
		} else {
			assert_int_equal(u64map_remove(&map, key), present[key]);
			present[key] = false;
		}
	}
	for (size_t key = 0; key < KEYS; key++) {
		assert_int_equal(u64map_get(&map, key, &value), present[key]);
		if (present[key])
			assert_int_equal(value, expected[key]);
	}
	u64map_deinit(&map);
	u64map_init(&map, 2);
	assert_int_equal(u64map_put(&map, 1, 1), 0);
	assert_int_equal(u64map_put(&map, 2, 1), 0);
	assert_int_equal(u64map_put(&map, 3, 1), -ENOSPC);
	assert_int_equal(u64map_put(&map, 2, 5), 0);
	u64map_deinit(&map);
}

/* An entry that is used again survives; the others are forgotten after two generations. */
static void recent_maps(void **state)
{
	struct recent_map map = { 0 };
	uint64_t value;

	assert_int_equal(recent_map_put(&map, 1, 10), 0);
	assert_int_equal(recent_map_put(&map, 2, 20), 0);
	recent_map_age(&map, 3); /* there is room */
	recent_map_age(&map, 2);
	assert_true(recent_map_get(&map, 1, &value) && value == 10);
	recent_map_change(&map, 1, 11);
	recent_map_change(&map, 3, 30);
	recent_map_age(&map, 2); /* one was used */
	assert_true(recent_map_get(&map, 2, &value) && value == 20);
	recent_map_age(&map, 2);
	recent_map_age(&map, 0);
	assert_false(recent_map_get(&map, 1, &value));
	assert_int_equal(recent_map_put(&map, 1, 12), 0);
	recent_map_age(&map, 1);
	assert_true(recent_map_get(&map, 1, &value) && value == 12);
	recent_map_remove(&map, 1);
	assert_false(recent_map_get(&map, 1, &value));
	assert_false(recent_map_get(&map, 3, &value));
	recent_map_deinit(&map);
}

static void varints(void **state)
{
	static const int64_t values[] = { 0, 1, -1, 63, -64, 64, 127, 128, INT64_MAX, INT64_MIN };
	cleanup_buf struct buf buf = { 0 };
	struct bytes bytes;

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		buf_add_svarint(&buf, values[i]);
		buf_add_varint(&buf, (uint64_t)values[i]);
	}
	bytes = bytes_of(buf.data, buf.len);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		assert_int_equal(bytes_svarint(&bytes), values[i]);
		assert_int_equal(bytes_varint(&bytes), (uint64_t)values[i]);
	}
	assert_false(bytes.failed);
	assert_int_equal(bytes_u32(&bytes), 0);
	assert_true(bytes.failed);
	bytes = bytes_of("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
	(void)bytes_varint(&bytes);
	assert_true(bytes.failed);
}

static void buf_is_bounded(void **state)
{
	cleanup_buf struct buf buf = { .max = 10 };

	buf_add_str(&buf, "0123456789");
	assert_int_equal(buf.error, 0);
	buf_add_char(&buf, 'x');
	assert_int_equal(buf.error, -EFBIG);
	assert_int_equal(buf.len, 10);
}

static void write_record(struct ring *ring, uint32_t kind, const void *data, size_t len, int rc)
{
	struct iovec part = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };

	assert_int_equal(ring_write(ring, kind, &part, 1), rc);
}

/* Records of changing length pass in order through many turns of the area; a second reader that
 * starts at an unreleased position reads the same again. */
static void ring_keeps_order(void **state)
{
	struct ring_record record, again;
	struct ring *in = NULL, *out = NULL;
	uint64_t cursor = 0;
	char data[700];
	int fd = ring_create(1);

	assert_true(fd >= 0);
	assert_int_equal(ring_attach(fd, &in), 0);
	assert_int_equal(ring_attach(fd, &out), 0);
	(void)close(fd);
	for (uint32_t i = 0; i < 2000; i++) {
		size_t len = i * 37 % sizeof(data);

		memset(data, (int)i, sizeof(data));
		write_record(in, i, data, len, 0);
		assert_int_equal(ring_read(out, cursor, &record), 1);
		assert_int_equal(ring_read(out, cursor, &again), 1);
		assert_int_equal(record.kind, i);
		assert_int_equal(record.len, len);
		assert_memory_equal(record.data, data, len);
		assert_ptr_equal(record.data, again.data);
		cursor = record.end;
		ring_release(out, cursor);
	}
	assert_int_equal(ring_read(out, cursor, &record), 0);
	assert_int_equal(ring_lost(in), 0);
	ring_destroy(in);
	ring_destroy(out);
}

static void ring_full_and_hostile(void **state)
{
	struct ring_record record;
	struct ring *ring = NULL;
	char data[1000] = { 0 };
	int fd = ring_create(4096);

	assert_int_equal(ring_attach(fd, &ring), 0);
	for (int i = 0; i < 4; i++)
		write_record(ring, 1, data, sizeof(data), 0);
	write_record(ring, 1, data, sizeof(data), -ENOSPC);
	assert_int_equal(ring_lost(ring), 1);
	write_record(ring, 1, data, 3000, -EMSGSIZE);
	/* A cursor or a length that makes no sense is refused, not followed. */
	assert_int_equal(ring_read(ring, 3, &record), -EPROTO);
	assert_int_equal(ring_read(ring, 1ull << 40, &record), -EPROTO);
	assert_int_equal(pwrite(fd, "\xff\xff\xff\x7f", 4, 4096), 4);
	assert_int_equal(ring_read(ring, 0, &record), -EPROTO);
	ring_destroy(ring);
	(void)close(fd);
	fd = io_memfd("not-a-ring", 8192);
	ring = NULL;
	assert_int_equal(ring_attach(fd, &ring), -EPROTO);
	assert_null(ring);
	(void)close(fd);
}

static void channel_passes_descriptors(void **state)
{
	static struct channel_message message;
	struct channel_head head = { .kind = 7, .request = 9 };
	int fds[2], file = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_int_equal(channel_pair(fds), 0);
	assert_int_equal(channel_receive(fds[1], &message), 0);
	assert_int_equal(channel_send(fds[0], &head, sizeof(head), &file, 1), 0);
	assert_int_equal(channel_receive(fds[1], &message), 1);
	assert_int_equal(message.len, sizeof(head));
	assert_memory_equal(message.data, &head, sizeof(head));
	assert_int_equal(message.fd_count, 1);
	assert_true(fcntl(message.fds[0], F_GETFD) & FD_CLOEXEC);
	channel_message_close(&message);
	assert_int_equal(channel_send(fds[0], &head, 4, NULL, 0), -EMSGSIZE);
	assert_int_equal(send(fds[0], "abc", 3, 0), 3);
	assert_int_equal(channel_receive(fds[1], &message), -EPROTO);
	(void)close(fds[0]);
	assert_int_equal(channel_receive(fds[1], &message), -EPIPE);
	(void)close(fds[1]);
	(void)close(file);
}

/* At the limit of open files nothing is lost: it comes when there is room. */
static void channel_waits_for_room_for_descriptors(void **state)
{
	static struct channel_message message;
	struct channel_head head = { .kind = 7 };
	int fds[2], files[CHANNEL_FDS_MAX + 1];
	struct rlimit before, low;

	assert_int_equal(channel_pair(fds), 0);
	for (int i = 0; i <= CHANNEL_FDS_MAX; i++)
		files[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(channel_send(fds[0], &head, sizeof(head), files, CHANNEL_FDS_MAX), 0);
	head.kind = 8;
	assert_int_equal(channel_send(fds[0], &head, sizeof(head), NULL, 0), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	low = before;
	for (int room = 0; room < CHANNEL_FDS_MAX; room++) {
		low.rlim_cur = (rlim_t)files[CHANNEL_FDS_MAX] + 1 + (rlim_t)room;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
		assert_int_equal(channel_receive(fds[1], &message), 0);
		assert_int_equal(message.fd_count, 0);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(channel_receive(fds[1], &message), 1);
	assert_int_equal(((struct channel_head *)message.data)->kind, 7);
	assert_int_equal(message.fd_count, CHANNEL_FDS_MAX);
	channel_message_close(&message);
	assert_int_equal(channel_receive(fds[1], &message), 1);
	assert_int_equal(((struct channel_head *)message.data)->kind, 8);
	for (int i = 0; i <= CHANNEL_FDS_MAX; i++)
		(void)close(files[i]);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

/* A peer that sends more than there may be does not stop what comes behind. */
static void channel_drops_too_many_descriptors(void **state)
{
	static struct channel_message message;
	struct channel_head head = { .kind = 7 };
	struct iovec part = { .iov_base = &head, .iov_len = sizeof(head) };
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int) * (CHANNEL_FDS_MAX + 1))];
	} space = { 0 };
	struct msghdr msg = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = space.bytes,
			      .msg_controllen = sizeof(space.bytes) };
	int fds[2], many[CHANNEL_FDS_MAX + 1], next;

	assert_int_equal(channel_pair(fds), 0);
	for (int i = 0; i <= CHANNEL_FDS_MAX; i++)
		many[i] = fds[0];
	space.head = (struct cmsghdr){ CMSG_LEN(sizeof(many)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(&space.head), many, sizeof(many));
	assert_int_equal(sendmsg(fds[0], &msg, 0), sizeof(head));
	assert_int_equal(channel_send(fds[0], &head, sizeof(head), NULL, 0), 0);
	next = dup(fds[0]);
	assert_int_equal(channel_receive(fds[1], &message), -EPROTO);
	assert_int_equal(channel_receive(fds[1], &message), 1);
	assert_int_equal(dup(fds[0]), next + 1); /* none is left open */
	(void)close(next + 1);
	(void)close(next);
	(void)close(fds[0]);
	(void)close(fds[1]);
}

static void ulids_ascend(void **state)
{
	char before[ULID_TEXT_SIZE] = "", now[ULID_TEXT_SIZE];

	for (int i = 0; i < 1000; i++) {
		ulid_make(1700000000ull * NS_PER_S, now);
		assert_true(ulid_is_valid(now));
		assert_true(strcmp(before, now) < 0);
		memcpy(before, now, sizeof(before));
	}
	assert_false(ulid_is_valid("8zzzzzzzzzzzzzzzzzzzzzzzzz"));
	assert_false(ulid_is_valid("01ARZ3NDEKTSV4RRFFQ69G5FAV"));
	ulid_make_from(1469918176385ull * NS_PER_MS, (const uint8_t[10]){ 0 }, now);
	assert_string_equal(now, "01aryz6s410000000000000000");
}

static void files_are_bounded(void **state)
{
	char *data = NULL;
	size_t len;

	assert_int_equal(io_read_file(AT_FDCWD, "/proc/self/status", 10, &data, &len), -EFBIG);
	assert_null(data);
	assert_int_equal(io_read_file(AT_FDCWD, "/proc/self/status", 1 << 20, &data, &len), 0);
	assert_int_equal(strlen(data), len);
	free(data);
	assert_int_equal(io_read_file(AT_FDCWD, "/nonexistent", 10, &data, &len), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse_numbers),
		cmocka_unit_test(parse_units),
		cmocka_unit_test(parse_utf8),
		cmocka_unit_test(clock_is_set),
		cmocka_unit_test(clock_round_trip),
		cmocka_unit_test(hashes_of_small_numbers),
		cmocka_unit_test(u64map_against_array),
		cmocka_unit_test(recent_maps),
		cmocka_unit_test(varints),
		cmocka_unit_test(buf_is_bounded),
		cmocka_unit_test(ring_keeps_order),
		cmocka_unit_test(ring_full_and_hostile),
		cmocka_unit_test(channel_passes_descriptors),
		cmocka_unit_test(channel_waits_for_room_for_descriptors),
		cmocka_unit_test(channel_drops_too_many_descriptors),
		cmocka_unit_test(ulids_ascend),
		cmocka_unit_test(files_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
