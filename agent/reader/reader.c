// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/base/err.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "agent/base/privileges.h"
#include "agent/reader/answer.h"
#include "agent/reader/glibc_heap.h"
#include "agent/reader/go_goroutines.h"
#include "agent/reader/go_process.h"
#include "agent/reader/script.h"
#include "agent/reader/threads.h"
#include "agent/reader/watch.h"
#include "agent/wire/control.h"
#include "symbolize/sandbox.h"

#define IDLE_NS		(60 * NS_PER_S)
#define DEADLINE_MAX_MS 60000u
#define SEND_WAIT_MS	2000 /* for the server to take a chunk */
#define WATCH_MARGIN_NS (5 * NS_PER_S) /* beyond the deadline, which each reading looks at itself */
#define ADDRESS_SPACE_MAX (2ull << 30)
#define FILE_BYTES_MAX	  (128u << 20)
#define FILES_MAX	  128

struct reader {
	int control_fd; /* -1 = only the server's channel */
	int server_fd;	/* -1 = no server yet */
	int collector_fd; /* -1 = no collector yet; asks for script frames (script.h) */
	struct go_processes processes;
	struct row_tables rows; /* of native programs */
	struct cpu_ticks ticks;
	struct read_writer writer;
	struct channel_message message;
	struct {
		struct control_read_chunk head;
		uint8_t payload[READ_CHUNK_MAX];
	} chunk;
	struct channel_head request; /* being answered */
};

/* ---- privileges ------------------------------------------------------------------------------ */

/* /proc/PID/syscall, pagemap and mem belong to the target's user: without CAP_DAC_READ_SEARCH only
 * the own user's could be opened. It adds nothing that CAP_SYS_PTRACE does not give already. */
static int drop_privileges(void)
{
	const uint64_t mask = 1ull << CAP_SYS_PTRACE | 1ull << CAP_DAC_READ_SEARCH;
	static const struct {
		int resource;
		rlim_t limit;
	} limits[] = {
		{ RLIMIT_CORE, 0 },
		{ RLIMIT_FSIZE, FILE_BYTES_MAX }, /* of memfds, too */
		{ RLIMIT_NOFILE, FILES_MAX },
		{ RLIMIT_AS, ADDRESS_SPACE_MAX },
	};
	int rc = privileges_leave_root();

	/* Root of a container without CAP_SETUID stays root, with the rights of @mask alone. */
	rc = rc < 0 && rc != -EPERM ? rc : privileges_keep(mask);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		struct rlimit limit = { limits[i].limit, limits[i].limit };

		(void)!setrlimit((__rlimit_resource_t)limits[i].resource, &limit);
	}
	/* The kernel forgets this one when credentials change. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	return sandbox_enter_reader();
}

/* ---- answering ------------------------------------------------------------------------------- */

static int send_chunk(struct reader *r, int status, bool more, const void *data, size_t len)
{
	r->chunk.head = (struct control_read_chunk){
		.head = { .kind = CONTROL_READ_CHUNK, .request = r->request.request },
		.status = status,
		.more = more,
		.len = (uint32_t)len,
	};
	if (len)
		memcpy(r->chunk.payload, data, len);
	return channel_send_wait(r->server_fd, &r->chunk, sizeof(r->chunk.head) + len, NULL, 0,
				 SEND_WAIT_MS);
}

static int flush_chunk(void *ctx, const void *data, size_t len)
{
	return send_chunk(ctx, 0, true, data, len);
}

static void write_target(struct reader *r, const struct target *target,
			 const struct go_layout *layout)
{
	struct clock_triple now = clock_now();
	struct read_target out = {
		.start_boottime_ns = target->start_boottime_ns,
		.monotonic_ns = now.monotonic_ns,
		.realtime_ns = now.realtime_ns,
		.tgid = target->tgid,
	};

	if (layout) {
		out.runtime = READ_RUNTIME_GO;
		out.go_minor = layout->minor;
		out.version_len = (uint32_t)strnlen(layout->version, sizeof(out.version));
		memcpy(out.version, layout->version, out.version_len);
	}
	read_writer_fixed(&r->writer, READ_TARGET, &out, sizeof(out));
}

static uint64_t status_bytes(const char *status, const char *name)
{
	const char *line = strstr(status, name);

	return line ? strtoull(line + strlen(name), NULL, 10) << 10 : 0;
}

