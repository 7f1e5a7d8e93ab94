// SPDX-License-Identifier: Apache-2.0
#include "tests/support/http_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/session/sessions_run.h"
#include "bpf/profiler.h"

#define PERIOD_99 (1000000000ull / 99)

static int listen_tcp(unsigned *ret_port)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 64), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	*ret_port = ntohs(address.sin_port);
	return fd;
}

static struct sockaddr_un unix_address(const struct http_fixture *f)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%.*s",
		       (int)sizeof(address.sun_path) - 1, f->socket_path);
	return address;
}

static int listen_unix(const struct http_fixture *f)
{
	struct sockaddr_un address = unix_address(f);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	(void)unlink(address.sun_path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 64), 0);
	return fd;
}

static void start_api(struct http_fixture *f)
{
	struct err err = { 0 };

	f->options.sessions = f->sessions;
	f->options.store = f->store;
	f->options.listen_fd = listen_tcp(&f->port);
	f->options.socket_fd = listen_unix(f);
	if (api_start(&f->options, &f->api, &err) < 0)
		fail_msg("%s", err.text);
}

static void fill(struct http_fixture *f)
{
	const uint64_t a[] = { prof_frame_module(0, 0x100, 0), prof_frame_module(0, 0x300, 0) };
	const uint64_t b[] = { prof_frame_module(1, 0x200, 0), prof_frame_module(0, 0x300, 0) };
	const struct fake_proc procs[] = {
		{ .proc = 1, .tgid = 101, .comm = "web", .exe = "/usr/bin/web",
		  .cgroup = "/system.slice/web.service" },
		{ .proc = 2, .tgid = 102, .comm = "web", .exe = "/usr/bin/web",
		  .cgroup = "/system.slice/web.service" },
		{ .proc = 3, .tgid = 103, .comm = "db", .exe = "/usr/bin/db", .cgroup = "/" },
	};

	fake_feed_epoch(&f->feed, 1);
	fake_feed_module(&f->feed, 0, 0xa0, "/usr/bin/web");
	fake_feed_module(&f->feed, 1, 0xb0, "/usr/lib/libx.so");
	for (size_t i = 0; i < ARRAY_SIZE(procs); i++)
		fake_feed_proc(&f->feed, &procs[i]);
	fake_feed_stack(&f->feed, 1, a, 2, 0);
	fake_feed_stack(&f->feed, 2, b, 2, 0);
}

static void wait_for_services(struct http_fixture *f)
{
	for (int i = 0; i < 400; i++) {
		struct service_list list;
		struct err err = { 0 };
		bool found = false;

		assert_int_equal(sessions_services(f->sessions, "default", &list, &err), 0);
		for (uint32_t j = 0; j < list.count; j++)
			found |= strcmp(list.items[j].name, "db") == 0 &&
				 list.items[j].types[PROFILE_CPU].available;
		service_list_deinit(&list);
		if (found)
			return;
		clock_sleep_ns(10 * NS_PER_MS);
	}
	fail_msg("the service db never appeared");
}

void http_fixture_open(struct http_fixture *f)
{
	struct sessions_options options = { .flush_interval_ns = 100 * NS_PER_MS,
					    .build_budget_ns = f->build_budget_ns };
	struct err err = { 0 };

	strcpy(f->dir, "/tmp/profd-http-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->socket_path, sizeof(f->socket_path), "%s/profd.sock", f->dir);
	fake_feed_open(&f->feed, 8 << 20);
	if (store_open(f->dir, NULL, "", &f->store, &err) < 0)
		fail_msg("%s", err.text);
	options.store = f->store;
	options.feed_fd = f->feed.ring_fd;
	if (sessions_create(&options, &f->sessions, &err) < 0)
		fail_msg("%s", err.text);
	fake_feed_connect(&f->feed, f->sessions);
	fill(f);
	wait_for_services(f);
	start_api(f);
}

void http_fixture_close(struct http_fixture *f)
{
	char command[128];

	api_stop(f->api, NS_PER_S);
	sessions_destroy(f->sessions);
	store_close(f->store);
	fake_feed_close(&f->feed);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", f->dir);
	assert_int_equal(system(command), 0);
}

int http_fixture_setup(void **state)
{
	struct http_fixture *f = *state ? *state : calloc(1, sizeof(*f));

	assert_non_null(f);
	http_fixture_open(f);
	*state = f;
	return 0;
}

int http_fixture_teardown(void **state)
{
	http_fixture_close(*state);
	free(*state);
	return 0;
}

void http_fixture_restart(struct http_fixture *f)
{
	api_stop(f->api, NS_PER_S);
	start_api(f);
}

/* ---- client ---------------------------------------------------------------------------------- */

static struct http_reply read_reply(int fd, uint64_t begin_ns)
{
	struct buf text = { .max = 64u << 20 };
	struct http_reply reply = { 0 };
	char part[16384];
	ssize_t n;

	while ((n = recv(fd, part, sizeof(part), 0)) > 0)
		buf_add(&text, part, (size_t)n);
	(void)close(fd);
	reply.seconds = (double)(clock_monotonic_ns() - begin_ns) / 1e9;
	buf_add_str(&text, "");
	reply.text = buf_take(&text, &reply.body_len);
	assert_non_null(reply.text);
	if (sscanf(reply.text, "HTTP/1.1 %u", &reply.status) != 1)
		reply.status = 0;
	reply.headers = reply.text;
	reply.body = strstr(reply.text, "\r\n\r\n");
	reply.body = reply.body ? reply.body + 4 : reply.text + strlen(reply.text);
	reply.body_len -= (size_t)(reply.body - reply.text);
	reply.json = cJSON_ParseWithLength(reply.body, reply.body_len);
	return reply;
}

static struct http_reply exchange(int fd, const void *bytes, size_t len)
{
	const struct timeval limit = { .tv_sec = 30 };
	uint64_t begin_ns = clock_monotonic_ns();
	size_t sent = 0;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	while (sent < len) {
		ssize_t n = send(fd, (const char *)bytes + sent, len - sent, MSG_NOSIGNAL);

		if (n <= 0)
			break;
		sent += (size_t)n;
	}
	return read_reply(fd, begin_ns);
}

struct http_reply http_send(struct http_fixture *f, const void *bytes, size_t len)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons((uint16_t)f->port),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return exchange(fd, bytes, len);
}

