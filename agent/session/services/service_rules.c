// SPDX-License-Identifier: Apache-2.0
#include "agent/session/services/service_rules.h"

#include <ctype.h>
#include <errno.h>
#include <fnmatch.h>
#include <string.h>

#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "agent/wire/feed.h"

#define CONTAINER_HEX	 64u /* digits of a container id in every runtime */
#define CONTAINER_SHORT	 12
#define CGROUP_PARTS_MAX 64u /* components looked at, innermost first */
#define OWNER_SIZE  24 /* "user@4294967295/" */
#define UNIT_SUFFIX	 ".service"

struct part {
	const char *text;
	size_t len;
};

const char *service_source_word(enum service_source source)
{
	static const char *const words[] = { "config",	  "otel", "env", "kubernetes",
					     "container", "unit", "exe", "kernel" };

	return words[source];
}

const char *service_runtime_word(uint32_t flags)
{
	if (flags & FEED_PROC_KTHREAD)
		return "kernel";
	if (flags & FEED_PROC_GO)
		return "go";
	if (flags & FEED_PROC_JVM)
		return "jvm";
	if (flags & FEED_PROC_PYTHON)
		return "cpython";
	if (flags & FEED_PROC_NODE)
		return "node";
	if (flags & FEED_PROC_PHP)
		return "php";
	if (flags & FEED_PROC_RUBY)
		return "ruby";
	if (flags & FEED_PROC_PERL)
		return "perl";
	return "native";
}

/* ---- text ------------------------------------------------------------------------------------ */

static bool part_begins(struct part part, const char *prefix)
{
	size_t len = strlen(prefix);

	return part.len >= len && memcmp(part.text, prefix, len) == 0;
}

static bool part_ends(struct part part, const char *suffix)
{
	size_t len = strlen(suffix);

	return part.len >= len && memcmp(part.text + part.len - len, suffix, len) == 0;
}

static size_t hex_run(const char *text, size_t len)
{
	size_t n = 0;

	while (n < len && (isdigit((unsigned char)text[n]) || (text[n] >= 'a' && text[n] <= 'f')))
		n++;
	return n;
}

static void copy_text(char *out, size_t size, const char *text, size_t len)
{
	if (len >= size)
		len = size - 1;
	memcpy(out, text, len);
	out[len] = '\0';
}

bool service_name_is_free(const char *name)
{
	static const char *const taken[] = { "*", "host", "kernel" };
	static const char *const aliases[] = { "pid:", "unit:", "container:", "port:", "pod:" };
	size_t len = strlen(name);

	if (len == 0 || len >= SERVICE_NAME_SIZE || !parse_is_utf8(name, len))
		return false;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
			return false;
	for (size_t i = 0; i < ARRAY_SIZE(taken); i++)
		if (strcmp(name, taken[i]) == 0)
			return false;
	return !text_begins_any(name, aliases, ARRAY_SIZE(aliases));
}

/* The executable's base name without the kernel's mark of a replaced file. */
static void exe_name(const struct service_facts *facts, char out[SERVICE_NAME_SIZE])
{
	static const char deleted[] = " (deleted)";
	const char *base = text_file_name(facts->exe);
	struct part part;

	if (!*base)
		base = facts->comm;
	part = (struct part){ base, strlen(base) };
	if (part_ends(part, deleted))
		part.len -= strlen(deleted);
	copy_text(out, SERVICE_NAME_SIZE, part.text, part.len);
}

/* ---- control groups -------------------------------------------------------------------------- */

/* Components, innermost first. */
static unsigned split_cgroup(const char *path, struct part ret[CGROUP_PARTS_MAX])
{
	const char *end = path + strlen(path);
	unsigned count = 0;

	while (end > path && count < CGROUP_PARTS_MAX) {
		const char *start = end;

		while (start > path && start[-1] != '/')
			start--;
		if (start < end)
			ret[count++] = (struct part){ start, (size_t)(end - start) };
		end = start > path ? start - 1 : path;
	}
	return count;
}

/* Runtimes write ID, docker-ID.scope, cri-containerd-ID.scope, crio-ID.scope, libpod-ID.scope,
 * nerdctl-ID.scope; Amazon ECS writes 32 digits, a dash and a number. The monitors crio-conmon-ID
 * and libpod-conmon-ID live outside of the container. */