/* Source: proc_pid_status(5), lines in kB. */
static uint64_t resident_bytes(uint32_t tgid)
{
	char path[40], text[4096];

	(void)snprintf(path, sizeof(path), "/proc/%u/status", tgid);
	if (io_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return 0;
	return status_bytes(text, "\nRssAnon:") + status_bytes(text, "\nVmSwap:");
}

static int read_heap(struct answer *answer, uint32_t flags, struct err *err)
{
	struct read_heap heap = { 0 };
	int rc = flags & READER_RESIDENT_ONLY ? 0
					      : glibc_heap_walk(answer->target, answer->maps,
								answer->deadline_ns, &heap, err);

	heap.resident_bytes = resident_bytes(answer->target->tgid);
	if (rc == 0)
		read_writer_fixed(answer->writer, READ_HEAP, &heap, sizeof(heap));
	return rc;
}

/* Frames an answer; @read writes the records of one kind. */
static int answer_request(struct reader *r, const struct control_read_target *request,
			  struct target *target, struct target_maps *maps, struct go_process *go,
			  uint64_t deadline_ns, struct err *err)
{
	cleanup_answer struct answer answer = { 0 };
	int rc;

	read_writer_init(&r->writer, flush_chunk, r);
	rc = answer_init(&answer, target, maps, &r->writer, deadline_ns);
	if (rc < 0)
		return rc;
	write_target(r, target, go ? go->layout : NULL);
	if (request->head.kind == CONTROL_THREADS)
		rc = threads_read(&answer, &r->rows, request->flags & READER_TASKS);
	else if (request->head.kind == CONTROL_HEAP)
		rc = read_heap(&answer, request->flags, err);
	else if (request->head.kind == CONTROL_GOROUTINES)
		rc = go_goroutines_read(&go->unwinder, &go->walks, &answer, request->flags);
	else
		rc = go_buckets_read(&go->unwinder, &go->places, &r->ticks, request->what, &answer,
				     err);
	if (rc == 0)
		rc = target_check(target);
	return rc < 0 ? rc : answer_finish(&answer);
}

static int read_any(struct reader *r, const struct control_read_target *request,
			uint64_t deadline_ns, struct err *err)
{
	cleanup_target struct target target = TARGET_NONE;
	cleanup_target_maps struct target_maps maps = { 0 };
	int rc = target_open(request->tgid, request->start_boottime_ns, &target);

	if (rc == 0)
		rc = target_maps_read(&target, &maps);
	return rc < 0 ? rc : answer_request(r, request, &target, &maps, NULL, deadline_ns, err);
}

static int read_go(struct reader *r, const struct control_read_target *request,
		   uint64_t deadline_ns, struct err *err)
{
	struct go_process *process;
	int rc = go_processes_get(&r->processes, request->tgid, request->start_boottime_ns,
				  &process, err);

	if (rc < 0)
		return rc;
	rc = answer_request(r, request, &process->target, &process->maps, process, deadline_ns,
			    err);
	if (rc == -EIO || rc == -ESRCH)
		go_processes_forget(&r->processes, process);
	return rc;
}

static const char *failure_text(int rc)
{
	switch (rc) {
	case -ESRCH:
		return "the process has ended";
	case -EPERM:
	case -EACCES:
		return "no permission to read the memory of this process (CAP_SYS_PTRACE is "
		       "needed)";
	case -EIO:
		return "the memory of this process changed under every attempt to read it";
	case -EINVAL:
		return "malformed request";
	default:
		return strerror(-rc);
	}
}

static int check_request(const struct channel_message *message)
{
	const struct control_read_target *request = (const void *)message->data;

	if (message->len != sizeof(*request))
		return -EINVAL;
	if (!request->tgid || request->tgid > INT32_MAX || !request->deadline_ms ||
	    request->deadline_ms > DEADLINE_MAX_MS)
		return -EINVAL;
	if (request->head.kind == CONTROL_GO_PROFILE &&
	    (request->what < READER_MEMORY || request->what > READER_MUTEX))
		return -EINVAL;
	return 0;
}

/* Answers one request; only a broken channel is an error. */
static int handle_request(struct reader *r)
{
	const struct control_read_target *request = (const void *)r->message.data;
	struct err err = { 0 };
	const char *text = "";
	int rc = check_request(&r->message);

	memcpy(&r->request, r->message.data, sizeof(r->request));
	if (rc == 0) {
		uint64_t deadline_ns = clock_monotonic_ns() + request->deadline_ms * NS_PER_MS;

		watch_start(deadline_ns + WATCH_MARGIN_NS, r->server_fd, r->request.request);
		rc = request->head.kind == CONTROL_THREADS || request->head.kind == CONTROL_HEAP
			     ? read_any(r, request, deadline_ns, &err)
			     : read_go(r, request, deadline_ns, &err);
		watch_stop();
	}
	if (rc == -EPIPE)
		return rc;
	if (rc < 0)
		text = err.code ? err.text : failure_text(rc);
	rc = send_chunk(r, rc, false, text, strlen(text));
	return rc == -EPIPE ? rc : 0;
}

/* ---- loop ------------------------------------------------------------------------------------ */

/* 0 = go on, 1 = the server is gone, else negative errno. */
static int handle_server(struct reader *r)
{
	struct channel_head head;
	int rc = channel_receive(r->server_fd, &r->message);

	if (rc == -EPIPE)
		return 1;
	if (rc <= 0)
		return rc == -EPROTO ? 0 : rc;
	channel_message_close(&r->message);
	memcpy(&head, r->message.data, sizeof(head));
	if (head.kind != CONTROL_GOROUTINES && head.kind != CONTROL_GO_PROFILE &&
	    head.kind != CONTROL_THREADS && head.kind != CONTROL_HEAP)
		return 0;
	return handle_request(r) == -EPIPE ? 1 : 0;
}

static void close_peer(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

static void handle_collector(struct reader *r)
{
	int rc = channel_receive(r->collector_fd, &r->message);

	if (rc == 1) {
		channel_message_close(&r->message);
		rc = script_answer(r->collector_fd, &r->message);
	}
	if (rc < 0 && rc != -EPROTO)
		close_peer(&r->collector_fd);
}

/* 0 = go on, 1 = stop. */
static int handle_control(struct reader *r)
{
	const struct control_peer *peer = (const void *)r->message.data;
	int rc = channel_receive(r->control_fd, &r->message);

	if (rc < 0)
		return rc == -EPIPE;
	if (rc == 0)
		return 0;
	if (peer->head.kind == CONTROL_PEER && r->message.len == sizeof(*peer) &&
	    (peer->role == ROLE_SERVER || peer->role == ROLE_COLLECTOR) && r->message.fd_count == 1) {
		int *fd = peer->role == ROLE_SERVER ? &r->server_fd : &r->collector_fd;

		close_peer(fd);
		*fd = take_fd(&r->message.fds[0]);
	}
	channel_message_close(&r->message);
	return peer->head.kind == CONTROL_STOP;
}

static int reader_loop(struct reader *r)
{
	for (;;) {
		struct pollfd fds[3] = { { .fd = r->control_fd, .events = POLLIN },
					 { .fd = r->server_fd, .events = POLLIN },
					 { .fd = r->collector_fd, .events = POLLIN } };
		int n = poll(fds, 3, (int)(IDLE_NS / NS_PER_MS));
		uint64_t now = clock_monotonic_ns();

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n <= 0) {
			go_processes_expire(&r->processes, now > IDLE_NS ? now - IDLE_NS : 0);
			continue;
		}
		if (fds[0].revents && handle_control(r))
			return 0;
		/* First, since its answers are short and name what runs now. */
		if (fds[2].revents && fds[2].fd == r->collector_fd)
			handle_collector(r);
		if (fds[1].revents && fds[1].fd == r->server_fd) {
			int rc = handle_server(r);

			if (rc < 0)
				return rc;
			if (rc == 1) {
				close_peer(&r->server_fd);
				if (r->control_fd < 0)
					return 0;
			}
		}
	}
}

static struct reader *reader_create(int control_fd)
{
	struct reader *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->control_fd = control_fd;
	r->server_fd = -1;
	r->collector_fd = -1;
	r->ticks = cpu_ticks_now();
	return r;
}

static void reader_destroy(struct reader *r)
{
	go_processes_expire(&r->processes, UINT64_MAX);
	row_tables_deinit(&r->rows);
	close_peer(&r->server_fd);
	close_peer(&r->collector_fd);
	free(r);
}
CLEANUP_DEFINE(reader, struct reader *, reader_destroy);

int reader_run(const struct reader_options *options)
{
	const struct channel_head ready = { .kind = CONTROL_READY };
	cleanup(reader) struct reader *r = reader_create(options->control_fd);
	int rc = r ? drop_privileges() : -ENOMEM;

	if (rc == 0)
		rc = watch_init(options->control_fd);
	if (rc == 0)
		rc = channel_send(options->control_fd, &ready, sizeof(ready), NULL, 0);
	if (rc == 0)
		rc = reader_loop(r);
	if (rc < 0)
		log_error("reader stops: %s", strerror(-rc));
	return rc < 0;
}
