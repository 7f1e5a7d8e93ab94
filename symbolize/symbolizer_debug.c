// SPDX-License-Identifier: Apache-2.0
/* Where the files with debug information come from: the collector opens what lies on the host. Modules ask for
 * their separate debug file; a builder asks for what that names in turn (split DWARF, dwz). */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "symbolize/symbolizer_internal.h"

/* Requests to the collector: a module's slot + 1, or a builder's question with this bit. */
#define BUILDER_REQUEST (1u << 31)
#define SILENT_MAX	2 /* questions of one builder that nobody answered in time: no more are asked */

/* ---- a module's debug file ----------------------------------------------------------------------- */

bool symbolizer_want_debug(struct symbolizer *s, struct name_module *module)
{
	struct control_debug_want want = {
		.head = { .kind = CONTROL_DEBUG_WANT,
			  .request = (uint32_t)name_modules_slot(&s->modules, module) + 1 },
		.kind = DEBUG_FILE,
		.index_request = module->index_request,
		.build_id_len = module->identity.build_id_len,
	};
	uint64_t now_ns = clock_monotonic_ns();

	if (s->collector_fd < 0 || !module->index_request || !module->stub ||
	    (!module->identity.build_id_len && !module->identity.debug_link[0]) ||
	    (module->debug_asked_ns && now_ns - module->debug_asked_ns < s->debug_again_ns))
		return false;
	memcpy(want.build_id, module->identity.build_id, sizeof(want.build_id));
	memcpy(want.name, module->identity.debug_link, sizeof(module->identity.debug_link));
	if (channel_send(s->collector_fd, &want, sizeof(want), NULL, 0) < 0)
		return false;
	module->debug_asked_ns = now_ns;
	return true;
}

static void on_module_debug(struct symbolizer *s, const struct control_debug *answer)
{
	struct name_module *module = name_modules_at(&s->modules, answer->head.request - 1);

	if (!module || module->state != NAME_MODULE_WAITING)
		return;
	if (!answer->status)
		module->debug_fd = take_fd(&s->message.fds[0]);
	/* Without the file itself there is nothing to build from but the debug file. */
	name_modules_set_state(&s->modules, module,
			       module->fd >= 0 || module->debug_fd >= 0 ? NAME_MODULE_QUEUED
									 : NAME_MODULE_IDLE);
}

void symbolizer_look_for_debug(struct symbolizer *s, struct name_module *module)
{
	if (module && module->state == NAME_MODULE_IDLE && !(module->origins & SYMBOL_ORIGIN_DWARF) &&
	    symbolizer_want_debug(s, module))
		name_modules_set_state(&s->modules, module, NAME_MODULE_WAITING);
}

/* ---- a builder's questions ----------------------------------------------------------------------- */

static void answer_builder(struct symbolizer *s, int status, int fd)
{
	struct control_debug answer = { .head = { .kind = CONTROL_DEBUG }, .status = status };

	s->question.asked_ns = 0;
	if (s->builder.files_fd >= 0 &&
	    channel_send(s->builder.files_fd, &answer, sizeof(answer), &fd, fd >= 0) < 0)
		log_debug("the builder of names is gone"); /* noticed by its pidfd */
}

void symbolizer_begin_questions(struct symbolizer *s)
{
	s->question.asked_ns = 0;
	s->question.silent = 0;
}

/* Its words are not trusted more than the files it reads: only the kinds it may ask for are passed on, about
 * the module that it builds. */
static int pass_on(struct symbolizer *s, struct control_debug_want *want)
{
	const struct name_module *module = name_modules_find(&s->modules, s->building_key);

	if (want->kind != DEBUG_ALT && want->kind != DEBUG_PACKAGE && want->kind != DEBUG_SPLIT)
		return -EINVAL;
	if (s->collector_fd < 0 || !module || s->question.silent >= SILENT_MAX)
		return -ENOENT;
	if (want->kind == DEBUG_PACKAGE) {
		want->build_id_len = module->identity.build_id_len;
		memcpy(want->build_id, module->identity.build_id, sizeof(want->build_id));
	}
	s->question.request = BUILDER_REQUEST | (s->question.request + 1);
	want->head.request = s->question.request;
	want->index_request = module->index_request;
	return channel_send(s->collector_fd, want, sizeof(*want), NULL, 0);
}

void symbolizer_on_question(struct symbolizer *s)
{
	struct control_debug_want *want = (void *)s->message.data;
	int rc;

	rc = channel_receive(s->builder.files_fd, &s->message);
	if (rc == -EPIPE) {
		(void)close(s->builder.files_fd);
		s->builder.files_fd = -1;
	}
	if (rc != 1)
		return;
	if (s->message.len != sizeof(*want) || want->head.kind != CONTROL_DEBUG_WANT)
		rc = -EPROTO;
	else
		rc = pass_on(s, want);
	channel_message_close(&s->message);
	if (rc < 0)
		answer_builder(s, -ENOENT, -1);
	else
		s->question.asked_ns = clock_monotonic_ns();
}

void symbolizer_answer_late_questions(struct symbolizer *s, uint64_t now_ns)
{
	if (!s->question.asked_ns ||
	    (s->collector_fd >= 0 && now_ns - s->question.asked_ns < SYMBOLIZER_DEBUG_WAIT_NS))
		return;
	s->question.silent++;
	answer_builder(s, -ENOENT, -1);
}

void symbolizer_on_debug(struct symbolizer *s)
{
	const struct control_debug *answer = (const void *)s->message.data;

	if (s->message.len != sizeof(*answer) || !answer->head.request ||
	    (!answer->status && s->message.fd_count != 1))
		return;
	if (!(answer->head.request & BUILDER_REQUEST)) {
		on_module_debug(s, answer);
	} else if (s->question.asked_ns && answer->head.request == s->question.request) {
		s->question.silent = 0;
		answer_builder(s, answer->status ? -ENOENT : 0, s->message.fds[0]);
	}
}
