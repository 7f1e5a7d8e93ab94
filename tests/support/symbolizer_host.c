// SPDX-License-Identifier: Apache-2.0
#include "tests/support/symbolizer_host.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/bytes.h"
#include "agent/base/clock.h"
#include "symbolize/symbolizer.h"
#include "tests/support/elf_fixture.h"

#define ANSWER_MS      20000

/* ---- the other ends -------------------------------------------------------------------------- */

void host_send(int fd, const void *data, size_t len, int passed)
{
	assert_int_equal(channel_send_wait(fd, data, len, &passed, passed >= 0, 5000), 0);
}

static void refuse_debug(struct symbolizer_host *f)
{
	const struct control_debug_want *want = (const void *)f->message.data;
	struct control_debug debug = { .head = { .kind = CONTROL_DEBUG, .request = want->head.request },
				       .status = -ENOENT };

	host_send(f->collector, &debug, sizeof(debug), -1);
}

/* The next message of @kind; fails the test if there is none in time. Questions for debug files
 * that are not waited for are answered with no. */
const void *host_receive(struct symbolizer_host *f, int fd, uint16_t kind)
{
	uint64_t end = clock_monotonic_ns() + ANSWER_MS * NS_PER_MS;

	for (;;) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		int rc;

		channel_message_close(&f->message);
		rc = channel_receive(fd, &f->message);
		if (rc < 0)
			fail_msg("the symbolizer is gone: %s", strerror(-rc));
		if (rc == 1 && ((struct channel_head *)(void *)f->message.data)->kind == kind)
			return f->message.data;
		if (rc == 1) {
			assert_int_equal(((struct channel_head *)(void *)f->message.data)->kind,
					 CONTROL_DEBUG_WANT);
			refuse_debug(f);
			continue;
		}
		if (clock_monotonic_ns() > end)
			fail_msg("no answer of kind %d", kind);
		(void)poll(&wait, 1, 100);
	}
}

int host_connect(struct symbolizer_host *f, enum role role)
{
	struct control_peer peer = { .head = { .kind = CONTROL_PEER }, .role = role, .generation = 1 };
	int fds[2];

	assert_int_equal(channel_pair(fds), 0);
	host_send(f->control, &peer, sizeof(peer), fds[1]);
	(void)close(fds[1]);
	return fds[0];
}

void host_start(struct symbolizer_host *f, const char *cache_name)
{
	struct symbolizer_options options = { .cache_dir_fd = -1,
					      .cache_bytes = 64 << 20,
					      .memory_bytes = 64 << 20,
					      .debug_again_ns = DEBUG_AGAIN_MS * NS_PER_MS };
	char path[256];
	int fds[2];

	if (cache_name) {
		(void)snprintf(path, sizeof(path), "%s/%s", fixture_dir(), cache_name);
		(void)!mkdir(path, 0700);
		options.cache_dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(options.cache_dir_fd >= 0);
	}
	assert_int_equal(channel_pair(fds), 0);
	f->pid = fork();
	assert_true(f->pid >= 0);
	if (!f->pid) {
		(void)close(fds[0]);
		options.control_fd = fds[1];
		_exit(symbolizer_run(&options));
	}
	(void)close(fds[1]);
	if (options.cache_dir_fd >= 0)
		(void)close(options.cache_dir_fd);
	f->control = fds[0];
	f->message.fd_count = 0;
	for (int i = 0; i < CHANNEL_FDS_MAX; i++)
		f->message.fds[i] = -1;
	host_receive(f, f->control, CONTROL_READY);
	f->collector = host_connect(f, ROLE_COLLECTOR);
	f->server = host_connect(f, ROLE_SERVER);
}

void host_stop(struct symbolizer_host *f)
{
	struct channel_head head = { .kind = CONTROL_STOP };
	int status;

	host_send(f->control, &head, sizeof(head), -1);
	assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	channel_message_close(&f->message);
	(void)close(f->control);
	(void)close(f->collector);
	(void)close(f->server);
}

