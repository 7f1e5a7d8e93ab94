// SPDX-License-Identifier: Apache-2.0
#include "tools/profctl/live_top.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "tools/profctl/output.h"
#include "tools/profctl/sessions.h"

#define DURATION_S     3600
#define INTERVAL_S     2
#define WINDOW_NS      (10 * NS_PER_S)
#define PICTURES_MAX   60 /* of the window: one a second at most, and room */
#define FUNCTIONS_MAX  1000
#define LINES_AROUND   6 /* head, heading, foot */
#define SCREEN_ENTER   "\033[?1049h\033[?25l"
#define SCREEN_LEAVE   "\033[?25h\033[?1049l"
#define SCREEN_CLEAR   "\033[H\033[J"

/* A session as it was at one moment; the difference of two is what happened between. */
struct picture {
	cJSON *session;
	uint64_t at_ns; /* monotonic */
};

struct live {
	struct arguments args; /* with as many functions as the API gives */
	char id[64];
	struct picture pictures[PICTURES_MAX]; /* oldest first */
	size_t count;
	bool by_cumulative, paused, ended;
};

struct row {
	const char *function, *module;
	double self, cumulative;
};

static volatile sig_atomic_t interrupted;
static struct termios terminal_before;

static void on_signal(int signal_number)
{
	(void)signal_number;
	interrupted = 1;
}

static void on_resize(int signal_number)
{
	(void)signal_number; /* ends the wait: the picture is drawn again */
}

static void leave_screen(void)
{
	(void)fputs(SCREEN_LEAVE, stdout);
	(void)fflush(stdout);
	(void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

/* Keys one by one, no echo; Ctrl-C stays a signal. */
static int enter_screen(void)
{
	struct sigaction end = { .sa_handler = on_signal }, resize = { .sa_handler = on_resize };
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &terminal_before) < 0)
		return -1;
	raw = terminal_before;
	raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	raw.c_cc[VMIN] = 0;
	raw.c_cc[VTIME] = 0;
	if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) < 0)
		return -1;
	(void)sigaction(SIGINT, &end, NULL);
	(void)sigaction(SIGTERM, &end, NULL);
	(void)sigaction(SIGHUP, &end, NULL);
	(void)sigaction(SIGWINCH, &resize, NULL);
	(void)fputs(SCREEN_ENTER, stdout);
	return 0;
}

/* ---- what happened between two pictures ------------------------------------------------------ */

static bool is_same(const cJSON *a, const cJSON *b)
{
	return !strcmp(output_text(a, "funcName"), output_text(b, "funcName")) &&
	       !strcmp(output_text(a, "package"), output_text(b, "package"));
}

static const cJSON *find_function(const cJSON *session, const cJSON *function)
{
	const cJSON *f;

	cJSON_ArrayForEach(f, cJSON_GetObjectItem(session, "topFunctions"))
		if (is_same(f, function))
			return f;
	return NULL;
}

static int by_self(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return (y->self > x->self) - (y->self < x->self);
}

static int by_cumulative(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return (y->cumulative > x->cumulative) - (y->cumulative < x->cumulative);
}

/* Functions between the oldest and the newest picture, largest first. */
static size_t make_rows(const struct live *live, const cJSON *from, const cJSON *to,
			struct row rows[FUNCTIONS_MAX])
{
	size_t count = 0;
	const cJSON *f;

	cJSON_ArrayForEach(f, cJSON_GetObjectItem(to, "topFunctions")) {
		const cJSON *before = from ? find_function(from, f) : NULL;
		struct row row = {
			.function = output_text(f, "funcName"),
			.module = output_text(f, "package"),
			.self = output_number(f, "selfValue") - output_number(before, "selfValue"),
			.cumulative = output_number(f, "cumulativeValue") -
				      output_number(before, "cumulativeValue"),
		};

		if (count < FUNCTIONS_MAX && (row.self > 0 || row.cumulative > 0))
			rows[count++] = row;
	}
	qsort(rows, count, sizeof(rows[0]), live->by_cumulative ? by_cumulative : by_self);
	return count;
}

/* ---- the picture ----------------------------------------------------------------------------- */

static size_t screen_lines(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_row)
		return 24;
	return size.ws_row;
}

static void print_head(const struct live *live, const cJSON *from, const cJSON *to, double total,
		       double span_s)
{
	const char *unit = output_text(to, "unit");
	const cJSON *quality = cJSON_GetObjectItem(to, "quality");
	double samples = output_number(to, "sampleCount") - output_number(from, "sampleCount");
	char value[64];

	output_value(total, unit, value, sizeof(value));
	(void)printf("%s, %s: the last %.0f s, %.0f samples, %s", output_text(to, "service"),
		     output_text(to, "profileType"), span_s, samples > 0 ? samples : 0, value);
	if (!strcmp(unit, "nanoseconds") && span_s > 0)
		(void)printf(" = %.2f CPUs", total / 1e9 / span_s);
	(void)printf("\nlost %.0f, unknown frames %.2f %%, overhead %.2f %%%s\n\n",
		     output_number(quality, "lost"), output_number(quality, "unknownFramePct"),
		     output_number(quality, "overheadPct"), live->paused ? ", paused" : "");
}

