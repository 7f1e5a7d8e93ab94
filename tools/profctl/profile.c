// SPDX-License-Identifier: Apache-2.0
/* Commands that take and show profiles: record, start, get, top, flamegraph. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "tools/profctl/browse.h"
#include "tools/profctl/command.h"
#include "tools/profctl/live_top.h"
#include "tools/profctl/output.h"
#include "tools/profctl/sessions.h"

/* A number of @quality in words; what is not known of the type is absent there, and no 0. */
static void print_known(const cJSON *quality, const char *name, const char *format,
			const char *unknown)
{
	const cJSON *item = cJSON_GetObjectItem(quality, name);

	if (cJSON_IsNumber(item))
		(void)printf(format, item->valuedouble);
	else
		(void)printf("%s", unknown);
}

static void print_quality(const cJSON *session)
{
	const cJSON *quality = cJSON_GetObjectItem(session, "quality");
	const cJSON *note;

	if (!quality)
		return;
	print_known(quality, "samples", "quality    %.0f samples", "quality    samples not known");
	print_known(quality, "lost", ", %.0f lost", ", loss not known");
	print_known(quality, "truncatedPct", ", %.2f %% of stacks truncated",
		    ", truncated stacks not known");
	print_known(quality, "unknownFramePct", ", %.2f %% of frames unknown",
		    ", unknown frames not known");
	print_known(quality, "overheadPct", ", profiler overhead %.2f %% of the host\n",
		    ", profiler overhead not known\n");
	cJSON_ArrayForEach(note, cJSON_GetObjectItem(quality, "notes"))
		(void)printf("note       %s\n", cJSON_GetStringValue(note));
}

#define OWN_ROWS    10 /* the JSON has as many as there are other functions */
#define LEAK_FRAMES 6 /* innermost; the rest is in the profile */

/* memory: prints what is in use beyond the allocations that were seen, and what only ever grows. */
static int print_heap(const cJSON *session)
{
	struct table table = { .headings = { "leak?", "a second", "since", "stack, innermost first" },
			       .right = { true, true },
			       .columns = 4 };
	const cJSON *quality = cJSON_GetObjectItem(session, "quality");
	const cJSON *leak, *frame, *leaks = cJSON_GetObjectItem(session, "suspectedLeaks");
	char heap[64], rest[64];

	if (cJSON_GetObjectItem(session, "unattributedValue")) {
		output_value(output_number(quality, "heapBytes"), "bytes", heap, sizeof(heap));
		output_value(output_number(session, "unattributedValue"), "bytes", rest, sizeof(rest));
		(void)printf(
			"heap       %s, of it %s not in the total: allocated before %s, or missed\n",
			heap, rest, output_text(quality, "observedSince"));
	}
	cJSON_ArrayForEach(leak, leaks) {
		cleanup_buf struct buf stack = { 0 };
		unsigned frames = 0;

		output_value(output_number(leak, "value"), "bytes", heap, sizeof(heap));
		output_value(output_number(leak, "valuePerSecond"), "bytes", rest, sizeof(rest));
		cJSON_ArrayForEach(frame, cJSON_GetObjectItem(leak, "stack"))
			if (frames++ < LEAK_FRAMES)
				buf_printf(&stack, "%s%s", stack.len ? " < " : "", cJSON_GetStringValue(frame));
		table_add(&table, heap);
		table_add(&table, rest);
		table_add(&table, output_text(leak, "since"));
		table_add(&table, stack.len ? stack.data : "");
	}
	if (!table.count)
		return 0;
	(void)printf("\n");
	return table_print(&table);
}

/* The interval of an estimate in words; "" if the value is exact. */
static void interval_words(const cJSON *function, const char *unit, char *out, size_t size)
{
	const cJSON *interval = cJSON_GetObjectItem(function, "confidenceInterval");
	char low[64], high[64];

	out[0] = '\0';
	if (cJSON_GetArraySize(interval) != 2)
		return;
	output_value(cJSON_GetArrayItem(interval, 0)->valuedouble, unit, low, sizeof(low));
	output_value(cJSON_GetArrayItem(interval, 1)->valuedouble, unit, high, sizeof(high));
	(void)snprintf(out, size, "%s%s%s", low, strcmp(low, high) ? " to " : "",
		       strcmp(low, high) ? high : "");
}

/* Adds the last part of the function's file and its first line; @otherwise where they are
 * unknown. */
static void add_place(struct table *table, const cJSON *function, const char *otherwise)
{
	const char *path = output_text(function, "file"), *base = strrchr(path, '/');
	double line = output_number(function, "line");

	base = base ? base + 1 : path;
	if (!*path)
		table_add(table, otherwise);
	else if (line > 0)
		table_addf(table, "%s:%.0f", base, line);
	else
		table_add(table, base);
}

