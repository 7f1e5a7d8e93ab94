// SPDX-License-Identifier: Apache-2.0
#include "agent/server.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "agent/base/privileges.h"
#include "agent/base/text.h"
#include "agent/debug_fetch.h"
#include "agent/listeners.h"
#include "agent/session/records/hosts.h"
#include "agent/session/sessions_run.h"
#include "agent/standby.h"
#include "agent/store/clickhouse_url.h"
#include "agent/store/store.h"
#include "agent/wire/control.h"
#include "api/api.h"
#include "api/push/push_http.h"
#include "api/push/push.h"

#define KEY_FILE_MAX	(1u << 20)     /* bytes */
#define MALLOC_ARENAS	2	       /* see server_run(), also the next two, in bytes */
#define MALLOC_MAPPED	(256 << 10)
#define MALLOC_KEPT	(512 << 10)
#define ANSWER_GRACE_NS (5 * NS_PER_S) /* of answers under way when told to stop */
#define LIMITS		10	       /* of parts outside the API */
#define TRY_MS		10000
#define STARTS_MAX	3 /* more, where a shared store fails while a start uses it */

struct server {
	const struct server_options *options;
	struct service_rule rules[CONFIG_LIST_MAX]; /* lent to the sessions, likewise tenants */
	struct tenant_rule tenants[CONFIG_LIST_MAX];
	struct store *store;
	struct sessions *sessions;
	struct api *api;
	bool leaves; /* its sessions go on in the next server process */
	struct standby_options shared; /* lent; url NULL: the store is this host's alone */
	struct standby *standby;       /* NULL = likewise */
	char host[STORE_HOST_SIZE];
	struct debug_fetch *fetch; /* NULL = off */
	/* Contents of the files that the configuration names, NULL = not named. */
	char *tls_certificate, *tls_key, *jwt_key, *jwt_jwks;
	struct api_limit limits[LIMITS]; /* lent to the API, likewise receivers */
	struct push_receiver receivers[PUSH_RECEIVERS_MAX];
	unsigned receiver_count;
};

static const char *text_or_null(const char *text)
{
	return text && *text ? text : NULL;
}

static int read_key(const char *key, const char *path, char **ret, struct err *err)
{
	int rc;

	if (!text_or_null(path))
		return 0;
	rc = io_read_file(AT_FDCWD, path, KEY_FILE_MAX, ret, NULL);
	if (rc < 0)
		return err_set(err, -rc, NULL, key, "%s: %s: %s", key, path, strerror(-rc));
	return 0;
}

/* While there are privileges: such files are often root's alone. */
static int read_keys(struct server *s, struct err *err)
{
	const struct config *c = s->options->config;
	int rc = read_key("tls_certificate", c->tls_certificate, &s->tls_certificate, err);

	if (rc == 0)
		rc = read_key("tls_key", c->tls_key, &s->tls_key, err);
	if (rc == 0)
		rc = read_key("jwt_key_file", c->jwt_key_file, &s->jwt_key, err);
	if (rc == 0)
		rc = read_key("jwt_jwks_file", c->jwt_jwks_file, &s->jwt_jwks, err);
	return rc;
}

static void free_keys(struct server *s)
{
	free(s->tls_certificate);
	free(s->tls_key);
	free(s->jwt_key);
	free(s->jwt_jwks);
}

#define WEBHOOK_LIMIT_S 10 /* one that is slow must not hold up those of others */

static atomic_bool leaves_webhooks; /* the server ends: the next one calls them */

static bool private_webhooks; /* of the configuration */

static int post_webhook(const char *url, const char *content_type, const char *body,
			struct err *err)
{
	const struct push_target target = { .url = url,
					    .content_type = content_type,
					    .limit_s = WEBHOOK_LIMIT_S,
					    .public_only = !private_webhooks,
					    .stop = &leaves_webhooks };
	char shown[PUSH_SHOWN_SIZE];
	struct push_answer answer;

