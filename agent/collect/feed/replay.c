// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/feed/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/channel.h"
#include "agent/base/log.h"
#include "agent/base/ring.h"
#include "agent/collect/feed/feed_file.h"
#include "agent/collect/modules/module_index.h"
#include "agent/wire/control.h"
#include "agent/wire/feed.h"

#define RETRY_MS  5    /* the ring is full: the server will read */
#define STEP_MS	  20   /* records closer than this are played together */
#define REPLAY_MODULES_MAX     65536u
#define REPLAY_INDEXED_AT_ONCE 8

struct replay {
	const struct replay_options *options;
	struct feed_file *file;
	struct ring *ring;
	int server_fd; /* -1 = none yet */
	struct module_table *modules; /* files of the recording, under numbers of our own */
	struct module_index *index;
	bool demanded;
	bool stopping;
	bool playing; /* the first sample has been played */
	struct clock_triple recorded; /* the recording's clocks at its last record with a triple */
	struct clock_triple recorded_first, first; /* at the first record: then and now */
	struct clock_triple recorded_start, start; /* at the first sample: then and now */
	struct channel_message message;
};

/* ---- stamps ------------------------------------------------------------------------------------
 */

static const struct {
	size_t size;	  /* of the fixed part */
	size_t stamp_at;  /* of a monotonic stamp */
	bool has_stamp;
	bool has_triple;  /* a struct clock_triple at the beginning instead */
} layouts[] = {
	[FEED_EPOCH] = { sizeof(struct feed_epoch), 0, false, true },
	[FEED_CLOCK] = { sizeof(struct feed_clock), 0, false, true },
	[FEED_PROC] = { sizeof(struct feed_proc), offsetof(struct feed_proc, seen_monotonic_ns), true,
			false },
	[FEED_PROC_EXIT] = { sizeof(struct feed_proc_exit), offsetof(struct feed_proc_exit, time_ns),
			     true, false },
	[FEED_SAMPLE] = { sizeof(struct feed_sample), offsetof(struct feed_sample, time_ns), true,
			  false },
	[FEED_OUTCOMES] = { sizeof(struct feed_outcomes), offsetof(struct feed_outcomes, time_ns), true,
			    false },
	[FEED_DEMAND] = { sizeof(struct feed_demand), offsetof(struct feed_demand, time_ns), true,
			  false },
	[FEED_PROC_CPU] = { sizeof(struct feed_proc_cpu), offsetof(struct feed_proc_cpu, time_ns), true,
			    false },
	[FEED_COSTS] = { sizeof(struct feed_costs), offsetof(struct feed_costs, time_ns), true, false },
	[FEED_GAP] = { sizeof(struct feed_gap), offsetof(struct feed_gap, from_ns), true, false },
};

static bool known(uint32_t kind, size_t len)
{
	return kind < ARRAY_SIZE(layouts) && layouts[kind].size && len >= layouts[kind].size;
}

bool replay_time_of(uint32_t kind, const void *data, size_t len, uint64_t *ret_ns)
{
	struct clock_triple clock;

	if (!known(kind, len))
		return false;
	if (layouts[kind].has_triple) {
		memcpy(&clock, data, sizeof(clock));
		*ret_ns = clock.monotonic_ns;
	} else {
		memcpy(ret_ns, (const char *)data + layouts[kind].stamp_at, sizeof(*ret_ns));
	}
	return true;
}

static void shift_at(void *data, size_t at, uint64_t by)
{
	uint64_t stamp;

	memcpy(&stamp, (char *)data + at, sizeof(stamp));
	stamp += by;
	memcpy((char *)data + at, &stamp, sizeof(stamp));
}

void replay_shift(uint32_t kind, void *data, size_t len, const struct clock_triple *from,
		  const struct clock_triple *to)
{
	uint64_t by = to->monotonic_ns - from->monotonic_ns;

	if (!known(kind, len))
		return;
	if (layouts[kind].has_triple) {
		shift_at(data, offsetof(struct clock_triple, monotonic_ns), by);
		shift_at(data, offsetof(struct clock_triple, boottime_ns),
			 to->boottime_ns - from->boottime_ns);
		shift_at(data, offsetof(struct clock_triple, realtime_ns),
			 to->realtime_ns - from->realtime_ns);
	} else {
		shift_at(data, layouts[kind].stamp_at, by);
	}
	/* of a reading: when the thread began */
	if (kind == FEED_SAMPLE &&
	    prof_sample_is_reading(((const uint8_t *)data)[offsetof(struct feed_sample, type)]))
		shift_at(data, offsetof(struct feed_sample, object), by);
	if (kind == FEED_GAP)
		shift_at(data, offsetof(struct feed_gap, to_ns), by);
	if (kind == FEED_PROC)
		shift_at(data, offsetof(struct feed_proc, start_boottime_ns),
			 to->boottime_ns - from->boottime_ns);
}

/* ---- names -------------------------------------------------------------------------------------
 */

