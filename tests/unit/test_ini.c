// SPDX-License-Identifier: Apache-2.0
/* INI text, and that a configuration's names and values are taken whole however long they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/ini.h"
#include "agent/config.h"

static int note(void *ctx, const char *section, const char *key, const char *value)
{
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
	      "s.a=1|s.b=2 3|t u.e=|");
	check("a = x;y ; z\nb = ;z\nc = http://h:1/?a=b\nd = #1\n", 0, ".a=x;y|.b=|.c=http://h:1/?a=b|.d=#1|");
	check("a = 1\nb\nc = 2\n", 2, ".a=1|");
	check("\n= 1\n", 2, "");
	check("[s\na = 1\n", 1, "");
	check("[]\n", 1, "");
	check("[s] x\n", 1, "");
	check("a = 1\nb = refused\nc = 2\n", 2, ".a=1|.b=refused|");
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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_lines), cmocka_unit_test(test_long_names) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
