// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/base/log.h"

#define STOP_GRACE_NS	  (15 * NS_PER_S) /* flush and finish answers; then SIGKILL */
#define RESTART_WAIT_MAX  (5 * NS_PER_S)
#define STABLE_AFTER_NS	  (30 * NS_PER_S) /* a process that ran this long forgets earlier crashes */
#define WATCHDOG_POLL_MS  1000
#define KILL_WAIT_NS	  (2 * NS_PER_S) /* a child that hangs in the kernel ends when that lets it */
#define LINK_WAIT_NS	  NS_PER_S /* until a connection that failed is tried again */
#define LEFT_MAX	  4 /* readers that hang and cannot be killed, before no more are started */

struct child {
	pid_t pid; /* 0 = not running */
	int control_fd;
	uint32_t generation;
	bool ready;
	bool leaving; /* told to end for a new configuration: it is started again at once */
	uint64_t started_ns;   /* monotonic */
	uint64_t restart_at_ns; /* 0 = none planned */
	unsigned crashes;      /* in a row */
};

#define LINKS_MAX 5

struct supervisor {
	const struct supervisor_options *options;
	const struct config *config;
	const struct config *before; /* the one before @config, until the server has begun with
					that; NULL = it has */
	struct child children[ROLE_MAX];
	uint64_t link_at_ns[LINKS_MAX]; /* when a connection that failed is tried again; 0 = none */
	pid_t left[LEFT_MAX]; /* readers that were given up and are not gone yet; 0 = free */
	int signal_fd;
	bool announced;
	bool stopping;
	bool reload; /* SIGHUP */
	uint64_t alive_ns; /* when the manager was last told */
	int exit_status;
};

static const struct {
	const char *name; /* comm, at most 15 characters */
	const char *word;
} roles[ROLE_MAX] = {
	[ROLE_SUPERVISOR] = { "profd", "supervisor" },
	[ROLE_COLLECTOR] = { "profd-collect", "collector" },
	[ROLE_SYMBOLIZER] = { "profd-symbols", "symbolizer" },
	[ROLE_SERVER] = { "profd-server", "server" },
	[ROLE_READER] = { "profd-reader", "reader" },
};

/* The pairs of processes that have a channel between them (README.md). */
static const enum role links[LINKS_MAX][2] = {
	{ ROLE_COLLECTOR, ROLE_SYMBOLIZER },
	{ ROLE_COLLECTOR, ROLE_SERVER },
	{ ROLE_SERVER, ROLE_SYMBOLIZER },
	{ ROLE_SERVER, ROLE_READER },
	{ ROLE_COLLECTOR, ROLE_READER },
};

/* Stop order: no new data, then flush, then the helpers of both. */
static const enum role stop_order[] = { ROLE_COLLECTOR, ROLE_SERVER, ROLE_READER, ROLE_SYMBOLIZER };

/* ---- service manager ----------------------------------------------------------------------------
 */

/* sd_notify(3): a datagram to the socket named in NOTIFY_SOCKET; nothing to do when there is none.
 */
/* A manager that does not read must not hold the daemon: what does not fit is left out. */
static void notify_manager(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_close int fd = -1;

	if (!path || strlen(path) >= sizeof(address.sun_path))
		return;
	memcpy(address.sun_path, path, strlen(path) + 1);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		(void)sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
			     (struct sockaddr *)&address,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
}

/* ---- children -----------------------------------------------------------------------------------
 */

/* In a child: passwords of the store and of receivers are the server's alone. */
static void forget_secrets(const struct supervisor *s)
{
	const struct config *configs[] = { s->options->config, s->config, s->before };

	for (size_t i = 0; i < ARRAY_SIZE(configs); i++)
		if (configs[i])
			config_forget_secrets((struct config *)(uintptr_t)configs[i], environ);
}

