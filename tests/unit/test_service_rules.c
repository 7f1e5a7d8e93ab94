// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "agent/session/services/service_rules.h"
#include "agent/wire/feed.h"

#define HEX64 "3f1c2a9b8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f10"
#define POD   "0f3a1b2c-4d5e-6f70-8192-a3b4c5d6e7f8"
#define POD_  "0f3a1b2c_4d5e_6f70_8192_a3b4c5d6e7f8"

static struct service_facts facts_of(const char *cgroup, const char *exe, const char *environment)
{
	return (struct service_facts){ .tgid = 42,
				       .start_boottime_ns = 7,
				       .comm = "comm",
				       .exe = exe,
				       .cmdline = "",
				       .cgroup = cgroup,
				       .environment = environment,
				       .ports = "",
				       .program = "",
				       .user = "root" };
}

struct naming {
	const char *what;
	const char *cgroup;
	const char *exe;
	const char *environment;
	const char *name;
	const char *source;
};

/* Paths as these managers write them: api.md 7.3, and systemd.scope(5), kubelet's cgroup drivers.
 */
static const struct naming namings[] = {
	{ "docker, systemd driver", "/system.slice/docker-" HEX64 ".scope", "/app", "",
	  "container:3f1c2a9b8d7e", "container" },
	{ "docker, cgroupfs driver", "/docker/" HEX64, "/app", "", "container:3f1c2a9b8d7e",
	  "container" },
	{ "docker below its unit", "/system.slice/docker.service/docker/" HEX64, "/app", "",
	  "container:3f1c2a9b8d7e", "container" },
	{ "podman, rootful", "/machine.slice/libpod-" HEX64 ".scope/container", "/app", "",
	  "container:3f1c2a9b8d7e", "container" },
	{ "podman, rootless",
	  "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" HEX64 ".scope", "/app",
	  "", "container:user@1000/3f1c2a9b8d7e", "container" },
	{ "a forged container",
	  "/user.slice/user-1000.slice/user@1000.service/app.slice/docker-" HEX64 ".scope", "/app",
	  "", "container:user@1000/3f1c2a9b8d7e", "container" },
	{ "a forged pod",
	  "/user.slice/user-1000.slice/user@1000.service/kubepods-pod" POD_ ".slice/cri-containerd-" HEX64
	  ".scope",
	  "/app", "", "container:user@1000/3f1c2a9b8d7e", "container" },
	{ "a forged unit", "/user.slice/user-1000.slice/user@1000.service/app.slice/nginx.service",
	  "/home/u/nginx", "", "user@1000/nginx", "unit" },
	{ "podman's monitor is outside", "/machine.slice/libpod-conmon-" HEX64 ".scope",
	  "/usr/bin/conmon", "", "conmon", "exe" },
	{ "cri-o's monitor is outside", "/system.slice/crio-conmon-" HEX64 ".scope",
	  "/usr/bin/conmon", "", "conmon", "exe" },
	{ "containerd, nerdctl", "/system.slice/nerdctl-" HEX64 ".scope", "/app", "",
	  "container:3f1c2a9b8d7e", "container" },
	{ "kubernetes, containerd, besteffort, systemd",
	  "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" POD_
	  ".slice/cri-containerd-" HEX64 ".scope",
	  "/app", "", "pod:" POD ":3f1c2a9b8d7e", "kubernetes" },
	{ "kubernetes, containerd, guaranteed, systemd",
	  "/kubepods.slice/kubepods-pod" POD_ ".slice/cri-containerd-" HEX64 ".scope", "/app", "",
	  "pod:" POD ":3f1c2a9b8d7e", "kubernetes" },
	{ "kubernetes, cri-o, burstable",
	  "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" POD_
	  ".slice/crio-" HEX64 ".scope",
	  "/app", "", "pod:" POD ":3f1c2a9b8d7e", "kubernetes" },
	{ "kubernetes, cgroupfs, v1", "/kubepods/besteffort/pod" POD "/" HEX64, "/app", "",
	  "pod:" POD ":3f1c2a9b8d7e", "kubernetes" },
	{ "kubernetes, static pod",
	  "/kubepods/burstable/pod0123456789abcdef0123456789abcdef/" HEX64, "/app", "",
	  "pod:0123456789abcdef0123456789abcdef:3f1c2a9b8d7e", "kubernetes" },
	{ "Amazon ECS",
	  "/ecs/0123456789abcdef0123456789abcdef/0123456789abcdef0123456789abcdef-1234567890",
	  "/app", "", "container:0123456789ab", "container" },
	{ "LXC", "/lxc/web01/system.slice/nginx.service", "/usr/sbin/nginx", "", "container:web01",
	  "container" },
	{ "LXC, payload", "/lxc.payload.web01/init.scope", "/sbin/init", "", "container:web01",
	  "container" },
	{ "a service inside a container", "/docker/" HEX64 "/system.slice/nginx.service", "/app",
	  "", "container:3f1c2a9b8d7e", "container" },
	{ "system unit", "/system.slice/nginx.service", "/usr/sbin/nginx", "", "nginx", "unit" },
	{ "template", "/system.slice/system-postgresql.slice/postgresql@15-main.service",
	  "/usr/bin/x", "", "postgresql@15-main", "unit" },
	{ "escaped", "/system.slice/system-getty.slice/my\\x2dapp.service", "/usr/bin/x", "",
	  "my-app", "unit" },
	{ "cut escape", "/system.slice/my\\x2.service", "/usr/bin/x", "", "my\\x2", "unit" },
	{ "user unit", "/user.slice/user-1000.slice/user@1000.service/app.slice/syncthing.service",
	  "/usr/bin/syncthing", "", "user@1000/syncthing", "unit" },
	{ "the user manager itself", "/user.slice/user-1000.slice/user@1000.service/init.scope",
	  "/lib/systemd/systemd", "", "systemd", "exe" },
	{ "login session", "/user.slice/user-1000.slice/session-3.scope", "/usr/bin/bash", "",
	  "bash", "exe" },
	{ "v1, sub-group of a unit", "/system.slice/ssh.service/foo", "/usr/sbin/sshd", "", "ssh",
	  "unit" },
	{ "a namespace's relative path", "/../../system.slice/x.service", "/x", "", "x", "unit" },
	{ "root group", "/", "/opt/tool", "", "tool", "exe" },
	{ "empty group", "", "/opt/tool", "", "tool", "exe" },
	{ "replaced executable", "/", "/opt/tool (deleted)", "", "tool", "exe" },
	{ "no executable", "/", "", "", "comm", "exe" },
	{ "63 digits are no container",
	  "/docker/3f1c2a9b8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f1", "/x", "", "x",
	  "exe" },
	{ "OTEL_SERVICE_NAME before the unit", "/system.slice/nginx.service", "/x",
	  "DD_SERVICE=dd\nOTEL_RESOURCE_ATTRIBUTES=service.name=res\nOTEL_SERVICE_NAME=shop",
	  "shop", "env" },
	{ "resource attributes before DD_SERVICE", "/", "/x",
	  "DD_SERVICE=dd\nOTEL_RESOURCE_ATTRIBUTES=a=b, service.name=my%20shop,c=d", "my shop",
	  "env" },
	{ "DD_SERVICE", "/", "/x", "DD_SERVICE=dd", "dd", "env" },
	{ "a longer variable is another one", "/", "/x", "DD_SERVICE_MAPPING=dd", "x", "exe" },
	{ "empty is not set", "/", "/x", "OTEL_SERVICE_NAME=\nDD_SERVICE=dd", "dd", "env" },
	{ "control characters are refused", "/", "/x", "OTEL_SERVICE_NAME=a\tb", "x", "exe" },
	{ "not UTF-8", "/", "/x", "OTEL_SERVICE_NAME=\xff\xfe", "x", "exe" },
	{ "our words are refused", "/", "/x", "OTEL_SERVICE_NAME=kernel\nDD_SERVICE=*", "x",
	  "exe" },
	{ "aliases are refused", "/", "/x", "OTEL_SERVICE_NAME=pid:1\nDD_SERVICE=container:1", "x",
	  "exe" },
	{ "containerd's shim", "/system.slice/containerd.service",
	  "/usr/bin/containerd-shim-runc-v2", "OTEL_SERVICE_NAME=containerd-shim-9f", "containerd",
	  "unit" },
};

