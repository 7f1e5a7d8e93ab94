// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/script.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/reader/cpython_check.h"
#include "agent/reader/cpython_names.h"
#include "agent/reader/hotspot_check.h"
#include "agent/reader/hotspot_names.h"
#include "agent/reader/script_names.h"
#include "agent/reader/target_memory.h"
#include "agent/reader/v8_names.h"
#include "agent/reader/watch.h"
#include "agent/wire/control.h"

#define SEND_WAIT_MS	2000 /* for the collector to take an answer */
#define WATCH_MARGIN_NS (5 * NS_PER_S)

struct names_answer {
	struct control_script_named head;
	uint8_t payload[CHANNEL_MESSAGE_MAX - sizeof(struct control_script_named)];
};

static int check_process(const struct control_script_check *request, struct script_runtime *runtime,
			 uint64_t deadline_ns)
{
	cleanup_target struct target target = TARGET_NONE;
	int rc = target_open(request->tgid, request->start_boottime_ns, &target);

	if (rc == 0 && runtime->kind == SCRIPT_CPYTHON)
		rc = cpython_check(&target, runtime, deadline_ns);
	else if (rc == 0 && runtime->kind == SCRIPT_HOTSPOT)
		rc = hotspot_check(&target, runtime, deadline_ns);
	else if (rc == 0 && (runtime->kind != SCRIPT_V8 || runtime->v8.refused))
		rc = -EOPNOTSUPP; /* V8's file says all */
	return rc < 0 ? rc : target_check(&target);
}

static int answer_check(int fd, const struct control_script_check *request, uint64_t deadline_ns)
{
	struct control_script_checked answer = {
		.head = { .kind = CONTROL_SCRIPT_CHECKED, .request = request->head.request },
		.runtime = request->runtime,
	};

	answer.status = check_process(request, &answer.runtime, deadline_ns);
	return channel_send_wait(fd, &answer, sizeof(answer), NULL, 0, SEND_WAIT_MS);
}

static int send_names(int fd, uint32_t request, const struct script_names *names)
{
	cleanup_free struct names_answer *answer = malloc(sizeof(*answer));
	size_t at = 0, sent = 0; /* entries, bytes */
	int rc;

	if (!answer)
		return -ENOMEM;
	do {
		size_t first = at, len;

		while (at < names->count && names->ends[at] - sent <= sizeof(answer->payload))
			at++;
		len = at > first ? names->ends[at - 1] - sent : 0;
		answer->head = (struct control_script_named){
			.head = { .kind = CONTROL_SCRIPT_NAMED, .request = request },
			.first = (uint32_t)first,
			.count = (uint32_t)(at - first),
			.more = at < names->count,
		};
		if (len)
			memcpy(answer->payload, names->payload.data + sent, len);
		sent += len;
		rc = channel_send_wait(fd, answer, sizeof(answer->head) + len, NULL, 0,
				       SEND_WAIT_MS);
	} while (rc == 0 && answer->head.more);
	return rc;
}

static int read_python(struct target *target, const struct control_script_names *request,
		       struct script_names *names, uint64_t deadline_ns)
{
	cleanup_free struct cpython_name *read = calloc(request->count + 1u, sizeof(*read));
	int rc;

	if (!read)
		return -ENOMEM;
	rc = cpython_names_read(target, &request->runtime.python, request->places, request->count,
				read, deadline_ns);
	for (uint32_t i = 0; rc == 0 && i < request->count; i++) {
		script_names_begin(names);
		names->tier = FEED_TIER_INTERPRETED;
		if (read[i].function[0])
			script_names_add(names, read[i].function, read[i].file, read[i].line,
					 read[i].first_line);
	}
	return rc < 0 ? rc : names->payload.error;
}

static int read_names(const struct control_script_names *request, struct script_names *names,
		      uint64_t deadline_ns)
{
	cleanup_target struct target target = TARGET_NONE;
	int rc = target_open(request->tgid, request->start_boottime_ns, &target);

	if (rc == 0 && request->runtime.kind == SCRIPT_CPYTHON)
		rc = read_python(&target, request, names, deadline_ns);
	else if (rc == 0 && request->runtime.kind == SCRIPT_HOTSPOT)
		rc = hotspot_names_read(&target, &request->runtime.hotspot, request->places,
					request->count, names, deadline_ns);
	else if (rc == 0 && request->runtime.kind == SCRIPT_V8)
		rc = v8_names_read(&target, &request->runtime.v8, request->places, request->count,
				   names, deadline_ns);
	else if (rc == 0)
		rc = -EOPNOTSUPP;
	return rc < 0 ? rc : target_check(&target);
}

static int answer_names(int fd, const struct control_script_names *request, uint64_t deadline_ns)
{
	struct control_script_named failed = {
		.head = { .kind = CONTROL_SCRIPT_NAMED, .request = request->head.request },
	};
	cleanup_script_names struct script_names names = { .count = 0 };

	failed.status = read_names(request, &names, deadline_ns);
	if (failed.status == 0)
		return send_names(fd, request->head.request, &names);
	return channel_send_wait(fd, &failed, sizeof(failed), NULL, 0, SEND_WAIT_MS);
}

static bool is_names(const struct channel_message *message)
{
	const struct control_script_names *request = (const void *)message->data;
	size_t head = offsetof(struct control_script_names, places);

	return message->len >= head && request->head.kind == CONTROL_SCRIPT_NAMES &&
	       request->count <= CONTROL_SCRIPT_PLACES_MAX &&
	       message->len == head + request->count * sizeof(request->places[0]);
}

int script_answer(int fd, const struct channel_message *message)
{
	const struct control_script_check *check = (const void *)message->data;
	uint64_t deadline_ns = clock_monotonic_ns() + SCRIPT_DEADLINE_MS * NS_PER_MS;
	int rc = 0;

	watch_start(deadline_ns + WATCH_MARGIN_NS, fd, check->head.request);
	if (message->len == sizeof(*check) && check->head.kind == CONTROL_SCRIPT_CHECK)
		rc = answer_check(fd, check, deadline_ns);
	else if (is_names(message))
		rc = answer_names(fd, (const void *)message->data, deadline_ns);
	watch_stop();
	return rc == -EPIPE ? rc : 0;
}
