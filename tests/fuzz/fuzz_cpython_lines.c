// SPDX-License-Identifier: Apache-2.0
/* Input: the format, first line (2 bytes), then a table. Properties: every position of the table
 * has a line in range or an error. A table that is cut gives an error, or the line of the whole
 * table. 3.8's table has no end: its last pair holds on. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "agent/runtimes/cpython_lines.h"

#define POSITIONS 512u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum cpython_lines_format format;
	uint32_t first;
	size_t cut;

	if (size < 3 || size > 4096)
		return 0;
	format = (enum cpython_lines_format)(data[0] % 3);
	first = data[1] | (uint32_t)data[2] << 8;
	cut = (size - 3) / 2;
	for (uint32_t position = 0; position < POSITIONS; position++) {
		uint32_t line = 0, again = 0;
		int rc = cpython_lines_find(format, data + 3, size - 3, first, position, &line);
		int rc_cut = cpython_lines_find(format, data + 3, cut, first, position, &again);

		if ((rc && rc != -ENODATA && rc != -EINVAL) || line > INT32_MAX)
			abort();
		if (format != CPYTHON_LINES_LNOTAB && rc_cut != -EINVAL &&
		    (rc_cut != rc || again != line))
			abort();
	}
	return 0;
}