static char *request_text(const struct http_fixture *f, const char *method, const char *target,
			  const char *headers, const char *body, size_t *ret_len)
{
	struct buf text = { 0 };

	buf_printf(&text, "%s ", method);
	buf_add_str(&text, target);
	buf_printf(&text, " HTTP/1.1\r\nConnection: close\r\nContent-Length: %zu\r\n", strlen(body));
	if (!strcasestr(headers, "Host:"))
		buf_printf(&text, "Host: 127.0.0.1:%u\r\n", f->port);
	if (*body && !strcasestr(headers, "Content-Type:"))
		buf_add_str(&text, "Content-Type: application/json\r\n");
	buf_add_str(&text, headers);
	buf_add_str(&text, "\r\n");
	buf_add_str(&text, body);
	return buf_take(&text, ret_len);
}

struct http_reply http_request(struct http_fixture *f, const char *method, const char *target,
			       const char *headers, const char *body)
{
	size_t len = 0;
	cleanup_free char *text = request_text(f, method, target, headers, body, &len);

	return http_send(f, text, len);
}

struct http_reply http_request_local(struct http_fixture *f, const char *method, const char *target,
				     const char *headers, const char *body)
{
	size_t len = 0;
	cleanup_free char *text = request_text(f, method, target, headers, body, &len);
	struct sockaddr_un address = unix_address(f);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return exchange(fd, text, len);
}

void http_reply_free(struct http_reply *reply)
{
	cJSON_Delete(reply->json);
	free(reply->text);
	*reply = (struct http_reply){ 0 };
}

const char *http_reply_header(const struct http_reply *reply, const char *name)
{
	static char value[4096];
	size_t len = strlen(name);

	for (const char *line = reply->headers; line && line < reply->body;
	     line = strstr(line, "\r\n") ? strstr(line, "\r\n") + 2 : NULL) {
		if (strncasecmp(line, name, len) != 0 || line[len] != ':')
			continue;
		line += len + 1;
		line += strspn(line, " ");
		(void)snprintf(value, sizeof(value), "%.*s", (int)strcspn(line, "\r"), line);
		return value;
	}
	return NULL;
}

const cJSON *http_member(const struct http_reply *reply, const char *path)
{
	const cJSON *at = reply->json;
	char text[256], *save = NULL;

	(void)snprintf(text, sizeof(text), "%s", path);
	for (char *part = strtok_r(text, ".", &save); part && at; part = strtok_r(NULL, ".", &save))
		at = cJSON_IsArray(at) ? cJSON_GetArrayItem(at, atoi(part))
				       : cJSON_GetObjectItemCaseSensitive(at, part);
	if (!at)
		fail_msg("no member %s in %u %.2000s", path, reply->status, reply->body);
	return at;
}

const char *http_text(const struct http_reply *reply, const char *path)
{
	const cJSON *item = http_member(reply, path);

	if (!cJSON_IsString(item))
		fail_msg("%s is no string in %.2000s", path, reply->body);
	return item->valuestring;
}

double http_number(const struct http_reply *reply, const char *path)
{
	const cJSON *item = http_member(reply, path);

	if (!cJSON_IsNumber(item))
		fail_msg("%s is no number in %.2000s", path, reply->body);
	return item->valuedouble;
}

void http_make_session(struct http_fixture *f, const char *tenant, char id[SESSION_ID_SIZE])
{
	http_make_session_of(f, tenant, "web", id);
}

void http_make_session_of(struct http_fixture *f, const char *tenant, const char *service,
			  char id[SESSION_ID_SIZE])
{
	struct session_request request = { .tenant = tenant, .service = service, .type = PROFILE_CPU,
					   .duration_s = 60, .rate_hz = 99 };
	uint32_t first = strcmp(service, "db") == 0 ? 3 : 1, second = strcmp(service, "db") == 0 ? 3 : 2;
	struct session_info info;
	struct err err = { 0 };
	bool stopped = false;
	uint64_t now_ns;

	if (sessions_start(f->sessions, &request, &info, &err) < 0)
		fail_msg("%s", err.text);
	strcpy(id, info.id);
	session_info_deinit(&info);
	if (sessions_wait_started(f->sessions, tenant, id, 5 * NS_PER_S, &err) < 0)
		fail_msg("%s", err.text);
	now_ns = clock_monotonic_ns();
	for (int i = 0; i < 40; i++)
		fake_feed_sample(&f->feed, i < 10 ? first : second, 100 + (i < 10 ? first : second),
				 i < 10 ? 1 : 2, now_ns + (uint64_t)i, PERIOD_99);
	if (sessions_delete(f->sessions, tenant, id, &stopped, &err) < 0 ||
	    sessions_wait(f->sessions, tenant, id, 10 * NS_PER_S, &err) < 0)
		fail_msg("%s", err.text);
}
