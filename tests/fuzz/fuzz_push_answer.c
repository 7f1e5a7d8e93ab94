// SPDX-License-Identifier: Apache-2.0
/* Answers of receivers: any bytes are read without harm, and the text for the log stays printable.
 */
#include <ctype.h>
#include <stdlib.h>

#include "api/push/push_http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct push_answer answer = { 0 };

	push_read_answer(data, size, &answer);
	if (answer.rejected > INT64_MAX)
		abort();
	for (const char *c = answer.text; *c; c++)
		if (!isprint((unsigned char)*c))
			abort();
	return 0;
}
