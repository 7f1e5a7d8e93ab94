/* SPDX-License-Identifier: Apache-2.0 */
/* The libmicrohttpd side: listeners, one thread per connection, limits and deadlines; everything
 * about a request itself is api_dispatch(). */
#ifndef PROFD_API_SERVER_H
#define PROFD_API_SERVER_H

#include "api/api_internal.h"

struct server;

/* Serves on the listeners of api->options, whose descriptors it takes over on success. */
int server_start(struct api *api, struct server **ret, struct err *err) must_use;
/* Accepts no connection any more: they wait in the listening sockets for the next server. Answers
 * the requests of those that it has, for at most @grace_ns, then closes them. */
void server_stop(struct server *server, uint64_t grace_ns);

#endif
