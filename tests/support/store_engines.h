/* SPDX-License-Identifier: Apache-2.0 */
/* The engines behind agent/store/store.h: what a suite says of the interface holds for each of them. A new engine is a
 * row here. */
#ifndef TESTS_STORE_ENGINES_H
#define TESTS_STORE_ENGINES_H

#include <stddef.h>

struct store_engine_row {
	const char *name;
	const char *url; /* for store_open(), in a folder of its own */
};

static const struct store_engine_row store_engines[] = {
	{ "sqlite", "sqlite:" },
};

/* Of the group that runs now. */
static const struct store_engine_row *store_engine = store_engines;

/* Runs @tests on every engine; failures. */
#define run_on_every_engine(tests)                                                                 \
	({                                                                                         \
		int failed_ = 0;                                                                   \
		for (size_t i_ = 0; i_ < sizeof(store_engines) / sizeof(store_engines[0]); i_++) {   \
			store_engine = &store_engines[i_];                                         \
			failed_ += cmocka_run_group_tests_name(store_engine->name, tests, NULL, NULL);  \
		}                                                                                  \
		failed_;                                                                           \
	})

#endif
