// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/base/hash.h"
#include "agent/base/parse.h"
#include "agent/base/ulid.h"
#include "agent/profile/quality.h"
#include "agent/session/alloc_session.h"
#include "agent/session/continuous.h"
#include "agent/session/hosts.h"
#include "agent/session/read_session.h"
#include "agent/session/session_record.h"
#include "agent/session/sessions_internal.h"
#include "agent/session/watch.h"

#define DEFAULT_PER_TENANT 32u
#define DEFAULT_PER_HOST   128u
#define DEFAULT_STACKS	   1000000u
#define DEFAULT_BASELINES  1000u
#define DEFAULT_RETENTION  30u
#define DEFAULT_FLUSH_NS   (10 * NS_PER_S)
#define START_WAIT_NS	   (3 * NS_PER_S)
#define FEED_LAG_NS	   (2 * NS_PER_S) /* polls of collector and server, and a busy host */
#define LIVES_WAIT_NS	   (10 * NS_PER_S) /* for a collector that begins again, or has much to do */
#define PORTS_WAIT_NS	   (3 * NS_PER_S)
#define RESOLVE_TICK_NS	   (20 * NS_PER_MS)
#define RUNTIME_LAG_NS	   (4 * NS_PER_S) /* until a young program's runtime is known */
#define DEFAULT_SPAN_NS	   (600 * NS_PER_S)
#define DEFAULT_DISK	   (2ull << 30)
#define DEFAULT_DETAIL	   (256ull << 20)
#define RETRY_AFTER_S	   5u

/* ---- the list of what runs ------------------------------------------------------------------- */

bool session_is_running(const struct session *session)
{
	return session->phase < PHASE_ENDED;
}

struct session *session_find(const struct sessions *s, const char *tenant, const char *id)
{
	for (struct session *session = s->running; session; session = session->next)
		if (session->phase != PHASE_PREPARING && strcmp(session->info.id, id) == 0 &&
		    strcmp(session->info.tenant, tenant) == 0)
			return session;
	return NULL;
}

void session_free(struct session *session)
{
	if (!session)
		return;
	recorder_destroy(session->recorder);
	session_info_deinit(&session->info);
	free(session);
}

int session_enlist(struct sessions *s, struct session *session)
{
	for (unsigned slot = 0; slot < LIVE_SLOTS; slot++) {
		if (s->slots[slot])
			continue;
		s->slots[slot] = session;
		session->slot = slot;
		session->next = s->running;
		s->running = session;
		s->match_generation++;
		return 0;
	}
	return -EBUSY;
}

void session_delist(struct sessions *s, struct session *session)
{
	struct session **at = &s->running;

	while (*at != session)
		at = &(*at)->next;
	*at = session->next;
	s->slots[session->slot] = NULL;
	s->match_generation++;
	s->peers.demand_dirty = s->peers.targets_dirty = true;
}

bool session_wants_process(const struct session *session, const struct live_process *process)
{
	if (process->facts.flags & FEED_PROC_EXCLUDED)
		return false;
	return (selector_matches(&session->selector, &process->facts, &process->identity) ||
		(session->selector.children && live_process_is_of_family(process, session->seed))) &&
	       (!session->tenant_rule ||
		service_tenant_allows(session->tenant_rule, &process->facts, &process->identity));
}

bool session_matches_any(const struct sessions *s, const struct session *session)
{
	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (!process->exited_ns && session_wants_process(session, process))
			return true;
	}
	return false;
}

void sessions_wake(struct sessions *s)
{
	uint64_t one = 1;

	(void)!write(s->wake_fd, &one, sizeof(one));
}

void sessions_note_store(struct sessions *s, int rc, const struct err *err)
{
	s->store_error = rc;
	if (rc < 0)
		(void)snprintf(s->store_reason, sizeof(s->store_reason), "%.199s", err->text);
}

/* ---- starting -------------------------------------------------------------------------------- */

static bool profile_is_of_waits(enum profile_type type)
{
	return type == PROFILE_OFFCPU || type == PROFILE_WALL || type == PROFILE_BLOCK ||
	       type == PROFILE_MUTEX || type == PROFILE_IO;
}

