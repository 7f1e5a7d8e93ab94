// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "agent/session/services/service_rules.h"

#define UNIT_SUFFIX	".service"
#define CHILDREN_SUFFIX "+children"

static bool take_prefix(const char **text, const char *prefix)
{
	size_t len = strlen(prefix);

	if (strncmp(*text, prefix, len) != 0)
		return false;
	*text += len;
	return true;
}

static int set_name(struct selector *selector, const char *name)
{
	if (!*name || strlen(name) >= sizeof(selector->name))
		return -EINVAL;
	(void)snprintf(selector->name, sizeof(selector->name), "%s", name);
	return 0;
}

static int set_unit(struct selector *selector, const char *name)
{
	size_t len = strlen(name), suffix = strlen(UNIT_SUFFIX);
	bool has = len > suffix && strcmp(name + len - suffix, UNIT_SUFFIX) == 0;

	if (!*name || len + suffix >= sizeof(selector->name))
		return -EINVAL;
	(void)snprintf(selector->name, sizeof(selector->name), "%s%s", name,
		       has ? "" : UNIT_SUFFIX);
	return 0;
}

static int set_port(struct selector *selector, const char *text)
{
	uint64_t port;
	int rc = parse_u64(text, 1, 65535, &port);

	if (rc < 0)
		return -EINVAL;
	selector->port = (uint16_t)port;
	return 0;
}

static bool is_loopback(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (strcmp(host, "localhost") == 0 || strcmp(host, "0.0.0.0") == 0 ||
	    strcmp(host, "::") == 0)
		return true;
	if (inet_pton(AF_INET, host, &v4) == 1)
		return (ntohl(v4.s_addr) >> 24) == 127;
	return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/* `name:8080`, `[::1]:8080`, `:8080`. Not an alias at all if the host is not this one. */
static bool is_host_port(const char *text, bool (*is_local_host)(const char *host),
			 struct selector *selector)
{
	const char *colon = strrchr(text, ':');
	char host[256];
	size_t len;

	if (!colon || set_port(selector, colon + 1) < 0)
		return false;
	len = (size_t)(colon - text);
	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		text++;
		len -= 2;
	}
	if (len >= sizeof(host))
		return false;
	memcpy(host, text, len);
	host[len] = '\0';
	return len == 0 || is_loopback(host) || (is_local_host && is_local_host(host));
}

int selector_parse(const char *text, bool (*is_local_host)(const char *host), struct selector *ret)
{
	struct selector selector = { 0 };
	uint64_t number;
	int rc = 0;

	if (!*text || strlen(text) >= SERVICE_NAME_SIZE || !parse_is_utf8(text, strlen(text)))
		return -EINVAL;
	if (strcmp(text, "*") == 0 || strcmp(text, "host") == 0) {
		selector.kind = SELECTOR_HOST;
	} else if (take_prefix(&text, "pid:")) {
		selector.kind = SELECTOR_PID;
		rc = parse_u64(text, 1, INT32_MAX, &number) < 0 ? -EINVAL : 0;
		selector.tgid = rc == 0 ? (uint32_t)number : 0;
	} else if (take_prefix(&text, "unit:")) {
		selector.kind = SELECTOR_UNIT;
		rc = set_unit(&selector, text);
	} else if (take_prefix(&text, "container:")) {
		selector.kind = SELECTOR_CONTAINER;
		rc = set_name(&selector, text);
	} else if (take_prefix(&text, "port:")) {
		selector.kind = SELECTOR_PORT;
		rc = set_port(&selector, text);
	} else if (is_host_port(text, is_local_host, &selector)) {
		selector.kind = SELECTOR_PORT;
	} else {
		selector = (struct selector){ .kind = SELECTOR_SERVICE };
		rc = set_name(&selector, text);
	}
	if (rc == 0)
		*ret = selector;
	return rc;
}

static bool listens_on(const char *ports, uint16_t port)
{
	while (*ports) {
		char *end;

		if (strtoul(ports, &end, 10) == port && end != ports)
			return true;
		ports += strcspn(ports, ",");
		ports += *ports == ',';
	}
	return false;
}

/* A process may be known by its start in /proc first, in USER_HZ (proc(5)), and by the kernel's own
 * stamp later. */
#define PROC_TICK_NS (10 * NS_PER_MS)

bool selector_matches(const struct selector *selector, const struct service_facts *facts,
		      const struct service_identity *identity)
{
	switch (selector->kind) {
	case SELECTOR_HOST:
		return true;
	case SELECTOR_SERVICE:
		return strcmp(identity->name, selector->name) == 0 ||
		       strcmp(identity->alias, selector->name) == 0;
	case SELECTOR_PID:
		return facts->tgid == selector->tgid &&
		       (selector->start_boottime_ns == 0 ||
			facts->start_boottime_ns / PROC_TICK_NS ==
				selector->start_boottime_ns / PROC_TICK_NS);
	case SELECTOR_UNIT:
		return strcmp(identity->unit, selector->name) == 0;
	case SELECTOR_CONTAINER:
		return identity->container_id[0] &&
		       text_begins(identity->container_id, selector->name);
	case SELECTOR_PORT:
		return listens_on(facts->ports, selector->port);
	}
	return false;
}

void selector_to_text(const struct selector *selector, char out[SELECTOR_TEXT_SIZE])
{
	switch (selector->kind) {
	case SELECTOR_HOST:
		(void)snprintf(out, SELECTOR_TEXT_SIZE, "host");
		break;
	case SELECTOR_SERVICE:
		(void)snprintf(out, SELECTOR_TEXT_SIZE, "service:%s", selector->name);
		break;
	case SELECTOR_PID:
		(void)snprintf(out, SELECTOR_TEXT_SIZE, "pid:%u@%llu%s", selector->tgid,
			       (unsigned long long)selector->start_boottime_ns,
			       selector->children ? CHILDREN_SUFFIX : "");
		break;
	case SELECTOR_UNIT:
		(void)snprintf(out, SELECTOR_TEXT_SIZE, "unit:%s", selector->name);
		break;
	case SELECTOR_CONTAINER:
		(void)snprintf(out, SELECTOR_TEXT_SIZE, "container:%s", selector->name);
		break;
	case SELECTOR_PORT:
		(void)snprintf(out, SELECTOR_TEXT_SIZE, "port:%u", selector->port);
		break;
	}
}

int selector_from_text(const char *text, struct selector *ret)
{
	struct selector selector = { .kind = SELECTOR_SERVICE };
	unsigned tgid;
	unsigned long long start;
	int rc, len = 0;

	if (sscanf(text, "pid:%u@%llu%n", &tgid, &start, &len) == 2) {
		*ret = (struct selector){ .kind = SELECTOR_PID,
					  .tgid = tgid,
					  .start_boottime_ns = start,
					  .children = strcmp(text + len, CHILDREN_SUFFIX) == 0 };
		return 0;
	}
	if (!take_prefix(&text, "service:"))
		return selector_parse(text, NULL, ret);
	rc = set_name(&selector, text);
	if (rc == 0)
		*ret = selector;
	return rc;
}
