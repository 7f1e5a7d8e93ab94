/* SPDX-License-Identifier: Apache-2.0 */
/* Why something failed, for a person: filled next to the negative errno that a function returns,
 * wherever the reason must reach a user (options, config, HTTP, load and attach). Lives on the
 * caller's stack, allocates nothing. */
#ifndef PROFD_BASE_ERR_H
#define PROFD_BASE_ERR_H

#include "agent/base/cleanup.h"

struct err {
	int code;	      /* positive errno, 0 = nothing reported */
	const char *word;     /* the API's `error_code`, a string literal; NULL = by errno */
	char field[64];	      /* name of the offending field or key, "" if none */
	char text[384];	      /* one sentence: what failed and the remedy; no trailing newline */
	unsigned retry_after_s; /* seconds, 0 = no hint */
};

/* Records and returns -@code, so that detection and return are one statement:
 *   return err_set(err, EINVAL, "InvalidParam", "durationSeconds", "must be 1…3600, got %ld", n);
 * @err may be NULL. @word and @field may be NULL. The text is cut at the buffer, never overrun. */
int err_set(struct err *err, int code, const char *word, const char *field, const char *fmt, ...)
	printf_like(5, 6);

#endif
