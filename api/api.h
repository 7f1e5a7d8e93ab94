/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP side of the server process: starts and stops the listeners; everything else is behind
 * the route table (router.h). Business logic lives in agent/; a handler parses, calls one function,
 * renders. */
#ifndef PROFD_API_API_H
#define PROFD_API_API_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/session/session.h"
#include "api/auth/jwt.h"

struct api;
struct push_receiver;
struct store;

/* A configured limit that is enforced elsewhere. */
struct api_limit {
	const char *name; /* [a-z_]+ */
	double value;
};

struct api_options {
	struct sessions *sessions; /* borrowed */
	struct store *store;	   /* borrowed; NULL = no keys, no signed links */
	struct api_jwt jwt;	   /* texts borrowed for the life of the API */
	const char *tls_certificate,
		*tls_key; /* PEM texts, borrowed until api_start() returns; NULL = no TLS */
	bool cleartext;		   /* without TLS also where others than this host reach the listener */
	int listen_fd;		   /* listening TCP socket, ownership passes on success */
	int socket_fd;		   /* listening Unix socket or -1, likewise */
	const char *public_url;	   /* borrowed for the life of the API; NULL = none */
	uint64_t body_bytes, url_bytes, header_bytes;
	uint64_t header_timeout_ns, body_timeout_ns, answer_timeout_ns;
	uint32_t connections;
	uint32_t requests_per_second, request_burst; /* of one address, and of one key */
	uint32_t received_per_second; /* profiles that programs of a tenant send */
	const struct api_limit
		*limits; /* of other parts, for /metrics; borrowed for the life of the API */
	unsigned limit_count;
	bool metrics_open;
	bool open_webhooks; /* the role profile may set one, not only admin */
	const struct push_receiver *receivers; /* borrowed for the life of the API; of push.h */
	unsigned receiver_count;
	const char *data_dir; /* for their spools */
	uint64_t span_ns;     /* of continuous profiling */
	const char *(*features)(void); /* lines of `profd --features` as of now, which are borrowed,
					* NULL = none; NULL likewise */
};

/* Checks keys, certificates and public_url as api_start() does, and starts nothing. -EINVAL with a
 * sentence in @err. */
int api_check(const struct api_options *options, struct err *err) must_use;
/* Checks whether api_start() would listen on @address. Keys are looked for in the store of
 * @data_dir and @store_url, which need not be open; a store that cannot be read counts as one with
 * keys. -EACCES with the same sentence as api_start(). */
int api_check_listener(const struct api_options *options, const struct sockaddr *address,
		       const char *store_url, struct err *err) must_use;
int api_start(const struct api_options *options, struct api **ret, struct err *err) must_use;
/* Stops accepting, finishes answers under way (at most @grace_ns), then frees. */
void api_stop(struct api *api, uint64_t grace_ns);

#endif
