/* SPDX-License-Identifier: Apache-2.0 */
/* Parses clickhouse://[user[:password]@]host:port/database[?cluster=NAME]. Pure. */
#ifndef PROFD_STORE_CLICKHOUSE_URL_H
#define PROFD_STORE_CLICKHOUSE_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

#define CLICKHOUSE_SCHEME     "clickhouse://"
#define CLICKHOUSE_TLS_PORT   8443
#define CLICKHOUSE_NAME_SIZE  256 /* bytes of a user's name, a password, a host, with the zero */
#define CLICKHOUSE_WORD_SIZE  65  /* of a database's name */
#define CLICKHOUSE_WHERE_SIZE (CLICKHOUSE_NAME_SIZE + 8)

struct clickhouse_url {
	char user[CLICKHOUSE_NAME_SIZE], password[CLICKHOUSE_NAME_SIZE]; /* decoded; "" = not given */
	char where[CLICKHOUSE_WHERE_SIZE]; /* host:port for messages; IPv6 in brackets */
	char database[CLICKHOUSE_WORD_SIZE]; /* [A-Za-z0-9_]+ */
	char cluster[CLICKHOUSE_WORD_SIZE];  /* [A-Za-z0-9_]+; "" = one server, no replicas */
	uint16_t port;
	bool tls; /* port 8443 */
};

/* Parses @text strictly: no path but the database, no query but the cluster. -EINVAL with a
 * sentence that names what is wrong, never the text itself, which may hold a password. @ret
 * untouched on failure. */
int clickhouse_url_parse(const char *text, struct clickhouse_url *ret, struct err *err) must_use;

#endif