/* Whether the table of the program's own functions says what the table of all functions does: both
 * begin with the same function, and little of its value is in what it calls. */
static bool own_says_nothing_new(const cJSON *own, const cJSON *all)
{
	const cJSON *a = cJSON_GetArrayItem(own, 0), *b = cJSON_GetArrayItem(all, 0);

	return !strcmp(output_text(a, "funcName"), output_text(b, "funcName")) &&
	       output_number(a, "value") <= 1.1 * output_number(b, "selfValue");
}

/* The kind of wait of most of @function's value, or what else kept its threads. */
static const char *mostly(const cJSON *function)
{
	const char *wait = output_text(function, "wait"), *state = output_text(function, "state");

	if (*wait)
		return wait;
	return strcmp(state, "runqueue") ? state : "run queue";
}

/* Adds a row for each way in which @function is called, if there are several. */
static void add_ways(struct table *table, const cJSON *function, bool waits, double largest,
		     const char *unit)
{
	const cJSON *way, *name, *callers = cJSON_GetObjectItem(function, "callers");
	char value[64];

	if (cJSON_GetArraySize(callers) < 2)
		return;
	cJSON_ArrayForEach(way, callers) {
		cleanup_buf struct buf path = { 0 };

		buf_printf(&path, "  by");
		cJSON_ArrayForEach(name, cJSON_GetObjectItem(way, "path"))
			buf_printf(&path, "%s %s", path.len > strlen("  by") ? " <" : "",
				   cJSON_GetStringValue(name));
		output_value_as(output_number(way, "value"), largest, unit, value, sizeof(value));
		table_addf(table, "%.2f", output_number(way, "pct"));
		table_add(table, value);
		if (waits)
			table_add(table, "");
		table_add(table, path.error ? "" : path.data);
		table_add(table, "");
	}
}

/* Where the program itself computes, waits, allocates or calls the kernel. */
static int print_own(const cJSON *session)
{
	const cJSON *own = cJSON_GetObjectItem(session, "ownFunctions"), *f;
	const cJSON *all = cJSON_GetObjectItem(session, "topFunctions");
	struct table table = { .headings = { "own%", "value" }, .right = { true, true } };
	const char *unit = output_text(session, "unit");
	double largest = 0;
	bool waits = false;
	unsigned at = 2, rows = 0;
	char value[64];

	if (own_says_nothing_new(own, all))
		return 0;
	cJSON_ArrayForEach(f, own) {
		waits |= output_text(f, "wait")[0] != 0;
		largest = fmax(largest, output_number(f, "value"));
	}
	if (waits)
		table.headings[at++] = "mostly";
	table.headings[at++] = "function of the program";
	table.headings[at++] = "file";
	table.columns = at;
	cJSON_ArrayForEach(f, own) {
		if (rows++ >= OWN_ROWS)
			break;
		output_value_as(output_number(f, "value"), largest, unit, value, sizeof(value));
		table_addf(&table, "%.2f", output_number(f, "pct"));
		table_add(&table, value);
		if (waits)
			table_add(&table, mostly(f));
		table_add(&table, output_text(f, "funcName"));
		add_place(&table, f, output_text(f, "package"));
		add_ways(&table, f, waits, largest, unit);
	}
	if (table_print(&table) < 0)
		return -1;
	(void)printf("\n");
	return 0;
}