static int check_request(const struct session_request *r, struct err *err)
{
	if (!parse_is_name(r->tenant))
		return err_set(err, EINVAL, "InvalidParam", "tenant",
			       "expected 1 to 64 characters of A-Z a-z 0-9 . _ -");
	if (!r->service || !*r->service)
		return err_set(err, EINVAL, "InvalidParam", "service", "required");
	if ((unsigned)r->type >= PROFILE_TYPE_MAX)
		return err_set(err, EINVAL, "InvalidParam", "profileType", "unknown type");
	/* A state can be taken at once. */
	if ((r->duration_s < 1 && r->type != PROFILE_GOROUTINE) || r->duration_s > 3600)
		return err_set(err, EINVAL, "InvalidParam", "durationSeconds",
			       "must be 1…3600, got %u", r->duration_s);
	if (r->rate_hz < 1 || r->rate_hz > 1000)
		return err_set(err, EINVAL, "InvalidParam", "sampleRate", "must be 1…1000, got %u",
			       r->rate_hz);
	if (r->wait_s > 3600)
		return err_set(err, EINVAL, "InvalidParam", "waitSeconds", "must be 1…3600, got %u",
			       r->wait_s);
	if (r->kernel_locks && r->type != PROFILE_MUTEX)
		return err_set(err, EINVAL, "InvalidParam", "kernelLocks", "kernelLocks: only for mutex");
	if (r->wakers && !profile_is_of_waits(r->type))
		return err_set(err, EINVAL, "InvalidParam", "wakers",
			       "wakers: only for offcpu, wall, block, mutex and io");
	if (r->paths && r->type != PROFILE_IO)
		return err_set(err, EINVAL, "InvalidParam", "paths", "paths: only for io");
	if (r->children && r->type != PROFILE_CPU && !profile_is_of_waits(r->type))
		return err_set(err, EINVAL, "InvalidParam", "children",
			       "children: only for cpu, offcpu, wall, block, mutex and io; %s is of the process alone",
			       profile_type_info(r->type)->word);
	if (r->label_count > SESSION_LABELS_MAX)
		return err_set(err, EINVAL, "InvalidParam", "labels", "at most %d labels",
			       SESSION_LABELS_MAX);
	if (r->idempotency_key &&
	    (strlen(r->idempotency_key) >= IDEMPOTENCY_KEY_SIZE || !*r->idempotency_key))
		return err_set(err, EINVAL, "InvalidParam", "Idempotency-Key",
			       "must be 1 to %d characters", IDEMPOTENCY_KEY_SIZE - 1);
	return 0;
}

static uint64_t request_hash(const struct session_request *r)
{
	uint64_t hash = hash_bytes(r->service, strlen(r->service), (uint64_t)r->type);

	hash = hash_combine(hash, (uint64_t)r->duration_s << 32 | r->rate_hz);
	hash = hash_combine(hash, (uint64_t)r->children << 35 | (uint64_t)r->paths << 34 | (uint64_t)r->wakers << 33 |
						 (uint64_t)r->kernel_locks << 32 | r->wait_s);
	for (uint32_t i = 0; i < r->label_count; i++) {
		hash = hash_bytes(r->labels[i].name, strlen(r->labels[i].name), hash);
		hash = hash_bytes(r->labels[i].value, strlen(r->labels[i].value), hash);
	}
	return hash;
}

/* A former request with the same key: its id. Lock held. */
static const struct idempotency *find_key(const struct sessions *s, const struct session_request *r)
{
	for (size_t i = 0; r->idempotency_key && i < IDEMPOTENCY_MAX; i++) {
		const struct idempotency *entry = &s->idempotency[i];

		if (strcmp(entry->key, r->idempotency_key) == 0 &&
		    strcmp(entry->tenant, r->tenant) == 0)
			return entry;
	}
	return NULL;
}

