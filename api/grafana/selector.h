/* SPDX-License-Identifier: Apache-2.0 */
/* Label selectors, `{service_name="x", thread=~"worker-.*"}`, as Prometheus and Pyroscope write
 * them: matchers =, !=, =~ and !~ that must all hold. A label that something does not have is the
 * empty text. Regular expressions match the whole value. They come from outside: their length and
 * nesting, the steps of one match and the time of all matches of a selector are bounded. Not
 * thread-safe. */
#ifndef PROFD_API_GRAFANA_SELECTOR_H
#define PROFD_API_GRAFANA_SELECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

#define SELECTOR_MATCHERS_MAX 32u
#define SELECTOR_PATTERN_MAX  1024u /* bytes of a regular expression */

enum matcher_kind { MATCHER_EQUAL, MATCHER_NOT_EQUAL, MATCHER_REGEX, MATCHER_NOT_REGEX };

struct matcher {
	char *name, *value; /* owned */
	enum matcher_kind kind;
	void *pattern;	   /* compiled, owned; NULL = no regular expression */
	struct seen *seen; /* verdicts of the values that came before, owned */
};

struct label_selector {
	struct matcher items[SELECTOR_MATCHERS_MAX];
	size_t count;
	uint64_t spent_ns; /* by its regular expressions */
};

/* An empty text and `{}` select everything. -EINVAL with InvalidParam, @field and what is wrong at
 * which byte. */
int selector_read(const char *text, const char *field, struct label_selector *ret, struct err *err)
	must_use;
void label_selector_deinit(struct label_selector *selector);

/* Does @value pass? 1 or 0; -EINVAL when the regular expression takes too long. */
int matcher_test(struct label_selector *selector, struct matcher *matcher, const char *value,
		 struct err *err) must_use;

#endif