static void draw(const struct live *live)
{
	struct table table = { .headings = { "self%", "cum%", "self", "module", "function" },
			       .right = { true, true, true },
			       .columns = 5 };
	size_t room = screen_lines(), listed;
	static struct row rows[FUNCTIONS_MAX];
	const struct picture *to = &live->pictures[live->count - 1];
	const struct picture *from = live->count > 1 ? &live->pictures[0] : NULL;
	const cJSON *before = from ? from->session : NULL;
	double largest = 0, total = output_number(to->session, "totalValue") -
				    output_number(before, "totalValue");
	double span_s = from ? (double)(to->at_ns - from->at_ns) / 1e9
			     : output_number(to->session, "durationSeconds");

	listed = make_rows(live, before, to->session, rows);
	for (size_t i = 0; i < listed; i++)
		largest = rows[i].self > largest ? rows[i].self : largest;
	room = room > LINES_AROUND ? room - LINES_AROUND : 1;
	(void)fputs(SCREEN_CLEAR, stdout);
	print_head(live, before, to->session, total, span_s);
	for (size_t i = 0; i < listed && i < room; i++) {
		char value[64];

		output_value_as(rows[i].self, largest, output_text(to->session, "unit"), value, sizeof(value));
		table_addf(&table, "%.2f", total > 0 ? 100 * rows[i].self / total : 0);
		table_addf(&table, "%.2f", total > 0 ? 100 * rows[i].cumulative / total : 0);
		table_add(&table, value);
		table_addf(&table, "%.24s", rows[i].module);
		table_add(&table, rows[i].function);
	}
	(void)table_print(&table);
	(void)printf("q quit   space pause   s by %s", live->by_cumulative ? "self" : "cumulative");
	(void)fflush(stdout);
}

/* ---- taking pictures ------------------------------------------------------------------------- */

static void drop_oldest(struct live *live)
{
	cJSON_Delete(live->pictures[0].session);
	memmove(&live->pictures[0], &live->pictures[1], --live->count * sizeof(live->pictures[0]));
}

static int take_picture(struct live *live)
{
	cJSON *session = NULL;
	uint64_t now_ns = clock_monotonic_ns();

	if (session_get(&live->args, live->id, &session) < 0)
		return -1;
	live->ended = strcmp(output_text(session, "status"), "running") != 0;
	/* One picture may be older than the window: the difference covers it. */
	while (live->count == PICTURES_MAX ||
	       (live->count > 1 && now_ns - live->pictures[1].at_ns >= WINDOW_NS))
		drop_oldest(live);
	live->pictures[live->count++] = (struct picture){ session, now_ns };
	return 0;
}

/* Handles keys until the next picture is due; false: the user wants to leave. */
static bool wait_for_keys(struct live *live, uint64_t until_ns)
{
	struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };

	for (uint64_t now_ns; !interrupted && (now_ns = clock_monotonic_ns()) < until_ns;) {
		char key;

		if (poll(&input, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1) < 0) {
			draw(live); /* another size */
			continue;
		}
		if (!input.revents)
			continue;
		if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q')
			return false;
		live->paused ^= key == ' ';
		live->by_cumulative ^= key == 's';
		draw(live);
	}
	return !interrupted;
}

static int watch(struct live *live)
{
	uint32_t interval_s = live->args.interval_s ? live->args.interval_s : INTERVAL_S;

	while (!live->ended) {
		uint64_t begin_ns = clock_monotonic_ns();

		if (!live->paused) {
			if (take_picture(live) < 0)
				return -1;
			draw(live);
		}
		if (!wait_for_keys(live, begin_ns + interval_s * NS_PER_S))
			break;
	}
	return 0;
}

/* The picture went with its screen: why nobody asked for that. */
static void say_why(const struct live *live)
{
	const cJSON *last = live->count ? live->pictures[live->count - 1].session : NULL;
	const char *failure = output_text(last, "failureReason");

	if (live->ended && *failure)
		(void)fprintf(stderr, "profctl: %s\n", failure);
	else if (live->ended)
		(void)fprintf(stderr, "profctl: the profile of %s has ended: %s\n",
			      output_text(last, "service"),
			      output_number(last, "durationSeconds") < DURATION_S
				      ? "its processes have, or somebody stopped it"
				      : "an hour is the longest");
}

/* The profile was only for looking at. */
static int discard(struct live *live)
{
	cleanup(json) cJSON *result = NULL;

	if (!live->ended && (session_delete(&live->args, live->id) < 0 ||
			     session_follow(&live->args, live->id, 0, &result) < 0))
		return -1;
	return session_delete(&live->args, live->id);
}

int live_top(const struct arguments *args, const char *service)
{
	struct live live = { .args = *args };
	cleanup(json) cJSON *session = NULL;
	int rc;

	live.args.top = FUNCTIONS_MAX;
	if (session_start(args, service, DURATION_S, &session) < 0)
		return 1;
	(void)snprintf(live.id, sizeof(live.id), "%s", output_text(session, "id"));
	rc = enter_screen();
	if (rc == 0) {
		rc = watch(&live);
		leave_screen();
		say_why(&live);
	}
	while (live.count)
		drop_oldest(&live);
	return (discard(&live) < 0) | (rc < 0);
}
