// SPDX-License-Identifier: Apache-2.0
/* Turns of builds: one at a time, tenants in turn, nobody longer than asked for. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/session/core/build_turn.h"

#define ORDER_MAX 16

static struct build_turns turns;
static pthread_mutex_t order_lock = PTHREAD_MUTEX_INITIALIZER;
static char order[ORDER_MAX + 1]; /* first letters of tenants, as they got their turn */
static int building;

static void *build(void *tenant)
{
	struct err err = { 0 };

	assert_int_equal(build_turn_take(&turns, tenant, BUILD_TURN_FOREVER, &err), 0);
	(void)pthread_mutex_lock(&order_lock);
	assert_int_equal(building++, 0);
	order[strlen(order)] = *(const char *)tenant;
	building--;
	(void)pthread_mutex_unlock(&order_lock);
	build_turn_end(&turns);
	return NULL;
}

static unsigned count_waiting(void)
{
	unsigned count;

	(void)pthread_mutex_lock(&turns.lock);
	count = turns.is_taken ? build_turns_waiting(&turns) : 0;
	(void)pthread_mutex_unlock(&turns.lock);
	return count;
}

/* Starts a thread and returns when it waits. */
static pthread_t start(const char *tenant)
{
	unsigned before = count_waiting();
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, build, (void *)(uintptr_t)tenant), 0);
	while (count_waiting() == before)
		(void)usleep(1000);
	return thread;
}

static int setup(void **state)
{
	build_turns_init(&turns);
	memset(order, 0, sizeof(order));
	return 0;
}

static int teardown(void **state)
{
	build_turns_deinit(&turns);
	return 0;
}

/* Tenant a has asked for four builds before anybody else came. */
static void test_tenants_take_turns(void **state)
{
	static const char *const asked[] = { "a", "a", "a", "a", "b", "b", "c" };
	pthread_t threads[ARRAY_SIZE(asked)];
	struct err err = { 0 };

	assert_int_equal(build_turn_take(&turns, "x", 0, &err), 0);
	for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
		threads[i] = start(asked[i]);
	build_turn_end(&turns);
	for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
		(void)pthread_join(threads[i], NULL);
	assert_string_equal(order, "abcabaa");
}

static void test_nobody_waits_longer(void **state)
{
	struct err err = { 0 };

	assert_int_equal(build_turn_take(&turns, "a", 0, &err), 0);
	assert_int_equal(build_turn_take(&turns, "b", NS_PER_MS, &err), -EBUSY);
	assert_string_equal(err.word, "AgentBusy");
	assert_true(err.retry_after_s > 0);
	assert_int_equal(build_turns_waiting(&turns), 0);
	build_turn_end(&turns);
	assert_int_equal(build_turn_take(&turns, "b", 0, &err), 0);
	build_turn_end(&turns);
}

/* A long build lets others in between its parts, and goes on behind them. */
static void test_pass(void **state)
{
	struct err err = { 0 };
	pthread_t other;

	assert_int_equal(build_turn_take(&turns, "a", 0, &err), 0);
	assert_int_equal(build_turn_pass(&turns, "a", 0, &err), 0); /* nobody wants it */
	other = start("b");
	assert_int_equal(build_turn_pass(&turns, "a", BUILD_TURN_FOREVER, &err), 0);
	(void)pthread_join(other, NULL);
	assert_string_equal(order, "b");
	build_turn_end(&turns);
	assert_int_equal(build_turn_take(&turns, "b", 0, &err), 0);
	build_turn_end(&turns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_tenants_take_turns, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nobody_waits_longer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pass, setup, teardown),
	};

	return cmocka_run_group_tests_name("build turns", tests, NULL, NULL);
}
