// SPDX-License-Identifier: Apache-2.0
#include "tests/support/clickhouse.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"

#define DEBIANS	   "/usr/sbin/clickhouse-server"
#define CURRENT	   "tests/support/clickhouse_current.py"
#define PYTHON	   "build/clickhouse-current/bin/python3" /* with chdb-core: tools/packages.sh */
#define START_NS   (60 * NS_PER_S)
#define ADDRESS	   "127.0.0.1"

static struct {
	char dir[32];
	unsigned ports[3];
	pid_t owner, pid; /* pid 0: it does not run */
	unsigned databases;
	char url[96];
	char profile[768]; /* settings of the users' profile, as XML */
	enum clickhouse_engine engine;
} server;

/* Taken by nobody a moment ago. */
static unsigned free_port(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(at);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	return ntohs(at.sin_port);
}

static void write_file(const char *name, const char *text)
{
	char path[64];
	cleanup_close int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/%s", server.dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
}

static void write_config(void)
{
	cleanup_buf struct buf text = { 0 };

	buf_printf(&text,
		   "<yandex><logger><level>error</level><console>1</console></"
		   "logger><http_port>%u</http_port><tcp_port>%u</tcp_port>"
		   "<listen_host>" ADDRESS
		   "</listen_host><path>%s/data/</path><tmp_path>%s/tmp/</tmp_path>"
		   "<users_config>%s/users.xml</users_config><default_profile>default</"
		   "default_profile>"
		   "<default_database>default</default_database><mark_cache_size>67108864</"
		   "mark_cache_size>"
		   "<max_concurrent_queries>100</max_concurrent_queries></yandex>",
		   server.ports[0], server.ports[1], server.dir, server.dir, server.dir);
	write_file("config.xml", text.data);
	text.len = 0;
	buf_printf(&text,
		   "<yandex><profiles><default><max_memory_usage>1000000000</max_memory_usage>%s</"
		   "default></profiles><users>",
		   server.profile);
	buf_add_str(&text,
		   "<default><password></password><networks><ip>::/0</ip></"
		   "networks><profile>default</profile><quota>default</quota></default>"
		   "<prof><password>p@ss:w/rd</password><networks><ip>::/0</ip></"
		   "networks><profile>default</profile><quota>default</quota>"
		   "</prof></users><quotas><default></default></quotas></yandex>");
	write_file("users.xml", text.data);
}

static void leave_nothing(void)
{
	char command[64];

	if (server.owner != getpid() || !server.dir[0])
		return;
	if (server.pid)
		clickhouse_kill();
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", server.dir);
	(void)!system(command);
}

static void make_folder(void)
{
	strcpy(server.dir,
	       access("/dev/shm", W_OK) == 0 ? "/dev/shm/profd-ch-XXXXXX" : "/tmp/profd-ch-XXXXXX");
	assert_non_null(mkdtemp(server.dir));
	server.owner = getpid();
	for (size_t i = 0; i < 2; i++)
		server.ports[i] = free_port();
	write_config();
	assert_int_equal(atexit(leave_nothing), 0);
}

static void run_server(pid_t parent)
{
	char config[64], log[64];
	int fd;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	(void)snprintf(config, sizeof(config), "--config-file=%s/config.xml", server.dir);
	(void)snprintf(log, sizeof(log), "%s/log", server.dir);
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	(void)dup2(fd, 1);
	(void)dup2(fd, 2);
	io_close_others(1, 2);
	if (server.engine == CLICKHOUSE_DEBIANS)
		(void)execl(DEBIANS, DEBIANS, config, (char *)NULL);
	else
		(void)execl(PYTHON, PYTHON, CURRENT, config, (char *)NULL);
	_exit(127);
}

static bool answers(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				  .sin_port = htons((uint16_t)server.ports[0]) };
	cleanup_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
}

static void not_started(void)
{
	char command[64];

	(void)snprintf(command, sizeof(command), "tail -n 20 '%s/log'", server.dir);
	(void)!system(command);
	fail_msg("ClickHouse did not start");
}

void clickhouse_start(void)
{
	uint64_t until = clock_monotonic_ns() + START_NS;
	pid_t self = getpid();
	int status;

	if (access(DEBIANS, X_OK) != 0)
		fail_msg("%s is missing: apt-get install clickhouse-server", DEBIANS);
	if (access(PYTHON, X_OK) != 0)
		fail_msg("%s is missing: sh -c '. tools/packages.sh; current_clickhouse'", PYTHON);
	if (!server.dir[0])
		make_folder();
	if (server.pid)
		return;
	server.pid = fork();
	assert_true(server.pid >= 0);
	if (server.pid == 0)
		run_server(self);
	while (!answers()) {
		if (waitpid(server.pid, &status, WNOHANG) == server.pid || clock_monotonic_ns() > until)
			not_started();
		clock_sleep_ns(10 * NS_PER_MS);
	}
}

void clickhouse_kill(void)
{
	int status;

	if (!server.pid)
		return;
	(void)kill(server.pid, SIGKILL);
	(void)waitpid(server.pid, &status, 0);
	server.pid = 0;
}

void clickhouse_use(enum clickhouse_engine engine)
{
	leave_nothing();
	server.dir[0] = '\0';
	server.engine = engine;
	server.profile[0] = '\0';
}

void clickhouse_set_profile(const char *settings)
{
	clickhouse_kill();
	(void)snprintf(server.profile, sizeof(server.profile), "%s", settings);
	if (server.dir[0])
		write_config();
}

void clickhouse_freeze(void)
{
	assert_int_equal(kill(server.pid, SIGSTOP), 0);
}

void clickhouse_thaw(void)
{
	assert_int_equal(kill(server.pid, SIGCONT), 0);
}

unsigned clickhouse_port(void)
{
	return server.ports[0];
}

const char *clickhouse_fresh_url(void)
{
	clickhouse_start();
	(void)snprintf(server.url, sizeof(server.url), "clickhouse://" ADDRESS ":%u/t%u",
		       server.ports[0], ++server.databases);
	return server.url;
}

static size_t on_data(char *data, size_t size, size_t count, void *ctx)
{
	buf_add(ctx, data, size * count);
	return size * count;
}

static long ask(unsigned port, const char *sql, struct buf *ret)
{
	CURL *curl = curl_easy_init();
	char url[96];
	long status = 0;

	(void)snprintf(url, sizeof(url), "http://" ADDRESS ":%u/?wait_end_of_query=1", port);
	assert_non_null(curl);
	(void)curl_easy_setopt(curl, CURLOPT_URL, url);
	(void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, sql);
	(void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
	(void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, ret);
	assert_int_equal(curl_easy_perform(curl), CURLE_OK);
	(void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(curl);
	if (ret->len && ret->data[ret->len - 1] == '\n')
		ret->data[--ret->len] = '\0';
	buf_add_char(ret, '\0');
	return status;
}

void clickhouse_query_at(unsigned port, const char *sql, struct buf *ret)
{
	if (ask(port, sql, ret) != 200)
		fail_msg("%s: %s", sql, ret->data);
}

void clickhouse_query(const char *sql, struct buf *ret)
{
	clickhouse_query_at(server.ports[0], sql, ret);
}
