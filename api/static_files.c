// SPDX-License-Identifier: Apache-2.0
#include "api/static_files.h"

#include <errno.h>
#include <string.h>

#include "api/assets.h"
#include "api/yaml_json.h"

static const struct {
	const char *name, *content_type, *data;
} files[] = {
	{ "plain.css", "text/css; charset=utf-8", asset_home_plain_css },
};

int handle_static_file(struct http_call *call)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		if (strcmp(files[i].name, call->request->path[0]) != 0)
			continue;
		buf_add_str(&call->answer->body, files[i].data);
		call->answer->content_type = files[i].content_type;
		return 0;
	}
	return err_set(call->err, ENOENT, "NotFound", NULL, "there is no such file");
}

int handle_openapi(struct http_call *call)
{
	call->answer->content_type = "application/json";
	return yaml_to_json(asset_openapi_yaml, &call->answer->body, call->err);
}
