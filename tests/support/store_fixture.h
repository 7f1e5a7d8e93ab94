/* SPDX-License-Identifier: Apache-2.0 */
/* A store in a folder of its own, of each engine behind agent/store/store.h. Failures of these
 * functions fail the test. */
#ifndef TESTS_SUPPORT_STORE_FIXTURE_H
#define TESTS_SUPPORT_STORE_FIXTURE_H

#include <stddef.h>

#include "agent/store/store.h"

struct CMUnitTest;

struct store_fixture {
	char dir[64]; /* below /tmp, or in memory where there is /dev/shm */
	char url[96];
	struct store *store;
};

void store_fixture_open(struct store_fixture *f);
void store_fixture_open_at(struct store_fixture *f, const char *url);
/* Closes the store and opens it again, as after a restart. */
void store_fixture_reopen(struct store_fixture *f);
/* Removes the folder. */
void store_fixture_close(struct store_fixture *f);

/* Runs @tests once on every engine; how many failed. Elsewhere the fixture opens the embedded one.
 */
int store_fixture_run_on_engines(const struct CMUnitTest *tests, size_t count);

/* Runs @tests once on each version of ClickHouse; how many failed. */
int store_fixture_run_on_clickhouse(const struct CMUnitTest *tests, size_t count);

/* cmocka's setup and teardown; *state is a struct store_fixture. */
int store_fixture_setup(void **state);
int store_fixture_teardown(void **state);

#endif
