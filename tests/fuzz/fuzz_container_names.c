// SPDX-License-Identifier: Apache-2.0
/* Files of container runtimes: whatever they hold, the lines made of them are whole, printable and
 * within their bound. The first byte says which file it is. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/cleanup.h"
#include "agent/collect/proc/container_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char id[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

static void parse(uint8_t kind, const char *text, size_t len, struct container_names *names)
{
	switch (kind % 4) {
	case 0:
		(void)!container_names_parse_docker(text, len, names);
		break;
	case 1:
		(void)!container_names_parse_oci(text, len, names);
		break;
	case 2:
		(void)!container_names_parse_storage(text, len, id, names);
		break;
	default:
		(void)!container_names_parse_link(text, id, names);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *text = size ? malloc(size) : NULL;
	struct container_names names = { 0 };
	char lines[CONTAINER_LINES_SIZE], container[65];
	long uid;
	size_t len;

	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	(void)container_names_id(text, container, &uid);
	parse(data[0], text, size - 1, &names);
	len = container_names_lines(&names, lines, sizeof(lines));
	if (len != strlen(lines) || len >= sizeof(lines) || (len && lines[len - 1] != '\n'))
		abort();
	for (const char *line = lines; *line; line = strchr(line, '\n') + 1)
		if (!strchr(line, '=') || strncmp(line, "=", 1) == 0)
			abort();
	return 0;
}
