// SPDX-License-Identifier: Apache-2.0
/* profd: reads options and configuration, checks what the host allows, opens what must outlive
 * every process of the daemon, and hands over to the supervisor. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/privileges.h"
#include "agent/base/ring.h"
#include "agent/collect/abilities.h"
#include "agent/collect/collector.h"
#include "agent/collect/kernel/features.h"
#include "agent/collect/feed/replay.h"
#include "agent/config.h"
#include "agent/listeners.h"
#include "agent/options.h"
#include "agent/reader/reader.h"
#include "agent/rights.h"
#include "agent/server.h"
#include "agent/supervisor.h"
#include "symbolize/symbolizer.h"

#define FEED_BYTES_MIN	   (4u << 20)
#define FEED_BYTES_PER_CPU (256u << 10) /* 20 s at 999 Hz: 80 bytes a sample */
#define CACHE_BYTES	   (512ull << 20)
#define SYMBOL_BYTES	   (128ull << 20)
#define NOBODY		   65534

static struct features host_features;

/* The text of --features, in memory that all processes share: the collector says it again when
 * loading its programs has shown more. One place is read while the other one is written. */
#define REPORT_BYTES (16u << 10)

static struct report {
	uint32_t current;
	char text[2][REPORT_BYTES];
} * host_report;	  /* mapped; NULL = not looked at */
static char *host_rights; /* owned: the lines of privileges */

static void write_report(const struct features *features)
{
	static struct features last;
	const uint32_t next = !host_report->current;
	FILE *out;

	if (!memcmp(&last, features, sizeof(last)))
		return;
	out = fmemopen(host_report->text[next], REPORT_BYTES, "w");
	if (!out)
		return;
	last = *features;
	features_print(features, out);
	fputs(host_rights, out);
	(void)fclose(out);
	host_report->text[next][REPORT_BYTES - 1] = '\0';
	__atomic_store_n(&host_report->current, next, __ATOMIC_RELEASE);
}

static const char *read_report(void)
{
	return host_report
		       ? host_report->text[__atomic_load_n(&host_report->current, __ATOMIC_ACQUIRE)]
		       : NULL;
}

/* ---- children -------------------------------------------------------------------------------- */

static int run_collector(const struct child_context *c)
{
	const struct config *config = c->config;
	struct collector_options options = {
		.control_fd = c->control_fd,
		.feed_fd = c->feed_fd,
		.generation = c->generation,
		.exclude = (const char *const *)config->exclude,
		.exclude_count = config->exclude_count,
		.memory_budget_bytes = config->memory_budget_bytes,
		.host_root = config->host_root,
		.record_path = config->record_file,
		.cpu_budget_pct = config->cpu_budget_pct,
		.on_demand_budget_pct = config->target_budget_pct,
		.features = host_features,
		.report = write_report,
	};

	return collector_run(&options);
}

static int run_replay(const struct child_context *c)
{
	struct replay_options options = {
		.control_fd = c->control_fd,
		.feed_fd = c->feed_fd,
		.path = c->config->replay_file,
		.real_time = true,
		.wait_for_demand = true,
	};

	return replay_run(&options);
}

static int run_symbolizer(const struct child_context *c)
{
	struct symbolizer_options options = {
		.control_fd = c->control_fd,
		.cache_dir_fd = c->cache_dir_fd,
		.cache_bytes = CACHE_BYTES,
		.memory_bytes = SYMBOL_BYTES,
	};

	return symbolizer_run(&options);
}

static int run_reader(const struct child_context *c)
{
	struct reader_options options = { .control_fd = c->control_fd };

	return reader_run(&options);
}

static int run_server(const struct child_context *c)
{
	struct server_options options = {
		.config = c->config,
		.control_fd = c->control_fd,
		.feed_fd = c->feed_fd,
		.listen_fd = c->listen_fd,
		.socket_fd = c->socket_fd,
		.generation = c->generation,
		.features = read_report,
	};

	return server_run(&options);
}

/* ---- what the host allows -------------------------------------------------------------------- */

static int probe_features(const struct config *config, struct err *err)
{
	features_probe(&host_features);
	for (unsigned i = 0; i < config->disabled_feature_count; i++) {
		int rc = features_disable(&host_features, config->disabled_features[i],
					  "--disable-feature", err);

		if (rc < 0)
			return rc;
	}
	host_features.sample_cycles = !strcmp(config->cpu_event, "cycles");
	if (!config->native_memory)
		return features_disable(&host_features, "uprobe_events",
					"[collect] native_memory = no", err);
	return 0;
}

