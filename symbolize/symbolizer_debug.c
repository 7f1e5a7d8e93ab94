// SPDX-License-Identifier: Apache-2.0
/* Gets files with debug information. The collector opens files of the host; the server fetches from
 * debuginfod where that is configured. Modules ask for their separate debug file. A builder asks
 * for the files that the debug file names in turn (split DWARF, dwz). */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/wire/module_key.h"
#include "symbolize/module_facts.h"
#include "symbolize/symbolizer_internal.h"

/* Requests to the collector: a module's slot + 1, or a builder's question with this bit. */
#define BUILDER_REQUEST (1u << 31)
#define FOUND_SHIFT_MAX 6 /* 64 times as long as after the first */
#define SILENT_MAX	2 /* questions of one builder that nobody answered in time: no more are asked */

/* Go's pclntab has all names and lines, and is in the file alone: a debug file that comes when that
 * is closed would put other names in their place. */
#define COMPLETE (SYMBOL_ORIGIN_DWARF | SYMBOL_ORIGIN_GOPCLNTAB)

bool symbolizer_is_complete(unsigned origins)
{
	return origins & COMPLETE && !(origins & SYMBOL_ORIGIN_PARTIAL);
}

/* A process chooses where debug files are looked for: in its root, beside its files. What a user
 * put there says names of that user's files only. */
static bool may_speak_for(uint64_t voucher, const struct name_module *module)
{
	return voucher == MODULE_VOUCHER_ROOT ||
	       (voucher == module->voucher && voucher != MODULE_VOUCHER_CONTENT);
}

/* ---- a module's debug file ------------------------------------------------------------------- */

static void fill_want(struct symbolizer *s, const struct name_module *module,
		      struct control_debug_want *ret)
{
	*ret = (struct control_debug_want){
		.head = { .kind = CONTROL_DEBUG_WANT,
			  .request = (uint32_t)name_modules_slot(&s->modules, module) + 1 },
		.kind = DEBUG_FILE,
		.index_request = module->index_request,
		.build_id_len = module->identity.build_id_len,
	};
	memcpy(ret->build_id, module->identity.build_id, sizeof(ret->build_id));
	memcpy(ret->name, module->identity.debug_link, sizeof(module->identity.debug_link));
}

bool symbolizer_want_debug(struct symbolizer *s, struct name_module *module)
{
	struct control_debug_want want;
	uint64_t now_ns = clock_monotonic_ns();

	/* A module of the past is known by its build-id only. */
	if (s->collector_fd < 0 || !module->skeleton ||
	    (!module->identity.build_id_len &&
	     (!module->identity.debug_link[0] || !module->index_request)) ||
	    (module->debug_asked_ns && now_ns - module->debug_asked_ns < s->debug_again_ns))
		return false;
	fill_want(s, module, &want);
	if (channel_send(s->collector_fd, &want, sizeof(want), NULL, 0) < 0)
		return false;
	module->debug_asked_ns = now_ns;
	return true;
}

/* Not before the host was searched, and only for what somebody looks at. */
static void fetch(struct symbolizer *s, struct name_module *module)
{
	struct control_debug_want want;
	uint64_t now_ns = clock_monotonic_ns();

	if (s->fetch_fd < 0 || module->fetching || !module->looked_at || !module->skeleton ||
	    !module->identity.build_id_len || !module->debug_asked_ns ||
	    symbolizer_is_complete(module->origins) || module->fetched_in_vain ||
	    (module->fetch_asked_ns && now_ns - module->fetch_asked_ns < s->debug_again_ns))
		return;
	fill_want(s, module, &want);
	/* A full queue: it is asked for when somebody looks again. */
	if (channel_send(s->fetch_fd, &want, sizeof(want), NULL, 0) < 0)
		return;
	module->fetch_asked_ns = now_ns;
	module->fetching = true;
}

/* A file without DWARF, or for another build, is no better than it was: reading it again whenever
 * somebody looks would cost a child each time. With the module's own file it counts, for its
 * symbols. */
static bool is_useless(const struct name_module *module, int fd)
{
	return module->fd < 0 && module->useless_debug &&
	       module->useless_debug == name_modules_debug_identity(fd);
}

void symbolizer_judge_debug(struct name_module *module)
{
	if (module->debug_fd < 0 || symbolizer_is_complete(module->origins))
		return;
	if (module->debug_fetched)
		module->fetched_in_vain = true;
	else
		module->useless_debug = name_modules_debug_identity(module->debug_fd);
}

