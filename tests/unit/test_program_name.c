// SPDX-License-Identifier: Apache-2.0
/* Names that are inferred from how a program was started: a row per program and way to start it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "agent/base/cleanup.h"
#include "agent/collect/proc/program_name.h"

/* Arguments are separated by '|'; a row with '|' nowhere is one argument, as titles are. */
static const struct {
	const char *exe, *comm, *cwd, *args, *name;
} rows[] = {
	/* Python */
	{ "/usr/bin/python3.11", "python3", "/srv", "python3|/opt/etl/report.py|--token|s3cret",
	  "report.py" },
	{ "/usr/bin/python3.11", "python3", "/srv/shop", "python3|manage.py|runserver",
	  "shop/manage.py" },
	{ "/usr/bin/python3.11", "python3", "/", "python3|-u|-W|ignore|/srv/shop/src/main.py",
	  "shop/main.py" },
	{ "/usr/bin/python3.11", "python3", "/", "python3|-m|http.server|8000", "http.server" },
	{ "/usr/bin/python3.11", "python3", "/", "python3|-m|uvicorn|--port|80|shop.web:app",
	  "uvicorn shop.web:app" },
	{ "/usr/bin/python3.11", "gunicorn", "/",
	  "/usr/bin/python3|/usr/bin/gunicorn|-w|2|-b|127.0.0.1:80|app:app", "gunicorn app:app" },
	{ "/usr/bin/python3.11", "gunicorn", "/",
	  "/usr/bin/python3|/usr/bin/gunicorn|-w|2|shop.wsgi", "gunicorn shop.wsgi" },
	{ "/usr/bin/python3.11", "gunicorn: maste", "/", "gunicorn: master [app:app]",
	  "gunicorn app:app" },
	{ "/usr/bin/python3.11", "celery", "/",
	  "/usr/bin/python3|/usr/bin/celery|-A|shop.tasks|worker|--broker|redis://:pw@h",
	  "celery shop.tasks" },
	{ "/usr/bin/python3.11", "celery", "/",
	  "[celeryd: celery@h:MainProcess] -active- (-A shop.tasks worker)", "celery shop.tasks" },
	{ "/usr/bin/python3.11", "flask", "/", "/usr/bin/python3|/usr/bin/flask|--app|shop|run",
	  "flask shop" },
	{ "/usr/bin/python3.11", "python3", "/", "python3|-c|import time; password = 'x'", "" },
	{ "/usr/bin/python3.11", "python3", "/", "python3", "" },
	/* Node */
	{ "/usr/bin/node", "node", "/srv/shop", "node|--max-old-space-size=512|server.js",
	  "shop/server.js" },
	{ "/usr/bin/node", "node", "/", "node|-r|dotenv/config|/srv/mailer.mjs", "mailer.mjs" },
	{ "/usr/bin/node", "node", "/srv/shop", "node|/srv/shop/node_modules/.bin/next|start",
	  "next" },
	{ "/usr/bin/node", "node", "/", "node|/srv/node_modules/@nestjs/cli/bin/nest.js|start",
	  "@nestjs/cli" },
	{ "/usr/bin/node", "npm start", "/srv/shop", "npm start", "npm shop" },
	/* Java */
	{ "/usr/lib/jvm/java-17/bin/java", "java", "/",
	  "java|-Xmx1g|-Dpassword=x|-jar|/srv/petclinic-3.1.0-SNAPSHOT.jar", "petclinic" },
	{ "/usr/lib/jvm/java-17/bin/java", "java", "/",
	  "java|-Dspring.application.name=billing|-jar|x.jar", "billing" },
	{ "/usr/lib/jvm/java-17/bin/java", "java", "/",
	  "java|-cp|/a.jar:/b.jar|com.acme.shop.OrderService|--key|k", "OrderService" },
	{ "/usr/lib/jvm/java-17/bin/java", "java", "/", "java|-classpath|x|com.acme.shop.Main",
	  "com.acme.shop.Main" },
	{ "/usr/lib/jvm/java-17/bin/java", "java", "/",
	  "java|-classpath|x|org.apache.catalina.startup.Bootstrap|start", "tomcat" },
	{ "/usr/lib/jvm/java-17/bin/java", "java", "/", "java|-p|mods|-m|shop/com.acme.Till",
	  "Till" },
	{ "/usr/lib/jvm/java-17/bin/java", "java", "/", "java|-version", "" },
	/* Ruby, PHP, Perl, .NET, shells */
	{ "/usr/bin/ruby3.1", "puma", "/srv/shop", "/usr/bin/ruby|/usr/bin/puma|-p|9292",
	  "puma shop" },
	{ "/usr/bin/ruby3.1", "puma 5.6.5 (tcp", "/srv/shop",
	  "puma 5.6.5 (tcp://0.0.0.0:9292) [shop]", "puma shop" },
	{ "/usr/bin/ruby3.1", "ruby", "/", "ruby|-I|lib|/opt/jobs.rb", "jobs.rb" },
	{ "/usr/sbin/php-fpm8.2", "php-fpm8.2", "/", "php-fpm: pool www", "php-fpm" },
	{ "/usr/sbin/php-fpm8.2", "php-fpm8.2", "/", "php-fpm: master process (/etc/php.conf)",
	  "php-fpm" },
	{ "/usr/bin/php8.2", "php", "/srv/shop", "php|artisan|queue:work", "shop/artisan" },
	{ "/usr/bin/perl", "munin-node", "/", "/usr/bin/perl|-w|/usr/sbin/munin-node",
	  "munin-node" },
	{ "/usr/bin/dotnet", "dotnet", "/", "dotnet|/srv/Shop.Api.dll|--urls|http://x",
	  "Shop.Api.dll" },
	{ "/usr/bin/bash", "backup.sh", "/", "/bin/bash|/usr/local/bin/backup.sh|--password|x",
	  "backup.sh" },
	{ "/usr/bin/dash", "sh", "/", "sh|-c|curl -u me:secret x", "" },
	{ "/usr/bin/bash", "bash", "/", "-bash", "" },
	{ "/usr/bin/bash", "bash", "/", "bash|/dev/fd/63", "" },
	{ "/usr/bin/python3.11", "python3", "/", "python3|/proc/self/fd/3|x", "" },
	/* native */
	{ "/usr/bin/redis-check-rdb", "redis-server", "/", "/usr/bin/redis-server 127.0.0.1:6379",
	  "redis-server" },
	{ "/usr/bin/redis-check-rdb", "redis-check-rdb", "/", "redis-check-rdb|x", "" },
	{ "/usr/bin/busybox", "busybox", "/", "busybox|httpd|-f", "httpd" },
	{ "/usr/bin/busybox", "httpd", "/", "httpd|-f", "httpd" },
	{ "/usr/sbin/nginx", "nginx", "/", "nginx: worker process", "" },
	{ "/usr/lib/postgresql/15/bin/postgres", "postgres", "/",
	  "postgres: 15/main: checkpointer ", "" },
	{ "/usr/bin/caddy", "caddy", "/", "/usr/bin/caddy|run", "" },
	{ "/memfd:sealed-91173221a7ea", "memfd:sealed-91", "/", "/opt/agent/backend|--uid|0", "backend" },
	{ "/memfd:runc_cloned:/proc/self/exe", "6", "/", "/usr/bin/runc|init", "runc" },
	/* A name that only the program itself claims is not believed. */
	{ "/tmp/miner", "miner", "/", "nginx|-g", "" },
	{ "/tmp/miner", "nginx", "/", "/usr/bin/sshd", "" },
	/* Texts that are no names. */
	{ "/usr/bin/python3.11", "python3", "/", "python3|/x/\x1b[31m.py", "" },
	{ "/usr/bin/python3.11", "python3", "/", "python3|-m", "" },
	{ "/usr/bin/node", "node", "", "node|index.js", "index.js" },
	{ "", "x", "/", "x|y", "" },
	{ "/usr/bin/python3.11", "python3", "/", "", "" },
};

