/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of profctl: one table (commands.c) from which dispatch, help, completion and man pages come.
 * Exit codes: 0 done, 1 failed, 2 wrong usage. */
#ifndef PROFCTL_COMMAND_H
#define PROFCTL_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/profctl/client.h"

#define EXIT_USAGE 2

enum output_format { OUTPUT_TABLE, OUTPUT_JSON, OUTPUT_FOLDED, OUTPUT_PPROF };

/* Options that several commands share; parsed once in main.c for the commands that allow them. */
struct arguments {
	struct client *client;
	enum output_format format;
	const char *service, *type, *status, *file_format;
	uint32_t duration_s, rate_hz, top, limit, wait_s;
	bool follow; /* wait for the result */
	int argc;    /* positional, after options */
	char **argv;
};

struct command {
	const char *name;
	const char *usage;   /* positional arguments */
	const char *options; /* letters of the options it takes, as in command_options[] */
	int min_args, max_args; /* -1 = any */
	const char *help;
	int (*run)(const struct arguments *args); /* exit code */
};

/* An option of commands; `letter` ties it to those that take it. */
struct command_option {
	char letter;
	const char *name;
	const char *value; /* NULL = a flag */
	const char *help;
};

#define COMMAND_OPTIONS 10

extern const struct command commands[];
extern const size_t command_count;
extern const struct command_option command_options[COMMAND_OPTIONS];

int command_record(const struct arguments *args);
int command_start(const struct arguments *args);
int command_stop(const struct arguments *args);
int command_get(const struct arguments *args);
int command_top(const struct arguments *args);
int command_flamegraph(const struct arguments *args);
int command_services(const struct arguments *args);
int command_history(const struct arguments *args);
int command_status(const struct arguments *args);

#endif