static bool container_from_part(struct part part, char out[65])
{
	static const char *const prefixes[] = { "docker-", "cri-containerd-", "crio-", "libpod-",
						"nerdctl-" };
	size_t run;

	if (part_ends(part, ".scope"))
		part.len -= strlen(".scope");
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		if (part_begins(part, prefixes[i])) {
			part.text += strlen(prefixes[i]);
			part.len -= strlen(prefixes[i]);
			break;
		}
	}
	run = hex_run(part.text, part.len);
	if (run == part.len && run == CONTAINER_HEX) {
		copy_text(out, 65, part.text, run);
		return true;
	}
	if (run == 32 && part.len > 33 && part.len < 65 && part.text[32] == '-' &&
	    strspn(part.text + 33, "0123456789") >= part.len - 33) {
		copy_text(out, 65, part.text, part.len);
		return true;
	}
	return false;
}

/* lxc.payload.NAME (liblxc 4 and later) and /lxc/NAME. */
static bool lxc_from_parts(const struct part *parts, unsigned at, unsigned count, char out[65])
{
	static const char payload[] = "lxc.payload.";

	if (part_begins(parts[at], payload)) {
		copy_text(out, 65, parts[at].text + strlen(payload),
			  parts[at].len - strlen(payload));
		return true;
	}
	if (at + 1 < count && parts[at + 1].len == 3 && part_begins(parts[at + 1], "lxc")) {
		copy_text(out, 65, parts[at].text, parts[at].len);
		return true;
	}
	return false;
}

/* pod<uid> of cgroupfs, kubepods-besteffort-pod<uid with _>.slice of systemd; static pods have 32
 * digits without dashes. */
static bool pod_from_part(struct part part, char out[40])
{
	const char *at = NULL;
	size_t len;

	if (part_begins(part, "pod"))
		at = part.text + 3;
	else if (part_begins(part, "kubepods"))
		for (size_t i = 0; i + 4 < part.len && !at; i++)
			if (memcmp(part.text + i, "-pod", 4) == 0)
				at = part.text + i + 4;
	if (!at)
		return false;
	len = part.len - (size_t)(at - part.text);
	if (len > 6 && memcmp(at + len - 6, ".slice", 6) == 0)
		len -= 6;
	if (len != 36 && len != 32)
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = at[i] == '_' ? '-' : at[i];

		if (c != '-' && hex_run(&c, 1) == 0)
			return false;
		out[i] = c;
	}
	out[len] = '\0';
	return true;
}

/* systemd writes bytes that a unit name may not have as \xNN (systemd.unit(5), "String escaping").
 */
static void unescape_unit(struct part part, char out[256])
{
	size_t len = 0;

	for (size_t i = 0; i < part.len && len < 255; i++) {
		unsigned value;
		char digits[3] = { 0 };

		if (part.text[i] == '\\' && i + 3 < part.len && part.text[i + 1] == 'x' &&
		    isxdigit((unsigned char)part.text[i + 2]) &&
		    isxdigit((unsigned char)part.text[i + 3])) {
			memcpy(digits, part.text + i + 2, 2);
			value = (unsigned)strtoul(digits, NULL, 16);
			if (value >= 0x20 && value < 0x7f) {
				out[len++] = (char)value;
				i += 3;
				continue;
			}
		}
		out[len++] = part.text[i];
	}
	out[len] = '\0';
}

/* Users own the groups below user.slice and name them as they like (user@.service is delegated to
 * its user): a nginx.service there is "user@1000/nginx.service", never the system's. Writes
 * "user@UID/", or "" where the group is the system's. @parts: innermost first. */
static void owner_of(const struct part *parts, unsigned count, char out[OWNER_SIZE])
{
	static const char prefix[] = "user-", suffix[] = ".slice";
	struct part user;

	out[0] = '\0';
	if (!count || parts[count - 1].len != strlen("user.slice") ||
	    !part_begins(parts[count - 1], "user.slice"))
		return;
	user = count > 1 ? parts[count - 2] : (struct part){ "", 0 };
	if (part_begins(user, prefix) && part_ends(user, suffix) &&
	    user.len < strlen(prefix) + strlen(suffix) + OWNER_SIZE - sizeof("user@/"))
		(void)snprintf(out, OWNER_SIZE, "user@%.*s/",
			       (int)(user.len - strlen(prefix) - strlen(suffix)),
			       user.text + strlen(prefix));
	else
		(void)strcpy(out, "user@/");
}