/* Another request with the same key came first: 1, and its session in @id. 0: none has. Lock held. */
static int find_former(const struct sessions *s, const struct session_request *r, char id[SESSION_ID_SIZE], struct err *err)
{
	const struct idempotency *former = find_key(s, r);

	if (!former)
		return 0;
	if (former->request_hash != request_hash(r))
		return err_set(err, EINVAL, "InvalidParam", "Idempotency-Key",
			       "this Idempotency-Key was used for another request");
	(void)snprintf(id, SESSION_ID_SIZE, "%s", former->id);
	return 1;
}

static bool is_preparing(struct sessions *s, const char *id)
{
	sessions_scope(s);

	for (const struct session *session = s->running; session; session = session->next)
		if (session->phase == PHASE_PREPARING && strcmp(session->info.id, id) == 0)
			return true;
	return false;
}

/* The session that another request began; its record may be being written. */
static int get_former(struct sessions *s, const char *tenant, const char *id, struct session_info *ret, struct err *err)
{
	int rc;

	while (is_preparing(s, id))
		clock_sleep_ns(RESOLVE_TICK_NS);
	rc = sessions_get(s, tenant, id, ret, err);
	/* What a client may only have repeated begins nothing a second time. */
	if (rc == -ENOENT)
		return err_set(err, ENOENT, "UnknownSession", "Idempotency-Key",
			       "this Idempotency-Key began session %s, which was deleted: use another key to begin one", id);
	return rc;
}

void sessions_remember_key(struct sessions *s, const char *tenant, const char *key, const char *id,
			   uint64_t hash)
{
	struct idempotency *entry = &s->idempotency[s->idempotency_next++ % IDEMPOTENCY_MAX];

	*entry = (struct idempotency){ .request_hash = hash };
	(void)snprintf(entry->tenant, sizeof(entry->tenant), "%s", tenant);
	(void)snprintf(entry->key, sizeof(entry->key), "%s", key);
	(void)snprintf(entry->id, sizeof(entry->id), "%s", id);
}

/* 409, 429 and 503 of contract.md section 5. Lock held. */
static int check_limits(const struct sessions *s, const struct session *session,
			struct session_info *ret, struct err *err)
{
	uint32_t tenants = 0, all = 0, families = 0;

	if (session->info.continuous)
		return 0;
	for (const struct session *other = s->running; other; other = other->next) {
		bool same_tenant = strcmp(other->info.tenant, session->info.tenant) == 0;

		if (!session_is_running(other) || other->info.continuous)
			continue;
		all++;
		tenants += same_tenant;
		families += other->selector.children;
		if (!same_tenant || other->info.type != session->info.type ||
		    strcmp(other->info.selector, session->info.selector) != 0)
			continue;
		(void)snprintf(ret->id, sizeof(ret->id), "%s", other->info.id);
		return err_set(err, EEXIST, "AlreadyRunning", NULL,
			       "a %s profile of '%.128s' is running already: %s",
			       profile_type_info(session->info.type)->word, session->info.service,
			       other->info.id);
	}
	if (tenants >= s->options.running_per_tenant) {
		(void)err_set(err, EAGAIN, "TooManySessions", NULL,
			      "%u sessions of this tenant are running, which is the limit",
			      tenants);
		err->retry_after_s = RETRY_AFTER_S;
		return -EAGAIN;
	}
	if (all >= s->options.running_per_host || all >= LIVE_SLOTS ||
	    (session->selector.children && families >= FEED_FAMILIES_MAX)) {
		(void)err_set(err, EAGAIN, "AgentBusy", NULL, "the agent is busy, try again later");
		err->retry_after_s = RETRY_AFTER_S;
		return -EAGAIN;
	}
	return 0;
}

static int copy_labels(struct session_info *info, const struct session_request *r)
{
	if (!r->label_count)
		return 0;
	info->labels = calloc(r->label_count, sizeof(*info->labels));
	if (!info->labels)
		return -ENOMEM;
	memcpy(info->labels, r->labels, r->label_count * sizeof(*info->labels));
	info->label_count = r->label_count;
	return 0;
}

