// SPDX-License-Identifier: Apache-2.0
#include "agent/session/core/start.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "agent/base/hash.h"
#include "agent/base/parse.h"
#include "agent/base/ulid.h"
#include "agent/profile/quality.h"
#include "agent/session/core/demand.h"
#include "agent/session/core/read_choice.h"
#include "agent/session/core/services.h"
#include "agent/session/core/session_life.h"
#include "agent/session/core/session_query.h"
#include "agent/session/core/session_way.h"
#include "agent/session/records/session_record.h"

#define START_WAIT_NS	   (3 * NS_PER_S)
#define LIVES_WAIT_NS	   (10 * NS_PER_S) /* for a collector that begins again, or has much to do */
#define PORTS_WAIT_NS	   (3 * NS_PER_S)
#define RESOLVE_TICK_NS	   (20 * NS_PER_MS)
#define RUNTIME_LAG_NS	   (4 * NS_PER_S) /* until a young program's runtime is known */
#define RETRY_AFTER_S	   5u

/* An option that only some types have. */
static int check_option(const struct session_request *r, bool asked, enum profile_option option,
			struct err *err)
{
	const char *name = profile_option_name(option);
	char words[PROFILE_WORDS_SIZE];

	if (!asked || profile_type_info(r->type)->options & option)
		return 0;
	return err_set(err, EINVAL, "InvalidParam", name, "%s: only for %s, not for %s", name,
		       profile_type_words(option, words), profile_type_info(r->type)->word);
}

static int check_options(const struct session_request *r, struct err *err)
{
	int rc = check_option(r, r->kernel_locks, PROFILE_OPTION_KERNEL_LOCKS, err);

	if (rc == 0)
		rc = check_option(r, r->wakers, PROFILE_OPTION_WAKERS, err);
	if (rc == 0)
		rc = check_option(r, r->paths, PROFILE_OPTION_PATHS, err);
	if (rc == 0)
		rc = check_option(r, r->tasks, PROFILE_OPTION_TASKS, err);
	return rc < 0 ? rc : check_option(r, r->children, PROFILE_OPTION_CHILDREN, err);
}

