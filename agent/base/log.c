// SPDX-License-Identifier: Apache-2.0
#include "agent/base/log.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"

#define LOG_LINE_MAX 1024

static enum log_level log_threshold = LOG_LEVEL_INFO;
static char log_name[32] = "profd";
static bool log_to_journal;

void log_init(enum log_level level, const char *process_name)
{
	log_threshold = level;
	(void)snprintf(log_name, sizeof(log_name), "%s", process_name);
	log_to_journal = getenv("JOURNAL_STREAM") != NULL;
}

/* A file name or command line in a message must not forge lines or drive a terminal. */
static void log_escape(char *line)
{
	for (char *c = line; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
}

void log_write(enum log_level level, const char *fmt, ...)
{
	/* sd-daemon(3): LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG */
	static const struct {
		const char *prefix, *word;
	} levels[] = { { "<3>", "error" }, { "<4>", "warning" }, { "<6>", "info" }, { "<7>", "debug" } };
	char text[LOG_LINE_MAX], line[LOG_LINE_MAX + 64];
	va_list args;
	int len;

	if (level > log_threshold)
		return;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	log_escape(text);
	if (log_to_journal)
		len = snprintf(line, sizeof(line), "%s%s: %s\n", levels[level].prefix, log_name, text);
	else
		len = snprintf(line, sizeof(line), "%s: %s: %s\n", log_name, levels[level].word, text);
	/* One write per line keeps the lines of four processes apart; nothing to do when it fails. */
	(void)!write(STDERR_FILENO, line, (size_t)len);
}

bool log_allowed(struct log_limit *limit)
{
	uint64_t minute = clock_monotonic_ns() / (60 * NS_PER_S);

	if (limit->minute != minute) {
		if (limit->held)
			log_info("%u similar messages were held back", limit->held);
		limit->minute = minute;
		limit->written = 0;
		limit->held = 0;
	}
	if (limit->written >= limit->burst) {
		limit->held++;
		return false;
	}
	limit->written++;
	return true;
}