static void test_naming(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(namings); i++) {
		const struct naming *row = &namings[i];
		struct service_facts facts = facts_of(row->cgroup, row->exe, row->environment);
		struct service_identity identity;

		service_identify(NULL, 0, &facts, &identity);
		if (strcmp(identity.name, row->name) != 0 ||
		    strcmp(service_source_word(identity.source), row->source) != 0)
			fail_msg("%s: got '%s' (%s)", row->what, identity.name,
				 service_source_word(identity.source));
	}
}

/* A program's inferred name is the service; the executable's name finds it, too. A unit or a
 * container goes first. */
static void test_program_names(void **state)
{
	struct service_facts facts = facts_of("/", "/usr/bin/redis-check-rdb", "");
	struct selector selector = { 0 };
	struct service_identity identity;

	facts.program = "redis-server";
	service_identify(NULL, 0, &facts, &identity);
	assert_string_equal(identity.name, "redis-server");
	assert_true(identity.source == SERVICE_SOURCE_EXE);
	assert_int_equal(selector_parse("redis-check-rdb", NULL, &selector), 0);
	assert_true(selector_matches(&selector, &facts, &identity));
	assert_int_equal(selector_parse("redis-server", NULL, &selector), 0);
	assert_true(selector_matches(&selector, &facts, &identity));
	assert_int_equal(selector_parse("redis", NULL, &selector), 0);
	assert_false(selector_matches(&selector, &facts, &identity));
	facts.cgroup = "/system.slice/cache.service";
	service_identify(NULL, 0, &facts, &identity);
	assert_string_equal(identity.name, "cache");
	assert_string_equal(identity.alias, "");
	facts = facts_of("/", "/usr/bin/x", "");
	facts.program = "pid:1";
	service_identify(NULL, 0, &facts, &identity);
	assert_string_equal(identity.name, "x");
}

