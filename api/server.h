/* SPDX-License-Identifier: Apache-2.0 */
/* The libmicrohttpd side: listeners, one thread per connection, limits and deadlines; everything about a
 * request itself is api_dispatch(). */
#ifndef PROFD_API_SERVER_H
#define PROFD_API_SERVER_H

#include "api/api_internal.h"

struct server;

/* Serves on the listeners of api->options, whose descriptors it takes over on success. */
int server_start(struct api *api, struct server **ret, struct err *err) must_use;
/* No new connection; waits at most @grace_ns for answers under way, then closes. */
void server_stop(struct server *server, uint64_t grace_ns);

#endif
