// SPDX-License-Identifier: Apache-2.0
/* Input is the begin of _PyRuntime, or (first byte odd) a string: its state, then characters.
 * Properties: an accepted layout lies in the bounds that the walk in BPF needs. A string becomes
 * valid UTF-8 that fits; a shorter buffer holds a begin of it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/parse.h"
#include "agent/runtimes/cpython_layout.h"
#include "agent/runtimes/cpython_strings.h"
#include "agent/runtimes/unicode.h"

#define TEXT_BYTES 256u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_string(const uint8_t *data, size_t size)
{
	struct cpython_string string;
	char text[TEXT_BYTES], shorter[TEXT_BYTES / 2];
	uint32_t state;
	size_t len;

	if (size < 5)
		return;
	memcpy(&state, data + 1, sizeof(state));
	if (cpython_string_head((size - 5), state, &string) < 0)
		return;
	string.chars = (size - 5) / string.width;
	len = unicode_utf8(data + 5, string.chars, string.width, text, sizeof(text));
	if (len >= sizeof(text) || text[len] || !parse_is_utf8(text, len))
		abort();
	len = unicode_utf8(data + 5, string.chars, string.width, shorter, sizeof(shorter));
	if (len >= sizeof(shorter) || memcmp(text, shorter, len))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script_python p;

	if (size && data[0] & 1) {
		check_string(data, size);
		return 0;
	}
	if (!size || cpython_layout_of_runtime(data + 1, size - 1, &p) < 0)
		return 0;
	if (p.frame_code > SCRIPT_PYTHON_FRAME_BYTES - 8 ||
	    p.frame_instr > SCRIPT_PYTHON_FRAME_BYTES - 8 ||
	    p.frame_previous > SCRIPT_PYTHON_FRAME_BYTES - 8 ||
	    p.frame_entry >= SCRIPT_PYTHON_FRAME_BYTES || p.cookie_words > SCRIPT_COOKIE_WORDS ||
	    p.str_compact_data <= p.str_ascii_data - 8)
		abort();
	return 0;
}
