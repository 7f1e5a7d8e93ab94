/* SPDX-License-Identifier: Apache-2.0 */
/* The listening sockets, bound by the supervisor so that a server that restarts keeps its port. */
#ifndef PROFD_LISTENERS_H
#define PROFD_LISTENERS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

#define LISTENERS_ADDRESS_SIZE 64

/* Whether @listen is "ADDR:PORT" ("[::1]:8088", "127.0.0.1:0"; a name is not looked up). */
bool listeners_is_address(const char *listen);
/* -EINVAL malformed. */
int listeners_parse(const char *listen, struct sockaddr_storage *ret) must_use;
/* Binds such an address and listens.
 * @ret_address the address really bound, as ADDR:PORT
 * Errors: -EINVAL malformed, -EADDRINUSE, -EACCES, each with its remedy. Returns the descriptor.
 */
int listeners_tcp(const char *listen, char ret_address[LISTENERS_ADDRESS_SIZE], struct err *err)
	must_use;
/* Binds a Unix stream socket (mode 0660), making its folder (one level) and replacing a socket
 * nobody serves. -EADDRINUSE when somebody does. Returns the descriptor. */
int listeners_unix(const char *path, struct err *err) must_use;

#endif