/* The symbolizer names frames by what a file holds, so one of this host that is not the recorded
 * one gives no names. Whatever cannot be opened here stays unknown. */
static void expect_names(struct replay *r, const void *data, size_t len)
{
	struct feed_module record;
	struct feed_string path;
	struct module *module;
	const void *tail;
	size_t tail_len;
	char text[4096];

	if (feed_decode(data, len, &record, sizeof(record), &tail, &tail_len) < 0 ||
	    feed_decode_strings(tail, tail_len, &path, 1) < 0 || record.kind != FEED_MODULE_ELF ||
	    path.len >= sizeof(text) || module_table_count(r->modules) >= REPLAY_MODULES_MAX)
		return;
	memcpy(text, path.text, path.len);
	text[path.len] = '\0';
	module = module_table_add(r->modules, FEED_MODULE_ELF, text);
	if (module)
		module_index_ask(r->index, module, false);
}

static void on_indexed(void *ctx, struct module *module, int table_fd, uint64_t table_bytes)
{
}

static int open_names(struct replay *r)
{
	const struct module_index_sink sink = { .indexed = on_indexed };

	r->modules = module_table_create();
	r->index = r->modules ? module_index_create(r->modules, &sink) : NULL;
	return r->index ? 0 : -ENOMEM;
}

/* ---- control -----------------------------------------------------------------------------------
 */

/* The status of a collector that samples every type of the recording. */
static void send_status(struct replay *r)
{
	const struct control_status status = { .head = { .kind = CONTROL_STATUS },
					       .sampling = r->playing,
					       .listed = 1,
					       .types = PROF_WANT_CPU | PROF_WANT_OFFCPU |
							PROF_WANT_LOCKS };

	if (channel_send_wait(r->server_fd, &status, sizeof(status), NULL, 0, 100) < 0)
		log_debug("the server did not take the status in time");
}

static void on_supervisor(struct replay *r)
{
	const struct control_peer *peer = (const void *)r->message.data;

	if (peer->head.kind == CONTROL_STOP) {
		r->stopping = true;
	} else if (peer->head.kind == CONTROL_PEER && r->message.len == sizeof(*peer) &&
		   peer->role == ROLE_SERVER && r->message.fd_count == 1) {
		if (r->server_fd >= 0)
			(void)close(r->server_fd);
		r->server_fd = take_fd(&r->message.fds[0]);
		send_status(r);
	} else if (peer->head.kind == CONTROL_PEER && r->message.len == sizeof(*peer) &&
		   peer->role == ROLE_SYMBOLIZER && r->message.fd_count == 1) {
		module_index_set_peer(r->index, take_fd(&r->message.fds[0]));
	}
}

static void on_server(struct replay *r)
{
	const struct control_demand *demand = (const void *)r->message.data;
	const struct control_want *want = (const void *)r->message.data;
	struct feed_proc_cpu all = { .time_ns = clock_monotonic_ns(), .cpu_ns = clock_monotonic_ns() };
	struct iovec part = { .iov_base = &all, .iov_len = sizeof(all) };

	if (demand->head.kind == CONTROL_DEMAND && r->message.len == sizeof(*demand) && demand->types)
		r->demanded = true;
	/* Running processes and listening ports are those announced until now; a request without
	 * an answer is repeated. */
	if (want->head.kind == CONTROL_WANT && r->message.len == sizeof(*want) &&
	    (want->what == WANT_LIVES || want->what == WANT_PORTS))
		(void)!ring_write(r->ring, FEED_PROC_CPU, &part, 1);
}

static void receive_all(struct replay *r, int *fd, void (*on_message)(struct replay *))
{
	while (*fd >= 0) {
		int rc = channel_receive(*fd, &r->message);

		if (rc == 0)
			return;
		if (rc == -EPROTO)
			continue;
		if (rc < 0) {
			if (fd == &r->server_fd)
				(void)close(*fd);
			else
				r->stopping = true;
			*fd = -1;
			return;
		}
		on_message(r);
		channel_message_close(&r->message);
	}
}

/* Waits at most @ms for messages and handles them. */
static void serve(struct replay *r, int ms)
{
	struct pollfd fds[3] = { { .fd = r->options->control_fd, .events = POLLIN },
				 { .fd = r->server_fd, .events = POLLIN },
				 { .fd = module_index_fd(r->index), .events = POLLIN } };
	int control_fd = r->options->control_fd;

	module_index_pump(r->index, clock_monotonic_ns());
	(void)poll(fds, 3, ms);
	module_index_receive(r->index, REPLAY_INDEXED_AT_ONCE);
	receive_all(r, &control_fd, on_supervisor);
	receive_all(r, &r->server_fd, on_server);
}

/* ---- playing -----------------------------------------------------------------------------------
 */

static void write_record(struct replay *r, uint32_t kind, void *data, size_t len)
{
	struct iovec part = { .iov_base = data, .iov_len = len };

	while (!r->stopping && ring_write(r->ring, kind, &part, 1) == -ENOSPC)
		serve(r, RETRY_MS);
}

