/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the format of an answer: by `?format=`, else by the Accept header (RFC 9110 section
 * 12.5.1). Pure. */
#ifndef PROFD_API_NEGOTIATE_H
#define PROFD_API_NEGOTIATE_H

#include <stdbool.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "api/render/render.h"

/* @format or @accept may be NULL. Words: InvalidParam for an unknown format, NotAcceptable. */
int negotiate_format(const char *format, const char *accept, const struct render_format **ret,
		     struct err *err) must_use;

/* Whether a body may be sent as gzip: @accept_encoding, which may be NULL, names it and not with a
 * quality of 0 (section 12.5.3). */
bool negotiate_gzip(const char *accept_encoding);

#endif
