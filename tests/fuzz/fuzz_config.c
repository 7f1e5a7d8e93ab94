// SPDX-License-Identifier: Apache-2.0
/* Configuration files: any text is taken or refused with a sentence, and what is taken lies in its
 * ranges. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/io.h"
#include "agent/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct config *c)
{
	if (c->limits.url_bytes < 256 || !c->limits.connections || c->limits.connections > 65536 ||
	    !c->limits.requests_per_second || c->continuous_span_ns < 60000000000u ||
	    !c->retention_days || c->retention_days > 3650 || c->export_count > 16 ||
	    c->tenant_count > CONFIG_LIST_MAX || c->service_count > CONFIG_LIST_MAX)
		abort();
	for (unsigned i = 0; i < c->export_count; i++)
		if (strchr(c->exports[i].name, '/'))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_close int fd = io_memfd("fuzz-config", 0);
	struct config config = { 0 };
	struct err err = { 0 };
	char path[64];

	if (fd < 0 || io_write_all(fd, data, size) < 0)
		abort();
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (config_load(&config, path, true, &err) == 0) {
		check(&config);
		(void)!config_check(&config, &err);
	} else if (!err.code || !err.text[0]) {
		abort();
	}
	config_deinit(&config);
	return 0;
}
