// SPDX-License-Identifier: Apache-2.0
/* INI text, and that a configuration's names and values are taken whole however long they are. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/ini.h"
#include "agent/config.h"

static int note(void *ctx, const char *section, const char *key, const char *value)
{
	if (!key) {
		buf_printf(ctx, "[%s]|", section);
		return strcmp(section, "refused") == 0 ? -1 : 0;
	}
	buf_printf(ctx, "%s.%s=%s|", section, key, value);
	return strcmp(value, "refused") == 0 ? -1 : 0;
}

static void check(const char *text, unsigned line, const char *seen)
{
	struct buf out = { .max = 65536 };
	char *copy = strdup(text);

	assert_int_equal(ini_visit(copy, note, &out), line);
	buf_add(&out, "", 1);
	assert_string_equal(out.data, seen);
	buf_deinit(&out);
	free(copy);
}

static void test_lines(void **state)
{
	(void)state;
	check("", 0, "");
	check("a=1", 0, ".a=1|");
	check("\xef\xbb\xbf[s]\r\na = 1 \r\n\r\n  b: 2 3\n# c = 4\n  ; d = 5\n[ t u ] ; six\ne =\n", 0,
	      "[s]|s.a=1|s.b=2 3|[t u]|t u.e=|");
	check("a = x;y ; z\nb = ;z\nc = http://h:1/?a=b\nd = #1\n", 0,
	      ".a=x;y|.b=|.c=http://h:1/?a=b|.d=#1|");
	check("a = 1\nb\nc = 2\n", 2, ".a=1|");
	check("\n= 1\n", 2, "");
	check("[s\na = 1\n", 1, "");
	check("[]\n", 1, "");
	check("[s] x\n", 1, "");
	check("a = 1\nb = refused\nc = 2\n", 2, ".a=1|.b=refused|");
	check("a = 1\n\n[refused]\nc = 2\n", 3, ".a=1|[refused]|");
}

/* A tenant whose name were cut would not be limited to its services. */
static void test_long_names(void **state)
{
	struct config config = { 0 };
	struct err err = { 0 };
	char path[] = "/tmp/profd-test-ini-XXXXXX", name[65], service[400];
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	memset(name, 'n', sizeof(name) - 1);
	memset(service, 's', sizeof(service) - 1);
	name[sizeof(name) - 1] = service[sizeof(service) - 1] = '\0';
	assert_true(dprintf(fd, "# %s\n[tenant %s]\nservices = a, %s b\n", service, name, service) > 0);
	(void)close(fd);
	assert_int_equal(config_load(&config, path, true, &err), 0);
	assert_int_equal(config.tenant_count, 1);
	assert_string_equal(config.tenants[0].name, name);
	assert_int_equal(config.tenants[0].service_count, 3);
	assert_string_equal(config.tenants[0].services[1], service);
	config_deinit(&config);
	(void)unlink(path);
}

/* A mistake stands where its section begins, also one without keys. */
static void test_sections(void **state)
{
	static const struct {
		const char *text;
		unsigned line; /* 0 = taken */
		const char *words;
	} cases[] = {
		{ "[nosuch]\n", 1, "unknown section [nosuch]" },
		{ "[limits]\nconnections = 5\n\n[nosuch]\n\nkey = 1\n", 4,
		  "unknown section [nosuch]" },
		{ "key = 1\n", 1, "unknown section []" },
		{ "[service]\n", 1, "unknown section [service]" },
		{ "[export .hidden]\n", 1, "export name" },
		{ "[tenant a b]\n\nservices = x\n", 1, "tenant name" },
		{ "[service host]\n\nexe = x\n", 1, "[service host]" },
		{ "[server]\n[store]\n[collect]\n[continuous]\n[auth]\n[limits]\n[tenant a]\n[service web]\n",
		  0, "" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct config config = { 0 };
		struct err err = { 0 };
		char path[] = "/tmp/profd-test-ini-XXXXXX", place[64];
		int fd = mkstemp(path), rc;

		assert_true(fd >= 0 && write(fd, cases[i].text, strlen(cases[i].text)) > 0);
		(void)close(fd);
		rc = config_load(&config, path, true, &err);
		(void)snprintf(place, sizeof(place), "%s:%u: ", path, cases[i].line);
		if (rc != (cases[i].line ? -EINVAL : 0) ||
		    (cases[i].line && (strncmp(err.text, place, strlen(place)) != 0 ||
				       !strstr(err.text, cases[i].words))))
			fail_msg("%s: %d %s", cases[i].text, rc, err.text);
		config_deinit(&config);
		(void)unlink(path);
	}
}

/* An export that only has a name is no export that is forgotten. */
static void test_export_without_keys(void **state)
{
	struct config config = { 0 };
	struct err err = { 0 };
	char path[] = "/tmp/profd-test-ini-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0 && write(fd, "[export x]\n", 11) == 11);
	(void)close(fd);
	assert_int_equal(config_load(&config, path, true, &err), 0);
	assert_int_equal(config_check(&config, &err), -EINVAL);
	assert_string_equal(err.text, "[export x] needs kind and url");
	config_deinit(&config);
	(void)unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_lines),
					    cmocka_unit_test(test_long_names),
					    cmocka_unit_test(test_sections),
					    cmocka_unit_test(test_export_without_keys) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