/* In the child: only what this role may have stays open. */
static void enter_child(struct supervisor *s, enum role role, int control_fd, pid_t parent)
{
	const struct supervisor_options *o = s->options;
	sigset_t none;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	(void)prctl(PR_SET_NAME, roles[role].name);
	if (role != ROLE_SERVER)
		forget_secrets(s);
	log_init(s->config->verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, roles[role].name);
	(void)close(s->signal_fd);
	for (int i = 0; i < ROLE_MAX; i++)
		if (s->children[i].control_fd >= 0)
			(void)close(s->children[i].control_fd);
	if (role != ROLE_SERVER) {
		(void)close(o->listen_fd);
		if (o->socket_fd >= 0)
			(void)close(o->socket_fd);
		/* A reader that cannot be killed must not keep the next daemon out. */
		if (o->lock_fd >= 0)
			(void)close(o->lock_fd);
	}
	if (role != ROLE_SYMBOLIZER && o->cache_dir_fd >= 0)
		(void)close(o->cache_dir_fd);
	if (role != ROLE_SERVER && role != ROLE_COLLECTOR && o->feed_fd >= 0)
		(void)close(o->feed_fd);
	/* A terminal's Ctrl-C and a service manager's SIGTERM reach the whole group: the supervisor
	 * decides the order in which everybody stops. */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGTERM, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN); /* and when the configuration is read again */
	(void)signal(SIGPIPE, SIG_IGN);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)control_fd;
}

static int start_child(struct supervisor *s, enum role role)
{
	const struct supervisor_options *o = s->options;
	struct child *child = &s->children[role];
	pid_t parent = getpid(), pid;
	int fds[2], rc;

	rc = channel_pair(fds);
	if (rc < 0)
		return rc;
	pid = fork();
	if (pid < 0) {
		rc = -errno;
		(void)close(fds[0]);
		(void)close(fds[1]);
		return rc;
	}
	if (pid == 0) {
		struct child_context context = {
			.config = s->config,
			.control_fd = fds[1],
			.feed_fd = o->feed_fd,
			.listen_fd = o->listen_fd,
			.socket_fd = o->socket_fd,
			.cache_dir_fd = o->cache_dir_fd,
			.generation = child->generation + 1,
		};

		(void)close(fds[0]);
		enter_child(s, role, fds[1], parent);
		_exit(o->run[role](&context));
	}
	(void)close(fds[1]);
	child->pid = pid;
	child->control_fd = fds[0];
	child->generation++;
	child->ready = false;
	child->started_ns = clock_monotonic_ns();
	child->restart_at_ns = 0;
	return 0;
}

/* 0 also if @to is gone, which is noticed by its exit. */
static int send_peer(struct supervisor *s, enum role to, enum role peer, int fd)
{
	struct control_peer message = {
		.head = { .kind = CONTROL_PEER },
		.role = peer,
		.generation = s->children[peer].generation,
	};
	int rc = channel_send_wait(s->children[to].control_fd, &message, sizeof(message), &fd, 1, 1000);

	return rc == -EPIPE ? 0 : rc;
}

/* A new channel between the two of link @i, told to both. What fails is tried again: they do
 * nothing without it. */
static void connect_link(struct supervisor *s, size_t i)
{
	enum role a = links[i][0], b = links[i][1];
	int fds[2], rc;

	s->link_at_ns[i] = 0;
	if (!s->children[a].pid || !s->children[b].pid)
		return;
	rc = channel_pair(fds);
	if (rc == 0) {
		rc = send_peer(s, a, b, fds[0]);
		if (rc == 0)
			rc = send_peer(s, b, a, fds[1]);
		(void)close(fds[0]);
		(void)close(fds[1]);
	}
	if (rc == 0)
		return;
	log_warn("cannot connect %s with %s: %s; it is tried again", roles[a].word, roles[b].word,
		 strerror(-rc));
	s->link_at_ns[i] = clock_monotonic_ns() + LINK_WAIT_NS;
}

/* @role with each of its living peers. */
static void connect_child(struct supervisor *s, enum role role)
{
	for (size_t i = 0; i < LINKS_MAX; i++)
		if (links[i][0] == role || links[i][1] == role)
			connect_link(s, i);
}