static void infer(const char *exe, const char *comm, const char *cwd, const char *args,
		  char ret[PROGRAM_NAME_SIZE])
{
	char bytes[512];
	size_t len = strlen(args);

	assert_true(len < sizeof(bytes));
	memcpy(bytes, args, len + 1);
	for (size_t i = 0; i < len; i++)
		if (bytes[i] == '|')
			bytes[i] = '\0';
	program_name(&(struct program){ .exe = exe,
					.comm = comm,
					.cwd = cwd,
					.args = bytes,
					.args_len = len ? len + 1 : 0 },
		     ret);
}

static void test_names(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char name[PROGRAM_NAME_SIZE];

		infer(rows[i].exe, rows[i].comm, rows[i].cwd, rows[i].args, name);
		if (strcmp(name, rows[i].name) != 0)
			fail_msg("%s (%s): '%s', expected '%s'", rows[i].args, rows[i].exe, name,
				 rows[i].name);
	}
}

/* Arguments longer than any name, and an end without its NUL. */
static void test_bounds(void **state)
{
	static char args[3 * 4096];
	char name[PROGRAM_NAME_SIZE];
	struct program program = { .exe = "/usr/bin/python3", .comm = "python3", .cwd = "/" };

	memset(args, 'a', sizeof(args));
	memcpy(args, "python3", 8);
	args[4000] = '\0';
	program.args = args;
	program.args_len = sizeof(args);
	program_name(&program, name);
	assert_int_equal(strlen(name), PROGRAM_NAME_SIZE - 1);
	program.args_len = 7;
	program_name(&program, name);
	assert_string_equal(name, "");
	/* A first argument that is too long to be looked at names nothing. */
	memset(args, 'a', sizeof(args));
	program.args_len = sizeof(args);
	program_name(&program, name);
	assert_string_equal(name, "");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