static bool ask_for_missing(struct symbolizer *s, const struct name_module *module)
{
	const struct name_missing *missing = module->missing;
	struct control_debug_want want;

	if (s->collector_fd < 0)
		return false;
	fill_want(s, module, &want);
	memset(want.name, 0, sizeof(want.name));
	want.kind = DEBUG_PACKAGE;
	if (!module->asked_package) {
		want.kind = missing->kind;
		want.build_id_len = missing->build_id_len;
		memcpy(want.build_id, missing->build_id, sizeof(missing->build_id));
		memcpy(want.name, missing->name, strlen(missing->name));
	}
	return channel_send(s->collector_fd, &want, sizeof(want), NULL, 0) == 0;
}

/* If it is there now the names are built again, from the module's file or its debug file, which are
 * wanted for that: of files that come one by one less and less often. */
static void on_missing(struct symbolizer *s, struct name_module *module, int status)
{
	if (status && module->asked_package) {
		module->asked_package = false;
		if (ask_for_missing(s, module))
			return;
	}
	if (!status) {
		cleanup_free_fn(&module->missing);
		module->missing = NULL;
		module->found_ns = clock_monotonic_ns();
		module->found += module->found < UINT8_MAX;
		module->useless_debug = 0;
		module->fetched_in_vain = false;
		module->debug_asked_ns = 0;
		module->later = module->index_request != 0;
	}
	name_modules_set_state(&s->modules, module, NAME_MODULE_IDLE);
}

static void on_module_debug(struct symbolizer *s, const struct control_debug *answer)
{
	struct name_module *module = name_modules_at(&s->modules, answer->head.request - 1);
	int status = answer->status;

	if (!module || module->state != NAME_MODULE_WAITING)
		return;
	if (!answer->status && !may_speak_for(answer->voucher, module))
		status = -EACCES;
	if (module->asked_missing) {
		on_missing(s, module, status);
		return;
	}
	if (!status && !is_useless(module, s->message.fds[0]))
		name_modules_set_debug_take(module, take_fd(&s->message.fds[0]), false);
	else
		fetch(s, module);
	/* Without the file itself there is nothing to build from but the debug file. */
	name_modules_set_state(&s->modules, module,
			       module->fd >= 0 || module->debug_fd >= 0 ? NAME_MODULE_QUEUED
									 : NAME_MODULE_IDLE);
}

/* That it is this module's file, and not another's whose place this one has taken, is checked by
 * build-id when it is read. */
static void on_module_fetched(struct symbolizer *s, const struct control_debug *answer)
{
	struct name_module *module = name_modules_at(&s->modules, answer->head.request - 1);

	if (!module || !module->fetching)
		return;
	module->fetching = false;
	if (answer->status || module->state != NAME_MODULE_IDLE)
		return;
	name_modules_set_debug_take(module, take_fd(&s->message.fds[0]), true);
	module->urgent = true;
	name_modules_set_state(&s->modules, module, NAME_MODULE_QUEUED);
}

/* Asks for what was missing. False: not now. */
static bool want_missing(struct symbolizer *s, struct name_module *module)
{
	uint64_t now_ns = clock_monotonic_ns();
	unsigned shift = module->found < FOUND_SHIFT_MAX ? module->found : FOUND_SHIFT_MAX;

	if ((module->debug_asked_ns && now_ns - module->debug_asked_ns < s->debug_again_ns) ||
	    (module->found && now_ns - module->found_ns < s->debug_again_ns << shift))
		return false;
	module->asked_package = module->missing->kind == DEBUG_SPLIT && !module->missing->has_package;
	if (!ask_for_missing(s, module))
		return false;
	module->debug_asked_ns = now_ns;
	module->asked_missing = true;
	return true;
}

/* Its file was closed unread, since no stack of the collector's went through it. */
static bool want_file(struct symbolizer *s, struct name_module *module)
{
	const struct channel_head want = { .kind = CONTROL_NAMES_WANT, .request = module->index_request };
	uint64_t now_ns = clock_monotonic_ns();

	if (s->collector_fd < 0 || !module->index_request ||
	    (module->debug_asked_ns && now_ns - module->debug_asked_ns < s->debug_again_ns) ||
	    channel_send(s->collector_fd, &want, sizeof(want), NULL, 0) < 0)
		return false;
	module->debug_asked_ns = now_ns;
	return true;
}