static void test_kernel_threads(void **state)
{
	struct service_facts facts = facts_of("/system.slice/x.service", "", "");
	struct service_identity identity;

	facts.flags = FEED_PROC_KTHREAD;
	service_identify(NULL, 0, &facts, &identity);
	assert_string_equal(identity.name, "kernel");
	assert_int_equal(identity.source, SERVICE_SOURCE_KERNEL);
	facts = facts_of("", "", "");
	facts.tgid = 0;
	facts.comm = "swapper/1";
	service_identify(NULL, 0, &facts, &identity);
	assert_string_equal(identity.name, "kernel");
}

static void test_long_texts_are_cut(void **state)
{
	char cgroup[4096], exe[4096];
	struct service_facts facts;
	struct service_identity identity;

	memset(cgroup, 'a', sizeof(cgroup));
	memcpy(cgroup, "/", 1);
	memcpy(cgroup + sizeof(cgroup) - 9, ".service", 9);
	memset(exe, 'b', sizeof(exe));
	memcpy(exe, "/x/", 3);
	exe[sizeof(exe) - 1] = '\0';
	facts = facts_of(cgroup, exe, "");
	service_identify(NULL, 0, &facts, &identity);
	assert_true(strlen(identity.name) < SERVICE_NAME_SIZE);
	assert_true(strlen(identity.name) > 0);
}

