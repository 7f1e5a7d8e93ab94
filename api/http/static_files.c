// SPDX-License-Identifier: Apache-2.0
#include "api/http/static_files.h"

#include <errno.h>
#include <string.h>

#include "api/http/assets.h"

static const char *content_type(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot && strcmp(dot, ".css") == 0 ? "text/css; charset=utf-8"
					       : "text/javascript; charset=utf-8";
}

/* "FILE" or "FOLDER/FILE" against a name of the list. */
static bool is_named(const struct http_request *request, const char *path)
{
	size_t len = strlen(request->path[0]);

	if (!request->path[1][0])
		return strcmp(path, request->path[0]) == 0;
	return strncmp(path, request->path[0], len) == 0 && path[len] == '/' &&
	       strcmp(path + len + 1, request->path[1]) == 0;
}

int handle_static_file(struct http_call *call)
{
	for (const struct ui_file *file = ui_files; file->path; file++) {
		if (!is_named(call->request, file->path))
			continue;
		buf_add_str(&call->answer->body, file->data);
		call->answer->literal = file->data;
		call->answer->content_type = content_type(file->path);
		return 0;
	}
	return err_set(call->err, ENOENT, "NotFound", NULL, "there is no such file");
}

int handle_openapi(struct http_call *call)
{
	buf_add_str(&call->answer->body, asset_openapi_json);
	call->answer->literal = asset_openapi_json;
	call->answer->content_type = "application/json";
	return 0;
}