static struct session *make_session(struct sessions *s, const struct session_request *r,
				    const struct selector *selector, const char *name)
{
	struct session *session = calloc(1, sizeof(*session));
	struct session_info *info;

	if (!session)
		return NULL;
	session->recorder = recorder_create(s->options.stacks_per_session);
	info = &session->info;
	if (!session->recorder || copy_labels(info, r) < 0 ||
	    getrandom(&session->seed, sizeof(session->seed), 0) < 0) {
		session_free(session);
		return NULL;
	}
	info->type = r->type;
	info->requested_duration_s = r->duration_s;
	info->rate_hz = r->rate_hz;
	info->retention_days = s->options.retention_days;
	info->kernel_locks = r->kernel_locks;
	info->wakers = r->wakers;
	info->paths = r->paths;
	info->continuous = r->continuous;
	info->created_at_ns = clock_realtime_ns();
	info->quality = quality_empty();
	(void)snprintf(info->tenant, sizeof(info->tenant), "%s", r->tenant);
	(void)snprintf(info->service, sizeof(info->service), "%s", name);
	(void)snprintf(info->host, sizeof(info->host), "%s", s->host);
	selector_to_text(selector, info->selector);
	strcpy(info->id, "sess-");
	ulid_make(info->created_at_ns, info->id + strlen("sess-"));
	if (r->idempotency_key)
		(void)snprintf(session->idempotency_key, sizeof(session->idempotency_key), "%s",
			       r->idempotency_key);
	session->request_hash = request_hash(r);
	session->selector = *selector;
	session->tenant_rule = services_tenant_rule(s, r->tenant);
	session->end_ns = UINT64_MAX;
	session->asked_ns = clock_monotonic_ns();
	session->wait_until_ns = session->asked_ns + r->wait_s * NS_PER_S;
	return session;
}

/* From here on the session counts; its record is not written yet. Lock held. */
static int reserve(struct sessions *s, const struct session_request *r, struct session *session,
		   struct session_info *ret, struct err *err)
{
	struct type_need need;
	int rc;

	if (s->sampling_off_ns)
		return err_set(err, EAGAIN, "AgentBusy", NULL,
			       "sampling was stopped by an administrator; `profctl resume` lets it go on");
	services_session_need(s, session, &need);
	if (!need.available)
		return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "profileType", "%s: %s",
			       profile_type_info(r->type)->word, need.reason);
	session->wants = need.wants;
	session->choice = read_session_waits(s, session) ? CHOICE_OPEN : CHOICE_MADE;
	rc = check_limits(s, session, ret, err);
	if (rc < 0)
		return rc;
	session->begin_position = session->stored_position = s->feed.cursor;
	rc = session_enlist(s, session);
	if (rc < 0)
		return err_set(err, EAGAIN, "AgentBusy", NULL,
			       "the agent is busy, try again later");
	if (session->idempotency_key[0])
		sessions_remember_key(s, r->tenant, session->idempotency_key, session->info.id,
				      session->request_hash);
	return 0;
}

static void forget_key(struct sessions *s, const char *id)
{
	for (size_t i = 0; i < IDEMPOTENCY_MAX; i++)
		if (strcmp(s->idempotency[i].id, id) == 0)
			s->idempotency[i] = (struct idempotency){ 0 };
}

/* The record is written, or not: the session begins, or goes. Lock held. */
static void activate(struct sessions *s, struct session *session, bool stored)
{
	bool lives = session_matches_any(s, session);
	uint64_t now_ns = clock_monotonic_ns();

	if (!stored) {
		forget_key(s, session->info.id);
		session->phase = PHASE_ENDED;
		session->saved = true;
	} else {
		/* However long that took, its processes have the time that was asked for. */
		session->wait_until_ns += now_ns - session->asked_ns;
		session->asked_ns = now_ns;
		session->phase = lives && session->choice == CHOICE_MADE ? PHASE_WAIT_SAMPLER
									 : PHASE_WAIT_PROCESS;
		if (lives && session->choice == CHOICE_OPEN) {
			session->choice = CHOICE_ASKED;
			session->choice_asked_ns = session->asked_ns;
		}
	}
	s->match_generation++;
	s->peers.demand_dirty = s->peers.targets_dirty = true;
	session_life_saw_demand(s, clock_monotonic_ns());
	sessions_wake(s);
}

