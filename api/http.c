// SPDX-License-Identifier: Apache-2.0
#include "api/http.h"

#include <stdarg.h>
#include <string.h>

void http_answer_deinit(struct http_answer *answer)
{
	buf_deinit(&answer->body);
	if (answer->has_file)
		(void)close(answer->file_fd);
	*answer = (struct http_answer){ 0 };
}

void http_answer_header(struct http_answer *answer, const char *name, const char *fmt, ...)
{
	char *value = NULL;
	char *out;
	va_list args;

	for (unsigned i = 0; !value && i < answer->header_count; i++)
		if (strcmp(answer->headers[i].name, name) == 0)
			value = answer->headers[i].value;
	if (!value) {
		if (answer->header_count == HTTP_HEADERS_MAX)
			return;
		answer->headers[answer->header_count].name = name;
		value = answer->headers[answer->header_count++].value;
	}
	va_start(args, fmt);
	(void)vsnprintf(value, sizeof(answer->headers[0].value), fmt, args);
	va_end(args);
	out = value;
	for (const char *c = value; *c; c++)
		if ((unsigned char)*c >= 0x20 && *c != 0x7f)
			*out++ = *c;
	*out = '\0';
}
