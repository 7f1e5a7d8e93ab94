// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/reading_profile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/u64map.h"
#include "agent/profile/goroutine/goroutine_analysis.h"
#include "agent/profile/lock_site.h"
#include "agent/recording/lock_names.h"
#include "agent/recording/reading_chunk.h"
#include "bpf/profiler.h"

#define OWN_LABELS 5

int reading_keep(struct reading_bytes_vec *chunks, const void *data, size_t len, uint32_t seq_end)
{
	struct reading_bytes bytes = { .len = len };
	uint32_t seq;
	int rc;

	if (len < sizeof(seq))
		return -EPROTO;
	memcpy(&seq, data, sizeof(seq));
	if (seq >= seq_end)
		return 1;
	bytes.data = malloc(len);
	if (!bytes.data)
		return -ENOMEM;
	memcpy(bytes.data, data, len);
	rc = reading_bytes_vec_push(chunks, bytes);
	if (rc < 0)
		free(bytes.data);
	return rc;
}

void reading_forget(struct reading_bytes_vec *chunks)
{
	for (size_t i = 0; i < chunks->count; i++)
		free(chunks->data[i].data);
	reading_bytes_vec_deinit(chunks);
}

/* ---- wrappers -------------------------------------------------------------------------------- */

struct build {
	enum profile_type type;
	bool bare; /* no attributes */
	const struct reading_lender *lender;
	const struct name_source *names; /* may be NULL */
	struct profile_builder *builder;
	struct stack_resolver *resolver;
	struct u64map wrapper_frames; /* frame word -> 1 */
	struct u64map nodes;	      /* stack id -> node */
	struct u64map creators;	      /* stack id -> string id */
	struct lock_names locks;
	uint32_t round;
	int rc;
};

/* The frame's module key and the place that its names are asked at. */
static bool place_of(const struct build *b, uint64_t frame, uint64_t *key, uint64_t *offset)
{
	struct stack_module module;

	if (prof_frame_kind(frame) != PROF_FRAME_MODULE ||
	    !b->lender->modules.find(b->lender->modules.ctx, prof_frame_module_id(frame), &module))
		return false;
	*key = module.key;
	*offset = prof_frame_offset(frame);
	if ((frame & PROF_FRAME_RETURN) && *offset)
		--*offset;
	return true;
}

static int on_wrapper(void *ctx, uint64_t frame)
{
	return u64map_put(&((struct build *)ctx)->wrapper_frames, frame, 1);
}