static int start_new(struct sessions *s, const struct session_request *r,
		     const struct selector *selector, bool reads, const char *name,
		     struct session_info *ret, struct err *err)
{
	struct session *session = make_session(s, r, selector, name);
	struct session_resume resume = { 0 };
	char former[SESSION_ID_SIZE];
	int rc;

	if (!session)
		return err_set(err, ENOMEM, "StoreUnavailable", NULL, "no memory for a session");
	session->reads = reads;
	sessions_lock(s);
	/* Whoever repeats a request may do so while it is being looked at. */
	rc = s->stopping ? err_set(err, EAGAIN, "AgentBusy", NULL, "the agent is stopping")
			 : find_former(s, r, former, err);
	if (rc == 0)
		rc = reserve(s, r, session, ret, err);
	else
		rc = rc < 0 ? rc : -EALREADY;
	if (rc == 0)
		session_resume_of(s, session, &resume);
	sessions_unlock(s);
	if (rc < 0) {
		session_free(session);
		return rc == -EALREADY ? get_former(s, r->tenant, former, ret, err) : rc;
	}
	rc = session_record_put(s->store, &session->info, &resume, err);
	sessions_lock(s);
	sessions_note_store(s, rc, err);
	activate(s, session, rc == 0);
	if (rc == 0)
		rc = session_describe(s, session, ret);
	sessions_unlock(s);
	return rc;
}

/* A process that has just started reaches us with the feed, a moment later: whoever starts a program and asks
 * for its profile at once must not be told that there is none, until the collector has said who lives. */
static int resolve_patiently(struct sessions *s, const struct session_request *request,
			     struct selector *ret, char name[SERVICE_NAME_SIZE], struct err *err)
{
	/* For memory and alloc the reader is asked what it is. */
	bool by_runtime = request->type == PROFILE_BLOCK || request->type == PROFILE_MUTEX;
	bool told = s->options.feed_fd < 0;
	uint64_t begin_ns = clock_monotonic_ns(), since_ns = begin_ns;

	/* Who listens changes while processes live, and nobody tells. Without an answer what is known has to do. */
	while (!told && services_is_port(request->service) && !demand_ports_are_told(s, begin_ns) &&
	       clock_monotonic_ns() - begin_ns < PORTS_WAIT_NS)
		clock_sleep_ns(RESOLVE_TICK_NS / 4);
	for (;;) {
		int rc = services_resolve(s, request->tenant, request->service, request->wait_s > 0,
					  ret, name, err);
		uint64_t waited_ns = clock_monotonic_ns() - begin_ns;

		if (rc == 0 && (!by_runtime || s->options.feed_fd < 0 || waited_ns > RUNTIME_LAG_NS ||
				read_session_is_decided(s, request->tenant, ret)))
			return 0;
		if (rc != 0 && rc != -ENOENT && rc != -ESRCH)
			return rc;
		if (rc != 0 && told) {
			uint64_t ended_ns = s->options.feed_fd < 0 ? 0 : services_ended_ns(s, request->tenant, request->service);

			/* It may have ended in an exec, which the collector had not seen when it said who lives. */
			if (ended_ns <= since_ns)
				return rc;
			since_ns = ended_ns;
		}
		if (rc != 0 && waited_ns > LIVES_WAIT_NS)
			return err_set(err, EAGAIN, "AgentBusy", NULL,
				       "the collector does not say what runs here; try again later");
		told = rc != 0 && demand_lives_are_told(s, since_ns); /* before the next look */
		if (!told)
			clock_sleep_ns(RESOLVE_TICK_NS);
	}
}

/* Whoever is told that the profile has started may rely on it: the answer waits for the sampler, which
 * takes milliseconds, or, for the first session of a daemon, until the unwind tables are there. What takes
 * longer is answered without startedAt. */
static int await_sampling(struct sessions *s, struct session_info *info, struct err *err)
{
	uint64_t give_up_ns = clock_monotonic_ns() + START_WAIT_NS;

	while (!info->started_at_ns && info->status == SESSION_RUNNING &&
	       clock_monotonic_ns() < give_up_ns) {
		struct session_info now;
		int rc;

		clock_sleep_ns(START_WAIT_NS / 300);
		rc = session_look(s, info->tenant, info->id, &now, err);
		if (rc == 0 && sessions_get(s, info->tenant, info->id, &now, err) == 0)
			rc = 1;
		if (rc <= 0)
			return 0; /* deleted meanwhile: it had been started */
		session_info_deinit(info);
		*info = now;
	}
	return 0;
}

