/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses that answers carry. Absolute when a public address is configured, else an absolute
 * path: a Host header is never believed. Where the API is closed they are signed for an hour, so
 * that a browser can open them without a header. The signature is HMAC-SHA256 over tenant, path,
 * expiry and the parameters that name the data. Parameters that only choose a view of the data
 * (format, where, …) stay free. */
#ifndef PROFD_API_LINKS_H
#define PROFD_API_LINKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/session/session.h"
#include "api/http/router.h"

#define LINK_SIZE   2048
#define LINK_LIFE_S 3600

struct store;

struct links {
	struct store *store; /* borrowed; NULL: the secret lives with the process */
	pthread_rwlock_t lock; /* of the secret */
	uint8_t secret[32];
	uint64_t made_ns; /* realtime: of all hosts' that share a store the newest counts */
	pthread_mutex_t load_lock; /* one reads the store, others go on with what is known; taken
				      before lock */
	_Atomic uint64_t tried_ns; /* monotonic: the store was asked last */
};

/* Reads the secret, or makes and stores one. */
int links_init(struct links *links, struct store *store, struct err *err) must_use;
void links_deinit(struct links *links);

/* Page of the session's flame graph; returns @out. */
const char *link_flame_graph(struct api *api, const struct session_info *info,
			     char out[LINK_SIZE]);
struct history_window;
/* Flame graph of a merged window. */
const char *link_window(struct api *api, const struct history_window *window, char out[LINK_SIZE]);
/* Differential flame graph of the sides that this request's query names; "" when it would be too
 * long. */
const char *link_comparison(struct api *api, const struct http_request *request,
			    char out[LINK_SIZE]);
/* Whether exp, sig and tenant of the query open this request now; takes the tenant over. */
bool link_opens(struct api *api, struct http_request *request);

/* An opaque signed text for the cookie of the page, "" on failure; and back. */
#define TICKET_SIZE 384
int ticket_make(struct api *api, const char *text, char out[TICKET_SIZE]) must_use;
int ticket_read(struct api *api, const char *ticket, char *ret, size_t size) must_use;

/* POST /api/v1/links/rotate: all links and cookies given out end. */
http_handler_fn handle_rotate_links;

#endif
