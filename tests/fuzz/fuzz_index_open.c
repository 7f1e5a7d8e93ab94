// SPDX-License-Identifier: Apache-2.0
/* Input is a stored image, or (first byte odd) changes to a sound one: offset and byte, three bytes
 * each. Property: an image is refused, or all its answers lie inside it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/io.h"
#include "symbolize/index_builder.h"
#include "symbolize/symbol_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A small image with all tables. */
static void *sound_image(size_t *ret_bytes)
{
	cleanup_index_builder struct index_builder b = { 0 };
	static const char *const names[] = { "alpha", "beta", "_Z3fooi", "file.c" };
	uint32_t name[4], function, outer, inner;
	void *image = NULL;
	int bad = index_builder_extent(&b, 0x1180, 0x11c0) | index_builder_extent(&b, 0x1200, 0x1208);

	for (int i = 0; i < 4; i++)
		bad |= index_builder_string(&b, names[i], SIZE_MAX, &name[i]);
	bad |= index_builder_symbol(&b, 0x1000, 0x1100, name[0], 1);
	bad |= index_builder_symbol(&b, 0x1100, 0x1180, name[1], 1);
	bad |= index_builder_function(&b, name[2], name[3], 7, &function);
	bad |= index_builder_node(&b, &(struct symbol_image_node){ .parent = SYMBOL_IMAGE_NONE,
								   .function = function },
				  &outer);
	bad |= index_builder_range(&b, outer, 0x1000, 0x1200);
	bad |= index_builder_node(&b, &(struct symbol_image_node){ outer, function, name[3], 9 },
				  &inner);
	bad |= index_builder_range(&b, inner, 0x1040, 0x1060);
	for (unsigned i = 0; i < 20; i++)
		bad |= index_builder_row(&b, 0x1000 + i * 16, name[3], i);
	bad |= index_builder_sequence_end(&b, 0x1200);
	if (bad < 0 || index_builder_finish(&b, &image, ret_bytes) < 0)
		return NULL;
	return image;
}

static void look_up(int fd)
{
	static volatile size_t sum;
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	struct symbol_index *index = NULL;
	size_t total = 0;

	if (symbol_index_open(fd, &index) < 0)
		return;
	for (uint64_t fo = 0xff0; fo < 0x1210; fo += 5) {
		int count = symbol_index_find(index, fo, frames);

		for (int i = 0; i < count; i++)
			total += strlen(frames[i].function) + strlen(frames[i].file);
	}
	sum = total;
	symbol_index_destroy(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_close int fd = io_memfd("image", 0);

	if (fd < 0 || size < 1 || size > 1u << 16)
		return 0;
	if (data[0] & 1) {
		size_t bytes = 0;
		cleanup_free uint8_t *image = sound_image(&bytes);

		if (!image)
			return 0;
		for (size_t at = 1; at + 3 <= size; at += 3)
			image[(data[at] | data[at + 1] << 8) % bytes] = data[at + 2];
		(void)!io_write_all(fd, image, bytes);
	} else {
		(void)!io_write_all(fd, data + 1, size - 1);
	}
	look_up(fd);
	return 0;
}