static bool start_and_connect(struct supervisor *s, enum role role)
{
	int rc = start_child(s, role);

	if (rc < 0) {
		log_error("cannot start the %s: %s", roles[role].word, strerror(-rc));
		s->children[role].restart_at_ns = clock_monotonic_ns() + NS_PER_S;
		return false;
	}
	connect_child(s, role);
	return true;
}

/* ---- events -------------------------------------------------------------------------------------
 */

static void begin_stop(struct supervisor *s, int exit_status)
{
	if (!s->stopping)
		s->exit_status = exit_status;
	s->stopping = true;
}

static void announce_when_ready(struct supervisor *s)
{
	if (s->announced)
		return;
	for (int role = 0; role < ROLE_MAX; role++)
		if (s->options->run[role] && !s->children[role].ready)
			return;
	s->announced = true;
	(void)fprintf(stderr, "listening on http%s://%s\n",
		      *s->options->config->tls_certificate ? "s" : "", s->options->address);
	notify_manager("READY=1\nSTATUS=serving");
}

static void plan_restart(struct child *child)
{
	uint64_t now = clock_monotonic_ns(), wait = 0;

	if (child->leaving) {
		child->leaving = false;
		child->restart_at_ns = now;
		return;
	}
	child->crashes = now - child->started_ns > STABLE_AFTER_NS ? 0 : child->crashes + 1;
	if (child->crashes > 1) { /* the first restart is immediate, then 100 ms, 200 ms, … */
		wait = 100 * NS_PER_MS << (child->crashes < 8 ? child->crashes - 2 : 6);
		if (wait > RESTART_WAIT_MAX)
			wait = RESTART_WAIT_MAX;
	}
	child->restart_at_ns = now + wait;
}

static pid_t *find_left(struct supervisor *s, pid_t pid)
{
	for (int i = 0; i < LEFT_MAX; i++)
		if (s->left[i] == pid)
			return &s->left[i];
	return NULL;
}

/* The reader hangs where it may not even be killed (FUSE): its place is taken, it ends when it can.
 * Without room to remember it the next one waits for its end. */
static void leave_behind(struct supervisor *s, struct child *child)
{
	pid_t *slot = find_left(s, 0);

	log_warn("the reader hangs in a process's memory; another one takes its place%s",
		 slot ? "" : " when that ends");
	(void)kill(child->pid, SIGKILL);
	if (!slot)
		return;
	*slot = child->pid;
	(void)close(child->control_fd);
	child->control_fd = -1;
	child->pid = 0;
	child->ready = false;
	if (!s->stopping)
		plan_restart(child);
}

static void leave(struct supervisor *s, enum role role, enum control_kind kind)
{
	const struct channel_head head = { .kind = kind };
	struct child *child = &s->children[role];

	if (child->control_fd < 0)
		return; /* its next process reads the new one anyway */
	child->leaving = true;
	(void)!channel_send(child->control_fd, &head, sizeof(head), NULL, 0);
}

/* Takes back a configuration that only the starting server found to be wrong. */
static void take_back(struct supervisor *s, const char *why)
{
	const bool collect = config_differs(s->before, s->config, "collect");

	log_error("the configuration stays as it was: %s", why);
	s->config = s->options->take_back(s->options->reload_ctx);
	s->before = NULL;
	s->children[ROLE_SERVER].leaving = true;
	if (collect && s->options->run[ROLE_COLLECTOR])
		leave(s, ROLE_COLLECTOR, CONTROL_STOP);
}

