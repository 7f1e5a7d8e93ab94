/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of profctl: one table (commands.c) from which dispatch, help, completion and man
 * pages come. Exit codes: 0 done, 1 failed, 2 wrong usage; of record the command's own (128 and its
 * signal if one ended it), 1 if profctl failed, 2 for wrong usage; of ci 0 not regressed, 1
 * regressed, 2 wrong use or no daemon, 3 could not tell, 4 the command failed. */
#ifndef PROFCTL_COMMAND_H
#define PROFCTL_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/profctl/client.h"

#define EXIT_USAGE 2

enum output_format { OUTPUT_TABLE, OUTPUT_JSON, OUTPUT_FOLDED, OUTPUT_PPROF };

#define TAGS_MAX 64 /* beyond what the daemon takes: it says how many that are */

/* Options that several commands share; parsed once in main.c for the commands that allow them. */
struct arguments {
	struct client *client;
	enum output_format format;
	const char *service, *type, *status, *file_format;
	const char *value; /* NULL = the type's own */
	const char *label, *tag, *description, *name, *role, *key_tenant, *baseline;
	const char *threshold, *confidence; /* numbers, checked; NULL = the daemon's defaults */
	const char *from, *to;		    /* as the API takes times; NULL = its defaults */
	const char *watch, *webhook, *webhook_format;
	uint32_t duration_s, rate_hz, top, limit, wait_s, retention_days, interval_s;
	const char *tags[TAGS_MAX]; /* every --tag; `tag` is the last */
	int tag_count;
	bool type_given, rate_given, top_given;
	bool follow; /* wait for the result */
	bool system; /* include the runtime's own goroutines */
	bool all;    /* everything, not one */
	bool once;   /* no live view */
	bool kernel_locks, wakers, paths, tasks;
	bool raw_frames;  /* with the interpreter's own functions */
	bool children;	  /* start: with the descendants of pid:N */
	bool no_children; /* record: without */
	int argc;    /* positional, after options */
	char **argv;
};

#define COMMAND_RENDERS '=' /* among a command's letters: it takes -o folded and -o pprof, too */

struct command {
	const char *name;    /* one word, or two: "baseline create" */
	const char *usage;   /* positional arguments */
	const char *options; /* letters of the options it takes, as in command_options[];
				COMMAND_RENDERS */
	int min_args, max_args; /* -1 = any */
	const char *help, *example; /* the example stands behind "profctl " */
	int (*run)(const struct arguments *args); /* exit code */
};

/* An option of commands; `letter` ties it to those that take it. */
struct command_option {
	char letter;
	const char *name;
	const char *value; /* NULL = a flag */
	const char *help;
};

/* The explanation of an option where one command means something else by it. */
struct command_option_note {
	const char *command;
	char letter;
	const char *help;
};

#define COMMAND_OPTIONS 37

extern const struct command commands[];
extern const size_t command_count;
extern const struct command_option command_options[COMMAND_OPTIONS];
extern const struct command_option_note command_option_notes[];
extern const size_t command_option_note_count;

int command_record(const struct arguments *args);
int command_start(const struct arguments *args);
int command_stop(const struct arguments *args);
int command_resume(const struct arguments *args);
int command_get(const struct arguments *args);
int command_top(const struct arguments *args);
int command_flamegraph(const struct arguments *args);
int command_mcp(const struct arguments *args);
int command_services(const struct arguments *args);
int command_history(const struct arguments *args);
int command_status(const struct arguments *args);
int command_doctor(const struct arguments *args);
int command_config_check(const struct arguments *args);
int command_compare(const struct arguments *args);
int command_diff(const struct arguments *args);
int command_ci(const struct arguments *args);
int command_baseline_create(const struct arguments *args);
int command_baseline_list(const struct arguments *args);
int command_baseline_get(const struct arguments *args);
int command_baseline_delete(const struct arguments *args);
int command_goroutines(const struct arguments *args);
int command_ledger(const struct arguments *args);
int command_continuous_start(const struct arguments *args);
int command_continuous_stop(const struct arguments *args);
int command_continuous_status(const struct arguments *args);
int command_findings(const struct arguments *args);
int command_backup(const struct arguments *args);
int command_restore(const struct arguments *args);
int command_key_create(const struct arguments *args);
int command_key_list(const struct arguments *args);
int command_key_delete(const struct arguments *args);

#endif
