// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "api/api_internal.h"

static const uint16_t statuses[] = { 200, 202, 204, 303, 304, 400, 401, 403, 404, 405, 406,
				     408, 409, 413, 414, 415, 422, 429, 431, 500, 503 };

unsigned http_status_slot(unsigned status)
{
	for (unsigned i = 0; i < ARRAY_SIZE(statuses); i++)
		if (statuses[i] == status)
			return i;
	return ARRAY_SIZE(statuses);
}

unsigned http_status_of_slot(unsigned slot)
{
	return slot < ARRAY_SIZE(statuses) ? statuses[slot] : 0;
}

/* Refusals that are limits at work, by the word of the error. */
static const struct {
	const char *word, *limit;
} refusals[] = {
	{ "BodyTooLarge", "body_bytes" },
	{ "UriTooLong", "url_bytes" },
	{ "HeadersTooLarge", "header_bytes" },
	{ "RateLimited", "requests_per_second" },
	{ "TooManyProfiles", "received_per_second" },
	{ "TooManySessions", "running_sessions" },
	{ "AgentBusy", "running_sessions_host" },
	{ "LimitReached", "stored_items" },
};
_Static_assert(ARRAY_SIZE(refusals) <= API_REFUSALS_MAX, "a counter for each refusal");

const char *http_refusal_name(unsigned index)
{
	return index < ARRAY_SIZE(refusals) ? refusals[index].limit : NULL;
}

void api_count_refusal(struct api *api, const char *word)
{
	for (unsigned i = 0; i < ARRAY_SIZE(refusals); i++)
		if (strcmp(refusals[i].word, word) == 0)
			atomic_fetch_add(&api->counters.refusals[i], 1);
}
