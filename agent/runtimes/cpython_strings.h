/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of CPython's strings (PEP 393). Pure; every value is hostile. Source: CPython's
 * Include/cpython/unicodeobject.h. */
#ifndef PROFD_RUNTIMES_CPYTHON_STRINGS_H
#define PROFD_RUNTIMES_CPYTHON_STRINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

/* A compact string object, as its head says: the characters follow the head. */
struct cpython_string {
	uint64_t chars;
	uint8_t width; /* bytes a character: 1, 2, 4 */
	bool is_ascii;
};

/* Reads the head's words: @length in characters, @state with the bits of kind, compact and ascii.
 * -EINVAL: no compact string, or more characters than an object can have. */
int cpython_string_head(uint64_t length, uint32_t state, struct cpython_string *ret) must_use;

#endif