static void test_rules(void **state)
{
	static const struct {
		const char *what;
		struct service_rule rule;
		bool matches;
	} rows[] = {
		{ "unit without suffix", { .unit = "nginx" }, true },
		{ "unit with suffix", { .unit = "ngin?.service" }, true },
		{ "other unit", { .unit = "apache" }, false },
		{ "exe by base name", { .exe = "nginx" }, true },
		{ "exe by path", { .exe = "/usr/*/nginx" }, true },
		{ "command line", { .cmdline = "*worker*" }, true },
		{ "user", { .user = "www-data" }, true },
		{ "port", { .port = "443" }, true },
		{ "port is not a prefix", { .port = "44" }, false },
		{ "all must match", { .unit = "nginx", .port = "81" }, false },
		{ "cgroup", { .cgroup = "/system.slice/*" }, true },
		{ "no pattern", { 0 }, false },
	};
	struct service_facts facts = facts_of("/system.slice/nginx.service", "/usr/sbin/nginx",
					      "OTEL_SERVICE_NAME=otel");
	struct service_identity identity;

	facts.cmdline = "nginx: worker process";
	facts.user = "www-data";
	facts.ports = "80,443";
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct service_rule rule = rows[i].rule;

		rule.name = "configured";
		service_identify(&rule, 1, &facts, &identity);
		if ((strcmp(identity.name, "configured") == 0) != rows[i].matches)
			fail_msg("%s: got '%s'", rows[i].what, identity.name);
	}
}

static void test_tenants(void **state)
{
	static const struct {
		const char *pattern;
		bool allowed;
	} rows[] = {
		{ "nginx", true },
		{ "unit:nginx", true },
		{ "exe:nginx", true },
		{ "user:root", true },
		{ "user:nginx", false },
		{ "exe:www*", false },
		{ "otel", false },
		{ "container:*", false },
		{ "cgroup:/system.slice/*", true },
		{ "container:3f*", false },
		{ "*.service", true },
	};
	struct service_facts facts = facts_of("/system.slice/nginx.service", "/usr/sbin/nginx",
					      "OTEL_SERVICE_NAME=otel");
	struct service_identity identity;

	service_identify(NULL, 0, &facts, &identity);
	assert_string_equal(identity.name, "otel");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct tenant_rule rule = { "t", &rows[i].pattern, 1 };

		if (service_tenant_allows(&rule, &facts, &identity) != rows[i].allowed)
			fail_msg("%s", rows[i].pattern);
	}
}

/* A user's unit with the name of a system unit does not match patterns for system units. */
static void test_tenants_of_users(void **state)
{
	static const struct {
		const char *pattern;
		bool allowed;
	} rows[] = {
		{ "unit:nginx", false },
		{ "unit:nginx.service", false },
		{ "unit:*", false },
		{ "*nginx.service", false },
		{ "container:*", false },
		{ "container:3f*", false },
		{ "cgroup:*nginx.service*", false },
		{ "cgroup:/*", false },
		{ "cgroup:/user.slice/*", true },
		{ "unit:user@1000/nginx", true },
		{ "unit:user@*/nginx.service", true },
		{ "container:user@1000/3f*", true },
	};
	struct service_facts facts = facts_of("/user.slice/user-1000.slice/user@1000.service/"
					      "nginx.service/docker-" HEX64 ".scope",
					      "/home/u/x", "");
	struct service_identity identity;

	service_identify(NULL, 0, &facts, &identity);
	assert_string_equal(identity.unit, "user@1000/nginx.service");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct tenant_rule rule = { "t", &rows[i].pattern, 1 };

		if (service_tenant_allows(&rule, &facts, &identity) != rows[i].allowed)
			fail_msg("%s", rows[i].pattern);
	}
}

static bool is_this_host(const char *host)
{
	return strcmp(host, "db01") == 0;
}

