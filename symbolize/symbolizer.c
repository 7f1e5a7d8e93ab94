// SPDX-License-Identifier: Apache-2.0
/* The loop. One thread: unwind tables come first, then names that are asked for, then the result of
 * the builder; what takes long is in the builder's process. */
#include "symbolize/symbolizer.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "symbolize/sandbox.h"
#include "symbolize/symbolizer_internal.h"

#define FILES_MAX	      4096
#define BUILD_MEMORY_BYTES    (4ull << 30) /* address space besides the open indexes */
#define MESSAGES_PER_TURN     16	   /* of one peer, before the others have theirs */
#define TICK_MS		      100	   /* while something has a deadline */
#define SHARED_BYTES_MAX      (32u << 20)  /* of the files that one child reads */
#define LONG_NS		      (300 * NS_PER_MS) /* of a builder: others need not wait for it any longer */
#define PASSING_BYTES_MAX     (32u << 20)  /* of the files of one that passes it */

/* ---- channels -------------------------------------------------------------------------------- */

void symbolizer_lose_collector(struct symbolizer *s)
{
	if (s->collector_fd >= 0)
		(void)close(s->collector_fd);
	s->collector_fd = -1;
	name_modules_forget_requests(&s->modules);
}

void symbolizer_lose_server(struct symbolizer *s)
{
	if (s->server_fd >= 0)
		(void)close(s->server_fd);
	s->server_fd = -1;
	symbolizer_drop_names(s);
	symbolizer_lose_fetcher(s); /* a thread of the server */
}

void symbolizer_lose_fetcher(struct symbolizer *s)
{
	if (s->fetch_fd >= 0)
		(void)close(s->fetch_fd);
	s->fetch_fd = -1;
	name_modules_forget_fetches(&s->modules);
}

static void on_peer(struct symbolizer *s)
{
	const struct control_peer *peer = (const void *)s->message.data;

	if (s->message.len != sizeof(*peer) || s->message.fd_count != 1)
		return;
	if (peer->role == ROLE_COLLECTOR) {
		symbolizer_lose_collector(s);
		s->collector_fd = take_fd(&s->message.fds[0]);
	} else if (peer->role == ROLE_SERVER) {
		symbolizer_lose_server(s);
		s->server_fd = take_fd(&s->message.fds[0]);
	}
}

static void dispatch(struct symbolizer *s, int fd)
{
	const struct channel_head *head = (const void *)s->message.data;

	if (fd == s->control_fd) {
		if (head->kind == CONTROL_PEER)
			on_peer(s);
		else if (head->kind == CONTROL_STOP)
			s->stopping = true;
	} else if (fd == s->collector_fd) {
		if (head->kind == CONTROL_INDEX)
			symbolizer_on_index(s);
		else if (head->kind == CONTROL_DEBUG)
			symbolizer_on_debug(s);
	} else if (fd == s->fetch_fd) {
		if (head->kind == CONTROL_DEBUG)
			symbolizer_on_fetched(s);
	} else if (head->kind == CONTROL_NAMES) {
		symbolizer_on_names(s);
	} else if (head->kind == CONTROL_FETCHER && s->message.fd_count == 1) {
		symbolizer_lose_fetcher(s);
		s->fetch_fd = take_fd(&s->message.fds[0]);
	}
}

/* Handles some messages of one channel. -EPIPE when it is closed. */
static int receive_some(struct symbolizer *s, int fd)
{
	for (int i = 0; i < MESSAGES_PER_TURN && !s->stopping; i++) {
		int rc;

		if (fd == s->server_fd && s->names_count == SYMBOLIZER_NAMES_MAX)
			return 0;
		rc = channel_receive(fd, &s->message);
		if (rc == -EPROTO)
			continue;
		if (rc <= 0)
			return rc;
		dispatch(s, fd);
		channel_message_close(&s->message);
		if (fd != s->control_fd && fd != s->collector_fd && fd != s->server_fd &&
		    fd != s->fetch_fd)
			return 0; /* lost while its message was handled */
	}
	return 0;
}

/* ---- the builder ----------------------------------------------------------------------------- */