	if (push_send(&target, body, strlen(body), &answer) == PUSH_DONE)
		return 0;
	push_show_url(url, shown);
	return err_set(err, ECONNREFUSED, NULL, NULL, "%s: status %ld %s", shown, answer.status,
		       answer.text);
}

static int create_sessions(struct server *s, struct err *err)
{
	const struct config *c = s->options->config;
	struct sessions_options options = {
		.store = s->store,
		.feed_fd = s->options->feed_fd,
		.rules = s->rules,
		.rule_count = c->service_count,
		.tenants = s->tenants,
		.tenant_count = c->tenant_count,
		.running_per_tenant = c->limits.running_sessions,
		.running_per_host = c->limits.running_sessions_host,
		.stacks_per_session = c->limits.stacks_per_session,
		.baselines = c->limits.baselines,
		.retention_days = c->retention_days,
		.continuous_span_ns = c->continuous_span_ns,
		.disk_budget_bytes = c->disk_budget_bytes,
		.detail_budget_bytes = c->detail_budget_bytes,
		.no_detail = !c->detail_budget_bytes,
		.post = post_webhook,
	};

	private_webhooks = c->private_webhooks;

	for (unsigned i = 0; i < c->service_count; i++) {
		const struct config_service *service = &c->services[i];

		s->rules[i] =
			(struct service_rule){ service->name, service->unit,	service->cgroup,
					       service->exe,  service->cmdline, service->user,
					       service->port };
	}
	for (unsigned i = 0; i < c->tenant_count; i++)
		s->tenants[i] = (struct tenant_rule){
			.name = c->tenants[i].name,
			.patterns = (const char *const *)c->tenants[i].services,
			.pattern_count = c->tenants[i].service_count,
		};
	return sessions_create(&options, &s->sessions, err);
}

/* The API lists the limits that are enforced outside of it, too. */
static void list_limits(struct server *s)
{
	const struct config *c = s->options->config;
	const struct api_limit limits[LIMITS] = {
		{ "running_sessions", c->limits.running_sessions },
		{ "running_sessions_host", c->limits.running_sessions_host },
		{ "stacks_per_session", c->limits.stacks_per_session },
		{ "baselines", c->limits.baselines },
		{ "disk_budget_bytes", (double)c->disk_budget_bytes },
		{ "detail_budget_bytes", (double)c->detail_budget_bytes },
		{ "retention_days", c->retention_days },
		{ "memory_budget_bytes", (double)c->memory_budget_bytes },
		{ "cpu_budget_pct", c->cpu_budget_pct },
		{ "target_budget_pct", c->target_budget_pct },
	};

	memcpy(s->limits, limits, sizeof(limits));
}

static void list_receivers(struct server *s)
{
	const struct config *c = s->options->config;

	for (unsigned i = 0; i < c->export_count && i < PUSH_RECEIVERS_MAX; i++)
		s->receivers[s->receiver_count++] = (struct push_receiver){
			.name = c->exports[i].name,
			.kind = c->exports[i].kind,
			.url = c->exports[i].url,
			.token_file = c->exports[i].token_file,
			.spool_bytes = c->exports[i].spool_bytes,
		};
}

static struct api_options api_options_of(const struct server *s)
{
	const struct config *c = s->options->config;

