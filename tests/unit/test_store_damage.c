// SPDX-License-Identifier: Apache-2.0
/* A day file with bits flipped: what is read is right or missing, never wrong, and the rest of the
 * day is still there. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/store/store.h"
#include "tests/support/store_fixture.h"

#define DAY	 20778u /* 2026-11-21 */
#define START	 (DAY * 86400ull * NS_PER_S)
#define MINUTE	 (60 * NS_PER_S)
#define HOURS	 24u
#define PER_HOUR 3u /* minutes with data */
#define SERVICES 3u
#define PIECES	 24u
#define BYTES	 300u
#define FLIPS	 1000

static const struct store_day day = { .day = DAY, .retention_days = 7 };

struct fixture {
	struct store_fixture on;
	char file[128];
	unsigned unsaid; /* readings in which something was missing and nothing said so */
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	store_fixture_open(&f->on);
	(void)snprintf(f->file, sizeof(f->file), "%s/history/2026-11-21-r7.db", f->on.dir);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	store_fixture_close(&f->on);
	free(f);
	return 0;
}

/* Makes the data stored for @number, which the number alone determines. zstd cannot shrink it. */
static void fill(uint64_t number, uint8_t data[BYTES])
{
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)hash_mix64(number * BYTES + i);
}

static uint64_t number_of(unsigned hour, unsigned minute, unsigned service)
{
	return (hour * 100 + minute) * 100 + service;
}

static void write_minutes(struct fixture *f, unsigned hour, const struct store_chunk *chunk)
{
	struct store_window windows[PER_HOUR * SERVICES];
	uint8_t data[PER_HOUR * SERVICES][BYTES];
	char names[SERVICES][16];
	struct err err = { 0 };

	for (unsigned i = 0; i < PER_HOUR * SERVICES; i++) {
		unsigned minute = i / SERVICES * 7, service = i % SERVICES;
		uint64_t number = number_of(hour, minute, service);

		(void)snprintf(names[service], sizeof(names[0]), "service-%u", service);
		fill(number, data[i]);
		windows[i] = (struct store_window){
			.service = names[service], .type = "cpu", .owners = ",default:19,",
			.from_ns = START + (hour * 60 + minute) * MINUTE, .whole = true,
			.samples = number, .lost = number + 1, .value = (int64_t)number * 10,
			.data = data[i], .len = BYTES
		};
	}
	if (store_history_append(f->on.store, &day, chunk, 1, windows, PER_HOUR * SERVICES, 1, hour,
				 &err) < 0)
		fail_msg("%s", err.text);
}

/* The same as hours; their data is told by minute 59. */
static void write_hour(struct fixture *f, unsigned hour, const struct store_chunk *chunk)
{
	struct store_minute minutes[SERVICES][PER_HOUR];
	struct store_window windows[SERVICES];
	uint8_t data[SERVICES][BYTES], shared[SERVICES][BYTES];
	char names[SERVICES][16];
	struct err err = { 0 };

	for (unsigned service = 0; service < SERVICES; service++) {
		for (unsigned i = 0; i < PER_HOUR; i++) {
			uint64_t number = number_of(hour, i * 7, service);

			minutes[service][i] = (struct store_minute){ .minute = i * 7, .samples = number,
								     .lost = number + 1,
								     .value = (int64_t)number * 10 };
		}
		(void)snprintf(names[service], sizeof(names[0]), "service-%u", service);
		fill(number_of(hour, 59, service), data[service]);
		fill(number_of(HOURS, hour, service), shared[service]);
		windows[service] = (struct store_window){
			.service = names[service], .type = "cpu", .owners = ",default:19,",
			.from_ns = START + hour * 60 * MINUTE, .data = data[service], .len = BYTES,
			.shared = shared[service], .shared_len = BYTES, .minutes = minutes[service],
			.minute_count = PER_HOUR
		};
	}
	if (store_history_roll(f->on.store, &day, START + hour * 60 * MINUTE, PIECES, chunk, NULL, windows,
			       SERVICES, &err) < 0)
		fail_msg("%s", err.text);
}

static void fill_day(struct fixture *f, bool rolled_up)
{
	uint8_t piece[BYTES];

	for (unsigned hour = 0; hour < HOURS; hour++) {
		struct store_chunk chunk = { STORE_CHUNK_STACKS, piece, BYTES };

		fill(1000000 + hour, piece);
		if (rolled_up)
			write_hour(f, hour, &chunk);
		else
			write_minutes(f, hour, &chunk);
	}
	store_history_seal(f->on.store, &day);
}

/* ---- reading -----------------------------------------------------------------------------------
 */

struct seen {
	unsigned windows[HOURS];
	unsigned pieces;
};

static void check_totals(uint64_t number, uint64_t samples, uint64_t lost, int64_t value)
{
	assert_true(samples == number && lost == number + 1 && value == (int64_t)number * 10);
}

