/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of profd: parsed first, applied over the configuration.
 */
#ifndef PROFD_OPTIONS_H
#define PROFD_OPTIONS_H

#include <stdbool.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/config.h"

#define OPTIONS_CONFIG_DEFAULT "/etc/profd/profd.conf"

/* Texts are borrowed from argv. */
struct options {
	const char *config_path; /* never NULL */
	bool config_given;
	const char *listen, *socket, *store, *data_dir; /* NULL = as configured */
	const char *settings[64]; /* "SECTION.KEY=VALUE" */
	unsigned setting_count;
	const char *disabled_features[16];
	unsigned disabled_feature_count;
	const char *replay_file; /* NULL = the kernel */
	const char *record_file; /* NULL = none */
	bool no_collect, check, features, verbose;
};

/* Parses argv; prints usage or version and exits where asked (argp), exits 64 on unknown options.
 */
void options_parse(int argc, char **argv, struct options *ret);
/* Overrides @config by what was given. -ENOMEM. */
int options_apply(const struct options *options, struct config *config, struct err *err) must_use;

#endif