	return (struct api_options){
		.jwt = { .algorithm = text_or_null(c->jwt_algorithm),
			 .key = s->jwt_key,
			 .jwks = s->jwt_jwks,
			 .issuer = text_or_null(c->jwt_issuer),
			 .audience = text_or_null(c->jwt_audience),
			 .tenant_claim = text_or_null(c->jwt_tenant_claim),
			 .role_claim = text_or_null(c->jwt_role_claim) },
		.tls_certificate = s->tls_certificate,
		.tls_key = s->tls_key,
		.cleartext = c->cleartext,
		.listen_fd = s->options->listen_fd,
		.socket_fd = s->options->socket_fd,
		.public_url = text_or_null(c->public_url),
		.body_bytes = c->limits.body_bytes,
		.url_bytes = c->limits.url_bytes,
		.header_bytes = c->limits.header_bytes,
		.header_timeout_ns = c->limits.header_timeout_ns,
		.body_timeout_ns = c->limits.body_timeout_ns,
		.answer_timeout_ns = c->limits.answer_timeout_ns,
		.connections = c->limits.connections,
		.requests_per_second = c->limits.requests_per_second,
		.request_burst = c->limits.request_burst,
		.received_per_second = c->limits.received_per_second,
		.limits = s->limits,
		.limit_count = LIMITS,
		.receivers = s->receivers,
		.data_dir = c->data_dir,
		.span_ns = c->continuous_span_ns,
		.features = s->options->features,
		.metrics_open = c->metrics_open,
		.open_webhooks = c->open_webhooks,
	};
}

static bool is_shared(const struct server *s)
{
	return text_begins(s->options->config->store_url, CLICKHOUSE_SCHEME);
}

/* @ret_why: why another store stands in for a shared one; its text is empty if none does. */
static int open_store(struct server *s, struct err *ret_why, struct err *err)
{
	const struct config *c = s->options->config;

	/* A server that takes no samples has no data of its own, also where the agent of this host
	 * writes to the same store. */
	if (s->options->feed_fd >= 0)
		hosts_name(s->host);
	if (!is_shared(s))
		return store_open(c->data_dir, text_or_null(c->store_url), s->host, &s->store, err);
	s->shared = (struct standby_options){ c->data_dir, c->store_url, s->host,
					      s->options->feed_fd >= 0 };
	return standby_open(&s->shared, &s->store, ret_why, err);
}

/* This host is served from its own disk, and a server without samples of its own says why it has
 * nothing to show. */
static void stand_in(struct server *s, const struct err *why)
{
	if (!why->text[0])
		return;
	sessions_set_standby(s->sessions, why->text);
	if (!s->shared.collects)
		store_refuse(s->store, why->text);
	log_warn("%s; until then %s", why->text,
		 s->shared.collects ? "profd records on this host's disk and shows this host alone" :
				      "profd answers StoreUnavailable");
}

static int start(struct server *s, struct err *err)
{
	const struct config *c = s->options->config;
	struct api_options options = api_options_of(s);
	struct err why = { 0 };
	int rc = open_store(s, &why, err);

	if (rc == 0)
		rc = create_sessions(s, err);
	if (rc == 0 && *c->debuginfod_urls)
		rc = debug_fetch_create(c->debuginfod_urls, c->data_dir, &s->fetch, err);
	if (rc == 0 && is_shared(s))
		rc = standby_watch(&s->shared, s->store, s->sessions, &s->standby, err);
	if (rc < 0)
		return rc;
	list_limits(s);
	list_receivers(s);
	options.receiver_count = s->receiver_count;
	options.sessions = s->sessions;
	options.store = s->store;
	rc = api_start(&options, &s->api, err);
	if (rc == 0)
		stand_in(s, &why);
	return rc;
}

/* A symbolizer gets a way to the network along, if it is to have one. */
static void connect_fetch(struct server *s, int symbolizer_fd)
{
	const struct channel_head head = { .kind = CONTROL_FETCHER };
	int fds[2];

	if (!s->fetch || channel_pair(fds) < 0)
		return;
	if (channel_send_wait(symbolizer_fd, &head, sizeof(head), &fds[1], 1, 1000) < 0)
		log_warn("debuginfod: the symbolizer cannot be connected");
	(void)close(fds[1]);
	debug_fetch_set_channel(s->fetch, fds[0]);
}

/* Takes @fd. */
static void set_peer(struct server *s, uint32_t role, int fd, uint32_t generation)
{
	switch (role) {
	case ROLE_COLLECTOR:
		sessions_set_collector(s->sessions, fd, generation);
		break;
	case ROLE_SYMBOLIZER:
		connect_fetch(s, fd);
		sessions_set_symbolizer(s->sessions, fd, generation);
		break;
	default:
		sessions_set_reader(s->sessions, fd, generation);
		break;
	}
}