static void read_control(struct supervisor *s, enum role role)
{
	static struct channel_message message;
	struct child *child = &s->children[role];

	while (child->control_fd >= 0 && channel_receive(child->control_fd, &message) > 0) {
		const struct channel_head *head = (const void *)message.data;

		channel_message_close(&message);
		if (head->kind == CONTROL_READY) {
			child->ready = true;
			s->before = role == ROLE_SERVER ? NULL : s->before;
		} else if (head->kind == CONTROL_AGAIN && role == ROLE_SERVER) {
			child->leaving = true;
		} else if (head->kind == CONTROL_HUNG && role == ROLE_READER && child->pid) {
			leave_behind(s, child);
		} else if (head->kind == CONTROL_FAILED &&
			   message.len == sizeof(struct control_failed)) {
			struct control_failed *failed = (void *)message.data;

			failed->text[sizeof(failed->text) - 1] = '\0';
			/* A child that was ready and parses hostile bytes cannot end the daemon by
			 * a word. */
			if (child->ready) {
				log_warn("the %s says that it cannot start though it has: %s",
					 roles[role].word, failed->text);
				continue;
			}
			if (role == ROLE_SERVER && s->before) {
				take_back(s, failed->text);
				continue;
			}
			log_error("%s", failed->text);
			begin_stop(s, 1);
		}
	}
	announce_when_ready(s);
}

static void reap(struct supervisor *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		pid_t *left;

		for (int role = 0; role < ROLE_MAX; role++) {
			struct child *child = &s->children[role];

			if (child->pid != pid)
				continue;
			read_control(s, (enum role)role); /* its last words */
			if (!child->pid)
				break;
			(void)close(child->control_fd);
			child->control_fd = -1;
			child->pid = 0;
			child->ready = false;
			if (s->stopping)
				break;
			if (child->leaving && WIFEXITED(status) && WEXITSTATUS(status) == 0)
				;
			else if (WIFSIGNALED(status))
				log_warn("the %s was killed by signal %d; it is started again",
					 roles[role].word, WTERMSIG(status));
			else
				log_warn("the %s ended with status %d; it is started again",
					 roles[role].word, WEXITSTATUS(status));
			plan_restart(child);
			break;
		}
		left = find_left(s, pid);
		if (left)
			*left = 0;
	}
}

static void restart_due(struct supervisor *s)
{
	uint64_t now = clock_monotonic_ns();

	for (int role = 0; role < ROLE_MAX; role++)
		if (s->children[role].restart_at_ns && s->children[role].restart_at_ns <= now)
			(void)start_and_connect(s, (enum role)role);
	for (size_t i = 0; i < LINKS_MAX; i++)
		if (s->link_at_ns[i] && s->link_at_ns[i] <= now)
			connect_link(s, i);
}

/* The earlier of @timeout_ms (-1 = never) and @at_ns (0 = never). */
static int sooner_ms(int timeout_ms, uint64_t at_ns, uint64_t now_ns)
{
	int left_ms;

	if (!at_ns)
		return timeout_ms;
	left_ms = at_ns <= now_ns ? 0 : (int)((at_ns - now_ns) / NS_PER_MS) + 1;
	return timeout_ms < 0 || left_ms < timeout_ms ? left_ms : timeout_ms;
}

static int next_timeout_ms(const struct supervisor *s)
{
	uint64_t now = clock_monotonic_ns();
	/* Without a watchdog or a planned restart there is nothing to wake up for. */
	int timeout = getenv("WATCHDOG_USEC") ? WATCHDOG_POLL_MS : -1;

	for (int role = 0; role < ROLE_MAX; role++)
		timeout = sooner_ms(timeout, s->children[role].restart_at_ns, now);
	for (size_t i = 0; i < LINKS_MAX; i++)
		timeout = sooner_ms(timeout, s->link_at_ns[i], now);
	return timeout;
}

static void read_signals(struct supervisor *s)
{
	struct signalfd_siginfo info;

	while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			reap(s);
		else if (info.ssi_signo == SIGHUP)
			s->reload = true;
		else
			begin_stop(s, 0);
	}
}

