// SPDX-License-Identifier: Apache-2.0
/* Input: the format, then a table of source positions, which is also taken for lengths of
 * bytecodes, bytecodes and the table of their code, for a table of safepoints and translations.
 * Property: every offset has a position in range, or an error that leaves the result alone; a
 * translation has frames in bounds, or an error. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "agent/runtimes/v8_positions.h"
#include "agent/runtimes/v8_translations.h"

#define OFFSETS	   256u
#define FRAMES_MAX 4u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_sides(enum v8_positions_format format, const uint8_t *table, size_t len,
			uint32_t offset)
{
	struct v8_positions_sides sides = { .before_at = -2, .after_at = -2 };
	int rc = v8_positions_around(format, table, len, offset, &sides);

	if (rc && (rc != -EINVAL || sides.before_at != -2 || sides.after_at != -2))
		abort();
	if (!rc && (sides.before_at > (int64_t)offset || sides.before_at < -1 ||
		    (sides.after_at <= (int64_t)offset && sides.after_at != -1)))
		abort();
}

static void check_baseline(const uint8_t *data, size_t len, uint32_t offset)
{
	uint32_t count = (uint32_t)(len / 2 / V8_BYTECODE_ROWS);
	const uint8_t *rest = data + count * V8_BYTECODE_ROWS;
	size_t rest_len = len - count * V8_BYTECODE_ROWS;
	struct v8_baseline baseline = { .code = rest,
					.code_len = rest_len / 2,
					.table = rest + rest_len / 2,
					.table_len = rest_len - rest_len / 2,
					.sizes = { data, count } };
	int32_t found = INT32_MIN;
	int rc = v8_baseline_find(&baseline, offset, &found);

	if (rc == 0 ? found < V8_ENTRY || found >= (int64_t)baseline.code_len : found != INT32_MIN)
		abort();
	if (rc && rc != -ENODATA && rc != -EINVAL)
		abort();
}

static void check_safepoints(const uint8_t *table, size_t len, uint32_t offset)
{
	struct v8_safepoint_sides sides = { false };
	int rc = v8_safepoints_around(table, len, offset, &sides);

	if (rc && (rc != -EINVAL || sides.has_before || sides.has_after))
		abort();
	if (!rc && (len < V8_SAFEPOINTS_HEAD || v8_safepoints_len(table) > len))
		abort();
	if ((sides.has_before && sides.before.offset > offset) ||
	    (sides.has_after && sides.after.offset <= offset))
		abort();
}

static void check_translation(const uint8_t *table, size_t len, uint32_t index)
{
	for (unsigned set = 0; set <= V8_OPERATIONS_END; set++) {
		struct v8_frame frames[FRAMES_MAX];
		int rc = v8_translation_frames(set, table, len, index, frames, FRAMES_MAX);

		if (rc <= 0 && rc != -ENODATA && rc != -EINVAL)
			abort();
		if (rc > (int)FRAMES_MAX || (rc > 0 && (set == 0 || set == V8_OPERATIONS_END)))
			abort();
		for (int i = 0; i < rc; i++)
			if (frames[i].literal > INT32_MAX ||
			    (frames[i].bytecode < V8_ENTRY && frames[i].bytecode != V8_BUILTIN))
				abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum v8_positions_format format;

	if (!size || size > 4096)
		return 0;
	format = data[0] & 1 ? V8_POSITIONS_ZIGZAG : V8_POSITIONS_SHIFTED;
	for (uint32_t offset = 0; offset < OFFSETS; offset++) {
		struct v8_position position = { UINT32_MAX, 0 };
		int rc = v8_positions_find(format, data + 1, size - 1, offset, &position);

		if (rc == 0 ? position.offset >= 1u << 30 : position.offset != UINT32_MAX)
			abort();
		if (rc && rc != -ENODATA && rc != -EINVAL)
			abort();
		check_sides(format, data + 1, size - 1, offset);
		check_baseline(data + 1, size - 1, offset);
		check_safepoints(data + 1, size - 1, offset);
		check_translation(data + 1, size - 1, offset);
	}
	return 0;
}