/* A wrapper into which nothing was inlined leaves nothing. */
static bool is_hidden(struct build *b, uint64_t frame)
{
	struct name_frame names[NAMES_INLINE_MAX];
	uint64_t key, offset;

	return b->names && u64map_get(&b->wrapper_frames, frame, &(uint64_t){ 0 }) &&
	       place_of(b, frame, &key, &offset) &&
	       b->names->find(b->names->ctx, key, offset, names) == 1 && names[0].is_wrapper;
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static uint32_t text_id(struct build *b, const char *text)
{
	return profile_builder_string(b->builder, text, strlen(text));
}

static uint32_t child(struct build *b, uint32_t parent, struct profile_function function,
		      uint8_t kind)
{
	struct profile_frame frame = { .kind = kind };

	frame.function = profile_builder_function(b->builder, &function);
	return profile_builder_node(b->builder, parent, profile_builder_frame(b->builder, &frame));
}

static uint32_t marker(struct build *b, uint32_t parent, const char *text)
{
	const struct profile_function function = { .name = text_id(b, text) };

	return child(b, parent, function, PROFILE_FRAME_MARKER);
}

/* The node of a stack; the root if it is not known. */
static int stack_node(struct build *b, uint64_t id, uint32_t *ret)
{
	uint64_t frames[FEED_FRAMES_MAX], known;
	struct stack_frames stack, none = { 0 };
	size_t count = 0;
	int rc;

	*ret = 0;
	if (!id || !b->lender->stack(b->lender->ctx, id, &stack))
		return 0;
	if (u64map_get(&b->nodes, id, &known)) {
		*ret = (uint32_t)known;
		return 0;
	}
	for (size_t i = 0; i < stack.count && count < ARRAY_SIZE(frames); i++)
		if (!is_hidden(b, stack.frames[i]))
			frames[count++] = stack.frames[i];
	rc = stack_resolver_node(b->resolver, (struct stack_frames){ frames, count }, none, ret);
	return rc < 0 ? rc : u64map_put(&b->nodes, id, *ret);
}

/* Lines "function+0x…", innermost first: below the user frames, outermost first. */
static uint32_t kernel_node(struct build *b, uint32_t node, struct chunk_text lines)
{
	const uint32_t package = text_id(b, "kernel");

	while (lines.len) {
		size_t from = lines.len, len;

		while (from && lines.text[from - 1] != '\n')
			from--;
		for (len = 0; from + len < lines.len && lines.text[from + len] != '+';)
			len++;
		if (len)
			node = child(b, node,
				     (struct profile_function){
					     .name = profile_builder_string(
						     b->builder, lines.text + from, len),
					     .package = package },
				     PROFILE_FRAME_KERNEL);
		lines.len = from ? from - 1 : 0;
	}
	return node;
}

static bool text_is(struct chunk_text text, const char *word)
{
	return text.len == strlen(word) && memcmp(text.text, word, text.len) == 0;
}

/* Why it has no stack. Threads that run say so by their state only. */
static const char *no_stack(const struct chunk_item *item)
{
	if (item->flags & READ_GOROUTINE_RUNNING || text_is(item->state, "running"))
		return "[running]";
	return text_is(item->state, "runnable") ? "[runnable]" : "[no stack]";
}

/* The stack of a thread that runs lacks what can be read only while it does not: where it was seen
 * on a CPU just before is whole. */
static uint64_t stack_of(const struct build *b, uint32_t process, const struct chunk_item *item)
{
	bool runs = item->tid && (text_is(item->state, "running") || text_is(item->state, "runnable"));
	uint64_t seen = runs ? b->lender->running(b->lender->ctx, process, item->tid) : 0;

	return seen ? seen : item->stack;
}

static int item_node(struct build *b, uint32_t process, const struct chunk_item *item,
		     uint32_t *ret)
{
	uint64_t stack = stack_of(b, process, item);
	bool has_stack = stack != 0;
	int rc = stack_node(b, has_stack ? stack : item->start, ret);

	if (rc < 0)
		return rc;
	if (item->kernel.len)
		*ret = kernel_node(b, *ret, item->kernel);
	else if (!has_stack || !*ret)
		*ret = marker(b, *ret, no_stack(item));
	return 0;
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* Name of the function that holds the go statement, as Go's own dump shows it. */
static uint32_t creator(struct build *b, uint64_t id)
{
	struct name_frame names[NAMES_INLINE_MAX];
	struct stack_frames stack;
	uint64_t key, offset, known;
	const char *text = "";
	uint32_t made;
	int count = 0;

	if (!id || !b->names)
		return 0;
	if (u64map_get(&b->creators, id, &known))
		return (uint32_t)known;
	if (b->lender->stack(b->lender->ctx, id, &stack) && stack.count == 1 &&
	    place_of(b, stack.frames[0], &key, &offset))
		count = b->names->find(b->names->ctx, key, offset, names);
	if (count > 0 && goroutine_frame_is_shown(names[count - 1].function))
		text = names[count - 1].function;
	made = text_id(b, text);
	if (u64map_put(&b->creators, id, made) < 0)
		b->rc = -ENOMEM;
	return made;
}

static void add_number(struct build *b, struct profile_label *labels, uint32_t *count,
		       const char *name, uint64_t value)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, value);
	labels[(*count)++] = (struct profile_label){ text_id(b, name), text_id(b, text) };
}

static uint32_t text_of(struct build *b, struct chunk_text text)
{
	return profile_builder_string(b->builder, text.text, text.len);
}

static void add_text(struct build *b, struct profile_label *labels, uint32_t *count,
		     const char *name, const char *value)
{
	labels[(*count)++] = (struct profile_label){ text_id(b, name), text_id(b, value) };
}

/* Adds the object that a goroutine waits for: "channel 0xc000012345". */
static void add_object(struct build *b, struct profile_label *labels, uint32_t *count,
		       const struct chunk_item *item)
{
	const char *kind = item->flags & READ_GOROUTINE_ON_CHANNEL ? "channel"
			   : item->flags & READ_GOROUTINE_ON_LOCK  ? "sync.Mutex"
								   : "semaphore";
	char text[48];

	(void)snprintf(text, sizeof(text), "%s 0x%" PRIx64, kind, item->object);
	add_text(b, labels, count, GOROUTINE_LABEL_OBJECT, text);
}

static void goroutine_attrs(struct build *b, const struct chunk_item *item,
			    struct profile_attrs *attrs, struct profile_label *labels)
{
	attrs->extra = creator(b, item->created);
	if (item->goid)
		add_number(b, labels, &attrs->label_count, GOROUTINE_LABEL_ID, item->goid);
	if (item->wait_ns >= NS_PER_S)
		add_number(b, labels, &attrs->label_count, GOROUTINE_LABEL_WAIT,
			   item->wait_ns / NS_PER_S);
	if (item->flags & READ_GOROUTINE_SYSTEM)
		add_text(b, labels, &attrs->label_count, GOROUTINE_LABEL_SYSTEM, "true");
	if (item->flags & READ_GOROUTINE_LEAKED)
		add_text(b, labels, &attrs->label_count, GOROUTINE_LABEL_LEAKED, "true");
	if (item->object)
		add_object(b, labels, &attrs->label_count, item);
}