static void read_cgroup(const char *path, struct service_identity *ret)
{
	struct part parts[CGROUP_PARTS_MAX];
	unsigned count = split_cgroup(path, parts);
	char owner[OWNER_SIZE], container[65] = "", unit[256];
	bool has_unit = false;

	owner_of(parts, count, owner);
	for (unsigned i = 0; i < count; i++) {
		struct part part = parts[i];

		if (!container[0] && !container_from_part(part, container))
			(void)lxc_from_parts(parts, i, count, container);
		if (!ret->pod_uid[0] && !owner[0])
			(void)pod_from_part(part, ret->pod_uid);
		/* user@1000.service is the user's manager, not a service of anybody. */
		if (!has_unit && part.len > strlen(UNIT_SUFFIX) && part_ends(part, UNIT_SUFFIX) &&
		    !part_begins(part, "user@")) {
			unescape_unit(part, unit);
			has_unit = true;
		}
	}
	if (container[0])
		(void)snprintf(ret->container_id, sizeof(ret->container_id), "%s%s", owner,
			       container);
	/* A name that is too long with its owner is none. */
	if (has_unit && strlen(owner) + strlen(unit) < sizeof(ret->unit))
		(void)stpcpy(stpcpy(ret->unit, owner), unit);
}

/* ---- environment ----------------------------------------------------------------------------- */

/* The value of @name in NAME=value lines. */
static bool find_variable(const char *lines, const char *name, struct part *ret)
{
	size_t len = strlen(name);

	for (const char *at = lines; at && *at; at = strchr(at, '\n'), at = at ? at + 1 : NULL) {
		if (strncmp(at, name, len) == 0 && at[len] == '=') {
			at += len + 1;
			*ret = (struct part){ at, strcspn(at, "\n") };
			return true;
		}
	}
	return false;
}

const char *service_container_lines(const struct service_facts *facts)
{
	static const char *const own[] = { "container.", "k8s.", "compose." };
	const char *at = facts->environment;

	while (*at) {
		size_t len = strcspn(at, "\n");

		if (text_begins_any(at, own, ARRAY_SIZE(own)))
			return at;
		at += len + (at[len] == '\n');
	}
	return at;
}

void service_container_value(const struct service_facts *facts, const char *name, char *ret,
			     size_t size)
{
	struct part value = { "", 0 };

	(void)find_variable(facts->environment, name, &value);
	copy_text(ret, size, value.text, value.len);
}

/* service.name of key=value pairs separated by commas, values percent-encoded (OpenTelemetry
 * "Resource SDK", W3C Baggage). */
static bool name_from_attributes(struct part list, char out[SERVICE_NAME_SIZE])
{
	static const char key[] = "service.name=";
	const char *at = list.text, *end = list.text + list.len;

	while (at < end) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		const char *stop = comma ? comma : end;
		size_t len = 0;

		while (at < stop && *at == ' ')
			at++;
		if ((size_t)(stop - at) > strlen(key) && memcmp(at, key, strlen(key)) == 0) {
			for (at += strlen(key); at < stop && len < SERVICE_NAME_SIZE - 1; at++) {
				char digits[3] = { 0 };

				if (*at == '%' && stop - at > 2 && isxdigit((unsigned char)at[1]) &&
				    isxdigit((unsigned char)at[2])) {
					memcpy(digits, at + 1, 2);
					out[len++] = (char)strtoul(digits, NULL, 16);
					at += 2;
				} else {
					out[len++] = *at;
				}
			}
			out[len] = '\0';
			return true;
		}
		at = stop + 1;
	}
	return false;
}

static bool name_from_environment(const struct service_facts *facts, char out[SERVICE_NAME_SIZE])
{
	struct part value;
	char name[SERVICE_NAME_SIZE];

	/* containerd's shim is started with OTEL_SERVICE_NAME of its own, one name per container.
	 */
	if (text_begins(text_file_name(facts->exe), "containerd-shim"))
		return false;
	if (find_variable(facts->environment, "OTEL_SERVICE_NAME", &value)) {
		copy_text(name, sizeof(name), value.text, value.len);
		if (service_name_is_free(name))
			goto found;
	}
	if (find_variable(facts->environment, "OTEL_RESOURCE_ATTRIBUTES", &value) &&
	    name_from_attributes(value, name) && service_name_is_free(name))
		goto found;
	if (find_variable(facts->environment, "DD_SERVICE", &value)) {
		copy_text(name, sizeof(name), value.text, value.len);
		if (service_name_is_free(name))
			goto found;
	}
	return false;
found:
	memcpy(out, name, sizeof(name));
	return true;
}

