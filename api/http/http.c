// SPDX-License-Identifier: Apache-2.0
#include "api/http/http.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "agent/base/text.h"
#include "agent/base/ulid.h"

bool http_is_connect(const char *target)
{
	return text_begins(target, "/querier.v1.") || text_begins(target, "/push.v1.");
}

bool http_is_otlp(const char *target)
{
	return text_begins(target, "/v1development/");
}

/* Paths that clients of Pyroscope call. */
static bool takes_scope(const char *target)
{
	return http_is_connect(target) || http_is_otlp(target) || text_begins(target, "/ingest");
}

const char *http_tenant_header(const struct http_request *request, const char **ret_field)
{
	const char *tenant = http_header(request, "X-Tenant-ID");

	*ret_field = "X-Tenant-ID";
	if (tenant || !takes_scope(request->target))
		return tenant;
	*ret_field = "X-Scope-OrgID";
	return http_header(request, *ret_field);
}

void http_request_id(const char *given, char out[HTTP_REQUEST_ID_SIZE])
{
	size_t len = given ? strlen(given) : 0;
	bool plain = len > 0 && len < HTTP_REQUEST_ID_SIZE;

	for (size_t i = 0; plain && i < len; i++)
		plain = given[i] > 0x20 && given[i] < 0x7f && given[i] != '"' && given[i] != '\\';
	if (plain)
		memcpy(out, given, len + 1);
	else
		ulid_make(clock_realtime_ns(), out);
}

void http_answer_drop(struct http_answer *answer)
{
	buf_deinit(&answer->body);
	if (answer->has_file)
		(void)close(answer->file_fd);
	if (answer->files)
		atomic_fetch_sub(answer->files, answer->file_bytes);
	answer->has_file = false;
	answer->file_bytes = 0;
}

void http_answer_deinit(struct http_answer *answer)
{
	http_answer_drop(answer);
	*answer = (struct http_answer){ 0 };
}

/* File systems without unnamed files leave memory that can be swapped. */
static int open_file(const char *folder)
{
	int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	return fd >= 0 ? fd : io_memfd("profd-answer", 0);
}

/* Moves the body written so far into memory. */
static int move_to_memory(struct http_answer *answer)
{
	cleanup_close int fd = io_memfd("profd-answer", 0);
	off_t at = 0;

	if (fd < 0)
		return fd;
	while ((uint64_t)at < answer->file_bytes) {
		ssize_t copied = sendfile(fd, answer->file_fd, &at, answer->file_bytes - (uint64_t)at);

		if (copied <= 0)
			return copied < 0 ? -errno : -EIO;
	}
	(void)close(answer->file_fd);
	answer->file_fd = take_fd(&fd);
	return 0;
}

/* A full disk must not prevent answers: they go to memory then. */
static int write_somewhere(struct http_answer *answer, const void *data, size_t len)
{
	int rc = io_write_all(answer->file_fd, data, len);

	if (rc != -ENOSPC && rc != -EDQUOT)
		return rc;
	rc = move_to_memory(answer);
	return rc == 0 ? io_write_all(answer->file_fd, data, len) : rc;
}

static int write_file(struct buf_sink *sink, const void *data, size_t len)
{
	struct http_answer *answer =
		(struct http_answer *)(void *)((char *)sink - offsetof(struct http_answer, sink));
	int rc;

	if (answer->file_bytes + len > HTTP_ANSWER_MAX)
		return -EFBIG;
	if (!answer->has_file) {
		answer->file_fd = open_file(answer->folder);
		if (answer->file_fd < 0)
			return answer->file_fd;
		answer->has_file = true;
	}
	if (atomic_fetch_add(answer->files, len) + len > HTTP_FILES_MAX) {
		atomic_fetch_sub(answer->files, len);
		return -EBUSY;
	}
	rc = write_somewhere(answer, data, len);
	answer->file_bytes += len;
	answer->file_hash = hash_combine(answer->file_hash, hash_bytes(data, len, 7));
	return rc;
}

void http_answer_stream(struct http_answer *answer, const char *folder, _Atomic uint64_t *files)
{
	if (!folder)
		return;
	answer->folder = folder;
	answer->files = files;
	answer->sink = (struct buf_sink){ write_file, HTTP_ANSWER_HELD };
	answer->body.sink = &answer->sink;
}

int http_answer_end(struct http_answer *answer)
{
	if (answer->has_file)
		buf_flush(&answer->body);
	answer->body.sink = NULL;
	return answer->body.error;
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