static int check_request(const struct session_request *r, struct err *err)
{
	int rc;

	if (!parse_is_name(r->tenant))
		return err_set(err, EINVAL, "InvalidParam", "tenant",
			       "expected 1 to 64 characters of A-Z a-z 0-9 . _ -");
	if (!r->service || !*r->service)
		return err_set(err, EINVAL, "InvalidParam", "service", "required");
	if ((unsigned)r->type >= PROFILE_TYPE_MAX)
		return err_set(err, EINVAL, "InvalidParam", "profileType", "unknown type");
	if ((r->duration_s < 1 && !(profile_type_info(r->type)->options & PROFILE_OPTION_INSTANT)) ||
	    r->duration_s > 3600)
		return err_set(err, EINVAL, "InvalidParam", "durationSeconds",
			       "must be 1…3600, got %u", r->duration_s);
	if (r->rate_hz < 1 || r->rate_hz > 1000)
		return err_set(err, EINVAL, "InvalidParam", "sampleRate", "must be 1…1000, got %u",
			       r->rate_hz);
	if (r->wait_s > 3600)
		return err_set(err, EINVAL, "InvalidParam", "waitSeconds", "must be 1…3600, got %u",
			       r->wait_s);
	rc = check_options(r, err);
	if (rc < 0)
		return rc;
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
	hash = hash_combine(hash, (uint64_t)r->tasks << 36 | (uint64_t)r->children << 35 |
					  (uint64_t)r->paths << 34 |
					  (uint64_t)r->wakers << 33 |
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

/* Another request with the same key came first: 1, and its session in @id. 0: none has. Lock held.
 */
static int find_former(const struct sessions *s, const struct session_request *r,
		       char id[SESSION_ID_SIZE], struct err *err)
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

static bool is_preparing(const struct sessions *s, const char *id)
{
	for (const struct session *session = s->running; session; session = session->next)
		if (session->phase == PHASE_PREPARING && strcmp(session->info.id, id) == 0)
			return true;
	return false;
}

/* The session that another request began; its record may be being written. */
static int get_former(struct sessions *s, const char *tenant, const char *id,
		      struct session_info *ret, struct err *err)
{
	int rc;

	sessions_lock(s);
	while (is_preparing(s, id))
		(void)pthread_cond_wait(&s->changed, &s->lock);
	sessions_unlock(s);
	rc = session_get(s, tenant, id, ret, err);
	/* A request that a client may only have repeated starts nothing a second time. */
	if (rc == -ENOENT)
		return err_set(
			err, ENOENT, "UnknownSession", "Idempotency-Key",
			"this Idempotency-Key began session %s, which was deleted: use another key to begin one",
			id);
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

/* Refuses what the limits do not allow: -EEXIST (409), -EAGAIN (429 or 503). Lock held. */
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
	info->tasks = r->tasks;
	info->continuous = r->continuous;
	info->created_at_ns = clock_realtime_ns();
	info->quality = quality_empty();
	(void)snprintf(info->tenant, sizeof(info->tenant), "%s", r->tenant);
	(void)snprintf(info->service, sizeof(info->service), "%s", name);
	(void)snprintf(info->host, sizeof(info->host), "%s", s->host.name);
	selector_to_text(selector, info->selector);
	strcpy(info->id, "sess-");
	ulid_make(info->created_at_ns, info->id + strlen("sess-"));
	if (r->idempotency_key)
		(void)snprintf(session->idempotency_key, sizeof(session->idempotency_key), "%s",
			       r->idempotency_key);
	session->request_hash = request_hash(r);
	session->selector = *selector;
	session->tenant_rule = sessions_tenant_rule(s, r->tenant);
	session->end_ns = UINT64_MAX;
	session->asked_ns = clock_monotonic_ns();
	session->wait_until_ns = session->asked_ns + r->wait_s * NS_PER_S;
	return session;
}

/* A process of the agent that is away for a moment is no fault of the request. */
static int refuse_type(const struct session_request *r, const struct type_need *need,
		       struct err *err)
{
	const char *word = profile_type_info(r->type)->word;

	if (!need->returns)
		return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "profileType", "%s: %s",
			       word, need->reason);
	(void)err_set(err, EAGAIN, "AgentBusy", NULL, "%s: %s", word, need->reason);
	err->retry_after_s = RETRY_AFTER_S;
	return -EAGAIN;
}

/* From here on the session counts; its record is not written yet. Lock held. */
static int reserve(struct sessions *s, const struct session_request *r, struct session *session,
		   struct session_info *ret, struct err *err)
{
	struct type_need need;
	int rc;

	if (s->sampling_off_ns)
		return err_set(err, EAGAIN, "AgentBusy", NULL,
			       "sampling was stopped by an administrator; `profctl resume` starts it again");
	services_session_need(s, session, &need);
	if (!need.available)
		return refuse_type(r, &need, err);
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
	(void)pthread_cond_broadcast(&s->changed);
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

static bool awaits_collector(struct sessions *s)
{
	sessions_scope(s);

	return s->feed.ring && s->peers.collector_fd < 0 && !s->stopping;
}

/* A server that has just begun, and a collector that is started again, are connected within
 * moments. A request of that time waits for them. */
static void await_collector(struct sessions *s)
{
	const uint64_t until_ns = clock_monotonic_ns() + START_WAIT_NS;

	while (awaits_collector(s) && clock_monotonic_ns() < until_ns)
		sessions_await_told(s, sessions_told(s), RESOLVE_TICK_NS);
}

/* A process that has just started reaches us with the feed, a moment later: whoever starts a
 * program and asks for its profile at once must not be told that there is none, until the collector
 * has said who lives. */
static int resolve_patiently(struct sessions *s, const struct session_request *request,
			     struct selector *ret, char name[SERVICE_NAME_SIZE], struct err *err)
{
	/* For memory and alloc the reader is asked what it is. */
	const struct profile_type_info *info = profile_type_info(request->type);
	bool by_runtime = info->way == PROFILE_WAY_WAITS && info->go_way != info->way;
	bool told = s->options.feed_fd < 0;
	uint64_t begin_ns = clock_monotonic_ns(), since_ns = begin_ns;

	/* A process may begin to listen at any time, and nobody tells. Without an answer the ports
	 * known so far count. */
	while (!told && services_is_port(request->service) &&
	       clock_monotonic_ns() - begin_ns < PORTS_WAIT_NS) {
		const uint64_t seen = sessions_told(s);

		if (demand_ports_are_told(s, begin_ns))
			break;
		sessions_await_told(s, seen, RESOLVE_TICK_NS);
	}
	for (;;) {
		const uint64_t seen = sessions_told(s);
		int rc = services_resolve(s, request->tenant, request->service, request->wait_s > 0,
					  ret, name, err);
		uint64_t waited_ns = clock_monotonic_ns() - begin_ns;

		if (rc == 0 && (!by_runtime || s->options.feed_fd < 0 || waited_ns > RUNTIME_LAG_NS ||
				read_session_is_decided(s, request->tenant, ret)))
			return 0;
		if (rc != 0 && rc != -ENOENT && rc != -ESRCH)
			return rc;
		if (rc != 0 && told) {
			uint64_t ended_ns =
				s->options.feed_fd < 0
					? 0
					: services_ended_ns(s, request->tenant, request->service);

			/* It may have ended in an exec, which the collector had not seen when it said who lives. */
			if (ended_ns <= since_ns)
				return rc;
			since_ns = ended_ns;
		}
		if (rc != 0 && waited_ns > LIVES_WAIT_NS)
			return err_set(err, EAGAIN, "AgentBusy", NULL,
				       "the collector has not listed the running processes yet; try again later");
		told = rc != 0 && demand_lives_are_told(s, since_ns); /* before the next look */
		if (!told)
			sessions_await_told(s, seen, RESOLVE_TICK_NS);
	}
}

/* A client may rely on the answer that the profile has started: the answer waits for the sampler,
 * which takes milliseconds, or, for the first session of a daemon, until the unwind tables are
 * there. What takes longer is answered without startedAt. */
static int await_sampling(struct sessions *s, struct session_info *info, struct err *err)
{
	struct session_info now;
	int rc = session_wait(s, info->tenant, info->id, START_WAIT_NS, true);

	if (rc < 0)
		return 0; /* it samples later */
	rc = session_look(s, info->tenant, info->id, &now, err);
	if (rc == 0)
		rc = session_get(s, info->tenant, info->id, &now, err);
	if (rc < 0)
		return 0; /* deleted meanwhile: it had been started */
	session_info_deinit(info);
	*info = now;
	return 0;
}

int session_start_resolved(struct sessions *s, const struct session_request *request,
			   const struct selector *selector, const char *name, struct session_info *ret,
			   struct err *err)
{
	bool reads = false;
	int rc = read_session_check(s, request, selector, &reads, err);

	if (rc == 0 && reads && selector->children)
		return err_set(
			err, ENOTSUP, "ProfileTypeUnavailable", "children",
			"%s of a Go program is read from its runtime, and of that program alone: leave children out",
			profile_type_info(request->type)->word);
	if (rc == 0 && session_way_of(request->type, reads)->check)
		rc = session_way_of(request->type, reads)->check(s, request, selector, err);
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
		await_collector(s);
	if (rc == 0)
		rc = session_start_resolved(s, request, &selector, name, ret, err);
	return rc < 0 || request->wait_s ? rc : await_sampling(s, ret, err);
}
