// SPDX-License-Identifier: Apache-2.0
#include "agent/store/minutes.h"

#include <errno.h>

#include "agent/base/bytes.h"
#include "agent/base/clock.h"

#define MINUTE_MS 60000u

enum { HAS_LOST = 1, HAS_VALUES = 2, HAS_TIMES = 4, FLAGS = 7 };

/* The value of one sample, from all minutes together. */
static int64_t value_of_one(const struct store_minute *minutes, size_t count)
{
	uint64_t samples = 0;
	int64_t value = 0;

	for (size_t i = 0; i < count; i++) {
		samples += minutes[i].samples;
		value += minutes[i].value;
	}
	return samples ? value / (int64_t)samples : 0;
}

static int64_t residual(const struct store_minute *minute, int64_t one)
{
	return (int64_t)((uint64_t)minute->value - minute->samples * (uint64_t)one);
}

void minutes_encode(struct buf *out, const struct store_minute *minutes, size_t count)
{
	int64_t one = value_of_one(minutes, count);
	uint64_t there = 0, flags = 0;

	for (size_t i = 0; i < count; i++) {
		there |= 1ull << minutes[i].minute;
		flags |= (minutes[i].lost ? HAS_LOST : 0) |
			 (residual(&minutes[i], one) ? HAS_VALUES : 0) |
			 (minutes[i].profiled_ms != MINUTE_MS ? HAS_TIMES : 0);
	}
	buf_add_varint(out, flags);
	buf_add(out, &there, sizeof(there));
	buf_add_svarint(out, one);
	for (size_t i = 0; i < count; i++)
		buf_add_varint(out, minutes[i].samples);
	for (size_t i = 0; i < count && flags & HAS_LOST; i++)
		buf_add_varint(out, minutes[i].lost);
	for (size_t i = 0; i < count && flags & HAS_VALUES; i++)
		buf_add_svarint(out, residual(&minutes[i], one));
	for (size_t i = 0; i < count && flags & HAS_TIMES; i++)
		buf_add_svarint(out, (int64_t)MINUTE_MS - minutes[i].profiled_ms);
}

int minutes_decode(const void *data, size_t len, struct store_minute ret[HOUR_MINUTES])
{
	struct bytes in = bytes_of(data, len);
	uint64_t flags = bytes_varint(&in), there = bytes_u64(&in), one = (uint64_t)bytes_svarint(&in);
	int count = 0;

	if (in.failed || flags > FLAGS || there >> HOUR_MINUTES)
		return -EPROTO;
	for (uint32_t minute = 0; minute < HOUR_MINUTES; minute++)
		if (there >> minute & 1)
			ret[count++] = (struct store_minute){ .minute = minute,
							      .profiled_ms = MINUTE_MS };
	for (int i = 0; i < count; i++) {
		ret[i].samples = bytes_varint(&in);
		ret[i].value = (int64_t)(ret[i].samples * one);
	}
	for (int i = 0; i < count && flags & HAS_LOST; i++)
		ret[i].lost = bytes_varint(&in);
	for (int i = 0; i < count && flags & HAS_VALUES; i++)
		ret[i].value = (int64_t)((uint64_t)ret[i].value + (uint64_t)bytes_svarint(&in));
	for (int i = 0; i < count && flags & HAS_TIMES; i++)
		ret[i].profiled_ms -= (uint32_t)bytes_svarint(&in);
	return in.failed || bytes_left(&in) ? -EPROTO : count;
}

int minutes_hand_out(const struct store_window *hour, uint64_t from_ns, uint64_t to_ns,
		     store_window_fn *visit, void *ctx)
{
	int rc = 0;

	for (uint32_t i = 0; i < hour->minute_count && rc == 0; i++) {
		const struct store_minute *minute = &hour->minutes[i];
		struct store_window window = *hour;

		window.from_ns += minute->minute * 60 * NS_PER_S;
		window.minutes = minute;
		window.minute_count = 0;
		window.samples = minute->samples;
		window.lost = minute->lost;
		window.value = minute->value;
		window.profiled_ms = minute->profiled_ms;
		window.bytes = minutes_bytes(hour, minute);
		if (window.from_ns >= from_ns && window.from_ns < to_ns)
			rc = visit(ctx, &window);
	}
	return rc;
}

void minutes_sum(struct store_window *hour, const struct store_minute *minutes, uint32_t count)
{
	hour->minutes = minutes;
	hour->minute_count = count;
	for (uint32_t i = 0; i < count; i++) {
		hour->samples += minutes[i].samples;
		hour->lost += minutes[i].lost;
		hour->value += minutes[i].value;
	}
}