/* The meaning of an empty profile, and the next step. */
static const char *empty_words(const char *type)
{
	static const struct {
		const char *type, *words;
	} all[] = {
		{ "cpu", "nothing was recorded: the service used no CPU. If it is slow, it waits: "
			 "--type offcpu" },
		{ "mutex", "nothing was recorded: no thread waited for a futex, as locks of C, C++ and "
			   "Rust do. Other locks show in --type block and offcpu" },
		{ "block", "nothing was recorded: no thread waited for another. Other waits show in "
			   "--type offcpu" },
		{ "io", "nothing was recorded: no read, write or sync. Other waits show in --type offcpu" },
		{ "memory", "nothing was recorded: no block that the service asked an allocator for is still "
			    "in use. Memory that a program maps itself is not seen" },
		{ "alloc", "nothing was recorded: the service asked no allocator for a block. Memory that a "
			   "program maps itself is not seen" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (!strcmp(type, all[i].type))
			return all[i].words;
	return "nothing was recorded";
}

static int print_top(const cJSON *session)
{
	const cJSON *f, *functions = cJSON_GetObjectItem(session, "topFunctions");
	bool estimated = false, has_places = false;
	struct table table = { .headings = { "self%", "cum%", "self" },
			       .right = { true, true, true, true },
			       .empty = empty_words(output_text(session, "profileType")) };
	const char *unit = output_text(session, "unit");
	double largest = output_number(cJSON_GetArrayItem(functions, 0), "selfValue"); /* sorted by it */
	unsigned at = 3;
	char value[64], interval[160];

	cJSON_ArrayForEach(f, functions) {
		estimated |= cJSON_GetArraySize(cJSON_GetObjectItem(f, "confidenceInterval")) == 2;
		has_places |= *output_text(f, "file") != 0;
	}
	if (estimated)
		table.headings[at++] = "cum, 95 % sure";
	table.right[at] = false;
	table.headings[at++] = "module";
	if (has_places)
		table.headings[at++] = "file";
	table.headings[at++] = "function";
	table.columns = at;
	cJSON_ArrayForEach(f, functions) {
		output_value_as(output_number(f, "selfValue"), largest, unit, value, sizeof(value));
		table_addf(&table, "%.2f", output_number(f, "selfPct"));
		table_addf(&table, "%.2f", output_number(f, "cumulativePct"));
		table_add(&table, value);
		if (estimated) {
			interval_words(f, unit, interval, sizeof(interval));
			table_add(&table, interval);
		}
		table_add(&table, output_text(f, "package"));
		if (has_places)
			add_place(&table, f, "");
		table_add(&table, output_text(f, "funcName"));
	}
	return table_print(&table) < 0;
}

/* io: a program that reads from the page cache waits for nothing, so bytes come first. */
static void print_total(const cJSON *session, const char *value)
{
	const cJSON *totals = cJSON_GetObjectItem(session, "totals");
	char bytes[64], delay[64];

	if (strcmp(output_text(session, "profileType"), "io") != 0 || !totals) {
		(void)printf("total      %s in ", value);
		return;
	}
	output_value(output_number(totals, "bytes"), "bytes", bytes, sizeof(bytes));
	output_value(output_number(totals, "delay"), "nanoseconds", delay, sizeof(delay));
	(void)printf("total      %s in %.0f operations, %s of delay, in ", bytes,
		     output_number(totals, "operations"), delay);
}

static int print_session(const struct arguments *args, const cJSON *session)
{
	const char *failure = output_text(session, "failureReason");
	const char *flames = output_text(session, "flameGraphUrl");
	const char *chosen = session_value(args, session);
	cleanup_buf struct buf link = { 0 };
	char value[64];

	if (args->format == OUTPUT_JSON) {
		output_json(session);
		return 0;
	}
	output_value(output_number(session, "totalValue"), output_text(session, "unit"), value,
		     sizeof(value));
	(void)printf("profile    %s\n", output_text(session, "id"));
	(void)printf("service    %s, %s, %s\n", output_text(session, "service"),
		     output_text(session, "profileType"), output_text(session, "status"));
	print_total(session, value);
	output_value(output_number(session, "durationNanos"), "nanoseconds", value, sizeof(value));
	(void)printf("%s\n", value);
	if (*failure)
		(void)printf("failed     %s\n", failure);
	print_quality(session);
	if (*flames == '/' && !*client_address(args->client)) { /* nothing that a browser opens */
		(void)printf("flames     profctl flamegraph %s page.html%s%s\n", output_text(session, "id"),
			     chosen ? " --value " : "", chosen ? chosen : "");
	} else if (*flames) {
		buf_printf(&link, "%s%s", *flames == '/' ? client_address(args->client) : "", flames);
		client_add_parameter(args->client, &link, "value", chosen);
		(void)printf("flames     %s\n", link.error ? flames : link.data);
	}
	if (print_heap(session) < 0)
		return 1;
	(void)printf("\n");
	return print_own(session) < 0 ? 1 : print_top(session);
}

static int show_result(const struct arguments *args, const cJSON *session)
{
	if (args->format == OUTPUT_FOLDED || args->format == OUTPUT_PPROF)
		return session_render(args, output_text(session, "id"), session_value(args, session),
				      args->format == OUTPUT_FOLDED ? "folded" : "pprof", NULL) < 0;
	return print_session(args, session) ||
	       !strcmp(output_text(session, "status"), "failed");
}

/* Types by their words, the canonical one first, and their values. */
static const struct type_words {
	const char *words[2], *values[3];
} type_words[] = {
	{ { "cpu", "profile" }, { "samples", "cpu" } },
	{ { "offcpu" }, { "events", "offcpu" } },
	{ { "wall" }, { "wall" } },
	{ { "block" }, { "contentions", "delay" } },
	{ { "mutex" }, { "contentions", "delay" } },
	{ { "memory", "heap" }, { "inuse_objects", "inuse_space" } },
	{ { "alloc", "allocs" }, { "alloc_objects", "alloc_space" } },
	{ { "goroutine" }, { "goroutine" } },
	{ { "io" }, { "operations", "delay", "bytes" } },
	{ { "faults" }, { "faults" } },
};

static bool is_one_of(const char *word, const char *const *words, size_t count)
{
	for (size_t i = 0; i < count && words[i]; i++)
		if (!strcmp(word, words[i]))
			return true;
	return false;
}

/* NULL of a word that is none: the daemon says more about it. */
static const struct type_words *find_type(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(type_words); i++)
		if (is_one_of(word, type_words[i].words, ARRAY_SIZE(type_words[i].words)))
			return &type_words[i];
	return NULL;
}

static bool is_type(const char *word, const char *canonical)
{
	const struct type_words *type = find_type(word);

	return type && !strcmp(type->words[0], canonical);
}

/* Before anything is started: a profile that nobody can be shown would run on. 0 or EXIT_USAGE. */
static int check_value(const struct arguments *args)
{
	const struct type_words *type = find_type(args->type);

	if (!args->value || !type || is_one_of(args->value, type->values, ARRAY_SIZE(type->values)))
		return 0;
	(void)fprintf(stderr, "profctl: --value '%s': a %s profile has no such value, only",
		      args->value, type->words[0]);
	for (size_t i = 0; i < ARRAY_SIZE(type->values) && type->values[i]; i++)
		(void)fprintf(stderr, "%s %s", i ? "," : "", type->values[i]);
	(void)fprintf(stderr, "\n");
	return EXIT_USAGE;
}

/* A profile that is only started prints nothing but its id. 0 or EXIT_USAGE. */
static int check_shown(const struct arguments *args)
{
	const char *option = args->value	      ? "--value"
			     : args->top_given	      ? "--top"
			     : args->format > OUTPUT_JSON ? "-o folded and -o pprof"
						      : NULL;

	if (args->follow || !option)
		return 0;
	(void)fprintf(stderr,
		      "profctl: start prints the id alone, so %s needs --follow; profctl get ID "
		      "shows a profile later\n",
		      option);
	return EXIT_USAGE;
}

int command_start(const struct arguments *args)
{
	uint32_t duration_s = args->duration_s ? args->duration_s : 30;
	cleanup(json) cJSON *session = NULL;
	cleanup(json) cJSON *result = NULL;

	if (check_shown(args) || check_value(args))
		return EXIT_USAGE;
	if (session_start(args, args->argv[0], duration_s, &session) < 0)
		return 1;
	if (args->follow) {
		if (session_follow(args, output_text(session, "id"), duration_s, &result) < 0)
			return 1;
		return show_result(args, result);
	}
	if (args->format == OUTPUT_JSON)
		output_json(session);
	else
		(void)printf("%s\n", output_text(session, "id"));
	return 0;
}

int command_get(const struct arguments *args)
{
	cleanup(json) cJSON *session = NULL;

	if (session_get(args, args->argv[0], &session) < 0)
		return 1;
	return show_result(args, session);
}

int command_top(const struct arguments *args)
{
	uint32_t duration_s = args->duration_s ? args->duration_s : 5;
	const char *service = args->argc ? args->argv[0] : "*";
	cleanup(json) cJSON *session = NULL;
	cleanup(json) cJSON *result = NULL;

	if (check_value(args))
		return EXIT_USAGE;
	if (!args->once && !args->duration_s && args->format == OUTPUT_TABLE && isatty(STDIN_FILENO) &&
	    isatty(STDOUT_FILENO))
		return live_top(args, service);
	if (session_start(args, service, duration_s, &session) < 0 ||
	    session_follow(args, output_text(session, "id"), duration_s, &result) < 0)
		return 1;
	if (!args->argc && args->format == OUTPUT_TABLE && browse_busy(args) < 0)
		return 1;
	return show_result(args, result);
}

int command_flamegraph(const struct arguments *args)
{
	const char *file = args->argc > 1 && strcmp(args->argv[1], "-") != 0 ? args->argv[1] : NULL;
	const char *format = args->file_format		   ? args->file_format
			     : args->format == OUTPUT_JSON ? "json"
							   : "html";
	cleanup(json) cJSON *session = NULL;

	if (session_get(args, args->argv[0], &session) < 0)
		return 1;
	return session_render(args, args->argv[0], session_value(args, session), format, file) < 0;
}

/* ---- record ---------------------------------------------------------------------------------- */

/* The command's process, held before exec until @go is closed, so that its first instruction is
 * already profiled. @quiet: standard output is ours alone, what the command prints goes to standard
 * error. */
static pid_t spawn_held(char **argv, bool quiet, int *ret_go)
{
	int go[2];
	pid_t pid;

	if (pipe2(go, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		int status;
		char byte;

		(void)close(go[1]);
		if (read(go[0], &byte, 1) != 1)
			_exit(127); /* the profiler could not start: run nothing */
		if (quiet)
			(void)dup2(STDERR_FILENO, STDOUT_FILENO);
		(void)execvp(argv[0], argv);
		status = errno == ENOENT ? 127 : 126; /* as of a shell */
		(void)fprintf(stderr, "profctl: cannot run %s: %s\n", argv[0], strerror(errno));
		_exit(status);
	}
	(void)close(go[0]);
	if (pid < 0) {
		(void)close(go[1]);
		return -errno;
	}
	*ret_go = go[1];
	return pid;
}

static int wait_for_command(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Until sampling has begun: what the command does before that would be missing. */
static int wait_until_started(const struct arguments *args, const char *id)
{
	for (;;) {
		cleanup(json) cJSON *session = NULL;

		if (session_get(args, id, &session) < 0)
			return -1;
		if (*output_text(session, "startedAt") ||
		    strcmp(output_text(session, "status"), "running"))
			return 0;
		clock_sleep_ns(50 * NS_PER_MS);
	}
}

/* true: the type is read in the living process when the session ends. */
static bool is_of_end(const char *type)
{
	return is_type(type, "memory") || is_type(type, "goroutine");
}

/* A session that is over already (it takes an hour at most) would be deleted by that. */
static int end_recording(const struct arguments *args, const char *id, cJSON **ret)
{
	cleanup(json) cJSON *session = NULL;

	if (session_get(args, id, &session) < 0 ||
	    (!strcmp(output_text(session, "status"), "running") && session_delete(args, id) < 0))
		return -1;
	return session_follow(args, id, 0, ret);
}

/* A command may end before it is sampled: that there is nothing to show is no failure. (What is not
 * sampled fails for other reasons.) */
static bool is_empty(const cJSON *session)
{
	return strcmp(output_text(session, "profileType"), "alloc") != 0 &&
	       !strcmp(output_text(session, "status"), "failed") &&
	       cJSON_IsTrue(cJSON_GetObjectItem(session, "stoppedEarly"));
}

int command_record(const struct arguments *args)
{
	struct arguments with = *args;
	cleanup(json) cJSON *session = NULL;
	cleanup(json) cJSON *result = NULL;
	cleanup_close int go = -1;
	char service[32];
	pid_t pid;
	int status;

	if (check_value(args))
		return EXIT_USAGE;
	if (is_of_end(args->type)) {
		(void)fprintf(stderr,
			      "profctl: %s is taken at the end of a profile, when the command has "
			      "ended already: start it yourself, "
			      "then profctl start pid:N --type %s --follow\n",
			      args->type, args->type);
		return EXIT_USAGE;
	}
	with.children = !args->no_children && !is_type(args->type, "alloc");
	pid = spawn_held(args->argv, args->format != OUTPUT_TABLE, &go);
	if (pid < 0) {
		(void)fprintf(stderr, "profctl: cannot fork: %s\n", strerror(-(int)pid));
		return 1;
	}
	(void)snprintf(service, sizeof(service), "pid:%d", (int)pid);
	if (session_start(&with, service, 3600, &session) < 0 ||
	    wait_until_started(args, output_text(session, "id")) < 0) {
		(void)close(take_fd(&go));
		(void)wait_for_command(pid);
		return 1;
	}
	(void)signal(SIGINT, SIG_IGN); /* Ctrl-C is for the command; its profile is still printed */
	if (write(go, "", 1) != 1)
		(void)fprintf(stderr, "profctl: cannot start the command: %s\n", strerror(errno));
	status = wait_for_command(pid);
	if (end_recording(args, output_text(session, "id"), &result) < 0)
		return 1;
	if (status)
		(void)fprintf(stderr, "profctl: the command ended with status %d\n", status);
	if (!is_empty(result))
		return show_result(args, result) ? 1 : status;
	(void)fprintf(stderr, "profctl: the command ended before it was sampled\n");
	if (args->format == OUTPUT_TABLE || args->format == OUTPUT_JSON)
		(void)print_session(args, result);
	return status;
}
