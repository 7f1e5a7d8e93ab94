// SPDX-License-Identifier: Apache-2.0
#include "agent/options.h"

#include <argp.h>
#include <errno.h>
#include <string.h>

enum {
	KEY_CONFIG = 'c',
	KEY_LISTEN = 'l',
	KEY_VERBOSE = 'v',
	KEY_SOCKET = 0x100,
	KEY_STORE,
	KEY_DATA_DIR,
	KEY_NO_COLLECT,
	KEY_DISABLE_FEATURE,
	KEY_CHECK,
	KEY_FEATURES,
	KEY_REPLAY,
	KEY_RECORD,
	KEY_SET,
};

static const struct argp_option option_table[] = {
	{ "config", KEY_CONFIG, "FILE", 0, "configuration (default " OPTIONS_CONFIG_DEFAULT ")",
	  0 },
	{ "listen", KEY_LISTEN, "ADDR:PORT", 0,
	  "HTTP address (default 127.0.0.1:8088; port 0 picks one)", 0 },
	{ "socket", KEY_SOCKET, "PATH", 0, "Unix socket (default /run/profd/profd.sock)", 0 },
	{ "store", KEY_STORE, "URL", 0,
	  "sqlite:PATH (default: in the data directory) or clickhouse://..., see profd.conf", 0 },
	{ "data-dir", KEY_DATA_DIR, "DIR", 0, "history and state (default /var/lib/profd)", 0 },
	{ "no-collect", KEY_NO_COLLECT, NULL, 0, "serve the store without profiling this host", 0 },
	{ "set", KEY_SET, "SECTION.KEY=VALUE", 0,
	  "any key of the configuration, as limits.connections=64", 0 },
	{ "disable-feature", KEY_DISABLE_FEATURE, "NAME", 0,
	  "act as if the kernel lacked NAME (see --features)", 0 },
	{ "record", KEY_RECORD, "FILE", 0,
	  "also write what is sampled into a new FILE, for --replay", 0 },
	{ "replay", KEY_REPLAY, "FILE", 0,
	  "play recorded events instead of the kernel's; needs no privilege", 0 },
	{ "check", KEY_CHECK, NULL, 0, "check configuration and privileges, then exit", 0 },
	{ "features", KEY_FEATURES, NULL, 0, "print the kernel features found and what falls back",
	  0 },
	{ "verbose", KEY_VERBOSE, NULL, 0, "log more", 0 },
	{ 0 },
};

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;

	switch (key) {
	case KEY_CONFIG:
		o->config_path = arg;
		o->config_given = true;
		return 0;
	case KEY_LISTEN:
		o->listen = arg;
		return 0;
	case KEY_SOCKET:
		o->socket = arg;
		return 0;
	case KEY_STORE:
		o->store = arg;
		return 0;
	case KEY_DATA_DIR:
		o->data_dir = arg;
		return 0;
	case KEY_REPLAY:
		o->replay_file = arg;
		return 0;
	case KEY_RECORD:
		o->record_file = arg;
		return 0;
	case KEY_NO_COLLECT:
		o->no_collect = true;
		return 0;
	case KEY_CHECK:
		o->check = true;
		return 0;
	case KEY_FEATURES:
		o->features = true;
		return 0;
	case KEY_VERBOSE:
		o->verbose = true;
		return 0;
	case KEY_SET:
		if (o->setting_count == ARRAY_SIZE(o->settings))
			argp_error(state, "--set given more than %zu times", ARRAY_SIZE(o->settings));
		o->settings[o->setting_count++] = arg;
		return 0;
	case KEY_DISABLE_FEATURE:
		if (o->disabled_feature_count == ARRAY_SIZE(o->disabled_features))
			argp_error(state, "--disable-feature given more than %zu times",
				   ARRAY_SIZE(o->disabled_features));
		o->disabled_features[o->disabled_feature_count++] = arg;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void print_version(FILE *out, struct argp_state *state)
{
	(void)fprintf(out, "profd %s\n", PROFD_VERSION);
}

void options_parse(int argc, char **argv, struct options *ret)
{
	static const struct argp argp = {
		.options = option_table,
		.parser = on_option,
		.doc = "Continuous profiler for Linux services: BPF sampling, durable history, HTTP API "
		       "and flame graphs.",
	};

	argp_program_version_hook = print_version;
	*ret = (struct options){ .config_path = OPTIONS_CONFIG_DEFAULT };
	(void)argp_parse(&argp, argc, argv, 0, NULL, ret);
}

static int replace(char **slot, const char *value)
{
	char *copy;

	if (!value)
		return 0;
	copy = strdup(value);
	if (!copy)
		return -ENOMEM;
	free(*slot);
	*slot = copy;
	return 0;
}

/* An option that is a key of the configuration. */
static int apply_key(struct config *config, const char *option, const char *key, const char *value,
		     struct err *err)
{
	struct err why = { 0 };
	int rc = value ? config_set(config, key, value, &why) : 0;

	return rc < 0 ? err_set(err, -rc, NULL, option, "--%s: %s", option,
				why.code ? why.text : strerror(-rc))
		      : 0;
}

static int apply_setting(struct config *config, const char *setting, struct err *err)
{
	const char *equals = strchr(setting, '=');
	cleanup_free char *key = equals ? strndup(setting, (size_t)(equals - setting)) : NULL;

	if (!equals)
		return err_set(err, EINVAL, NULL, "set", "--set takes SECTION.KEY=VALUE, not '%s'", setting);
	if (!key)
		return err_set(err, ENOMEM, NULL, NULL, "out of memory");
	return apply_key(config, "set", key, equals + 1, err);
}

int options_apply(const struct options *options, struct config *config, struct err *err)
{
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < options->setting_count; i++)
		rc = apply_setting(config, options->settings[i], err);
	rc = rc < 0 ? rc : apply_key(config, "listen", "server.listen", options->listen, err);
	rc = rc < 0 ? rc : apply_key(config, "socket", "server.socket", options->socket, err);
	rc = rc < 0 ? rc : apply_key(config, "store", "store.url", options->store, err);
	rc = rc < 0 ? rc : apply_key(config, "data-dir", "store.data_dir", options->data_dir, err);
	if (rc < 0)
		return rc;
	rc = replace(&config->replay_file, options->replay_file);
	rc = rc < 0 ? rc : replace(&config->record_file, options->record_file);
	for (unsigned i = 0; rc == 0 && i < options->disabled_feature_count; i++)
		rc = replace(&config->disabled_features[config->disabled_feature_count++],
			     options->disabled_features[i]);
	if (rc < 0)
		return err_set(err, ENOMEM, NULL, NULL, "out of memory");
	config->no_collect |= options->no_collect;
	config->verbose |= options->verbose;
	return 0;
}
