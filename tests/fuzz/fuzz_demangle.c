// SPDX-License-Identifier: Apache-2.0
/* Input is a name, mangled or not. Property: the result is printable UTF-8 within its bound. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/parse.h"
#include "symbolize/demangle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char name[5000], text[DEMANGLE_TEXT_MAX];
	size_t len;

	if (size >= sizeof(name))
		return 0;
	memcpy(name, data, size);
	name[size] = '\0';
	len = demangle(name, text);
	if (len && (len >= sizeof(text) || text[len] || strlen(text) != len ||
		    !parse_is_utf8(text, len)))
		abort();
	return 0;
}