static struct name_builder_job job_of(struct symbolizer *s, const struct name_module *module)
{
	return (struct name_builder_job){ .key = module->key,
					  .fd = module->fd,
					  .skeleton = module->skeleton,
					  .skeleton_len = module->skeleton_len,
					  .former = module->fd < 0 ? symbol_store_get(s->store, module->key) : NULL,
					  .debug_fd = module->debug_fd,
					  .identity = &module->identity,
					  .urgent = module->urgent };
}

/* The next module, and others that may share its child. Nobody who waits waits for others' files
 * too. */
static unsigned pick_jobs(struct symbolizer *s, uint64_t bytes_max,
			  struct name_builder_job jobs[NAME_BUILDER_JOBS_MAX])
{
	struct name_module *module;
	uint64_t bytes = 0;
	unsigned count = 0;

	while (count < NAME_BUILDER_JOBS_MAX && (module = name_modules_next(&s->modules, bytes_max))) {
		bool alone = module->urgent || !module->shares || module->debug_fd >= 0;

		bytes += module->size_bytes;
		if (count && (alone || bytes > SHARED_BYTES_MAX))
			break;
		jobs[count++] = job_of(s, module);
		name_modules_set_state(&s->modules, module, NAME_MODULE_BUILDING);
		if (alone)
			break;
	}
	return count;
}

static void start_build(struct symbolizer *s, struct builder *b, bool is_brief)
{
	int close_fds[5 + SYMBOLIZER_BUILDERS * NAME_BUILDER_FDS_MAX] = { s->control_fd, s->collector_fd,
									  s->server_fd, s->fetch_fd,
									  s->kernel.fd };
	struct name_builder_job jobs[NAME_BUILDER_JOBS_MAX];
	unsigned count = pick_jobs(s, is_brief ? PASSING_BYTES_MAX : UINT64_MAX, jobs);
	size_t close_count = 5;
	int rc;

	if (!count)
		return;
	for (size_t i = 0; i < SYMBOLIZER_BUILDERS; i++)
		close_count += name_builder_fds(&s->builders[i].child, close_fds + close_count);
	*b = (struct builder){ .child = b->child, .started_ns = clock_monotonic_ns() };
	rc = name_builder_start(&b->child, jobs, count, is_brief, close_fds, close_count);
	if (rc == 0)
		return;
	log_debug("cannot start a builder of names: %s", strerror(-rc));
	for (unsigned i = 0; i < count; i++)
		name_modules_set_state(&s->modules, name_modules_find(&s->modules, jobs[i].key),
				       NAME_MODULE_IDLE);
}

static void take_result(struct symbolizer *s, const struct name_builder_result *result)
{
	struct name_module *module = name_modules_find(&s->modules, result->key);
	int rc = result->error;

	if (!rc) {
		if (module)
			module->origins = (uint8_t)symbol_index_origins(result->index);
		rc = symbol_store_put_take(s->store, result->key, result->index);
		if (rc < 0)
			symbol_index_destroy(result->index);
	}
	if (module &&
	    rc == -EAGAIN) { /* another file may have killed its child, or its time was too short */
		module->large = !module->shares;
		module->shares = false;
		name_modules_set_state(&s->modules, module, NAME_MODULE_QUEUED);
		return;
	}
	if (rc < 0)
		log_debug("names of module %016llx are not to be had: %s", (unsigned long long)result->key,
			  strerror(-rc));
	if (!module)
		return;
	symbolizer_judge_debug(module);
	name_modules_set_state(&s->modules, module, NAME_MODULE_IDLE);
}

/* Said once for each reading: why functions that are inlined have no frames. */
static void tell_missing(const struct name_module *module)
{
	static struct log_limit limit = { .burst = 5 };

	if (module->missing && log_allowed(&limit))
		log_info("debug information names %s, which is not there: inlined functions and "
			 "lines that only it has are missing",
			 module->missing->name);
}

static void finish_build(struct symbolizer *s, struct builder *b)
{
	struct name_builder_result results[NAME_BUILDER_JOBS_MAX];
	int count = name_builder_finish(&b->child, results);

	for (int i = 0; i < count; i++) {
		struct name_module *module = count == 1 ? name_modules_find(&s->modules, results[i].key) : NULL;

		if (module) {
			free(module->missing);
			module->missing = b->missing;
			b->missing = NULL;
			tell_missing(module);
			module->debug_asked_ns = module->missing ? clock_monotonic_ns() : module->debug_asked_ns;
		}
		take_result(s, &results[i]);
	}
	if (count >= 0)
		cleanup_free_fn(&b->missing);
}

