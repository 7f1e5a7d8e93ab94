/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines on standard error: `<level> <process>: text`. Under systemd (JOURNAL_STREAM set) each
 * line carries the kernel's `<n>` priority prefix instead. Text that came from outside is escaped.
 * The only global state of the project is the level and the process name kept here. Thread-safe. */
#ifndef PROFD_BASE_LOG_H
#define PROFD_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_init(enum log_level level, const char *process_name);
void log_write(enum log_level level, const char *fmt, ...) printf_like(2, 3);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* At most @burst lines per minute from one place; the number held back is said with the next one.
 * Use: `static struct log_limit limit = { .burst = 5 }; if (log_allowed(&limit)) log_warn(…)`. */
struct log_limit {
	unsigned burst;
	uint64_t minute;  /* private */
	unsigned written; /* private */
	unsigned held;	  /* private */
};
bool log_allowed(struct log_limit *limit);

#endif
