// SPDX-License-Identifier: Apache-2.0
#include "agent/session/services/user_names.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"

#define USERS_MAX     10000u
#define READ_AGAIN_NS (60 * NS_PER_S)

static void forget(struct user_names *names)
{
	for (size_t i = 0; i < names->texts.count; i++)
		free(names->texts.data[i]);
	names->texts.count = 0;
	u64map_clear(&names->at);
}

void user_names_deinit(struct user_names *names)
{
	forget(names);
	user_texts_vec_deinit(&names->texts);
	u64map_deinit(&names->at);
}

static void read_again(struct user_names *names)
{
	cleanup_fclose FILE *file = fopen("/etc/passwd", "re");
	const struct passwd *entry;

	forget(names);
	while (file && names->texts.count < USERS_MAX && (entry = fgetpwent(file))) {
		char *text = strdup(entry->pw_name);

		/* The first of several names of one id is its name. */
		if (!text || u64map_get(&names->at, entry->pw_uid, &(uint64_t){ 0 }) ||
		    user_texts_vec_push(&names->texts, text) < 0) {
			free(text);
			continue;
		}
		if (u64map_put(&names->at, entry->pw_uid, names->texts.count - 1) < 0)
			break;
	}
	names->read_at_ns = clock_monotonic_ns();
}

const char *user_names_find(struct user_names *names, uint32_t uid, char scratch[12])
{
	uint64_t at;

	if (!u64map_get(&names->at, uid, &at) &&
	    (names->read_at_ns == 0 || clock_monotonic_ns() - names->read_at_ns > READ_AGAIN_NS))
		read_again(names);
	if (u64map_get(&names->at, uid, &at))
		return names->texts.data[at];
	(void)snprintf(scratch, 12, "%u", uid);
	return scratch;
}