/* ---- configuration --------------------------------------------------------------------------- */
static bool glob_matches(const char *pattern, const char *text)
{
	return fnmatch(pattern, text, 0) == 0;
}

/* A name of a unit or a container. '*' does not match the '/' behind a user: a pattern means what
 * is the system's unless it names users ("user@*" and so on). */
static bool name_matches(const char *pattern, const char *name)
{
	return fnmatch(pattern, name, FNM_PATHNAME) == 0;
}

/* The same for paths of groups: below user.slice only for a pattern that begins there. */
static bool cgroup_matches(const char *pattern, const char *cgroup)
{
	static const char users[] = "/user.slice";

	if (text_begins(cgroup, users) && !text_begins(pattern, users))
		return false;
	return glob_matches(pattern, cgroup);
}

/* A unit matches with and without its suffix. */
static bool unit_matches(const char *pattern, const char *unit)
{
	struct part part = { unit, strlen(unit) };
	char bare[256];

	if (!*unit)
		return false;
	copy_text(bare, sizeof(bare), unit,
		  part_ends(part, UNIT_SUFFIX) ? part.len - strlen(UNIT_SUFFIX) : part.len);
	return name_matches(pattern, unit) || name_matches(pattern, bare);
}

static bool exe_matches(const char *pattern, const char *exe)
{
	return *exe && (glob_matches(pattern, exe) || glob_matches(pattern, text_file_name(exe)));
}

static bool port_listed(const char *ports, const char *pattern)
{
	char port[8];

	while (*ports) {
		size_t len = strcspn(ports, ",");

		copy_text(port, sizeof(port), ports, len);
		if (glob_matches(pattern, port))
			return true;
		ports += len + (ports[len] == ',');
	}
	return false;
}

static bool rule_matches(const struct service_rule *rule, const struct service_facts *facts,
			 const struct service_identity *identity)
{
	if (rule->unit && !unit_matches(rule->unit, identity->unit))
		return false;
	if (rule->cgroup && !cgroup_matches(rule->cgroup, facts->cgroup))
		return false;
	if (rule->exe && !exe_matches(rule->exe, facts->exe))
		return false;
	if (rule->cmdline && !glob_matches(rule->cmdline, facts->cmdline))
		return false;
	if (rule->user && !glob_matches(rule->user, facts->user))
		return false;
	if (rule->port && !port_listed(facts->ports, rule->port))
		return false;
	/* A rule without any pattern names nothing. */
	return rule->unit || rule->cgroup || rule->exe || rule->cmdline || rule->user || rule->port;
}

bool service_tenant_allows(const struct tenant_rule *rule, const struct service_facts *facts,
			   const struct service_identity *identity)
{
	for (unsigned i = 0; i < rule->pattern_count; i++) {
		const char *pattern = rule->patterns[i], *colon = strchr(pattern, ':');
		size_t word = colon ? (size_t)(colon - pattern) : 0;

#define MEANS(name) (word == strlen(name) && memcmp(pattern, name, word) == 0)
		bool unit = MEANS("unit"), container = MEANS("container"), cgroup = MEANS("cgroup");
		bool exe = MEANS("exe"), user = MEANS("user");
#undef MEANS
		bool any = !(unit || container || cgroup || exe || user);

		if (!any)
			pattern = colon + 1;
		if (((any || unit) && unit_matches(pattern, identity->unit)) ||
		    ((any || container) && identity->container_id[0] &&
		     name_matches(pattern, identity->container_id)) ||
		    ((any || cgroup) && cgroup_matches(pattern, facts->cgroup)) ||
		    ((any || exe) && exe_matches(pattern, facts->exe)) ||
		    ((any || user) && glob_matches(pattern, facts->user)))
			return true;
	}
	return false;
}

/* ---- the order of the sources ---------------------------------------------------------------- */

static void set_name(struct service_identity *ret, enum service_source source, const char *name)
{
	ret->source = source;
	copy_text(ret->name, sizeof(ret->name), name, strlen(name));
}

/* Joins the values that @names (ends with NULL) have, with '/' between them. False if one has none,
 * or if the name cannot be a service's. */
