// SPDX-License-Identifier: Apache-2.0
/* Chooses the engine by the store's address. */
#include <errno.h>
#include <string.h>

#include "agent/base/buf.h"
#include "agent/base/text.h"
#include "agent/store/store.h"
#include "agent/store/store_engine.h"

static const char clickhouse_scheme[] = "clickhouse:";

static bool is_clickhouse(const char *url)
{
	return url && text_begins(url, clickhouse_scheme);
}

/* The folder of an embedded store, NULL: @url is of no store that is known. */
static const char *folder_of(const char *data_dir, const char *url)
{
	static const char sqlite_scheme[] = "sqlite:";

	if (!url || !*url)
		return data_dir;
	if (!text_begins(url, sqlite_scheme))
		return NULL;
	return url[strlen(sqlite_scheme)] ? url + strlen(sqlite_scheme) : data_dir;
}

int store_peek(const char *data_dir, const char *url, const char *kind)
{
	const char *path = folder_of(data_dir, url);

	if (is_clickhouse(url))
		return -EOPNOTSUPP;
	return path ? sqlite_engine_peek(path, kind) : -EINVAL;
}

static int open_engine(struct store *store, const char *data_dir, const char *url, const char *host,
		       struct err *err)
{
	const char *path = folder_of(data_dir, url);

	if (is_clickhouse(url))
		return clickhouse_engine_open(data_dir, url, host, &store->ops, &store->engine, err);
	/* No more of it: it may hold a password. */
	if (!path)
		return err_set(err, EINVAL, NULL, "url",
			       "store url: only sqlite:PATH and clickhouse://… are known");
	return sqlite_engine_open(path, &store->ops, &store->engine, err);
}

int store_open(const char *data_dir, const char *url, const char *host, struct store **ret,
	       struct err *err)
{
	struct store *store = calloc(1, sizeof(*store));
	int rc;

	if (!store)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	rc = open_engine(store, data_dir, url, host, err);
	if (rc < 0) {
		free(store);
		return rc;
	}
	*ret = store;
	return 0;
}

int store_open_standby(const char *data_dir, struct store **ret, struct err *err)
{
	cleanup_buf struct buf path = { 0 };
	int rc;

	buf_printf(&path, "%s/standby", data_dir);
	buf_add_char(&path, '\0');
	if (path.error)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	rc = store_open(path.data, NULL, "", ret, err);
	if (rc == 0)
		(*ret)->is_standby = true;
	return rc;
}
