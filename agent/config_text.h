/* SPDX-License-Identifier: Apache-2.0 */
/* Parsers of values that keys of the configuration may have. Pure. */
#ifndef PROFD_CONFIG_TEXT_H
#define PROFD_CONFIG_TEXT_H

#include <stdbool.h>

/* NULL: @value may stand there. Else what is expected, for a person: "HS256, RS256, ES256 or
 * EdDSA". */
const char *config_text_expected(const char *section, const char *key, const char *value);
/* @value as shown to people: without parts that may be a password. */
const char *config_text_shown(const char *section, const char *key, const char *value);
/* http:// or https://, a host, no blanks. */
bool config_text_is_url(const char *value);
/* A port, or a pattern of its decimal digits as 80*. */
bool config_text_is_port_pattern(const char *value);

#endif
