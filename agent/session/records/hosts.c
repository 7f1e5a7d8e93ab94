// SPDX-License-Identifier: Apache-2.0
#include "agent/session/records/hosts.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/session/session.h"

void hosts_name(char ret[STORE_HOST_SIZE])
{
	memset(ret, 0, STORE_HOST_SIZE);
	if (gethostname(ret, STORE_HOST_SIZE - 1) < 0 || !*ret)
		(void)snprintf(ret, STORE_HOST_SIZE, "localhost");
}

bool hosts_is_own(const struct own_host *own, const char *host)
{
	if (!own->shared)
		return true;
	return own->collects && strcmp(host, own->name) == 0;
}

const char *hosts_writer(const struct own_host *own, const char *host)
{
	return own->shared && *host ? host : own->name;
}

const char *hosts_of_day(const struct own_host *own, const struct store_day *day)
{
	return day->host[0] ? day->host : own->name;
}

bool hosts_has_day(const struct own_host *own, const struct store_day *day, const char *host)
{
	if (host && !*host)
		return !day->host[0];
	return !host || strcmp(hosts_of_day(own, day), host) == 0;
}

static void make_id(const struct own_host *own, const char *host, const char *name, char *out,
		    size_t size)
{
	if (own->shared)
		(void)snprintf(out, size, "%s-%016" PRIx64, name, hash_bytes(host, strlen(host), 0));
	else
		(void)snprintf(out, size, "%s", name);
}

void hosts_own_id(const struct own_host *own, const char *name, char *out, size_t size)
{
	/* A server that takes nothing may run beside the agent of its host. */
	make_id(own, own->collects ? own->name : "", name, out, size);
}

void hosts_day_id(const struct own_host *own, const struct store_day *day, const char *name,
		  char *out, size_t size)
{
	make_id(own, hosts_of_day(own, day), name, out, size);
}

void hosts_settle_running(const struct own_host *own, struct session_info *info)
{
	uint64_t now_ns = clock_realtime_ns(), whole_ns = info->requested_duration_s * NS_PER_S;

	if (info->status != SESSION_RUNNING || hosts_is_own(own, info->host) || !info->started_at_ns ||
	    now_ns <= info->started_at_ns)
		return;
	info->duration_ns = now_ns - info->started_at_ns;
	if (info->duration_ns > whole_ns)
		info->duration_ns = whole_ns;
}