int host_open_file(const char *path)
{
	char full[512];
	int fd;

	(void)snprintf(full, sizeof(full), path[0] == '/' ? "%.0s%s" : "%s/%s", fixture_dir(), path);
	fd = open(full, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

void host_ask_index(struct symbolizer_host *f, uint32_t request, int fd)
{
	struct control_index index = { .head = { .kind = CONTROL_INDEX, .request = request },
				       .kind = FEED_MODULE_ELF,
				       .want_rows = 1,
				       .voucher = f->voucher,
				       .path = "/x" };

	host_send(f->collector, &index, sizeof(index), fd);
	(void)close(fd);
}

/* Indexes @path; descriptors of the answer stay in f->message. */
struct control_indexed host_index(struct symbolizer_host *f, uint32_t request, const char *path)
{
	struct control_indexed answer;

	host_ask_index(f, request, host_open_file(path));
	answer = *(const struct control_indexed *)host_receive(f, f->collector, CONTROL_INDEXED);
	assert_int_equal(answer.head.request, request);
	return answer;
}

/* Receives DEBUG_WANT and answers it with @path, or that there is none. */
struct control_debug_want host_answer_debug(struct symbolizer_host *f, const char *path)
{
	struct control_debug_want want =
		*(const struct control_debug_want *)host_receive(f, f->collector, CONTROL_DEBUG_WANT);
	struct control_debug debug = { .head = { .kind = CONTROL_DEBUG, .request = want.head.request },
				       .status = path ? 0 : -ENOENT,
				       .voucher = f->debug_voucher };
	int fd = path ? host_open_file(path) : -1;

	host_send(f->collector, &debug, sizeof(debug), fd);
	if (fd >= 0)
		(void)close(fd);
	return want;
}

static void read_text(struct bytes *b, char *ret, size_t size)
{
	uint16_t len = bytes_u16(b);
	const char *text = bytes_take(b, len);

	assert_non_null(text);
	if (len >= size)
		len = (uint16_t)(size - 1);
	memcpy(ret, text, len);
	ret[len] = '\0';
}

void host_ask_names(struct symbolizer_host *f, uint64_t key, uint64_t offset)
{
	struct control_names ask = { .head = { .kind = CONTROL_NAMES, .request = 5 },
				     .key = key,
				     .count = 1 };

	ask.offsets[0] = offset;
	host_send(f->server, &ask, offsetof(struct control_names, offsets) + 8, -1);
}

struct host_names host_receive_names(struct symbolizer_host *f)
{
	const struct control_named *named;
	struct host_names names = { 0 };
	struct bytes b;

	named = host_receive(f, f->server, CONTROL_NAMED);
	assert_int_equal(named->head.request, 5);
	names.status = named->status;
	names.state = named->state;
	if (named->status)
		return names;
	assert_int_equal(named->count, 1);
	assert_int_equal(named->more, 0);
	b = bytes_of(named + 1, f->message.len - sizeof(*named));
	names.frames = bytes_u16(&b);
	if (names.frames) {
		names.line = bytes_u32(&b);
		names.changes = bytes_u32(&b) & NAMED_CHANGES;
		read_text(&b, names.function, sizeof(names.function));
		read_text(&b, names.file, sizeof(names.file));
		read_text(&b, names.symbol, sizeof(names.symbol));
	}
	if (!names.function[0])
		names.frames = 0;
	return names;
}

struct host_names host_names_once(struct symbolizer_host *f, uint64_t key, uint64_t offset)
{
	host_ask_names(f, key, offset);
	return host_receive_names(f);
}

/* The same, until the names are built. */
struct host_names host_names(struct symbolizer_host *f, uint64_t key, uint64_t offset)
{
	struct host_names names;

	for (int i = 0; i < 100; i++) {
		names = host_names_once(f, key, offset);
		if (names.status || names.frames)
			break;
		(void)poll(NULL, 0, 50);
	}
	return names;
}

static const char program[] = "int __attribute__((noinline)) twice(int x) { return x * 2; }\n"
			      "int main(int argc, char **argv) { return twice(argc) - 2; }\n";

void host_compile(const char *name, const char *options)
{
	char source[64];

	(void)snprintf(source, sizeof(source), "%s.c", name);
	fixture_write(source, program);
	assert_true(fixture_run("gcc %s -O1 -Wl,--build-id -o %s %s", options, name, source));
}

uint64_t host_offset(const char *path, const char *symbol)
{
	uint64_t size;
	uint64_t ev = fixture_symbol(path, symbol, &size);

	assert_int_not_equal(ev, 0);
	return fixture_offset(path, ev);
}