static void test_selectors(void **state)
{
	static const struct {
		const char *text;
		int rc;
		const char *canonical;
	} rows[] = {
		{ "*", 0, "host" },
		{ "host", 0, "host" },
		{ "shop", 0, "service:shop" },
		{ "pid:42", 0, "pid:42@0" },
		{ "pid:x", -EINVAL, NULL },
		{ "pid:0", -EINVAL, NULL },
		{ "pid:", -EINVAL, NULL },
		{ "pid:99999999999", -EINVAL, NULL },
		{ "unit:nginx", 0, "unit:nginx.service" },
		{ "unit:nginx.service", 0, "unit:nginx.service" },
		{ "unit:", -EINVAL, NULL },
		{ "container:3f1c", 0, "container:3f1c" },
		{ "port:8080", 0, "port:8080" },
		{ "port:0", -EINVAL, NULL },
		{ "port:65536", -EINVAL, NULL },
		{ "localhost:8080", 0, "port:8080" },
		{ "127.0.0.1:8080", 0, "port:8080" },
		{ "[::1]:8080", 0, "port:8080" },
		{ ":8080", 0, "port:8080" },
		{ "db01:5432", 0, "port:5432" },
		{ "db02:5432", 0, "service:db02:5432" },
		{ "", -EINVAL, NULL },
		{ "\xff", -EINVAL, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct selector selector = { .port = 12345 }, again;
		char text[SELECTOR_TEXT_SIZE];
		int rc = selector_parse(rows[i].text, is_this_host, &selector);

		if (rc != rows[i].rc)
			fail_msg("'%s': %d", rows[i].text, rc);
		if (rc < 0) {
			assert_int_equal(selector.port, 12345); /* untouched */
			continue;
		}
		selector_to_text(&selector, text);
		assert_string_equal(text, rows[i].canonical);
		assert_int_equal(selector_from_text(text, &again), 0);
		assert_memory_equal(&again, &selector, sizeof(again));
	}
}

static void test_selector_with_children(void **state)
{
	struct selector selector;
	char text[SELECTOR_TEXT_SIZE];

	assert_int_equal(selector_from_text("pid:42@7+children", &selector), 0);
	assert_true(selector.children && selector.tgid == 42 && selector.start_boottime_ns == 7);
	selector_to_text(&selector, text);
	assert_string_equal(text, "pid:42@7+children");
	assert_int_equal(selector_from_text("pid:42@7", &selector), 0);
	assert_false(selector.children);
}

static void test_matching(void **state)
{
	static const struct {
		const char *selector;
		bool matches;
	} rows[] = {
		{ "host", true },
		{ "service:container:3f1c2a9b8d7e", true },
		{ "service:x", false },
		{ "pid:42@7", true },
		{ "pid:42@9999999", true }, /* one tick of /proc */
		{ "pid:42@10000000", false },
		{ "pid:42@0", true },
		{ "pid:43@7", false },
		{ "container:3f1c", true },
		{ "container:3f1d", false },
		{ "unit:nginx.service", true },
		{ "unit:apache.service", false },
		{ "port:443", true },
		{ "port:44", false },
		{ "port:80", true },
	};
	struct service_facts facts =
		facts_of("/docker/" HEX64 "/system.slice/nginx.service", "/x", "");
	struct service_identity identity;

	facts.ports = "80,443";
	service_identify(NULL, 0, &facts, &identity);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct selector selector;

		assert_int_equal(selector_from_text(rows[i].selector, &selector), 0);
		if (selector_matches(&selector, &facts, &identity) != rows[i].matches)
			fail_msg("%s", rows[i].selector);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_naming),
		cmocka_unit_test(test_program_names),
		cmocka_unit_test(test_kernel_threads),
		cmocka_unit_test(test_long_texts_are_cut),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_tenants),
		cmocka_unit_test(test_tenants_of_users),
		cmocka_unit_test(test_selectors),
		cmocka_unit_test(test_selector_with_children),
		cmocka_unit_test(test_matching),
	};

	return cmocka_run_group_tests_name("service_rules", tests, NULL, NULL);
}
