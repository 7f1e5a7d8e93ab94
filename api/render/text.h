/* SPDX-License-Identifier: Apache-2.0 */
/* Values for people: three significant digits and a unit that fits. */
#ifndef PROFD_API_RENDER_TEXT_H
#define PROFD_API_RENDER_TEXT_H

#include <stdint.h>

#define TEXT_VALUE_SIZE 48

/* @unit: nanoseconds, bytes or count. */
void text_value(int64_t value, const char *unit, char out[TEXT_VALUE_SIZE]);

#endif