int session_start_resolved(struct sessions *s, const struct session_request *request,
			   const struct selector *selector, const char *name, struct session_info *ret,
			   struct err *err)
{
	bool reads = false;
	int rc = read_session_check(s, request, selector, &reads, err);

	if (rc == 0 && reads && selector->children)
		return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "children",
			       "%s of a Go program is read from its runtime, and of that program alone: leave children out",
			       profile_type_info(request->type)->word);
	if (rc == 0 && !reads)
		rc = alloc_session_check(s, request, selector, err);
	return rc < 0 ? rc : start_new(s, request, selector, reads, name, ret, err);
}

int sessions_start(struct sessions *s, const struct session_request *request,
		   struct session_info *ret, struct err *err)
{
	char name[SERVICE_NAME_SIZE], id[SESSION_ID_SIZE];
	struct err scratch = { 0 };
	struct selector selector;
	int rc;

	if (!err)
		err = &scratch;
	rc = check_request(request, err);
	if (rc < 0)
		return rc;
	sessions_lock(s);
	rc = find_former(s, request, id, err);
	sessions_unlock(s);
	if (rc != 0)
		return rc < 0 ? rc : get_former(s, request->tenant, id, ret, err);
	rc = resolve_patiently(s, request, &selector, name, err);
	if (rc == 0 && request->children && selector.kind != SELECTOR_PID)
		return err_set(err, EINVAL, "InvalidParam", "children", "children: only with pid:N");
	selector.children = rc == 0 && request->children;
	if (rc == 0)
		rc = session_start_resolved(s, request, &selector, name, ret, err);
	return rc < 0 || request->wait_s ? rc : await_sampling(s, ret, err);
}

/* ---- life ------------------------------------------------------------------------------------ */
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
	(void)pthread_mutex_init(&s->build_lock, NULL);
	(void)pthread_mutex_init(&s->settings_lock, NULL);
	(void)pthread_mutex_init(&s->file_lock, NULL);
	(void)pthread_mutex_init(&s->detail.lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&s->changed, &attr);
	(void)pthread_cond_init(&s->finisher_wake, &attr);
	(void)pthread_cond_init(&s->watch_wake, &attr);
	(void)pthread_mutex_init(&s->watch_lock, NULL);
	(void)pthread_condattr_destroy(&attr);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return s->wake_fd < 0 ? -errno : 0;
}

static int init_parts(struct sessions *s)
{
	int rc = init_sync(s);

	if (rc < 0)
		return rc;
	hosts_name(s->host);
	live_tables_init(&s->tables, s->options.rules, s->options.rule_count);
	profile_cache_init(&s->cache);
	s->feed.clock = clock_now();
	s->peers.patience_ns = clock_monotonic_ns() + FEED_LAG_NS;
	s->feed.cpu_count = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	s->match_generation = 1;
	if (getrandom(&s->continuous.seed, sizeof(s->continuous.seed), 0) < 0)
		return -errno;
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
	(void)pthread_cond_broadcast(&s->finisher_wake);
	(void)pthread_cond_broadcast(&s->watch_wake);
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
	deployments_deinit(s);
	day_names_deinit(s);
	live_tables_deinit(&s->tables);
	names_client_destroy(s->names);
	reader_client_destroy(s->reader);
	profile_cache_deinit(&s->cache);
	free(s->idempotency);
	free(s->finished);
	(void)pthread_cond_destroy(&s->changed);
	(void)pthread_cond_destroy(&s->finisher_wake);
	(void)pthread_cond_destroy(&s->watch_wake);
	(void)pthread_mutex_destroy(&s->watch_lock);
	(void)pthread_mutex_destroy(&s->lock);
	(void)pthread_mutex_destroy(&s->build_lock);
	(void)pthread_mutex_destroy(&s->settings_lock);
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