/* A channel to a peer that has started, or started again. */
static void on_peer(struct server *s, struct channel_message *message)
{
	const struct control_peer *peer = (const void *)message->data;

	if (message->len != sizeof(*peer) || message->fd_count != 1 ||
	    (peer->role != ROLE_COLLECTOR && peer->role != ROLE_SYMBOLIZER && peer->role != ROLE_READER))
		return;
	set_peer(s, peer->role, take_fd(&message->fds[0]), peer->generation);
}

/* The shared store works again: this process ends and begins anew with it. */
static void begin_anew(struct server *s)
{
	const struct channel_head again = { .kind = CONTROL_AGAIN };

	log_info("the store works again: what was recorded meanwhile is moved there");
	s->leaves = true;
	(void)!channel_send_wait(s->options->control_fd, &again, sizeof(again), NULL, 0, 1000);
}

/* Returns when told to stop, when the supervisor is gone, or when the store has come back. */
static void serve(struct server *s, struct channel_message *message)
{
	struct pollfd wait[] = { { .fd = s->options->control_fd, .events = POLLIN },
				 { .fd = s->standby ? standby_fd(s->standby) : -1, .events = POLLIN } };
	int rc = 0;

	while (rc != -EPIPE) {
		const struct channel_head *head = (const void *)message->data;

		rc = channel_receive(s->options->control_fd, message);
		if (rc == 0 && poll(wait, ARRAY_SIZE(wait), -1) > 0 && wait[1].revents) {
			begin_anew(s);
			return;
		}
		if (rc != 1)
			continue;
		if (head->kind == CONTROL_PEER)
			on_peer(s, message);
		channel_message_close(message);
		s->leaves = head->kind == CONTROL_LEAVE;
		if (s->leaves || head->kind == CONTROL_STOP)
			return;
	}
}

/* The other way round: no request sees a part of it gone. */
static void stop(struct server *s)
{
	if (s->api)
		api_stop(s->api, ANSWER_GRACE_NS);
	standby_stop(s->standby);
	atomic_store(&leaves_webhooks, true);
	if (s->leaves)
		sessions_abandon(s->sessions); /* the feed still holds what is not stored */
	else
		sessions_destroy(s->sessions);
	debug_fetch_destroy(s->fetch);
	store_close(s->store);
	free_keys(s);
}

static void undo_start(struct server *s)
{
	standby_stop(s->standby);
	if (s->sessions)
		sessions_abandon(s->sessions); /* nothing of what goes on is to end */
	debug_fetch_destroy(s->fetch);
	store_close(s->store);
	s->standby = NULL;
	s->sessions = NULL;
	s->fetch = NULL;
	s->store = NULL;
	s->receiver_count = 0;
}

/* A shared store may fail between two questions of a start. The next start finds it unable to work,
 * and has another store stand in. */
static int start_again(struct server *s, struct err *err)
{
	int rc = start(s, err);

	for (unsigned i = 0; rc == -EIO && is_shared(s) && i < STARTS_MAX; i++) {
		undo_start(s);
		*err = (struct err){ 0 };
		rc = start(s, err);
	}
	return rc;
}

static int give_up(const struct server *s, const struct err *err)
{
	struct control_failed failed = { .head = { .kind = CONTROL_FAILED } };

	(void)snprintf(failed.text, sizeof(failed.text), "%s", err->text);
	(void)!channel_send_wait(s->options->control_fd, &failed, sizeof(failed), NULL, 0, 1000);
	return 1;
}

static int drop_privileges(struct err *err)
{
	int rc = privileges_keep(0);

	return rc < 0 ? err_set(err, -rc, NULL, NULL,
				"the server cannot give up its privileges: %s", strerror(-rc))
		      : 0;
}

