// SPDX-License-Identifier: Apache-2.0
/* Every limit of the HTTP side: set to something small it is enforced, its value stands in
 * /metrics, and what it refused is counted there. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "tests/support/http_fixture.h"

#define A	       "/api/v1/observability/profiling"
#define HEADER_TIMEOUT NS_PER_S
#define BODY_TIMEOUT   (NS_PER_S * 7 / 10)
#define CONNECTIONS    64
#define SILENT	       56 /* from here on a place is made */

/* A line of /metrics; -1 if it is not there. */
static double metric(struct http_fixture *f, const char *name)
{
	struct http_reply reply = http_request_local(f, "GET", "/metrics", "", "");
	char line[128];
	const char *at;
	double value;

	assert_int_equal(reply.status, 200);
	(void)snprintf(line, sizeof(line), "\n%s ", name);
	at = strstr(reply.body, line);
	value = at ? strtod(at + strlen(line), NULL) : -1;
	http_reply_free(&reply);
	return value;
}

static void assert_metric(struct http_fixture *f, const char *name, double value)
{
	double found = metric(f, name);

	if (found < value - 1e-9 || found > value + 1e-9)
		fail_msg("%s is %g, not %g", name, found, value);
}

static void wait_for_metric(struct http_fixture *f, const char *name)
{
	for (int i = 0; i < 600; i++) {
		if (metric(f, name) > 0)
			return;
		clock_sleep_ns(100 * NS_PER_MS);
	}
	fail_msg("%s stayed 0", name);
}

static int connect_to(struct http_fixture *f)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)f->port),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void send_text(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static void test_values(void **state)
{
	static const struct {
		const char *name;
		double value;
	} rows[] = {
		{ "body_bytes", 2048 },		{ "url_bytes", 512 },
		{ "header_bytes", 1500 },	{ "header_timeout_seconds", 1 },
		{ "body_timeout_seconds", 0.7 }, { "answer_timeout_seconds", 1 },
		{ "connections", CONNECTIONS }, { "requests_per_second", 500 },
		{ "answer_bytes", 512 << 20 },	{ "answer_files_bytes", 2147483648.0 },
		{ "request_burst", 2000 },	{ "elsewhere", 7.5 },
	};
	char line[96];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		(void)snprintf(line, sizeof(line), "profd_limit{name=\"%s\"}", rows[i].name);
		assert_metric(*state, line, rows[i].value);
	}
}

/* One byte less passes, one more is refused and counted. */
static void test_sizes(void **state)
{
	static const struct {
		const char *limit;
		unsigned bytes, refused;
	} rows[] = { { "body_bytes", 2048, 413 },
		     { "url_bytes", 512, 414 },
		     { "header_bytes", 1500, 431 } };
	struct http_fixture *f = *state;
	char filler[4096], target[4200], headers[4200], body[4200], line[96];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (unsigned more = 0; more < 2; more++) {
			unsigned bytes = rows[i].bytes + (more ? 300 : 0) - (i == 2 && !more ? 200 : 0);
			struct http_reply reply;

			memset(filler, 'a', sizeof(filler));
			filler[bytes - (i == 0 ? 8 : i == 1 ? strlen(A "/") : 10)] = '\0';
			(void)snprintf(target, sizeof(target), A "/%s", i == 0 ? "start" : i == 1 ? filler : "x");
			(void)snprintf(headers, sizeof(headers), "X-A: %s\r\n", i == 2 ? filler : "a");
			(void)snprintf(body, sizeof(body), "{\"a\":\"%s\"}", filler);
			reply = http_request(f, i == 0 ? "POST" : "GET", target, headers, i == 0 ? body : "");
			if ((reply.status == rows[i].refused) != more)
				fail_msg("%s: %u with %u bytes", rows[i].limit, reply.status, bytes);
			http_reply_free(&reply);
			(void)snprintf(line, sizeof(line), "profd_limit_refusals_total{name=\"%s\"}", rows[i].limit);
			assert_metric(f, line, more);
		}
	}
}