static bool is_building(const struct symbolizer *s)
{
	for (size_t i = 0; i < SYMBOLIZER_BUILDERS; i++)
		if (!name_builder_is_idle(&s->builders[i].child))
			return true;
	return false;
}

/* One at a time; but nobody waits long for a file that is large, made to be, or waits for another
 * one itself. */
static void start_builds(struct symbolizer *s)
{
	struct builder *first = &s->builders[0], *second = &s->builders[1];

	if (name_builder_is_idle(&first->child))
		start_build(s, first, false);
	else if (name_builder_is_idle(&second->child) &&
		 clock_monotonic_ns() - first->started_ns > LONG_NS)
		start_build(s, second, true);
}

/* ---- loop ------------------------------------------------------------------------------------ */

enum {
	POLL_CONTROL,
	POLL_COLLECTOR,
	POLL_SERVER,
	POLL_FETCHER,
	POLL_BUILDERS, /* two each: its end, its questions */
	POLL_COUNT = POLL_BUILDERS + 2 * SYMBOLIZER_BUILDERS,
};

static bool has_deadline(const struct symbolizer *s)
{
	bool asks = false;

	for (size_t i = 0; i < SYMBOLIZER_BUILDERS; i++)
		asks |= s->builders[i].asked_ns != 0;
	return asks || s->names_count || s->modules.waiting || s->modules.queued || s->jit.behind;
}

/* Number of descriptors with events. */
static int wait_for_events(const struct symbolizer *s, struct pollfd polls[POLL_COUNT])
{
	int count;
	short server = (s->names_count < SYMBOLIZER_NAMES_MAX ? POLLIN : 0) |
		       (s->server_full ? POLLOUT : 0);

	polls[POLL_CONTROL] = (struct pollfd){ .fd = s->control_fd, .events = POLLIN };
	polls[POLL_COLLECTOR] = (struct pollfd){ .fd = s->collector_fd, .events = POLLIN };
	polls[POLL_SERVER] = (struct pollfd){ .fd = s->server_fd, .events = server };
	polls[POLL_FETCHER] = (struct pollfd){ .fd = s->fetch_fd, .events = POLLIN };
	for (size_t i = 0; i < SYMBOLIZER_BUILDERS; i++) {
		const struct name_builder *child = &s->builders[i].child;

		polls[POLL_BUILDERS + 2 * i] = (struct pollfd){ .fd = child->pidfd, .events = POLLIN };
		polls[POLL_BUILDERS + 2 * i + 1] = (struct pollfd){ .fd = child->files_fd, .events = POLLIN };
	}
	count = poll(polls, POLL_COUNT,
		     s->jit.behind ? 0
		     : has_deadline(s) ? TICK_MS
		     : s->rested   ? -1
				   : SYMBOLIZER_REST_MS);
	return count < 0 && errno != EINTR ? -errno : count < 0 ? 1 : count;
}

/* Names are asked for in bursts, hours apart: what the last one needed is opened again in
 * milliseconds. */
static void rest(struct symbolizer *s)
{
	symbol_store_rest(s->store);
	(void)malloc_trim(0);
	s->rested = true;
}

static void serve_builders(struct symbolizer *s, const struct pollfd *polls)
{
	for (size_t i = 0; i < SYMBOLIZER_BUILDERS; i++)
		if (polls[2 * i + 1].revents & POLLIN)
			symbolizer_on_question(s, &s->builders[i]);
	symbolizer_answer_late_questions(s, clock_monotonic_ns());
	for (size_t i = 0; i < SYMBOLIZER_BUILDERS; i++)
		if (polls[2 * i].revents)
			finish_build(s, &s->builders[i]);
}

