/* SPDX-License-Identifier: Apache-2.0 */
/* Parses query strings strictly. A route lists its parameters with type and range. Any other
 * parameter, a value of the wrong form, bad percent-encoding, control bytes, bad UTF-8 or a
 * parameter given twice is a 400 that names the field. Pure. */
#ifndef PROFD_API_QUERY_H
#define PROFD_API_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

#define QUERY_PARAMS_MAX 24
#define QUERY_VALUE_MAX	 4096 /* bytes of one decoded value */

enum query_type {
	QUERY_TEXT,	/* min…max bytes, max 0 = QUERY_VALUE_MAX */
	QUERY_UINT,	/* min…max */
	QUERY_NUMBER,	/* min…max, decimals allowed */
	QUERY_BOOL,
	QUERY_TIME,	/* RFC 3339, Unix seconds, `now`, `now-1h` or `-1h` */
	QUERY_DURATION, /* min…max seconds, written `5m` */
	QUERY_WORD,	/* one of the blank-separated @words */
	QUERY_WORDS,	/* some of them, comma-separated */
	QUERY_PROFILE_TYPE,
};

enum query_flag {
	QUERY_REQUIRED = 1,
	QUERY_REPEATED = 2,
	QUERY_BOUND = 4, /* says which data is meant: covered by a link's signature */
	QUERY_EMPTY = 8, /* a word may be empty, as if it were not given */
};

struct query_spec { /* a list ends with a NULL name */
	const char *name;
	const char *alias; /* second accepted spelling, or NULL */
	enum query_type type;
	uint64_t min, max;
	const char *words;
	unsigned flags; /* enum query_flag */
	const char *about; /* one line for people */
};

struct query_value {
	const struct query_spec *spec;
	char *text; /* decoded, owned */
	uint64_t number; /* QUERY_UINT, QUERY_BOOL, QUERY_TIME (ns), QUERY_DURATION (ns), type */
	double real;
};

struct query {
	struct query_value values[QUERY_PARAMS_MAX];
	unsigned count;
	const char *raw; /* without '?', borrowed; "" if none */
};

void query_deinit(struct query *query);
/* Parses @raw (after '?', may be NULL) by @specs (may be NULL = no parameters). @now_ns is the
 * realtime that relative times count from. -EINVAL with InvalidParam and the field in @err; @ret
 * untouched then. */
int query_parse(const char *raw, const struct query_spec *specs, uint64_t now_ns, struct query *ret,
		struct err *err) must_use;

/* Values by canonical name; @otherwise when the parameter was not given. */
bool query_has(const struct query *query, const char *name);
const char *query_text(const struct query *query, const char *name, const char *otherwise);
uint64_t query_uint(const struct query *query, const char *name, uint64_t otherwise);
double query_number(const struct query *query, const char *name, double otherwise);
bool query_bool(const struct query *query, const char *name, bool otherwise);
/* Puts @text, of at most QUERY_VALUE_MAX bytes, in the place of a value that was given. */
void query_replace(struct query *query, const char *name, const char *text);
/* The @index-th value of a repeated parameter, NULL beyond the last. */
const char *query_nth(const struct query *query, const char *name, unsigned index);

/* Percent-decodes @len bytes ('+' is a blank only in queries). -EINVAL: bad escape, control byte,
 * NUL, bad UTF-8; -E2BIG: does not fit @size. */
int query_decode(const char *text, size_t len, bool plus_is_blank, char *out, size_t size) must_use;

/* True if @word stands in the blank-separated @list. */
bool query_word_in_list(const char *word, const char *list);

#endif
