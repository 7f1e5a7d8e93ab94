/* SPDX-License-Identifier: Apache-2.0 */
/* OTLP profiles in JSON, as the bytes that otlp_read() takes. Sources:
 * opentelemetry.io/docs/specs/otlp "JSON Protobuf Encoding" (lowerCamelCase names only, hexadecimal
 * trace and span ids, unknown names are ignored), protobuf.dev/programming-guides/json (64-bit
 * numbers as numbers or strings, null is absent). Pure. */
#ifndef PROFD_API_RECEIVE_OTLP_JSON_H
#define PROFD_API_RECEIVE_OTLP_JSON_H

#include <stddef.h>

#include "agent/base/buf.h"
#include "agent/base/err.h"

/* Writes the ExportProfilesServiceRequest that the @len bytes at @text mean to the empty @ret, of
 * @ret->max bytes (1 to 256 MiB) at most. Fields that otlp_read() does not look at are left out.
 * -EINVAL with InvalidBody and the field; -E2BIG with BodyTooLarge; -ENOMEM. */
int otlp_json_read(const char *text, size_t len, struct buf *ret, struct err *err) must_use;

#endif
