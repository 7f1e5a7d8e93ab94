// SPDX-License-Identifier: Apache-2.0
#include "api/links.h"

#include <stdio.h>
#include <string.h>

#include "api/api_internal.h"

const char *link_flame_graph(struct api *api, const struct session_info *info,
			     char out[LINK_SIZE])
{
	const char *base = api->options.public_url ? api->options.public_url : "";
	size_t len = strlen(base);

	while (len > 0 && base[len - 1] == '/')
		len--;
	(void)snprintf(out, LINK_SIZE, "%.*s/api/v1/observability/profiling/%s/flamegraph",
		       (int)(len < 512 ? len : 512), base, info->id);
	return out;
}