/* It was damaged, or another version's, or has made room for others. Its file was closed when it
 * was built: as of those whose names come later it is wanted again. What cannot be kept is not
 * built all the time. */
void symbolizer_miss_index(struct symbolizer *s, struct name_module *module)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (!module || !module->origins || module->state != NAME_MODULE_IDLE ||
	    (module->lost_ns && now_ns - module->lost_ns < SYMBOLIZER_LOST_AGAIN_NS))
		return;
	module->lost_ns = now_ns;
	module->origins = 0;
	cleanup_free_fn(&module->missing);
	module->missing = NULL;
	module->debug_asked_ns = 0;
	module->useless_debug = 0;
	module->fetched_in_vain = false;
	module->later = module->index_request != 0;
}

void symbolizer_has_file(struct symbolizer *s, struct name_module *module)
{
	if (!module->later)
		return;
	module->later = false;
	module->debug_asked_ns = 0;
	if (module->state == NAME_MODULE_WAITING)
		name_modules_set_state(&s->modules, module, NAME_MODULE_IDLE);
}

void symbolizer_look_for_debug(struct symbolizer *s, struct name_module *module)
{
	if (!module || symbolizer_is_complete(module->origins))
		return;
	module->looked_at = true;
	if (module->state != NAME_MODULE_IDLE)
		return;
	if (module->later) {
		if (want_file(s, module))
			name_modules_set_state(&s->modules, module, NAME_MODULE_WAITING);
		return;
	}
	if (module->missing ? want_missing(s, module) : symbolizer_want_debug(s, module))
		name_modules_set_state(&s->modules, module, NAME_MODULE_WAITING);
	else if (!module->missing)
		fetch(s, module);
}

struct name_module *symbolizer_recall(struct symbolizer *s, uint64_t key)
{
	struct module_facts facts = { .skeleton = NULL };
	struct name_module *module;
	uint8_t origins = 0;

	if (module_facts_recall(s->cache, key, &facts) < 0)
		return NULL;
	if (name_modules_add(&s->modules, key, &module) < 0) {
		free(facts.skeleton);
		return NULL;
	}
	(void)module_cache_has(s->cache, key, MODULE_CACHE_SYMBOLS, &origins);
	module->origins = origins;
	module->identity = facts.identity;
	module->size_bytes = facts.size_bytes;
	module->voucher = facts.voucher;
	module->skeleton = facts.skeleton;
	module->skeleton_len = facts.skeleton_len;
	return module;
}

/* ---- a builder's questions ------------------------------------------------------------------- */

/* A package may be missing where the files are. */
static void note_missing(struct builder *b)
{
	const struct control_debug_want *want = &b->want;
	size_t len = strnlen(want->name, sizeof(want->name));

	if (b->missing || (want->kind != DEBUG_ALT && want->kind != DEBUG_SPLIT) ||
	    len == sizeof(want->name) || want->build_id_len > sizeof(b->missing->build_id))
		return;
	b->missing = calloc(1, sizeof(*b->missing) + len + 1);
	if (!b->missing)
		return;
	b->missing->kind = want->kind;
	b->missing->has_package = b->has_package;
	b->missing->build_id_len = want->build_id_len;
	memcpy(b->missing->build_id, want->build_id, sizeof(b->missing->build_id));
	memcpy(b->missing->name, want->name, len);
}

static void answer_builder(struct builder *b, int status, int fd)
{
	struct control_debug answer = { .head = { .kind = CONTROL_DEBUG }, .status = status };

	b->asked_ns = 0;
	if (status)
		note_missing(b);
	else
		b->has_package |= b->want.kind == DEBUG_PACKAGE;
	if (b->child.files_fd >= 0 &&
	    channel_send(b->child.files_fd, &answer, sizeof(answer), &fd, fd >= 0) < 0)
		log_debug("the builder of names is gone"); /* noticed by its pidfd */
}

/* The module that the builder is at. Of several none: their files name no others. */
static const struct name_module *module_of_builder(const struct symbolizer *s,
						   const struct builder *b)
{
	return b->child.count == 1 ? name_modules_find(&s->modules, b->child.keys[0]) : NULL;
}

/* Its words are not trusted more than the files it reads: only the kinds it may ask for are passed
 * on, about the module that it builds. */
