/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration: INI with conf.d drop-ins, the environment over them, the command line on top;
 * one table of keys (config.c). Read by the supervisor before it forks, and again on SIGHUP; every
 * process reads the copy it was forked with. */
#ifndef PROFD_CONFIG_H
#define PROFD_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

#define CONFIG_LIST_MAX 64

/* [service NAME]: every given pattern must match. */
struct config_service {
	char name[256];
	char *unit, *cgroup, *exe, *cmdline, *user, *port; /* globs, NULL = any; owned */
};

/* [tenant NAME] */
struct config_tenant {
	char name[65];
	char *services[CONFIG_LIST_MAX]; /* globs on unit, container, cgroup, exe, user */
	unsigned service_count;
};

struct config_export {
	char name[65];
	char *kind; /* "otlp", "pyroscope" */
	char *url;
	char *token_file;
	uint64_t spool_bytes; /* 256 MiB */
};

struct config_limits {
	uint64_t body_bytes;	      /* 1 MiB */
	uint64_t url_bytes;	      /* 8 KiB */
	uint64_t header_bytes;	      /* 16 KiB */
	uint64_t header_timeout_ns;   /* 10 s, absolute */
	uint64_t body_timeout_ns;     /* 10 s */
	uint64_t answer_timeout_ns;   /* 60 s */
	uint32_t connections;	      /* 256 */
	uint32_t requests_per_second; /* of one address, and of one key: 1000 */
	uint32_t request_burst;	      /* 5000 */
	uint32_t received_per_second; /* profiles that a tenant's programs send: 20 */
	uint32_t running_sessions;    /* 32 a tenant */
	uint32_t running_sessions_host; /* 128 */
	uint32_t stacks_per_session;  /* 1,000,000 */
	uint32_t baselines;	      /* 1,000 a tenant */
};

struct config {
	/* [server] */
	char *listen;	  /* "127.0.0.1:8088" */
	char *socket;	  /* "/run/profd/profd.sock"; "" = none */
	bool socket_asked; /* given on the command line or in a file */
	char *public_url, *tls_certificate, *tls_key; /* "" = none */
	bool cleartext; /* listens elsewhere than on loopback without TLS, too */
	bool metrics_open;
	/* [store] */
	char *store_url; /* "" = sqlite in data_dir; may hold a password: not for logs */
	char *data_dir;	 /* "/var/lib/profd" */
	uint64_t disk_budget_bytes;   /* 2 GiB */
	uint64_t detail_budget_bytes; /* of it for single samples of continuous profiling, 256 MiB;
					 0 = none */
	uint32_t retention_days;      /* of on-demand sessions, 30 */
	/* [collect] */
	char *exclude[CONFIG_LIST_MAX];
	unsigned exclude_count;
	double cpu_budget_pct, target_budget_pct;
	uint64_t memory_budget_bytes;
	char *cpu_event;       /* "cpu-clock" or "cycles": the event that samples the CPU */
	bool native_memory;    /* memory and alloc of programs that are not Go may be probed */
	char *host_root; /* where the host's root is mounted: "/", in a container "/host" or so */
	char *debuginfod_urls; /* "" = off */
	/* [continuous] */
	uint64_t continuous_span_ns; /* 10 min */
	bool private_webhooks; /* addresses that are not public may be told */
	bool open_webhooks;    /* the role profile may set one, not only admin */
	/* [auth] */
	char *jwt_algorithm, *jwt_key_file, *jwt_jwks_file, *jwt_issuer, *jwt_audience;
	char *jwt_tenant_claim, *jwt_role_claim;
	/* [limits] */
	struct config_limits limits;
	/* sections with names */
	struct config_export exports[16];
	unsigned export_count;
	struct config_tenant tenants[CONFIG_LIST_MAX];
	unsigned tenant_count;
	struct config_service services[CONFIG_LIST_MAX];
	unsigned service_count;
	/* command line only */
	bool no_collect;
	bool verbose;
	bool allow_insecure; /* listen elsewhere without TLS although told why not */
	char *disabled_features[16];
	unsigned disabled_feature_count;
	char *replay_file; /* recorded feed instead of the kernel */
	char *record_file; /* what is sampled goes into this new file, too */
};

/* Defaults, then @path (absent default path is fine, absent given path is not) and its conf.d.
 * Errors name file, line, section and key. @config is zeroed by the caller and released with
 * config_deinit(). */
int config_load(struct config *config, const char *path, bool path_given, struct err *err) must_use;
/* One key over what the files say: "store.data_dir" and its text. Errors name both. */
int config_set(struct config *config, const char *key, const char *value, struct err *err) must_use;
/* PROFD_<SECTION>_<KEY> of @environment ("NAME=value", ends with NULL), as PROFD_STORE_DATA_DIR;
 * names that begin like a section's and are no key are errors, others are passed over. */
int config_apply_environment(struct config *config, char *const *environment,
			     struct err *err) must_use;
/* A name without a folder, in keys that name files of secrets, is a credential that systemd passed
 * (LoadCredential=): a file in @folder. NULL: nothing was passed and nothing changes. -ENOMEM. */
int config_credentials(struct config *config, const char *folder) must_use;
/* Whether a key of @section differs. */
bool config_differs(const struct config *a, const struct config *b, const char *section);
/* Keys that only a start of profd can change keep @before's values in @config; each that was to
 * change is told to @changed. -ENOMEM. */
typedef void config_changed_fn(const char *section, const char *key);
int config_keep_fixed(struct config *config, const struct config *before,
		      config_changed_fn *changed) must_use;
/* Checks across keys (ranges, files that must exist); of listening see server_check_listener(). */
int config_check(const struct config *config, struct err *err) must_use;
/* Overwrites what may be secret, in @config and in PROFD_ variables of @environment: for a process
 * that does not need it and reads what others wrote. The texts are "" from then on. */
void config_forget_secrets(struct config *config, char *const *environment);
void config_deinit(struct config *config);

#endif
