// SPDX-License-Identifier: Apache-2.0
#include "tests/support/store_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "tests/support/clickhouse.h"

static const char *embedded_url(void)
{
	return "sqlite:";
}

/* The engines of the store. Every test of the interface runs with each of them. A new engine is a
 * row here. */
static const struct engine {
	const char *name;
	const char *(*url)(void); /* for store_open(), of an empty store in a folder of its own */
	enum clickhouse_engine clickhouse;
} engines[] = {
	{ "sqlite", embedded_url, CLICKHOUSE_DEBIANS },
	{ "clickhouse 18.16", clickhouse_fresh_url, CLICKHOUSE_DEBIANS },
	{ "clickhouse current", clickhouse_fresh_url, CLICKHOUSE_CURRENT },
};
static const struct engine *engine = engines;

static void open_store(struct store_fixture *f)
{
	struct err err = { 0 };

	if (store_open(f->dir, f->url, "", &f->store, &err) < 0)
		fail_msg("%s", err.text);
}

void store_fixture_open_at(struct store_fixture *f, const char *url)
{
	strcpy(f->dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/profd-store-XXXXXX" :
						       "/tmp/profd-store-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->url, sizeof(f->url), "%s", url);
	open_store(f);
}

void store_fixture_open(struct store_fixture *f)
{
	store_fixture_open_at(f, engine->url());
}

void store_fixture_reopen(struct store_fixture *f)
{
	store_close(f->store);
	f->store = NULL;
	open_store(f);
}

void store_fixture_close(struct store_fixture *f)
{
	char command[128];

	store_close(f->store);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", f->dir);
	assert_int_equal(system(command), 0);
}

int store_fixture_run_on_engines(const struct CMUnitTest *tests, size_t count)
{
	int failed = 0;

	for (engine = engines; engine < engines + ARRAY_SIZE(engines); engine++) {
		clickhouse_use(engine->clickhouse);
		failed += _cmocka_run_group_tests(engine->name, tests, count, NULL, NULL);
	}
	engine = engines;
	return failed;
}

int store_fixture_run_on_clickhouse(const struct CMUnitTest *tests, size_t count)
{
	int failed = 0;

	for (size_t i = 1; i < ARRAY_SIZE(engines); i++) {
		clickhouse_use(engines[i].clickhouse);
		failed += _cmocka_run_group_tests(engines[i].name, tests, count, NULL, NULL);
	}
	return failed;
}

int store_fixture_setup(void **state)
{
	struct store_fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	store_fixture_open(f);
	*state = f;
	return 0;
}

int store_fixture_teardown(void **state)
{
	store_fixture_close(*state);
	free(*state);
	return 0;
}