static int pass_on(struct symbolizer *s, struct builder *b, const struct control_debug_want *asked)
{
	const struct name_module *module = module_of_builder(s, b);
	struct control_debug_want *want = &b->want;

	*want = *asked;
	if (want->kind != DEBUG_ALT && want->kind != DEBUG_PACKAGE && want->kind != DEBUG_SPLIT)
		return -EINVAL;
	if (s->collector_fd < 0 || !module || b->silent >= SILENT_MAX)
		return -ENOENT;
	if (want->kind == DEBUG_PACKAGE) {
		want->build_id_len = module->identity.build_id_len;
		memcpy(want->build_id, module->identity.build_id, sizeof(want->build_id));
	}
	b->request = BUILDER_REQUEST | ++s->question_count;
	b->is_fetched = false;
	want->head.request = b->request;
	want->index_request = module->index_request;
	return channel_send(s->collector_fd, want, sizeof(*want), NULL, 0);
}

void symbolizer_on_question(struct symbolizer *s, struct builder *b)
{
	const struct control_debug_want *want = (const void *)s->message.data;
	int rc = channel_receive(b->child.files_fd, &s->message);

	if (rc == -EPIPE) {
		(void)close(b->child.files_fd);
		b->child.files_fd = -1;
	}
	if (rc != 1)
		return;
	if (s->message.len != sizeof(*want) || want->head.kind != CONTROL_DEBUG_WANT)
		rc = -EPROTO;
	else
		rc = pass_on(s, b, want);
	channel_message_close(&s->message);
	if (rc < 0)
		answer_builder(b, -ENOENT, -1);
	else
		b->asked_ns = clock_monotonic_ns();
}

void symbolizer_answer_late_questions(struct symbolizer *s, uint64_t now_ns)
{
	for (size_t i = 0; i < SYMBOLIZER_BUILDERS; i++) {
		struct builder *b = &s->builders[i];
		uint64_t limit_ns = b->is_fetched ? SYMBOLIZER_FETCH_WAIT_NS : SYMBOLIZER_DEBUG_WAIT_NS;

		if (!b->asked_ns || ((b->is_fetched ? s->fetch_fd : s->collector_fd) >= 0 &&
				     now_ns - b->asked_ns < limit_ns))
			continue;
		b->silent++;
		answer_builder(b, -ENOENT, -1);
	}
}

/* The host has no such file. What dwz moved away is fetched if the module's debug file might be,
 * too. */
static bool fetch_instead(struct symbolizer *s, struct builder *b)
{
	const struct name_module *module = module_of_builder(s, b);

	if (b->want.kind != DEBUG_ALT || s->fetch_fd < 0 || !module || !module->looked_at ||
	    channel_send(s->fetch_fd, &b->want, sizeof(b->want), NULL, 0) < 0)
		return false;
	b->is_fetched = true;
	b->asked_ns = clock_monotonic_ns();
	return true;
}

static void on_answer(struct symbolizer *s, const struct control_debug *answer, bool is_fetched)
{
	const struct name_module *module;
	struct builder *b = NULL;
	int status = answer->status;

	for (size_t i = 0; i < SYMBOLIZER_BUILDERS && !b; i++)
		if (s->builders[i].asked_ns && s->builders[i].request == answer->head.request)
			b = &s->builders[i];
	if (!b || b->is_fetched != is_fetched)
		return;
	b->silent = 0;
	module = module_of_builder(s, b);
	if (!is_fetched && (!module || !may_speak_for(answer->voucher, module)))
		status = -EACCES;
	if (status && !is_fetched && fetch_instead(s, b))
		return;
	answer_builder(b, status ? -ENOENT : 0, s->message.fds[0]);
}

static bool is_whole(const struct symbolizer *s, const struct control_debug *answer)
{
	return s->message.len == sizeof(*answer) && answer->head.request &&
	       (answer->status || s->message.fd_count == 1);
}

void symbolizer_on_debug(struct symbolizer *s)
{
	const struct control_debug *answer = (const void *)s->message.data;

	if (!is_whole(s, answer))
		return;
	if (answer->head.request & BUILDER_REQUEST)
		on_answer(s, answer, false);
	else
		on_module_debug(s, answer);
}

void symbolizer_on_fetched(struct symbolizer *s)
{
	const struct control_debug *answer = (const void *)s->message.data;

	if (!is_whole(s, answer))
		return;
	if (answer->head.request & BUILDER_REQUEST)
		on_answer(s, answer, true);
	else
		on_module_fetched(s, answer);
}