/* The first sample: now is when it was taken. */
static void begin(struct replay *r, uint64_t time_ns)
{
	uint64_t later = time_ns - r->recorded.monotonic_ns;

	while (r->options->wait_for_demand && !r->demanded && !r->stopping)
		serve(r, 1000);
	r->recorded_start = (struct clock_triple){ time_ns, r->recorded.boottime_ns + later,
						   r->recorded.realtime_ns + later };
	r->start = clock_now();
	r->playing = true;
}

static void pace(struct replay *r, uint64_t time_ns)
{
	uint64_t due_ns = r->start.monotonic_ns + time_ns - r->recorded_start.monotonic_ns;

	while (!r->stopping) {
		uint64_t now_ns = clock_monotonic_ns();

		if (time_ns < r->recorded_start.monotonic_ns || due_ns <= now_ns + STEP_MS * NS_PER_MS)
			return;
		serve(r, (int)((due_ns - now_ns) / NS_PER_MS));
	}
}

/* To real time. Before the first sample it is as if the recording had begun when it was opened.
 * Starts of processes are part of their identity and move by one distance throughout. */
static void move(struct replay *r, uint32_t kind, void *data, size_t len)
{
	struct clock_triple from = r->playing ? r->recorded_start : r->recorded_first;
	struct clock_triple to = r->playing ? r->start : r->first;

	if (kind == FEED_PROC) {
		from.boottime_ns = r->recorded_first.boottime_ns;
		to.boottime_ns = r->first.boottime_ns;
	}
	replay_shift(kind, data, len, &from, &to);
}

static void play_record(struct replay *r, uint32_t kind, void *data, size_t len)
{
	uint64_t time_ns;

	if (known(kind, len) && layouts[kind].has_triple) {
		memcpy(&r->recorded, data, sizeof(r->recorded));
		if (!r->first.monotonic_ns) {
			r->recorded_first = r->recorded;
			r->first = clock_now();
		}
	}
	if (!r->playing && kind == FEED_SAMPLE && replay_time_of(kind, data, len, &time_ns))
		begin(r, time_ns);
	if (r->options->real_time) {
		if (r->playing && replay_time_of(kind, data, len, &time_ns))
			pace(r, time_ns);
		move(r, kind, data, len);
	}
	if (kind == FEED_MODULE)
		expect_names(r, data, len);
	write_record(r, kind, data, len);
}

static void play(struct replay *r)
{
	uint64_t records = 0;

	while (!r->stopping) {
		uint32_t kind;
		size_t len;
		void *data;
		int rc = feed_file_next(r->file, &kind, &data, &len);

		if (rc <= 0) {
			log_info("played %llu records%s", (unsigned long long)records,
				 rc < 0 ? "; the rest of the recording is damaged" : "");
			return;
		}
		play_record(r, kind, data, len);
		records++;
	}
}

/* ---- start and end -----------------------------------------------------------------------------
 */

static int open_all(struct replay *r, struct err *err)
{
	cleanup_close int fd = open(r->options->path, O_RDONLY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return err_set(err, errno, NULL, NULL, "%s", strerror(errno));
	rc = feed_file_open(fd, &r->file, err);
	if (rc < 0)
		return rc;
	(void)take_fd(&fd);
	rc = ring_attach(r->options->feed_fd, &r->ring);
	return rc < 0 ? err_set(err, -rc, NULL, NULL, "the feed cannot be mapped") : 0;
}

/* A socket that is closed with something unread resets, and the other end may lose what it has not
 * read: so the last words are followed by listening, until the supervisor has heard them. */
static int fail(struct replay *r, const struct err *err)
{
	struct control_failed failed = { .head = { .kind = CONTROL_FAILED } };
	uint64_t deadline_ns = clock_monotonic_ns() + NS_PER_S;

	(void)snprintf(failed.text, sizeof(failed.text), "cannot replay %s: %s", r->options->path,
		       err->text);
	(void)!channel_send_wait(r->options->control_fd, &failed, sizeof(failed), NULL, 0, 1000);
	while (!r->stopping && clock_monotonic_ns() < deadline_ns)
		serve(r, 100);
	return 1;
}

int replay_run(const struct replay_options *options)
{
	cleanup_free struct replay *r = calloc(1, sizeof(*r));
	struct channel_head ready = { .kind = CONTROL_READY };
	struct err err = { 0 };
	int status = 0;

	if (!r)
		return 1;
	r->options = options;
	r->server_fd = -1;
	if (open_names(r) < 0) {
		status = 1;
	} else if (open_all(r, &err) < 0) {
		status = fail(r, &err);
	} else {
		(void)!channel_send_wait(options->control_fd, &ready, sizeof(ready), NULL, 0, 1000);
		play(r);
		while (!r->stopping)
			serve(r, 1000);
	}
	module_index_destroy(r->index);
	module_table_destroy(r->modules);
	(void)feed_file_close(r->file);
	ring_destroy(r->ring);
	if (r->server_fd >= 0)
		(void)close(r->server_fd);
	return status;
}
