/* SPDX-License-Identifier: Apache-2.0 */
/* Strict parsing of what people and programs write. The whole text must match: no leading space, no
 * trailing rest, no sign where none is allowed, overflow is -ERANGE, anything else wrong is
 * -EINVAL. Outputs are untouched on failure. Pure, thread-safe. */
#ifndef PROFD_BASE_PARSE_H
#define PROFD_BASE_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret) must_use;
int parse_double(const char *text, double min, double max, double *ret) must_use;
/* true false yes no on off 1 0 */
int parse_bool(const char *text, bool *ret) must_use;
/* "64M", "2G", "512K", "100": bytes, binary multiples. */
int parse_size_bytes(const char *text, uint64_t *ret) must_use;
/* "500ms", "10s", "5m", "24h", "7d": nanoseconds. A bare number is refused. */
int parse_duration_ns(const char *text, uint64_t *ret) must_use;
/* [A-Za-z0-9._-]{1,64}: names of tenants, baselines' tags, features. */
bool parse_is_name(const char *text);
/* Valid UTF-8 without NUL in @len bytes. */
bool parse_is_utf8(const char *text, size_t len);

#endif
