// SPDX-License-Identifier: Apache-2.0
#include "agent/wire/feed.h"

#include <errno.h>
#include <string.h>

#include "agent/base/bytes.h"

int feed_decode(const void *data, size_t len, void *ret_fixed, size_t fixed_size,
		const void **ret_tail, size_t *ret_tail_len)
{
	if (len < fixed_size)
		return -EPROTO;
	memcpy(ret_fixed, data, fixed_size);
	*ret_tail = (const uint8_t *)data + fixed_size;
	*ret_tail_len = len - fixed_size;
	return 0;
}

int feed_decode_strings(const void *tail, size_t len, struct feed_string *ret, int count)
{
	struct feed_string strings[FEED_STRINGS_MAX];
	struct bytes b = bytes_of(tail, len);

	if (count < 0 || count > FEED_STRINGS_MAX)
		return -EPROTO;
	for (int i = 0; i < count; i++) {
		strings[i].len = bytes_u16(&b);
		strings[i].text = bytes_take(&b, strings[i].len);
	}
	if (b.failed)
		return -EPROTO;
	if (count > 0)
		memcpy(ret, strings, (size_t)count * sizeof(*ret));
	return 0;
}

static void take_function(struct bytes *b, uint32_t line, uint32_t first_line,
			  struct feed_function *ret)
{
	ret->line = line;
	ret->first_line = first_line & FEED_LINE_MAX;
	ret->is_approximate = first_line & FEED_APPROXIMATE;
	ret->tier = (uint8_t)(first_line >> FEED_TIER_SHIFT);
	ret->function.len = bytes_u16(b);
	ret->function.text = bytes_take(b, ret->function.len);
	ret->file.len = bytes_u16(b);
	ret->file.text = bytes_take(b, ret->file.len);
}

int feed_decode_script(const void *data, size_t len, struct feed_script *ret,
		       struct feed_function functions[FEED_FUNCTIONS_MAX])
{
	const void *tail;
	size_t tail_len;
	int count = 1, rc = feed_decode(data, len, ret, sizeof(*ret), &tail, &tail_len);
	struct bytes b;

	if (rc < 0)
		return rc;
	b = bytes_of(tail, tail_len);
	take_function(&b, ret->line, ret->first_line, &functions[0]);
	while (bytes_left(&b) && count < FEED_FUNCTIONS_MAX) {
		uint32_t line = bytes_u32(&b), first_line = bytes_u32(&b);

		take_function(&b, line, first_line, &functions[count++]);
	}
	return b.failed ? -EPROTO : count;
}

int feed_decode_families(const void *tail, size_t len, const struct feed_string *last,
			 uint64_t ret[FEED_FAMILIES_MAX])
{
	const char *begin = last->text + last->len;
	size_t left = len - (size_t)(begin - (const char *)tail);

	if (left % sizeof(*ret) || left / sizeof(*ret) > FEED_FAMILIES_MAX)
		return -EPROTO;
	memcpy(ret, begin, left);
	return (int)(left / sizeof(*ret));
}

int feed_decode_frames(const struct feed_stack *stack, const void *tail, size_t tail_len,
		       uint64_t *ret_frames)
{
	size_t bytes = (size_t)stack->frame_count * sizeof(*ret_frames);

	if (stack->frame_count > FEED_FRAMES_MAX || tail_len != bytes)
		return -EPROTO;
	memcpy(ret_frames, tail, bytes);
	return 0;
}

void feed_encode_string(void *out, size_t size, size_t *at, const char *text, size_t len)
{
	uint16_t stored;

	if (*at > size || size - *at < sizeof(stored))
		return;
	if (len > UINT16_MAX)
		len = UINT16_MAX;
	if (len > size - *at - sizeof(stored))
		len = size - *at - sizeof(stored);
	stored = (uint16_t)len;
	memcpy((uint8_t *)out + *at, &stored, sizeof(stored));
	if (len > 0)
		memcpy((uint8_t *)out + *at + sizeof(stored), text, len);
	*at += sizeof(stored) + len;
}