static int see_window(void *ctx, const struct store_window *window)
{
	struct seen *seen = ctx;
	uint64_t minute = (window->from_ns - START) / MINUTE;
	unsigned service = 0, hour = (unsigned)(minute / 60);
	uint8_t expected[BYTES];

	assert_int_equal(sscanf(window->service, "service-%u", &service), 1);
	assert_true(minute < HOURS * 60 && service < SERVICES);
	assert_true(window->whole);
	assert_string_equal(window->type, "cpu");
	assert_string_equal(window->owners, ",default:19,");
	if (window->data) {
		fill(number_of(hour, window->minute_count ? 59 : (unsigned)(minute % 60), service), expected);
		assert_int_equal(window->len, BYTES);
		assert_memory_equal(window->data, expected, BYTES);
	}
	if (window->data && window->minute_count) {
		fill(number_of(HOURS, HOURS - 1, service), expected);
		assert_int_equal(window->shared_len, BYTES);
		assert_memory_equal(window->shared, expected, BYTES);
	}
	seen->windows[hour] += window->minute_count ? window->minute_count : 1;
	if (!window->minute_count)
		check_totals(number_of(hour, (unsigned)(minute % 60), service), window->samples, window->lost,
			     window->value);
	for (uint32_t i = 0; i < window->minute_count; i++)
		check_totals(number_of(hour, window->minutes[i].minute, service), window->minutes[i].samples,
			     window->minutes[i].lost, window->minutes[i].value);
	return 0;
}

static int see_piece(void *ctx, const struct store_chunk *chunk)
{
	struct seen *seen = ctx;
	uint8_t expected[BYTES];

	assert_int_equal(chunk->kind, STORE_CHUNK_STACKS);
	assert_int_equal(chunk->len, BYTES);
	for (unsigned i = 0; i < PIECES; i++) {
		fill(1000000 + i, expected);
		if (memcmp(expected, chunk->data, BYTES) == 0) {
			seen->pieces++;
			return 0;
		}
	}
	fail_msg("a piece of the dictionary is not what was written");
	return 0;
}

static int see_span(void *ctx, const struct store_span *span)
{
	/* Sums over fewer windows than there were, never more. */
	assert_true(span->samples <= 3ull * 3 * number_of(HOURS, 60, SERVICES));
	return 0;
}

/* Hours that are complete; 0 where the whole is refused. */
static unsigned hours_served(struct fixture *f)
{
	struct store_window_query query = { .with_data = true }, index = { 0 };
	struct seen seen = { 0 }, rows = { 0 };
	unsigned damaged = 0, whole = 0;
	struct err err = { 0 };
	int rc = store_history_windows(f->on.store, &day, &query, see_window, &seen, &damaged, &err);

	if (rc != 0 && rc != -EUCLEAN && rc != -EPROTO && rc != -EIO && rc != -EBUSY)
		fail_msg("%d: %s", rc, err.text);
	for (unsigned hour = 0; hour < HOURS; hour++) {
		assert_true(seen.windows[hour] <= PER_HOUR * SERVICES);
		whole += rc == 0 && seen.windows[hour] == PER_HOUR * SERVICES;
	}
	f->unsaid += rc == 0 && whole < HOURS && !damaged;
	(void)!store_history_windows(f->on.store, &day, &index, see_window, &rows, &damaged, &err);
	(void)!store_history_dictionary(f->on.store, &day, see_piece, &seen, &damaged, &err);
	(void)!store_history_spans(f->on.store, &day, &index, 3600 * NS_PER_S, see_span, NULL, &err);
	return whole;
}

static void flip(int fd, uint64_t bit)
{
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
	byte ^= (uint8_t)(1 << bit % 8);
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
}

static void flip_bits(struct fixture *f, bool rolled_up)
{
	uint64_t random = 1, served = 0;
	unsigned refused = 0, complete = 0;
	cleanup_close int fd = -1;
	struct stat st;

	fill_day(f, rolled_up);
	assert_int_equal(hours_served(f), HOURS);
	fd = open(f->file, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	for (int i = 0; i < FLIPS; i++) {
		uint64_t bit;
		unsigned hours;

		random = hash_mix64(random + (uint64_t)i);
		bit = random % ((uint64_t)st.st_size * 8);
		flip(fd, bit);
		hours = hours_served(f);
		flip(fd, bit);
		served += hours;
		refused += hours == 0;
		complete += hours == HOURS;
	}
	print_message("%d flips in %lld bytes: %.2f of 24 hours served, %u harmless, %u refused, "
		      "%u unsaid\n",
		      FLIPS, (long long)st.st_size, (double)served / FLIPS, complete, refused,
		      f->unsaid);
	assert_int_equal(hours_served(f), HOURS);
	/* A flipped bit can make a row vanish without a trace; a wrong one was never seen above. */
	assert_true(f->unsaid <= FLIPS / 50);
	/* Only pages that all hours hang on (the first, the schema's, the roots) cost more than one. */
	assert_true(served >= (uint64_t)(0.9 * FLIPS * HOURS));
}

static void test_bit_flips_in_a_day(void **state)
{
	flip_bits(*state, false);
}

static void test_bit_flips_in_hours_rolled_up(void **state)
{
	flip_bits(*state, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_bit_flips_in_hours_rolled_up, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bit_flips_in_a_day, setup, teardown),
	};

	return cmocka_run_group_tests_name("store_damage", tests, NULL, NULL);
}