/* Absolute, not idle: a byte now and then does not help. */
static void test_deadlines(void **state)
{
	static const struct {
		const char *phase, *begin;
	} rows[] = {
		{ "header", "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: " },
		{ "body", "POST " A "/start HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
			  "Content-Length: 2000\r\n\r\n" },
	};
	struct http_fixture *f = *state;
	char line[96], answer[64];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int fd = connect_to(f);
		bool open = true;

		send_text(fd, rows[i].begin);
		for (int k = 0; k < 6000 && open; k++) {
			clock_sleep_ns(10 * NS_PER_MS);
			(void)!send(fd, "x", 1, MSG_NOSIGNAL);
			open = recv(fd, answer, sizeof(answer), MSG_DONTWAIT) < 0 && errno == EAGAIN;
		}
		assert_false(open);
		(void)close(fd);
		(void)snprintf(line, sizeof(line), "profd_http_deadlines_total{phase=\"%s\"}", rows[i].phase);
		wait_for_metric(f, line);
	}
}

/* Answers that nobody takes: the connection ends, its thread with it. */
static void test_answer_deadline(void **state)
{
	struct http_fixture *f = *state;
	int fd = connect_to(f);

	for (int i = 0; i < 200; i++)
		send_text(fd, "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
	wait_for_metric(f, "profd_http_deadlines_total{phase=\"answer\"}");
	(void)close(fd);
}

/* Silent connections take nearly all places: the oldest goes for the next. Those that a slow
 * machine lets time out before are opened again. */
static void test_connections(void **state)
{
	struct http_fixture *f = *state;
	int fds[SILENT];

	for (int i = 0; i < 60 && metric(f, "profd_http_connections_shed_total") <= 0; i++) {
		struct http_reply reply;

		for (unsigned k = 0; k < SILENT; k++)
			fds[k] = connect_to(f);
		clock_sleep_ns(NS_PER_S / 4);
		reply = http_request(f, "GET", "/healthz", "", "");
		assert_int_equal(reply.status, 200);
		http_reply_free(&reply);
		for (unsigned k = 0; k < SILENT; k++)
			(void)close(fds[k]);
	}
	assert_true(metric(f, "profd_http_connections_shed_total") > 0);
}

/* More silent ones at once than there are places: whoever comes next is heard all the same. */
static void test_burst(void **state)
{
	struct http_fixture *f = *state;
	int fds[2 * CONNECTIONS];

	for (unsigned k = 0; k < ARRAY_SIZE(fds); k++) {
		fds[k] = connect_to(f);
		if (k % 8 == 7) {
			struct http_reply reply = http_request(f, "GET", "/healthz", "", "");

			assert_int_equal(reply.status, 200);
			http_reply_free(&reply);
		}
	}
	for (unsigned k = 0; k < ARRAY_SIZE(fds); k++)
		(void)close(fds[k]);
}

static int setup(void **state)
{
	static const struct api_limit elsewhere = { "elsewhere", 7.5 };
	struct http_fixture *f = calloc(1, sizeof(*f));

	f->options = (struct api_options){
		.body_bytes = 2048,
		.url_bytes = 512,
		.header_bytes = 1500,
		.header_timeout_ns = HEADER_TIMEOUT,
		.body_timeout_ns = BODY_TIMEOUT,
		.answer_timeout_ns = NS_PER_S,
		.connections = CONNECTIONS,
		.requests_per_second = 500,
		.request_burst = 2000,
		.limits = &elsewhere,
		.limit_count = 1,
	};
	*state = f;
	return http_fixture_setup(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),	    cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_deadlines),   cmocka_unit_test(test_answer_deadline),
		cmocka_unit_test(test_connections),
		cmocka_unit_test(test_burst),
	};

	return cmocka_run_group_tests(tests, setup, http_fixture_teardown);
}
