// SPDX-License-Identifier: Apache-2.0
/* The owners of a series of minutes, as text: ",tenant:rate,tenant:rate". */
#include <stdlib.h>
#include <string.h>

#include "agent/session/continuous/continuous.h"

void owners_add(char owners[CONTINUOUS_OWNERS], const char *tenant, uint32_t rate)
{
	size_t len = strlen(owners);
	char entry[96], known[80];

	(void)snprintf(known, sizeof(known), ",%s:", tenant);
	if (strstr(owners, known))
		return;
	(void)snprintf(entry, sizeof(entry), "%s%s:%u,", len ? "" : ",", tenant, rate);
	if (len + strlen(entry) < CONTINUOUS_OWNERS)
		strcpy(owners + len, entry);
}

uint32_t owners_rate(const char *owners, const char *tenant, uint32_t *ret_highest)
{
	uint32_t own = 0, highest = 0;

	while (*owners == ',' && owners[1]) {
		const char *name = owners + 1, *colon = strchr(name, ':');
		uint32_t rate;

		if (!colon)
			break;
		rate = (uint32_t)strtoul(colon + 1, NULL, 10);
		if (rate > highest)
			highest = rate;
		if (strlen(tenant) == (size_t)(colon - name) &&
		    memcmp(tenant, name, (size_t)(colon - name)) == 0)
			own = rate;
		owners = colon + strcspn(colon, ",");
	}
	*ret_highest = highest;
	return own;
}