static int turn(struct symbolizer *s)
{
	struct pollfd polls[POLL_COUNT];
	int rc = wait_for_events(s, polls);

	if (rc < 0)
		return rc;
	if (!rc && !has_deadline(s) && !s->rested && !is_building(s)) {
		rest(s);
		return 0;
	}
	s->rested = s->rested && !rc;
	if (polls[POLL_CONTROL].revents && receive_some(s, s->control_fd) == -EPIPE)
		s->stopping = true; /* the supervisor is gone */
	/* A descriptor may be another peer's by now: the revents are only a hint. */
	if (s->collector_fd >= 0 && polls[POLL_COLLECTOR].revents &&
	    receive_some(s, s->collector_fd) == -EPIPE)
		symbolizer_lose_collector(s);
	if (s->server_fd >= 0 && polls[POLL_SERVER].revents && receive_some(s, s->server_fd) == -EPIPE)
		symbolizer_lose_server(s);
	if (s->fetch_fd >= 0 && polls[POLL_FETCHER].revents && receive_some(s, s->fetch_fd) == -EPIPE)
		symbolizer_lose_fetcher(s);
	serve_builders(s, polls + POLL_BUILDERS);
	name_modules_stop_waiting(&s->modules, clock_monotonic_ns() - SYMBOLIZER_DEBUG_WAIT_NS);
	start_builds(s);
	if (s->jit.behind) {
		sandbox_guard_begin(SYMBOLIZER_INDEX_WALL_S);
		jit_maps_advance(&s->jit);
		sandbox_guard_end();
	}
	symbolizer_serve_names(s);
	return 0;
}

static void tell_ready(const struct symbolizer *s)
{
	struct channel_head ready = { .kind = CONTROL_READY };

	if (channel_send_wait(s->control_fd, &ready, sizeof(ready), NULL, 0, 1000) < 0)
		log_debug("the supervisor does not listen");
}

static void tell_failed(const struct symbolizer *s, int rc)
{
	struct control_failed failed = { .head = { .kind = CONTROL_FAILED } };

	(void)snprintf(failed.text, sizeof(failed.text),
		       "the symbolizer cannot enter its sandbox (%s): the kernel needs seccomp filters, and a "
		       "container must allow prctl(PR_SET_SECCOMP)",
		       strerror(-rc));
	(void)!channel_send_wait(s->control_fd, &failed, sizeof(failed), NULL, 0, 1000);
}

static int serve(struct symbolizer *s, const struct symbolizer_options *options)
{
	int rc;

	/* Without its folder it works from memory alone. */
	if (options->cache_dir_fd >= 0 &&
	    (rc = module_cache_create(options->cache_dir_fd, options->cache_bytes, &s->cache)) < 0)
		log_debug("the cache folder cannot be used: %s", strerror(-rc));
	rc = symbol_store_create(s->cache, options->memory_bytes, &s->store);
	if (rc < 0)
		return rc;
	tell_ready(s);
	while (!rc && !s->stopping)
		rc = turn(s);
	return rc;
}

int symbolizer_run(const struct symbolizer_options *options)
{
	const struct sandbox_options sandbox = { .folder_fd = options->cache_dir_fd,
						 .memory_bytes = options->memory_bytes + BUILD_MEMORY_BYTES,
						 .files = FILES_MAX };
	struct symbolizer *s = calloc(1, sizeof(*s));
	unsigned parts = 0;
	int rc;

	if (!s)
		return 1;
	s->control_fd = options->control_fd;
	s->collector_fd = s->server_fd = s->fetch_fd = s->kernel.fd = -1;
	s->debug_again_ns = options->debug_again_ns ? options->debug_again_ns : SYMBOLIZER_DEBUG_AGAIN_NS;
	name_modules_init(&s->modules);
	for (size_t i = 0; i < SYMBOLIZER_BUILDERS; i++)
		name_builder_init(&s->builders[i].child);
	rc = sandbox_enter(&sandbox, &parts);
	if (rc < 0) {
		tell_failed(s, rc);
	} else {
		log_debug("sandbox parts in force: %#x", parts);
		if (!(parts & SANDBOX_PART_LANDLOCK))
			log_warn("this kernel has no Landlock (CONFIG_SECURITY_LANDLOCK, and lsm= that names it): "
				 "the symbolizer's files are kept apart by its user and root directory alone");
		rc = serve(s, options);
	}
	symbolizer_lose_collector(s);
	symbolizer_lose_server(s);
	cleanup_close_fn(&s->kernel.fd);
	for (size_t i = 0; i < SYMBOLIZER_BUILDERS; i++) {
		name_builder_deinit(&s->builders[i].child);
		free(s->builders[i].missing);
	}
	name_modules_deinit(&s->modules);
	jit_maps_deinit(&s->jit);
	symbol_store_destroy(s->store);
	module_cache_destroy(s->cache);
	free(s);
	return rc < 0 ? 1 : 0;
}
