// SPDX-License-Identifier: Apache-2.0
/* CONTROL_NAMES: answered in the order of the requests, each in as many messages as it takes. A
 * request for a module whose names are just being built waits a little, and only once in a while:
 * nobody gets to see a page sooner by our waiting for every module in turn. */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "symbolize/jit_name.h"
#include "symbolize/sandbox.h"
#include "symbolize/symbolizer_internal.h"

#define NAME_BYTES_MAX	     8192 /* of one function or file name */
#define NAME_BYTES_WHEN_FULL 400  /* when a chain of inlined calls alone would not fit a message */
#define FRAME_HEAD_BYTES     8	  /* line, start line */

_Static_assert(sizeof(struct control_named) + 2 +
			       SYMBOL_INLINE_MAX * (FRAME_HEAD_BYTES + 2 * (2 + NAME_BYTES_WHEN_FULL) + 2) <=
		       CHANNEL_MESSAGE_MAX,
	       "one offset always fits");

struct payload {
	uint8_t *at;
	uint8_t *end;
};

static struct names_request *front(struct symbolizer *s)
{
	return &s->names[s->names_at];
}

static void pop(struct symbolizer *s)
{
	free(front(s)->offsets);
	front(s)->offsets = NULL;
	s->names_at = (s->names_at + 1) % SYMBOLIZER_NAMES_MAX;
	s->names_count--;
}

void symbolizer_drop_names(struct symbolizer *s)
{
	while (s->names_count)
		pop(s);
}

void symbolizer_on_names(struct symbolizer *s)
{
	const struct control_names *names = (const void *)s->message.data;
	size_t head = offsetof(struct control_names, offsets);
	struct names_request *r = &s->names[(s->names_at + s->names_count) % SYMBOLIZER_NAMES_MAX];

	if (s->message.len < head || names->count > CONTROL_NAMES_MAX ||
	    s->message.len != head + names->count * sizeof(uint64_t) ||
	    s->names_count == SYMBOLIZER_NAMES_MAX)
		return;
	*r = (struct names_request){ .key = names->key,
				     .arrived_ns = clock_monotonic_ns(),
				     .request = names->head.request,
				     .count = names->count };
	r->offsets = malloc(names->count * sizeof(uint64_t) + 1);
	if (!r->offsets)
		return;
	memcpy(r->offsets, names->offsets, names->count * sizeof(uint64_t));
	s->names_count++;
}

/* ---- encoding -------------------------------------------------------------------------------- */

static bool put(struct payload *p, const void *data, size_t len)
{
	if ((size_t)(p->end - p->at) < len)
		return false;
	memcpy(p->at, data, len);
	p->at += len;
	return true;
}

/* {u16 length, bytes}, cut at @max between UTF-8 characters. */
static bool put_text(struct payload *p, const char *text, size_t max)
{
	size_t len = strlen(text);
	uint16_t stored;

	if (len > max) {
		len = max;
		while (len && (text[len] & 0xc0) == 0x80)
			len--;
	}
	stored = (uint16_t)len;
	return put(p, &stored, sizeof(stored)) && put(p, text, len);
}

/* A part of a symbol is the name of nothing, and where room is short the shown name is what counts.
 */
static const char *symbol_of(const struct symbol_frame *frame, size_t name_max)
{
	return frame->symbol && name_max == NAME_BYTES_MAX && strlen(frame->symbol) <= name_max
		       ? frame->symbol
		       : "";
}

/* Flags share a word with a frame's first line, since no source has so many lines. */
static uint32_t start_line_of(const struct symbol_frame *frame, bool changes)
{
	return (frame->start_line & ~(NAMED_WRAPPER | NAMED_CHANGES)) |
	       (frame->is_wrapper ? NAMED_WRAPPER : 0) | (changes ? NAMED_CHANGES : 0);
}

static bool put_frames(struct payload *p, const struct symbol_frame *frames, uint16_t count,
		       bool changes, size_t name_max)
{
	if (!put(p, &count, sizeof(count)))
		return false;
	for (uint16_t i = 0; i < count; i++) {
		uint32_t start_line = start_line_of(&frames[i], changes);

		if (!put(p, &frames[i].line, 4) || !put(p, &start_line, 4) ||
		    !put_text(p, frames[i].function, name_max) || !put_text(p, frames[i].file, name_max) ||
		    !put_text(p, symbol_of(&frames[i], name_max), name_max))
			return false;
	}
	return true;
}

/* The source of a module's names: at most one of these. */
struct names_origin {
	const struct symbol_index *index;
	struct jit_process *jit;
};

/* Frames of JIT code point into @name. */
static int find_frames(const struct names_origin *origin, uint64_t offset, struct jit_name *name,
		       struct symbol_frame ret[SYMBOL_INLINE_MAX])
{
	const char *text = origin->jit ? jit_process_name(origin->jit, offset) : NULL;

