// SPDX-License-Identifier: Apache-2.0
#include "agent/base/err.h"

#include <stdarg.h>
#include <string.h>

int err_set(struct err *err, int code, const char *word, const char *field, const char *fmt, ...)
{
	va_list args;

	if (!err)
		return -code;
	*err = (struct err){ .code = code, .word = word };
	if (field)
		(void)snprintf(err->field, sizeof(err->field), "%s", field);
	va_start(args, fmt);
	(void)vsnprintf(err->text, sizeof(err->text), fmt, args);
	va_end(args);
	return -code;
}
