/* SPDX-License-Identifier: Apache-2.0 */
/* A session layer for tests: a feed made by hand, a store in a temporary directory. A call that
 * fails ends the test. */
#ifndef TESTS_SESSION_FIXTURE_H
#define TESTS_SESSION_FIXTURE_H

#include <sqlite3.h>

#include "agent/session/history.h"
#include "agent/session/sessions_run.h"
#include "tests/support/fake_feed.h"

#define PERIOD_99 (1000000000ull / 99)

struct session_fixture {
	char dir[64];
	struct fake_feed feed;
	struct store *store;
	struct sessions *sessions;
	struct sessions_options options;
};

/* cmocka's; *state is the fixture, with its layer open and the processes of session_fixture.c
 * known. */
int session_fixture_setup(void **state);
int session_fixture_teardown(void **state);

/* A life of the server: store and sessions by f->options. */
void session_fixture_open(struct session_fixture *f);
void session_fixture_close(struct session_fixture *f);
/* Until @service can be profiled. */
void session_fixture_wait_known(struct session_fixture *f, const char *service);
/* The same of a type other than cpu. */
void session_fixture_wait_type(struct session_fixture *f, const char *service,
			       enum profile_type type);

/* A CPU profile at 99 Hz for the default tenant. */
struct session_request session_fixture_request(const char *service, uint32_t duration_s);
/* Starts it and, unless it waits for a process, waits until it samples. */
void session_fixture_start(struct session_fixture *f, const struct session_request *request,
			   char id[SESSION_ID_SIZE]);
/* The caller releases it. */
struct session_info session_fixture_get(struct session_fixture *f, const char *id);
/* Ends it early and waits for the result. */
void session_fixture_stop(struct session_fixture *f, const char *id);
/* Another connection to the store's records, which nothing can be written to until the caller
 * closes it. */
sqlite3 *session_fixture_lock_records(struct session_fixture *f);
/* The server is killed: session_fixture_open() brings it back. */
void session_fixture_kill(struct session_fixture *f);
/* Continuous profiling of CPU time, kept for a week. */
struct continuous_setting session_fixture_setting(const char *tenant, const char *service,
						  uint32_t rate);
void session_fixture_put(struct session_fixture *f, const struct continuous_setting *setting);
/* Until the collector is asked for @rate. */
void session_fixture_wait_rate(struct session_fixture *f, uint32_t rate);
/* Sessions and spans of @service; the caller releases them. */
struct session_list session_fixture_list(struct session_fixture *f, const char *tenant,
					 const char *service);
/* Until they hold @samples. */
void session_fixture_wait_samples(struct session_fixture *f, const char *tenant,
				  const char *service, uint64_t samples);
/* @count samples of @stack now. */
void session_fixture_samples(struct session_fixture *f, uint32_t proc, uint64_t stack, int count);
/* "web" of owner a at 100 Hz and of b at 20: @count samples of 10 ms, a microsecond apart. Returns
 * by how much the number that b sees may lie off a fifth of them. */
double session_fixture_two_owners(struct session_fixture *f, unsigned count);
/* Self value of a function, -1 if the profile has none of that name. */
int64_t session_fixture_self(const struct profile *p, const char *function);

#endif