static uint32_t item_attrs(struct build *b, uint32_t process, const struct chunk_item *item)
{
	struct profile_label labels[OWN_LABELS + READ_LABELS_MAX];
	struct profile_attrs attrs = { .process = b->lender->process(b->lender->ctx, process),
				       .tid = item->tid };

	if (b->bare) {
		(void)creator(b, item->created);
		return profile_builder_attrs(
			b->builder, &(struct profile_attrs){ .process = attrs.process }, NULL);
	}
	attrs.wait = text_of(b, item->wait);
	attrs.thread_name = text_of(b, item->name);
	if (b->type == PROFILE_GOROUTINE) {
		attrs.state = text_of(b, item->state);
		goroutine_attrs(b, item, &attrs, labels);
	} else if (item->object) {
		attrs.extra = lock_names_lock(&b->locks, b->builder, "sync.Mutex", attrs.process,
					      item->object);
	}
	for (uint32_t i = 0; i < item->label_count; i++)
		labels[attrs.label_count++] =
			(struct profile_label){ text_of(b, item->labels[i].name),
						text_of(b, item->labels[i].value) };
	return profile_builder_attrs(b->builder, &attrs, labels);
}

/* ---- building -------------------------------------------------------------------------------- */

static int find_round(void *ctx, const struct chunk_reading *head)
{
	struct build *b = ctx;

	if (head->phase == READING_END && head->round > b->round)
		b->round = head->round;
	return 1;
}

static int take_head(void *ctx, const struct chunk_reading *head)
{
	const struct build *b = ctx;

	return head->phase != READING_STATES &&
	       (head->phase != READING_END || head->round != b->round);
}

/* Notes which function waits for a lock, before locks are named after these functions. */
static int measure_item(void *ctx, const struct chunk_reading *head, const struct chunk_item *item)
{
	struct build *b = ctx;
	uint32_t node;
	int rc;

	if (!item->object)
		return 0;
	rc = item_node(b, head->process, item, &node);
	return rc < 0 ? rc
		      : lock_names_wait(&b->locks, b->lender->process(b->lender->ctx, head->process),
					item->object, lock_site(b->builder, node), item->values[1]);
}

static int take_item(void *ctx, const struct chunk_reading *head, const struct chunk_item *item)
{
	struct build *b = ctx;
	int64_t values[PROFILE_VALUES_MAX] = { item->values[0], item->values[1] };
	uint32_t node;
	int rc = item_node(b, head->process, item, &node);

	if (rc < 0)
		return rc;
	profile_builder_sample(b->builder, node, item_attrs(b, head->process, item), values);
	return b->rc;
}

static int each_chunk(const struct reading_bytes_vec *chunks, const struct reading_sink *sink,
		      unsigned *damaged)
{
	for (size_t i = 0; i < chunks->count; i++) {
		int rc = reading_chunk_decode(chunks->data[i].data, chunks->data[i].len, sink);

		if (rc == -EPROTO && damaged)
			++*damaged;
		else if (rc < 0 && rc != -EPROTO)
			return rc;
	}
	return 0;
}

int reading_build(const struct reading_bytes_vec *chunks, enum profile_type type, bool bare,
		  const struct reading_lender *lender, const struct name_source *names,
		  struct profile_builder *builder, unsigned *damaged)
{
	struct build b = {
		.type = type, .bare = bare, .lender = lender, .names = names, .builder = builder
	};
	const struct reading_sink rounds = { .ctx = &b, .reading = find_round };
	const struct reading_sink all = {
		.ctx = &b, .reading = take_head, .wrapper = on_wrapper, .item = take_item
	};
	const struct reading_sink locks = {
		.ctx = &b, .reading = take_head, .wrapper = on_wrapper, .item = measure_item
	};
	int rc;

	b.resolver = stack_resolver_create(builder, &lender->modules, names, 0);
	rc = b.resolver ? each_chunk(chunks, &rounds, NULL) : -ENOMEM;
	if (rc == 0 && type != PROFILE_GOROUTINE)
		rc = each_chunk(chunks, &locks, NULL);
	if (rc == 0)
		rc = each_chunk(chunks, &all, damaged);
	stack_resolver_destroy(b.resolver);
	u64map_deinit(&b.wrapper_frames);
	u64map_deinit(&b.nodes);
	u64map_deinit(&b.creators);
	lock_names_deinit(&b.locks);
	return rc;
}
