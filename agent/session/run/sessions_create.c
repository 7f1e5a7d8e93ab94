// SPDX-License-Identifier: Apache-2.0
/* The life of struct sessions: its parts are made and its threads started in order, and ended in
 * the other. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/session/continuous/continuous.h"
#include "agent/session/history/service_labels.h"
#include "agent/session/run/run.h"
#include "agent/session/snapshot/read_session.h"
#include "agent/session/watch/watch.h"

#define DEFAULT_PER_TENANT 32u
#define DEFAULT_PER_HOST   128u
#define DEFAULT_STACKS	   1000000u
#define DEFAULT_BASELINES  1000u
#define DEFAULT_RETENTION  30u
#define DEFAULT_FLUSH_NS   (10 * NS_PER_S)
#define FEED_LAG_NS	   (2 * NS_PER_S) /* polls of collector and server, and a busy host */
#define DEFAULT_SPAN_NS	   (600 * NS_PER_S)
#define DEFAULT_BUILD_BUDGET_NS (60 * NS_PER_S)
#define DEFAULT_DISK	   (2ull << 30)
#define DEFAULT_DETAIL	   (256ull << 20)

static uint32_t or_default(uint32_t value, uint32_t fallback)
{
	return value ? value : fallback;
}

static uint64_t or_default64(uint64_t value, uint64_t fallback)
{
	return value ? value : fallback;
}

static void set_options(struct sessions *s, const struct sessions_options *options)
{
	struct sessions_options *own = &s->options;

	*own = *options;
	own->running_per_tenant = or_default(own->running_per_tenant, DEFAULT_PER_TENANT);
	own->running_per_host = or_default(own->running_per_host, DEFAULT_PER_HOST);
	own->stacks_per_session = or_default(own->stacks_per_session, DEFAULT_STACKS);
	own->baselines = or_default(own->baselines, DEFAULT_BASELINES);
	own->retention_days = or_default(own->retention_days, DEFAULT_RETENTION);
	own->flush_interval_ns = or_default64(own->flush_interval_ns, DEFAULT_FLUSH_NS);
	own->build_budget_ns = or_default64(own->build_budget_ns, DEFAULT_BUILD_BUDGET_NS);
	own->continuous_span_ns = or_default64(own->continuous_span_ns, DEFAULT_SPAN_NS);
	own->disk_budget_bytes = or_default64(own->disk_budget_bytes, DEFAULT_DISK);
	own->detail_budget_bytes = or_default64(own->detail_budget_bytes, DEFAULT_DETAIL);
	s->store = options->store;
	store_set_budget(s->store, own->disk_budget_bytes);
}

static int init_sync(struct sessions *s)
{
	pthread_condattr_t attr;

	(void)pthread_mutex_init(&s->lock, NULL);
	build_turns_init(&s->builds);
	(void)pthread_mutex_init(&s->file_lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&s->changed, &attr);
	(void)pthread_cond_init(&s->told, &attr);
	(void)pthread_cond_init(&s->finisher_wake, &attr);
	(void)pthread_condattr_destroy(&attr);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return s->wake_fd < 0 ? -errno : 0;
}

static int init_parts(struct sessions *s)
{
	int rc = init_sync(s);

	if (rc < 0)
		return rc;
	hosts_name(s->host.name);
	s->host.collects = s->options.feed_fd >= 0;
	s->host.shared = store_is_shared(s->store);
	live_tables_init(&s->tables, s->options.rules, s->options.rule_count);
	profile_cache_init(&s->cache);
	s->feed.clock = clock_now();
	s->peers.patience_ns = clock_monotonic_ns() + FEED_LAG_NS;
	s->feed.cpu_count = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	s->match_generation = 1;
	rc = continuous_create(s);
	if (rc < 0)
		return rc;
	s->idempotency = calloc(IDEMPOTENCY_MAX, sizeof(*s->idempotency));
	s->finished = calloc(FINISHED_MAX, sizeof(*s->finished));
	rc = s->idempotency && s->finished ? names_client_create(&s->names) : -ENOMEM;
	return rc < 0 ? rc : reader_client_create(&s->reader);
}

int sessions_create(const struct sessions_options *options, struct sessions **ret, struct err *err)
{
	cleanup(sessions) struct sessions *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for the sessions");
	s->wake_fd = s->peers.collector_fd = s->peers.new_collector_fd = -1;
	set_options(s, options);
	rc = init_parts(s);
	if (rc < 0)
		return err_set(err, -rc, NULL, NULL, "the sessions cannot be set up: %s",
			       strerror(-rc));
	rc = sampling_switch_load(s, err);
	if (rc == 0)
		rc = continuous_load(s, err);
	if (rc == 0)
		rc = detail_load(s, err);
	if (rc == 0)
		rc = deployments_load(s, err);
	if (rc < 0)
		return rc;
	rc = options->feed_fd >= 0 ? feed_consumer_start(s, options->feed_fd, err)
				   : resume_sessions(s, err);
	if (rc < 0)
		return rc;
	rc = finisher_start(s);
	if (rc == 0)
		rc = watch_thread_start(s);
	if (rc == 0 && options->feed_fd >= 0)
		rc = read_session_start_thread(s);
	if (rc < 0)
		return err_set(err, -rc, NULL, NULL, "no thread for finished sessions, watching or reading: %s",
			       strerror(-rc));
	*ret = take_ptr(s);
	return 0;
}

void sessions_destroy(struct sessions *s)
{
	if (!s)
		return;
	sessions_lock(s);
	s->stopping = true;
	(void)pthread_cond_broadcast(&s->changed);
	(void)pthread_cond_broadcast(&s->told);
	(void)pthread_cond_broadcast(&s->finisher_wake);
	sessions_unlock(s);
	if (s->wake_fd >= 0)
		sessions_wake(s);
	feed_consumer_stop(s);
	finisher_stop(s);
	watch_thread_stop(s);
	read_session_stop_thread(s);
	while (s->running) {
		struct session *session = s->running;

		s->running = session->next;
		session_free(session);
	}
	cleanup_close_fn(&s->peers.new_collector_fd);
	cleanup_close_fn(&s->wake_fd);
	continuous_destroy(s);
	service_labels_destroy(s);
	live_tables_deinit(&s->tables);
	names_client_destroy(s->names);
	reader_client_destroy(s->reader);
	profile_cache_deinit(&s->cache);
	free(s->idempotency);
	free(s->finished);
	(void)pthread_cond_destroy(&s->changed);
	(void)pthread_cond_destroy(&s->told);
	(void)pthread_cond_destroy(&s->finisher_wake);
	(void)pthread_mutex_destroy(&s->lock);
	build_turns_deinit(&s->builds);
	(void)pthread_mutex_destroy(&s->file_lock);
	free(s);
}

void sessions_abandon(struct sessions *s)
{
	sessions_lock(s);
	s->abandoned = true;
	sessions_unlock(s);
	sessions_destroy(s);
}

void sessions_set_collector(struct sessions *s, int fd, uint32_t generation)
{
	sessions_lock(s);
	cleanup_close_fn(&s->peers.new_collector_fd);
	s->peers.new_collector_fd = fd;
	s->peers.has_new_collector = true;
	sessions_unlock(s);
	sessions_wake(s);
}

void sessions_set_symbolizer(struct sessions *s, int fd, uint32_t generation)
{
	names_client_set_channel(s->names, fd);
}

void sessions_set_reader(struct sessions *s, int fd, uint32_t generation)
{
	reader_client_set_channel(s->reader, fd);
}
