// SPDX-License-Identifier: Apache-2.0
#include "api/grafana/type_ids.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void type_id_parts(struct type_id id, const char *ret[5])
{
	const struct profile_type_info *info = profile_type_info(id.type);
	const struct profile_value_type *main_value = &info->values[info->value_index];

	ret[0] = info->metric;
	ret[1] = info->values[id.value].name;
	ret[2] = info->values[id.value].unit;
	ret[3] = info->period.name ? info->period.name : main_value->name;
	ret[4] = info->period.name ? info->period.unit : main_value->unit;
}

const char *type_id_text(struct type_id id, char out[TYPE_ID_SIZE])
{
	const char *parts[5];

	type_id_parts(id, parts);
	(void)snprintf(out, TYPE_ID_SIZE, "%s:%s:%s:%s:%s", parts[0], parts[1], parts[2], parts[3],
		       parts[4]);
	return out;
}

static bool is_type(const struct profile_type_info *info, const char *name)
{
	return strcmp(name, info->metric) == 0 || strcmp(name, info->word) == 0;
}

/* Cuts @text at its colons; how many parts there are. */
static unsigned cut(char *text, const char *parts[6])
{
	unsigned count = 0;
	char *rest = text;

	while (rest && count < 6)
		parts[count++] = strsep(&rest, ":");
	return rest ? 7 : count;
}

int type_id_parse(const char *text, struct type_id *ret)
{
	char copy[TYPE_ID_SIZE];
	const char *parts[6];
	unsigned count;

	if (strlen(text) >= sizeof(copy))
		return -EINVAL;
	strcpy(copy, text);
	count = cut(copy, parts);
	/* A sixth part says that values are differences, which they are. */
	if (count != 5 && (count != 6 || strcmp(parts[5], "delta") != 0))
		return -EINVAL;
	for (unsigned type = 0; type < PROFILE_TYPE_MAX; type++) {
		const struct profile_type_info *info = profile_type_info((enum profile_type)type);

		if (!is_type(info, parts[0]))
			continue;
		for (unsigned v = 0; v < info->value_count; v++) {
			if (strcmp(info->values[v].name, parts[1]) != 0 ||
			    strcmp(info->values[v].unit, parts[2]) != 0)
				continue;
			*ret = (struct type_id){ (enum profile_type)type, v };
			return 0;
		}
	}
	return -EINVAL;
}