static void wait_for_events(struct supervisor *s, int timeout_ms)
{
	struct pollfd fds[ROLE_MAX + 1] = { { .fd = s->signal_fd, .events = POLLIN } };

	for (int role = 0; role < ROLE_MAX; role++)
		fds[role + 1] = (struct pollfd){ .fd = s->children[role].control_fd, .events = POLLIN };
	if (poll(fds, ARRAY_SIZE(fds), timeout_ms) < 0 && errno != EINTR)
		log_error("poll: %s", strerror(errno));
	for (int role = 0; role < ROLE_MAX; role++)
		if (fds[role + 1].revents & POLLIN)
			read_control(s, (enum role)role);
		else if (fds[role + 1].revents & POLLHUP) {
			/* The child closed its end; its exit follows. Do not spin on the hang-up.
			 */
			(void)close(s->children[role].control_fd);
			s->children[role].control_fd = -1;
		}
	read_signals(s);
	if (clock_monotonic_ns() - s->alive_ns >= NS_PER_S) {
		s->alive_ns = clock_monotonic_ns();
		notify_manager("WATCHDOG=1");
	}
}

/* ---- another configuration ---------------------------------------------------------------------
 */

/* The server starts anew with the new configuration and goes on with its sessions;
 * connections wait in the listening sockets meanwhile. The collector does only if it must: nothing
 * is sampled until it is back. */
static void reload(struct supervisor *s)
{
	const struct config *before = s->config, *next;
	bool collect;

	s->reload = false;
	if (!s->options->reload)
		return;
	notify_manager("RELOADING=1");
	next = s->options->reload(s->options->reload_ctx);
	if (next) {
		collect = config_differs(before, next, "collect");
		s->before = before;
		s->config = next;
		log_info("the configuration was read again%s",
			 collect ? "; sampling pauses for a moment" : "");
		leave(s, ROLE_SERVER, CONTROL_LEAVE);
		if (collect && s->options->run[ROLE_COLLECTOR])
			leave(s, ROLE_COLLECTOR, CONTROL_STOP);
	}
	notify_manager("READY=1");
}

/* ---- stop ---------------------------------------------------------------------------------------
 */

/* A child that hangs in the kernel is not waited for: the host could not shut down. */
static void kill_child(struct supervisor *s, enum role role)
{
	const struct child *child = &s->children[role];
	uint64_t until_ns = clock_monotonic_ns() + KILL_WAIT_NS;

	log_warn("the %s did not stop in time and is killed", roles[role].word);
	(void)kill(child->pid, SIGKILL);
	while (child->pid && clock_monotonic_ns() < until_ns)
		wait_for_events(s, 100);
	if (child->pid)
		log_error("the %s (process %d) cannot be killed and is left behind",
			  roles[role].word, (int)child->pid);
}

static void stop_children(struct supervisor *s)
{
	uint64_t deadline = clock_monotonic_ns() + STOP_GRACE_NS;

	notify_manager("STOPPING=1");
	for (size_t i = 0; i < ARRAY_SIZE(stop_order); i++) {
		struct child *child = &s->children[stop_order[i]];
		struct channel_head stop = { .kind = CONTROL_STOP };

		if (child->control_fd >= 0)
			(void)!channel_send(child->control_fd, &stop, sizeof(stop), NULL, 0);
		while (child->pid && clock_monotonic_ns() < deadline)
			wait_for_events(s, 100);
		if (child->pid)
			kill_child(s, stop_order[i]);
	}
}

int supervisor_run(const struct supervisor_options *options)
{
	static const enum role start_order[] = { ROLE_SYMBOLIZER, ROLE_READER, ROLE_COLLECTOR,
						 ROLE_SERVER };
	struct supervisor s = { .options = options, .config = options->config };
	sigset_t set;

	for (int role = 0; role < ROLE_MAX; role++)
		s.children[role].control_fd = -1;
	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return 1;
	s.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s.signal_fd < 0) {
		log_error("signalfd: %s", strerror(errno));
		return 1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(start_order); i++)
		if (options->run[start_order[i]])
			(void)start_and_connect(&s, start_order[i]);
	while (!s.stopping) {
		wait_for_events(&s, next_timeout_ms(&s));
		if (s.stopping)
			break;
		if (s.reload)
			reload(&s);
		restart_due(&s);
	}
	stop_children(&s);
	(void)close(s.signal_fd);
	return s.exit_status;
}
