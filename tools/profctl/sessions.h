/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions through the API: start, follow, read, delete. Each returns 0, or -1 after printing why.
 */
#ifndef PROFCTL_SESSIONS_H
#define PROFCTL_SESSIONS_H

#include "tools/profctl/command.h"

#define SESSIONS_PATH "/api/v1/observability/profiling"

/* By the type, rate and waiting time of @args. The caller releases *ret. */
int session_start(const struct arguments *args, const char *service, uint32_t duration_s,
		  cJSON **ret) must_use;
/* With args->top functions, by args->value; io that never waited, which has no time, by its bytes.
 */
int session_get(const struct arguments *args, const char *id, cJSON **ret) must_use;
/* Ends a running one early, deletes a finished one. */
int session_delete(const struct arguments *args, const char *id) must_use;
/* By which value session_get() has read it, NULL = its type's own. Lives as long as @args. */
const char *session_value(const struct arguments *args, const cJSON *session);
/* One rendering of a session by @value, NULL = its type's own, into the file @path, NULL = standard
 * output. */
int session_render(const struct arguments *args, const char *id, const char *value,
		   const char *format, const char *path) must_use;
/* Waits for the end of a session, then for its names, up to a minute. Ctrl-C ends the session, or
 * the wait for names, early and keeps what there is. */
int session_follow(const struct arguments *args, const char *id, double duration_s, cJSON **ret)
	must_use;

#endif