/* Everything is loaded once, and nothing attached: what the kernel refuses is reported missing. */
static void print_features(void)
{
	struct abilities_cost cost = { 0 };
	struct err err = { 0 };

	if (features_require(&host_features, &err) == 0)
		abilities_probe(&host_features, &cost);
	features_print(&host_features, stdout);
	if (cost.cpu_ns)
		printf("loading          %.2f s of CPU time for the programs of all types; %" PRIu64
		       " instructions verified\n",
		       (double)cost.cpu_ns / NS_PER_S, cost.verified);
	rights_print(stdout);
}

/* While this process has what the collector will have: the server, which tells it, has no
 * capability. */
static int keep_report(void)
{
	size_t size;
	FILE *out = open_memstream(&host_rights, &size);

	if (!out)
		return -errno;
	rights_print(out);
	if (fclose(out) != 0)
		return -ENOMEM;
	host_report = mmap(NULL, sizeof(*host_report), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (host_report == MAP_FAILED) {
		host_report = NULL;
		return -errno;
	}
	write_report(&host_features);
	return 0;
}

static bool collects(const struct config *config)
{
	return !config->no_collect && !config->replay_file;
}

/* One daemon per data directory, told apart by a lock that ends with the process. */
static int open_data_dir(const char *path, int *ret_lock, struct err *err)
{
	cleanup_close int dir = -1, lock = -1;

	if (mkdir(path, 0750) < 0 && errno != EEXIST)
		return err_set(err, errno, NULL, "data_dir",
			       "cannot create the data directory %s: %s; create it or give another "
			       "with --data-dir DIR",
			       path, strerror(errno));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir >= 0)
		lock = openat(dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0640);
	if (lock < 0)
		return err_set(
			err, errno, NULL, "data_dir",
			"the data directory %s is not writable: %s; change its owner or give "
			"another with --data-dir DIR",
			path, strerror(errno));
	if (flock(lock, LOCK_EX | LOCK_NB) < 0)
		return err_set(err, EBUSY, NULL, "data_dir",
			       "another profd uses the data directory %s; stop it or give another "
			       "with --data-dir DIR",
			       path);
	*ret_lock = take_fd(&lock);
	return 0;
}

/* The symbolizer runs as nobody when profd runs as root: the cache is its own. -1 = work without
 * one. */
static int open_cache_dir(const char *data_dir)
{
	cleanup_free char *path = NULL;
	int fd;

	if (asprintf(&path, "%s/cache", data_dir) < 0)
		return -1;
	if (mkdir(path, 0700) < 0 && errno != EEXIST) {
		log_warn("no symbol cache: cannot create %s: %s", path, strerror(errno));
		return -1;
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && geteuid() == 0 && privileges_has(CAP_CHOWN) && fchown(fd, NOBODY, NOBODY) < 0)
		log_warn("cannot hand %s to the symbolizer: %s", path, strerror(errno));
	return fd;
}

/* The descriptors that outlive the children. */
struct resources {
	int listen_fd, socket_fd, lock_fd, cache_dir_fd, feed_fd;
	char address[LISTENERS_ADDRESS_SIZE];
	const char *socket_path; /* to be removed at the end; NULL = none */
};

static void resources_close(struct resources *r)
{
	int fds[] = { r->listen_fd, r->socket_fd, r->lock_fd, r->cache_dir_fd, r->feed_fd };

	if (r->socket_path)
		(void)unlink(r->socket_path);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (fds[i] >= 0)
			(void)close(fds[i]);
}

static bool wants_socket(const struct config *config)
{
	size_t len = strlen(config->listen);
	bool any_port = len >= 2 && !strcmp(config->listen + len - 2, ":0");

	return *config->socket && (config->socket_asked || !any_port);
}

static int resources_open(struct resources *r, const struct config *config, struct err *err)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	int rc;

	r->listen_fd = listeners_tcp(config->listen, r->address, err);
	if (r->listen_fd < 0)
		return r->listen_fd;
	rc = open_data_dir(config->data_dir, &r->lock_fd, err);
	if (rc < 0)
		return rc;
	if (wants_socket(config)) {
		r->socket_fd = listeners_unix(config->socket, err);
		if (r->socket_fd < 0)
			return r->socket_fd;
		r->socket_path = config->socket;
	}
	r->cache_dir_fd = open_cache_dir(config->data_dir);
	if (config->no_collect)
		return 0;
	r->feed_fd =
		ring_create(FEED_BYTES_MIN + (size_t)(cpus > 0 ? cpus : 1) * FEED_BYTES_PER_CPU);
	if (r->feed_fd < 0)
		return err_set(err, -r->feed_fd, NULL, NULL, "cannot create the feed ring: %s",
			       strerror(-r->feed_fd));
	return 0;
}