	if (text) {
		jit_name_parse(text, name);
		ret[0] = (struct symbol_frame){ .function = name->function,
						.file = name->file,
						.start_line = name->start_line };
		return 1;
	}
	return origin->index ? symbol_index_find(origin->index, offset, ret) : 0;
}

/* The kernel lists what it has loaded as "name [module]". */
static bool is_loaded_later(const struct names_origin *origin, const struct symbol_frame *frame)
{
	size_t len = strlen(frame->function);

	return origin->index && symbol_index_origins(origin->index) & SYMBOL_ORIGIN_KALLSYMS && len &&
	       frame->function[len - 1] == ']';
}

/* Names of one offset; all or nothing. False: the message is full. */
static bool put_offset(struct payload *p, const struct names_origin *origin, uint64_t offset,
		       bool first)
{
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	struct payload before = *p;
	struct jit_name name;
	int count = find_frames(origin, offset, &name, frames);
	bool changes = count && is_loaded_later(origin, &frames[0]);

	if (put_frames(p, frames, (uint16_t)count, changes, NAME_BYTES_MAX))
		return true;
	*p = before;
	if (first && put_frames(p, frames, (uint16_t)count, changes, NAME_BYTES_WHEN_FULL))
		return true;
	*p = before;
	return false;
}

/* @module may be NULL. */
static uint32_t state_of(const struct names_origin *origin, const struct name_module *module)
{
	if (origin->jit)
		return NAMES_CHANGE;
	if (origin->index && (symbol_index_origins(origin->index) & SYMBOL_ORIGIN_KALLSYMS ||
			      symbolizer_is_complete(symbol_index_origins(origin->index))))
		return NAMES_FINAL;
	return module && module->state != NAME_MODULE_IDLE ? NAMES_COMING : NAMES_MAY_IMPROVE;
}

/* Sends the next message of the front request. 0 = sent, -EAGAIN the server's queue is full,
 * -EPIPE. */
static int send_some(struct symbolizer *s, const struct names_origin *origin, uint32_t state,
		     int status)
{
	struct names_request *r = front(s);
	struct control_named *named = (void *)s->answer;
	struct payload p = { s->answer + sizeof(*named), s->answer + sizeof(s->answer) };
	uint32_t count = 0;
	int rc;

	while (!status && r->answered + count < r->count &&
	       put_offset(&p, origin, r->offsets[r->answered + count], !count))
		count++;
	*named = (struct control_named){ .head = { .kind = CONTROL_NAMED, .request = r->request },
					 .status = status,
					 .first = r->answered,
					 .count = count,
					 .more = !status && r->answered + count < r->count,
					 .state = state };
	rc = channel_send(s->server_fd, s->answer, (size_t)(p.at - s->answer), NULL, 0);
	if (rc < 0)
		return rc;
	r->answered += count;
	if (!named->more)
		pop(s);
	return 0;
}

/* ---- serving --------------------------------------------------------------------------------- */

/* Should the front request wait for its module's names? */
static bool must_wait(struct symbolizer *s, struct name_module *module)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (!module || module->state == NAME_MODULE_IDLE || now_ns < s->no_wait_until_ns)
		return false;
	module->urgent = true;
	if (now_ns - front(s)->arrived_ns < SYMBOLIZER_NAMES_WAIT_NS)
		return true;
	s->no_wait_until_ns = now_ns + 2 * NS_PER_S;
	return false;
}

static struct jit_process *find_jit(struct symbolizer *s, uint64_t key)
{
	struct jit_process *process;

	sandbox_guard_begin(SYMBOLIZER_INDEX_WALL_S);
	process = jit_maps_find(&s->jit, key);
	sandbox_guard_end();
	return process;
}

void symbolizer_serve_names(struct symbolizer *s)
{
	s->server_full = false;
	while (s->names_count && s->server_fd >= 0) {
		uint64_t key = front(s)->key;
		struct names_origin origin = { .jit = find_jit(s, key) };
		struct name_module *module = name_modules_find(&s->modules, key);
		uint32_t state;
		int rc;

		symbolizer_read_kernel(s, key, front(s)->offsets + front(s)->answered,
				       front(s)->count - front(s)->answered);
		if (!origin.jit)
			origin.index = symbol_store_get(s->store, key);
		if (!origin.jit && !module)
			module = symbolizer_recall(s, key);
		if (!origin.jit && !origin.index)
			symbolizer_miss_index(s, module);
		symbolizer_look_for_debug(s, module);
		state = state_of(&origin, module);
		if (!origin.jit && state != NAMES_FINAL && must_wait(s, module))
			return;
		rc = send_some(s, &origin, state, origin.jit || origin.index || module ? 0 : -ENOENT);
		if (rc == -EAGAIN) {
			s->server_full = true;
			return;
		}
		if (rc < 0)
			symbolizer_lose_server(s);
	}
}
