// SPDX-License-Identifier: Apache-2.0
/* The first byte chooses: a feed record of that kind, a perf record, or a recording. Properties:
 * strings that are encoded again give the same bytes, mappings are ranges, moving a record's stamps
 * forth and back changes nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/io.h"
#include "agent/collect/feed/feed_file.h"
#include "agent/collect/kernel/mmap_records.h"
#include "agent/collect/feed/replay.h"
#include "agent/wire/feed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static void strings(const uint8_t *data, size_t size)
{
	struct feed_string parts[FEED_STRINGS_MAX];
	cleanup_free uint8_t *again = malloc(size ? size : 1);
	size_t at = 0;

	if (!again || feed_decode_strings(data, size, parts, FEED_STRINGS_MAX) < 0)
		return;
	for (int i = 0; i < FEED_STRINGS_MAX; i++)
		feed_encode_string(again, size, &at, parts[i].text, parts[i].len);
	check(at <= size && memcmp(again, data, at) == 0);
}

static void frames(const uint8_t *data, size_t size)
{
	uint64_t out[FEED_FRAMES_MAX];
	struct feed_stack stack;
	const void *tail;
	size_t tail_len;

	if (feed_decode(data, size, &stack, sizeof(stack), &tail, &tail_len) < 0)
		return;
	if (feed_decode_frames(&stack, tail, tail_len, out) == 0)
		check(memcmp(out, tail, tail_len) == 0);
}

static void stamps(uint32_t kind, const uint8_t *data, size_t size)
{
	struct clock_triple then = { 1, 20, 300 }, now = { 4000, 50000, 600000 };
	cleanup_free uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		return;
	memcpy(copy, data, size);
	replay_shift(kind, copy, size, &then, &now);
	replay_shift(kind, copy, size, &now, &then);
	check(memcmp(copy, data, size) == 0);
}

static void perf_record(const uint8_t *data, size_t size)
{
	cleanup(mmap_batch) struct mmap_batch batch = { 0 };

	if (mmap_batch_parse(&batch, data, size) != 1)
		return;
	check(batch.count == 1 && batch.records[0].path_at < batch.text_bytes);
	check(batch.records[0].kind != MMAP_RECORD_MAP ||
	      batch.records[0].end_va > batch.records[0].start_va);
	check(batch.texts[batch.text_bytes - 1] == '\0');
}

static void recording(const uint8_t *data, size_t size)
{
	struct feed_file *file = NULL;
	struct err err = { 0 };
	int fd = io_memfd("recording", 0);
	uint32_t kind;
	void *record;
	size_t len;

	if (fd < 0)
		return;
	(void)!io_write_all(fd, data, size);
	(void)lseek(fd, 0, SEEK_SET);
	if (feed_file_open(fd, &file, &err) < 0) {
		check(err.text[0] != '\0');
		(void)close(fd);
		return;
	}
	while (feed_file_next(file, &kind, &record, &len) == 1)
		check(len <= FEED_FILE_RECORD_MAX && len <= size);
	(void)feed_file_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1 || size > 1u << 16)
		return 0;
	switch (data[0] % 8) {
	case 0:
		strings(data + 1, size - 1);
		break;
	case 1:
		frames(data + 1, size - 1);
		break;
	case 2:
		perf_record(data + 1, size - 1);
		break;
	case 3:
		recording(data + 1, size - 1);
		break;
	default:
		stamps(data[0] / 8, data + 1, size - 1);
	}
	return 0;
}
