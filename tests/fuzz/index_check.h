/* SPDX-License-Identifier: Apache-2.0 */
/* For the fuzz targets that build symbol indexes: what is built passes the check of stored images,
 * and every look-up answers with strings inside it. */
#ifndef PROFD_TESTS_INDEX_CHECK_H
#define PROFD_TESTS_INDEX_CHECK_H

#include <stdlib.h>
#include <string.h>

#include "agent/base/io.h"
#include "symbolize/symbol_index.h"

/* Looks up file offsets from 0 to @end_fo. */
static inline void index_check(const struct symbol_index *index, uint64_t end_fo)
{
	static volatile size_t sum;
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	cleanup(symbol_index) struct symbol_index *stored = NULL;
	cleanup_close int fd = io_memfd("image", 0);
	size_t bytes, total = 0;
	const void *image = symbol_index_image(index, &bytes);

	if (fd < 0 || io_write_all(fd, image, bytes) < 0)
		return;
	if (symbol_index_open(fd, &stored) != 0)
		abort();
	for (uint64_t fo = 0; fo < end_fo; fo += 13) {
		int count = symbol_index_find(stored, fo, frames);

		if (count && !frames[0].function[0] && (count > 1 || frames[0].from_start > fo))
			abort();
		for (int i = 0; i < count; i++)
			total += strlen(frames[i].function) + strlen(frames[i].file);
	}
	sum = total;
}

#endif
