// SPDX-License-Identifier: Apache-2.0
/* Input: packing, bytecode index (2 bytes), pc (2 bytes), lengths of two texts, then bytes that are
 * a line table, PcDescs, scopes and texts at once. Properties: lines are in range; scopes end, are
 * at most HOTSPOT_SCOPES_MAX and have methods; names are terminated, printable and in bounds. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/runtimes/hotspot_lines.h"
#include "agent/runtimes/hotspot_names.h"
#include "agent/runtimes/hotspot_scopes.h"

#define HEAD 7u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_scopes(const uint8_t *data, size_t size, enum hotspot_packing packing,
			 uint32_t pc)
{
	struct hotspot_scope scopes[HOTSPOT_SCOPES_MAX];
	uint32_t begin = 0;
	int count, rc = hotspot_scopes_begin(data, size, pc, &begin);

	if (rc && rc != -ENODATA)
		abort();
	count = hotspot_scopes_read(data, size, packing, rc ? pc : begin, scopes);
	if (count > (int)HOTSPOT_SCOPES_MAX || (count < 0 && count != -EINVAL))
		abort();
	for (int i = 0; i < count; i++)
		if (!scopes[i].method ||
		    (scopes[i].bci != HOTSPOT_BCI_NONE && scopes[i].bci >= 65536))
			abort();
}

static void check_text(const char *text, size_t max)
{
	size_t len = strnlen(text, max);

	if (len == max)
		abort();
	for (size_t i = 0; i < len; i++)
		if ((uint8_t)text[i] < 0x20 || text[i] == 0x7f)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum hotspot_packing packing;
	uint32_t line = 0, first = 0;
	size_t class_len, len;
	char name[96];

	if (size < HEAD || size > 4096)
		return 0;
	packing = (enum hotspot_packing)(data[0] & 1);
	if (!hotspot_line(data + HEAD, size - HEAD, packing, data[1] | (uint32_t)data[2] << 8,
			  &line, &first) &&
	    (line > 0xffff || first > 0xffff))
		abort();
	check_scopes(data + HEAD, size - HEAD, packing, data[3] | (uint32_t)data[4] << 8);
	class_len = data[5] < size - HEAD ? data[5] : size - HEAD;
	len = data[6] < size - HEAD - class_len ? data[6] : size - HEAD - class_len;
	hotspot_function_name(data + HEAD, class_len, data + HEAD + class_len, len, name,
			      sizeof(name));
	check_text(name, sizeof(name));
	hotspot_file_name(data + HEAD, class_len, data + HEAD + class_len, len, name, sizeof(name));
	check_text(name, sizeof(name));
	return 0;
}
