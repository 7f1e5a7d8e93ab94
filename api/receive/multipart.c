// SPDX-License-Identifier: Apache-2.0
#include "api/receive/multipart.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define TYPE "multipart/form-data"

bool multipart_is(const char *content_type)
{
	return content_type && strncasecmp(content_type, TYPE, strlen(TYPE)) == 0;
}

int multipart_begin(struct multipart *m, const char *content_type, const char *body, size_t len)
{
	const char *at = strcasestr(content_type, "boundary=");
	size_t size;

	if (!at)
		return -EINVAL;
	at += strlen("boundary=");
	size = *at == '"' ? strcspn(++at, "\"") : strcspn(at, "; \t");
	if (!size || size > MULTIPART_BOUNDARY_MAX)
		return -EINVAL;
	*m = (struct multipart){ .at = body, .end = body + len };
	m->delimiter_len = (size_t)snprintf(m->delimiter, sizeof(m->delimiter), "\r\n--%.*s",
					    (int)size, at);
	return 0;
}

/* Steps over the delimiter that begins at @at: 1, or 0 if it ends the body. */
static int step(struct multipart *m, const char *at)
{
	m->at = at;
	if (m->end - m->at >= 2 && memcmp(m->at, "--", 2) == 0)
		return 0;
	while (m->at < m->end && (*m->at == ' ' || *m->at == '\t'))
		m->at++;
	if (m->end - m->at < 2 || memcmp(m->at, "\r\n", 2) != 0)
		return -EINVAL;
	m->at += 2;
	return 1;
}

/* The value of `name` in a Content-Disposition of @len bytes. */
static void take_name(const char *line, size_t len, char ret[64])
{
	static const char key[] = "name=\"";
	const char *at = memmem(line, len, key, strlen(key)), *end;

	/* filename= has it, too. */
	while (at && at > line && at[-1] != ' ' && at[-1] != ';')
		at = memmem(at + 1, len - (size_t)(at + 1 - line), key, strlen(key));
	if (!at)
		return;
	at += strlen(key);
	end = memchr(at, '"', len - (size_t)(at - line));
	if (end && end - at < 64)
		(void)snprintf(ret, 64, "%.*s", (int)(end - at), at);
}

static int take_headers(struct multipart *m, struct multipart_part *part)
{
	static const char disposition[] = "Content-Disposition:";

	for (;;) {
		const char *line_end = memmem(m->at, (size_t)(m->end - m->at), "\r\n", 2);
		const size_t len = line_end ? (size_t)(line_end - m->at) : 0;

		if (!line_end)
			return -EINVAL;
		if (len > strlen(disposition) &&
		    strncasecmp(m->at, disposition, strlen(disposition)) == 0)
			take_name(m->at, len, part->name);
		m->at = line_end + 2;
		if (!len)
			return 0;
	}
}

int multipart_next(struct multipart *m, struct multipart_part *ret)
{
	/* The first delimiter has no line before it. */
	const char *first = m->delimiter + 2;
	struct multipart_part part = { .name = "" };
	const char *next;
	int rc;

	if ((size_t)(m->end - m->at) < m->delimiter_len - 2 ||
	    memcmp(m->at, first, m->delimiter_len - 2) != 0)
		return -EINVAL;
	rc = step(m, m->at + m->delimiter_len - 2);
	if (rc <= 0)
		return rc;
	rc = take_headers(m, &part);
	if (rc < 0)
		return rc;
	/* An empty part has the delimiter's line break behind its headers. */
	m->at -= 2;
	next = memmem(m->at, (size_t)(m->end - m->at), m->delimiter, m->delimiter_len);
	if (!next)
		return -EINVAL;
	part.data = next == m->at ? next : m->at + 2;
	part.len = (size_t)(next - part.data);
	m->at = next + 2;
	*ret = part;
	return 1;
}
