/* SPDX-License-Identifier: Apache-2.0 */
/* profctl's HTTP client: one connection to the daemon over its Unix socket or a URL. */
#ifndef PROFCTL_CLIENT_H
#define PROFCTL_CLIENT_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"

CLEANUP_DEFINE(json, cJSON *, cJSON_Delete);

struct client;

struct client_options {
	const char *url;	/* NULL = Unix socket, else the default URL */
	const char *socket;	/* NULL = the default socket if it exists */
	const char *token_file; /* NULL = PROFD_TOKEN or none */
	const char *tenant;	/* NULL = none sent */
	bool for_people;	/* names in answers must not steer a terminal: see client_json() */
};

/* NULL after printing why (no memory, token file unreadable). */
struct client *client_create(const struct client_options *options);
void client_destroy(struct client *client);
CLEANUP_DEFINE(client, struct client *, client_destroy);

/* One request. @path begins with '/' and is already escaped; @body NULL = none.
 * @ret_body owned by the caller, NUL-terminated. Returns the HTTP status, or -errno after printing
 * why the daemon could not be reached. */
int client_request(struct client *client, const char *method, const char *path, const cJSON *body,
		   const char *accept, char **ret_body, size_t *ret_len) must_use;

/* true: the daemon refused the last request because a parameter or a value was wrong (HTTP 400). */
bool client_was_refused(const struct client *client);

/* Request for JSON: 0 and the answer, or -1 after printing the daemon's error (detail and remedy).
 * A 204 leaves *ret NULL. Names come from programs of others: where the answer is for people,
 * control characters and those that turn the direction of text are '?'. */
int client_json(struct client *client, const char *method, const char *path, const cJSON *body,
		cJSON **ret) must_use;
/* The same for @collection/@id, which is escaped. */
int client_item(struct client *client, const char *method, const char *collection, const char *id,
		cJSON **ret) must_use;
/* Writes the body of a GET into @fd as it arrives. @progress, if not NULL, gets the bytes so far
 * and in all (0 = not known). 0, or -1 after printing why. */
typedef void client_progress_fn(double done, double total);
int client_download(struct client *client, const char *path, int fd,
		    client_progress_fn *progress) must_use;
/* Text escaped for a query value or a path segment; owned by the caller, NULL without memory. */
char *client_escape(struct client *client, const char *text);
/* Adds "name=value", escaped, behind '?' or '&'; nothing for a NULL value. */
void client_add_parameter(struct client *client, struct buf *path, const char *name,
			  const char *value);
/* The prefix of paths that are shown to people: the URL, or "" for a socket. */
const char *client_address(const struct client *client);
/* Does the daemon run on this machine, as far as the address tells? */
bool client_is_local(const struct client *client);

#endif