/* ---- tried ----------------------------------------------------------------------------------- */

static int try_config(const struct config *config, struct err *err)
{
	const struct server_options options = { .config = config, .listen_fd = -1, .socket_fd = -1 };
	struct server server = { .options = &options };
	int rc = read_keys(&server, err);

	if (rc == 0)
		rc = drop_privileges(err);
	if (rc == 0)
		rc = debug_fetch_check(config->debuginfod_urls, err);
	if (rc == 0) {
		const struct api_options api = api_options_of(&server);

		rc = api_check(&api, err);
	}
	free_keys(&server);
	return rc;
}

/* In the child, which leaves nothing behind: what it found goes to @fd. */
static void try_and_tell(const struct config *config, int fd)
{
	struct err err = { 0 };
	int rc = try_config(config, &err);

	if (rc < 0 && !err.code)
		(void)err_set(&err, -rc, NULL, NULL, "%s", strerror(-rc));
	err.word = NULL;
	_exit(io_write_all(fd, &err, sizeof(err)) < 0);
}

int server_try(const struct config *config, struct err *err)
{
	struct pollfd wait = { .events = POLLIN };
	cleanup_close int from = -1, to = -1;
	struct err found = { 0 };
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set(err, errno, NULL, NULL, "the configuration cannot be tried: %s", strerror(errno));
	from = wait.fd = fds[0];
	to = fds[1];
	pid = fork();
	if (pid < 0)
		return err_set(err, errno, NULL, NULL, "the configuration cannot be tried: %s", strerror(errno));
	if (pid == 0)
		try_and_tell(config, to);
	(void)close(take_fd(&to));
	/* A file may be one that is never read to its end. */
	if (poll(&wait, 1, TRY_MS) != 1 || read(from, &found, sizeof(found)) != (ssize_t)sizeof(found))
		(void)err_set(&found, EIO, NULL, NULL,
			      "the files that [server] and [auth] name were not read within %d s", TRY_MS / 1000);
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return found.code ? err_set(err, found.code, NULL, found.field, "%s", found.text) : 0;
}

int server_check_listener(const struct config *config, struct err *err)
{
	const struct server_options options = { .config = config, .listen_fd = -1, .socket_fd = -1 };
	struct server server = { .options = &options };
	struct api_options api;
	struct sockaddr_storage address;
	int rc = listeners_parse(config->listen, &address);

	if (rc < 0)
		return rc;
	server.tls_certificate = *config->tls_certificate ? config->tls_certificate : NULL;
	api = api_options_of(&server);
	return api_check_listener(&api, (const struct sockaddr *)&address, config->store_url, err);
}

/* ---- run ------------------------------------------------------------------------------------- */

int server_run(const struct server_options *options)
{
	const struct channel_head ready = { .kind = CONTROL_READY };
	cleanup_free struct channel_message *message = calloc(1, sizeof(*message));
	struct server server = { .options = options };
	struct err err = { 0 };
	int rc = message ? read_keys(&server, &err)
			 : err_set(&err, ENOMEM, NULL, NULL, "no memory to start the server");

	/* A thread's arena keeps what its last answer took. One profile is built at a time, so that
	 * shared arenas need the memory of one. */
	(void)mallopt(M_ARENA_MAX, MALLOC_ARENAS);
	/* Fixed: else the library keeps as much free memory as twice the largest block so far. */
	(void)mallopt(M_MMAP_THRESHOLD, MALLOC_MAPPED);
	(void)mallopt(M_TRIM_THRESHOLD, MALLOC_KEPT);
	if (rc == 0)
		rc = drop_privileges(&err);
	if (rc == 0)
		rc = start_again(&server, &err);
	if (rc == 0)
		rc = channel_send_wait(options->control_fd, &ready, sizeof(ready), NULL, 0, 1000);
	if (rc == 0)
		serve(&server, message);
	stop(&server);
	return rc < 0 ? give_up(&server, &err) : 0;
}
