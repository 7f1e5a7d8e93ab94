// SPDX-License-Identifier: Apache-2.0
#include "agent/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "agent/base/privileges.h"
#include "agent/debug_fetch.h"
#include "agent/listeners.h"
#include "agent/session/hosts.h"
#include "agent/session/sessions_run.h"
#include "agent/store/clickhouse_url.h"
#include "agent/store/store.h"
#include "agent/wire/control.h"
#include "api/api.h"
#include "api/push_http.h"
#include "api/push.h"

#define KEY_FILE_MAX	(1u << 20)     /* bytes */
#define ANSWER_GRACE_NS (5 * NS_PER_S) /* of answers under way when told to stop */
#define LIMITS		10	       /* of parts outside the API */
#define TRY_MS		10000
#define START_AGAIN_MS	1000  /* the first time; twice as long each time */
#define START_MOST_MS	30000

struct server {
	const struct server_options *options;
	struct service_rule rules[CONFIG_LIST_MAX]; /* lent to the sessions, likewise tenants */
	struct tenant_rule tenants[CONFIG_LIST_MAX];
	struct store *store;
	struct sessions *sessions;
	struct api *api;
	bool leaves; /* its sessions go on in the next life of this process */
	struct waiting_peer {
		int fd; /* owned; 0 = none */
		uint32_t generation;
	} waiting[ROLE_MAX]; /* that came before there were sessions */
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

static atomic_bool leaves_webhooks; /* the server ends: they are told by the next */

static int post_webhook(const char *url, const char *body, struct err *err)
{
	const struct push_target target = { .url = url, .content_type = "application/json", .stop = &leaves_webhooks };
	struct push_answer answer;

	if (push_send(&target, body, strlen(body), &answer) == PUSH_DONE)
		return 0;
	return err_set(err, ECONNREFUSED, NULL, NULL, "%.200s: status %ld %s", url, answer.status,
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

/* What is enforced outside the API is shown by it, too. */
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
		.limits = s->limits,
		.limit_count = LIMITS,
		.receivers = s->receivers,
		.data_dir = c->data_dir,
		.span_ns = c->continuous_span_ns,
		.features = s->options->features,
		.metrics_open = c->metrics_open,
	};
}

static int start(struct server *s, struct err *err)
{
	const struct config *c = s->options->config;
	struct api_options options = api_options_of(s);
	char host[STORE_HOST_SIZE] = "";
	int rc;

	/* Who takes nothing has no data of its own, also where the agent of this host writes to the same store. */
	if (s->options->feed_fd >= 0)
		hosts_name(host);
	rc = store_open(c->data_dir, text_or_null(c->store_url), host, &s->store, err);
	if (rc == 0)
		rc = create_sessions(s, err);
	if (rc == 0 && *c->debuginfod_urls)
		rc = debug_fetch_create(c->debuginfod_urls, c->data_dir, &s->fetch, err);
	if (rc < 0)
		return rc;
	list_limits(s);
	list_receivers(s);
	options.receiver_count = s->receiver_count;
	options.sessions = s->sessions;
	options.store = s->store;
	return api_start(&options, &s->api, err);
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
	struct waiting_peer *waiting;

	if (message->len != sizeof(*peer) || message->fd_count != 1 ||
	    (peer->role != ROLE_COLLECTOR && peer->role != ROLE_SYMBOLIZER && peer->role != ROLE_READER))
		return;
	if (s->sessions) {
		set_peer(s, peer->role, take_fd(&message->fds[0]), peer->generation);
		return;
	}
	waiting = &s->waiting[peer->role];
	if (waiting->fd)
		(void)close(waiting->fd);
	*waiting = (struct waiting_peer){ take_fd(&message->fds[0]), peer->generation };
}

/* Until told to stop, or until the supervisor is gone: true. Or until @timeout_ms have passed (-1 = for ever). */
static bool serve(struct server *s, struct channel_message *message, int timeout_ms)
{
	struct pollfd wait = { .fd = s->options->control_fd, .events = POLLIN };
	int rc = 0;

	while (rc != -EPIPE) {
		const struct channel_head *head = (const void *)message->data;

		rc = channel_receive(s->options->control_fd, message);
		if (rc == 0 && poll(&wait, 1, timeout_ms) == 0)
			return false;
		if (rc != 1)
			continue;
		if (head->kind == CONTROL_PEER)
			on_peer(s, message);
		channel_message_close(message);
		s->leaves = head->kind == CONTROL_LEAVE;
		if (s->leaves || head->kind == CONTROL_STOP)
			return true;
	}
	return true;
}

/* The other way round: no request sees a part of it gone. */
static void stop(struct server *s)
{
	if (s->api)
		api_stop(s->api, ANSWER_GRACE_NS);
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
	if (s->sessions)
		sessions_abandon(s->sessions); /* nothing of what goes on is to end */
	debug_fetch_destroy(s->fetch);
	store_close(s->store);
	s->sessions = NULL;
	s->fetch = NULL;
	s->store = NULL;
	s->receiver_count = 0;
}

static bool is_shared(const struct server *s)
{
	return strncmp(s->options->config->store_url, CLICKHOUSE_SCHEME, strlen(CLICKHOUSE_SCHEME)) == 0;
}

/* A store of many hosts may be away when this one begins, and whoever takes samples is not to end for that: they wait in the
 * feed. *ret_told: to stop meanwhile. */
static int start_patiently(struct server *s, struct channel_message *message, bool *ret_told, struct err *err)
{
	int rc, wait_ms = START_AGAIN_MS;

	while ((rc = start(s, err)) == -EIO && is_shared(s)) {
		if (wait_ms == START_AGAIN_MS)
			log_warn("%s; tried again until it answers", err->text);
		*err = (struct err){ 0 };
		undo_start(s);
		*ret_told = serve(s, message, wait_ms);
		if (*ret_told)
			return 0;
		wait_ms = 2 * wait_ms < START_MOST_MS ? 2 * wait_ms : START_MOST_MS;
	}
	for (uint32_t role = 0; rc == 0 && role < ROLE_MAX; role++)
		if (s->waiting[role].fd)
			set_peer(s, role, s->waiting[role].fd, s->waiting[role].generation);
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

	return rc < 0 ? err_set(err, -rc, NULL, NULL, "the server cannot give up its privileges: %s", strerror(-rc)) : 0;
}

/* ---- tried ---------------------------------------------------------------------------------------- */

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

/* ---- run ------------------------------------------------------------------------------------------ */

int server_run(const struct server_options *options)
{
	const struct channel_head ready = { .kind = CONTROL_READY };
	cleanup_free struct channel_message *message = calloc(1, sizeof(*message));
	struct server server = { .options = options };
	struct err err = { 0 };
	bool told = false;
	int rc = message ? read_keys(&server, &err)
			 : err_set(&err, ENOMEM, NULL, NULL, "no memory to start the server");

	if (rc == 0)
		rc = drop_privileges(&err);
	if (rc == 0)
		rc = start_patiently(&server, message, &told, &err);
	if (rc == 0 && !told)
		rc = channel_send_wait(options->control_fd, &ready, sizeof(ready), NULL, 0, 1000);
	if (rc == 0 && !told)
		(void)serve(&server, message, -1);
	stop(&server);
	return rc < 0 ? give_up(&server, &err) : 0;
}