/* ---- configuration --------------------------------------------------------------------------- */

struct configuration {
	const struct options *options;
	const struct config *first, *current;
	struct config *owned, *previous; /* read by reloads; NULL = none yet */
};

static int read_configuration(const struct options *options, struct config *config, struct err *err)
{
	int rc = config_load(config, options->config_path, options->config_given, err);

	rc = rc < 0 ? rc : config_apply_environment(config, environ, err);
	rc = rc < 0 ? rc : options_apply(options, config, err);
	rc = rc < 0 ? rc : config_credentials(config, getenv("CREDENTIALS_DIRECTORY"));
	rc = rc < 0 ? rc : config_check(config, err);
	return rc < 0 ? rc : server_try(config, err);
}

static void release(struct config *config)
{
	if (config)
		config_deinit(config);
	free(config);
}

static void say_fixed(const char *section, const char *key)
{
	log_warn("[%s] %s changed: this takes a restart of profd", section, key);
}

static const struct config *reload_configuration(void *ctx)
{
	struct configuration *c = ctx;
	struct config *next = calloc(1, sizeof(*next));
	struct err err = { 0 };
	int rc = next ? read_configuration(c->options, next, &err)
		      : err_set(&err, ENOMEM, NULL, NULL, "no memory to read the configuration");

	if (rc == 0)
		rc = config_keep_fixed(next, c->current, say_fixed);
	if (rc < 0) {
		log_error("the configuration stays as it was: %s",
			  err.code ? err.text : strerror(-rc));
		release(next);
		return NULL;
	}
	release(c->previous);
	c->previous = c->owned;
	c->owned = next;
	c->current = next;
	return next;
}

static const struct config *take_configuration_back(void *ctx)
{
	struct configuration *c = ctx;

	release(c->owned);
	c->owned = c->previous;
	c->previous = NULL;
	c->current = c->owned ? c->owned : c->first;
	return c->current;
}

/* A shell gives 1024, which tables of modules and events of threads can use up; the unit says its
 * own. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		log_warn("the limit of open files could not be raised: %s", strerror(errno));
}

static int serve(const struct config *config, const struct options *given, struct err *err)
{
	struct configuration configuration = { .options = given,
					       .first = config,
					       .current = config };
	struct resources r = { -1, -1, -1, -1, -1, "", NULL };
	int rc;

	raise_file_limit();
	rc = resources_open(&r, config, err);
	if (rc == 0) {
		struct supervisor_options options = {
			.config = config,
			.feed_fd = r.feed_fd,
			.listen_fd = r.listen_fd,
			.socket_fd = r.socket_fd,
			.cache_dir_fd = r.cache_dir_fd,
			.lock_fd = r.lock_fd,
			.address = r.address,
			.reload = reload_configuration,
			.take_back = take_configuration_back,
			.reload_ctx = &configuration,
			.run = { [ROLE_SERVER] = run_server, [ROLE_SYMBOLIZER] = run_symbolizer },
		};

		if (collects(config)) {
			rights_warn();
			options.run[ROLE_COLLECTOR] = run_collector;
			options.run[ROLE_READER] = run_reader;
		} else if (config->replay_file) {
			options.run[ROLE_COLLECTOR] = run_replay;
		}
		rc = supervisor_run(&options);
	}
	release(configuration.previous);
	release(configuration.owned);
	resources_close(&r);
	return rc;
}

static int run(const struct options *options, struct config *config, struct err *err)
{
	int rc = read_configuration(options, config, err);

	if (rc < 0)
		return rc;
	log_init(config->verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "profd");
	if (collects(config) || options->features) {
		rc = probe_features(config, err);
		if (rc < 0)
			return rc;
	}
	if (options->features) {
		print_features();
		return 0;
	}
	if (collects(config)) {
		rc = features_require(&host_features, err);
		if (rc == 0)
			rc = keep_report();
		if (rc < 0)
			return rc;
	}
	if (options->check) {
		rc = server_check_listener(config, err);
		if (rc < 0)
			return rc;
		(void)printf("configuration and privileges are fine\n");
		return 0;
	}
	return serve(config, options, err);
}

int main(int argc, char **argv)
{
	struct options options;
	struct config config = { 0 };
	struct err err = { 0 };
	int rc;

	log_init(LOG_LEVEL_INFO, "profd");
	options_parse(argc, argv, &options);
	rc = run(&options, &config, &err);
	if (rc < 0)
		log_error("%s", err.text);
	config_deinit(&config);
	free(host_rights);
	return rc < 0 ? 1 : rc;
}
