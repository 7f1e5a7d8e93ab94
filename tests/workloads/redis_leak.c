// SPDX-License-Identifier: Apache-2.0
/* A module for Redis whose command LEAK keeps nothing of what it allocates. redismodule.h is not
 * packaged: what is used of it is declared here (redis 7.0, src/redismodule.h: RedisModule_Init()).
 */
#include <stdlib.h>

#define LEAK_BYTES 256

typedef int get_api_fn(const char *name, void *ret);
typedef int command_fn(void *ctx, void **argv, int argc);

static void (*set_attribs)(void *ctx, const char *name, int version, int api_version);
static int (*create_command)(void *ctx, const char *name, command_fn *command, const char *flags,
			     int first, int last, int step);
static int (*reply)(void *ctx, long long number);
static long long leaks;
void *volatile leaked;

int leak(void *ctx, void **argv, int argc)
{
	leaked = malloc(LEAK_BYTES);
	return reply(ctx, ++leaks);
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc)
{
	get_api_fn *get_api = *(get_api_fn **)ctx;

	if (get_api("RedisModule_SetModuleAttribs", &set_attribs) ||
	    get_api("RedisModule_CreateCommand", &create_command) ||
	    get_api("RedisModule_ReplyWithLongLong", &reply))
		return 1;
	set_attribs(ctx, "leak", 1, 1);
	return create_command(ctx, "leak", leak, "fast", 0, 0, 0);
}