static bool join_values(const struct service_facts *facts, const char *const *names, char *ret)
{
	size_t len = strlen(ret);

	for (; *names; names++) {
		char value[256];

		service_container_value(facts, *names, value, sizeof(value));
		if (!value[0] || len + strlen(value) + 2 > SERVICE_NAME_SIZE)
			return false;
		len += (size_t)snprintf(ret + len, SERVICE_NAME_SIZE - len, "%s%s", value,
					names[1] ? "/" : "");
	}
	return service_name_is_free(ret);
}

/* namespace/workload/container, Compose's project/service, or the container's name. A user's
 * container begins with "user@UID/", so that it is never taken for the system's. */
static bool name_of_container(const struct service_facts *facts, struct service_identity *ret)
{
	static const struct {
		enum service_source source;
		const char *names[4];
	} forms[] = {
		{ SERVICE_SOURCE_KUBERNETES,
		  { "k8s.namespace.name", "k8s.workload.name", "k8s.container.name" } },
		{ SERVICE_SOURCE_CONTAINER, { "compose.project", "compose.service" } },
		{ SERVICE_SOURCE_CONTAINER, { "container.name" } },
	};
	const char *slash = strchr(ret->container_id, '/');
	size_t owner = slash ? (size_t)(slash + 1 - ret->container_id) : 0;
	char name[SERVICE_NAME_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		copy_text(name, sizeof(name), ret->container_id, owner);
		if (join_values(facts, forms[i].names, name)) {
			set_name(ret, forms[i].source, name);
			return true;
		}
	}
	return false;
}

static void name_from_container(struct service_identity *ret)
{
	const char *slash = strchr(ret->container_id, '/');
	size_t owner = slash ? (size_t)(slash + 1 - ret->container_id) : 0;
	size_t len = strlen(ret->container_id);
	int cut = hex_run(ret->container_id + owner, len - owner) >= 32 ?
			  (int)owner + CONTAINER_SHORT :
			  (int)len;

	if (ret->pod_uid[0]) {
		ret->source = SERVICE_SOURCE_KUBERNETES;
		(void)snprintf(ret->name, sizeof(ret->name), "pod:%s:%.*s", ret->pod_uid, cut,
			       ret->container_id);
		return;
	}
	ret->source = SERVICE_SOURCE_CONTAINER;
	(void)snprintf(ret->name, sizeof(ret->name), "container:%.*s", cut, ret->container_id);
}

/* The idle thread of a CPU: the kernel's, though it has no flag of a kernel thread. */
static bool is_idle(const struct service_facts *facts)
{
	return facts->tgid == 0 && text_begins(facts->comm, "swapper/");
}

void service_identify(const struct service_rule *rules, unsigned rule_count,
		      const struct service_facts *facts, struct service_identity *ret)
{
	char name[SERVICE_NAME_SIZE];

	*ret = (struct service_identity){ 0 };
	if ((facts->flags & FEED_PROC_KTHREAD) || is_idle(facts)) {
		set_name(ret, SERVICE_SOURCE_KERNEL, "kernel");
		return;
	}
	read_cgroup(facts->cgroup, ret);
	for (unsigned i = 0; i < rule_count; i++) {
		if (rule_matches(&rules[i], facts, ret)) {
			set_name(ret, SERVICE_SOURCE_CONFIG, rules[i].name);
			return;
		}
	}
	if (name_from_environment(facts, name)) {
		set_name(ret, SERVICE_SOURCE_ENV, name);
		return;
	}
	if (ret->container_id[0]) {
		if (!name_of_container(facts, ret))
			name_from_container(ret);
		return;
	}
	if (ret->unit[0]) {
		copy_text(name, sizeof(name), ret->unit, strlen(ret->unit) - strlen(UNIT_SUFFIX));
		if (service_name_is_free(name)) {
			set_name(ret, SERVICE_SOURCE_UNIT, name);
			return;
		}
	}
	exe_name(facts, name);
	if (!service_name_is_free(name))
		strcpy(name, "unnamed");
	if (service_name_is_free(facts->program)) {
		set_name(ret, SERVICE_SOURCE_EXE, facts->program);
		copy_text(ret->alias, sizeof(ret->alias), name, strlen(name));
		return;
	}
	set_name(ret, SERVICE_SOURCE_EXE, name);
}
