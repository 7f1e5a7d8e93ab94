/* SPDX-License-Identifier: Apache-2.0 */
/* The real HTTP server over real sessions and a real store, fed by hand; and a client that sends
 * exactly the bytes it is given. Services: `web` (processes 101, 102; stack 1 = main > a, 2 = main
 * > b) and `db`. */
#ifndef TESTS_SUPPORT_HTTP_FIXTURE_H
#define TESTS_SUPPORT_HTTP_FIXTURE_H

#include <cjson/cJSON.h>

#include "agent/session/session.h"
#include "api/api.h"
#include "tests/support/fake_feed.h"

struct http_fixture {
	char dir[64];
	char socket_path[96];
	struct fake_feed feed;
	struct store *store;
	struct sessions *sessions;
	struct api_options options; /* set members before http_fixture_open() */
	uint64_t build_budget_ns;   /* likewise; 0 = as it is */
	struct api *api;
	unsigned port;
};

struct http_reply {
	unsigned status;	/* 0 = the server closed without an answer */
	char *text;		/* whole reply, owned */
	const char *headers, *body; /* inside text */
	size_t body_len;
	double seconds;		/* until the end of the connection */
	cJSON *json;		/* of the body, NULL if it is none; owned */
};

void http_fixture_open(struct http_fixture *f);
void http_fixture_close(struct http_fixture *f);
/* The same for a group of tests: what setup finds in @state is opened, with nothing there a new
 * one. */
int http_fixture_setup(void **state);
int http_fixture_teardown(void **state);
/* Stops the API and starts it again over the same sessions and store. */
void http_fixture_restart(struct http_fixture *f);

/* Sends @len bytes and reads until the server closes. */
struct http_reply http_send(struct http_fixture *f, const void *bytes, size_t len);
/* One request; @headers is text of whole lines ending in \r\n or "". */
struct http_reply http_request(struct http_fixture *f, const char *method, const char *target,
			       const char *headers, const char *body);
/* The same over the Unix socket. */
struct http_reply http_request_local(struct http_fixture *f, const char *method, const char *target,
				     const char *headers, const char *body);
void http_reply_free(struct http_reply *reply);
/* Value of a response header in a static buffer, NULL if absent. */
const char *http_reply_header(const struct http_reply *reply, const char *name);
/* Member by path "a.b.0.c"; fails the test when it is absent. */
const cJSON *http_member(const struct http_reply *reply, const char *path);
const char *http_text(const struct http_reply *reply, const char *path);
double http_number(const struct http_reply *reply, const char *path);

/* A finished CPU session of `web` with 10 samples of stack 1 and 30 of stack 2. */
void http_make_session(struct http_fixture *f, const char *tenant, char id[SESSION_ID_SIZE]);
/* The same of web or db. */
void http_make_session_of(struct http_fixture *f, const char *tenant, const char *service,
			  char id[SESSION_ID_SIZE]);

#endif
