// SPDX-License-Identifier: Apache-2.0
#include "api/render/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/cleanup.h"

struct step {
	double size;
	const char *name;
};

static void scaled(int64_t value, const struct step *steps, unsigned count, char *out)
{
	double amount = (double)value;
	unsigned i = 0;

	while (i + 1 < count && fabs(amount) >= steps[i + 1].size)
		i++;
	amount /= steps[i].size;
	(void)snprintf(out, TEXT_VALUE_SIZE, "%.*f %s",
		       fabs(amount) >= 100 ? 0 : fabs(amount) >= 10 ? 1 : 2, amount, steps[i].name);
}

void text_value(int64_t value, const char *unit, char out[TEXT_VALUE_SIZE])
{
	static const struct step times[] = {
		{ 1, "ns" }, { 1e3, "µs" }, { 1e6, "ms" }, { 1e9, "s" }, { 60e9, "min" }, { 3600e9, "h" },
	};
	static const struct step sizes[] = {
		{ 1, "B" }, { 1024, "KiB" }, { 1048576, "MiB" }, { 1073741824, "GiB" },
	};

	if (strcmp(unit, "nanoseconds") == 0)
		scaled(value, times, ARRAY_SIZE(times), out);
	else if (strcmp(unit, "bytes") == 0)
		scaled(value, sizes, ARRAY_SIZE(sizes), out);
	else
		(void)snprintf(out, TEXT_VALUE_SIZE, "%" PRId64, value);
}
