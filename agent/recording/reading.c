// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/reading.h"

#include <errno.h>
#include <string.h>

#include "agent/wire/module_key.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"

void reading_clear(struct reading *reading)
{
	enum profile_type type = reading->type;

	for (size_t i = 0; i < reading->modules.count; i++)
		free(reading->modules.data[i].path);
	reading_modules_vec_deinit(&reading->modules);
	reading_stacks_vec_deinit(&reading->stacks);
	reading_frames_vec_deinit(&reading->frames);
	reading_frames_vec_deinit(&reading->wrappers);
	u64map_deinit(&reading->wrapper_at);
	reading_texts_vec_deinit(&reading->texts);
	buf_deinit(&reading->text);
	reading_scripts_vec_deinit(&reading->scripts);
	reading_label_sets_vec_deinit(&reading->label_sets);
	reading_pairs_vec_deinit(&reading->label_pairs);
	reading_items_vec_deinit(&reading->items);
	*reading = (struct reading){ .type = type };
}

/* ---- dictionaries ---------------------------------------------------------------------------- */

static int take_module(struct reading *reading, const struct read_record *record)
{
	const struct read_module *from = record->module;
	struct reading_module module = {
		.kind = from->kind == READ_MODULE_VDSO	   ? FEED_MODULE_VDSO
			: from->kind == READ_MODULE_SCRIPT ? FEED_MODULE_SCRIPT
							   : FEED_MODULE_ELF
	};
	int rc;

	module.file = module_file_number(from->dev_major, from->dev_minor, from->inode);

	if (from->id != reading->modules.count + 1 || from->build_id_len > READ_BUILD_ID_MAX)
		return -EPROTO;
	if (from->id > READING_MODULES_MAX)
		return -E2BIG;
	module.build_id_len = from->build_id_len;
	memcpy(module.build_id, from->build_id, from->build_id_len);
	if (module.build_id_len)
		module.key = module_key_of_build_id(module.build_id, module.build_id_len);
	else if (from->go_id_len >= MODULE_KEY_GO_ID_MIN)
		module.key = module_key_of_go_id((const uint8_t *)record->go_id, from->go_id_len);
	module.path = strndup(record->text, from->path_len);
	rc = module.path ? reading_modules_vec_push(&reading->modules, module) : -ENOMEM;
	if (rc < 0)
		free(module.path);
	return rc;
}

static int take_string(struct reading *reading, const struct read_record *record)
{
	const struct reading_text text = { reading->text.len, record->string->len };
	const char *bytes = record->text;

	if (record->string->id != reading->texts.count + 1)
		return -EPROTO;
	if (reading->text.len + text.len > READING_TEXT_BYTES_MAX)
		return -E2BIG;
	buf_add(&reading->text, bytes, text.len);
	/* Labels are the program's own bytes; a NUL would end them early. */
	for (uint32_t i = 0; i < text.len && !reading->text.error; i++)
		if (!reading->text.data[text.first + i])
			reading->text.data[text.first + i] = '?';
	return reading->text.error ? reading->text.error
				   : reading_texts_vec_push(&reading->texts, text);
}

static int take_script(struct reading *reading, const struct read_script *from)
{
	const size_t texts = reading->texts.count;
	const struct reading_script script = { from->function, from->file, from->line,
					       from->first_line };

	if (from->id != reading->scripts.count + 1 || !from->function || from->function > texts ||
	    from->file > texts)
		return -EPROTO;
	if (from->id > READING_SCRIPTS_MAX)
		return -E2BIG;
	return reading_scripts_vec_push(&reading->scripts, script);
}

static int check_frame(struct reading *reading, uint64_t frame)
{
	uint32_t module = prof_frame_module_id(frame);

	if (prof_frame_kind(frame) != PROF_FRAME_MODULE)
		return 0;
	if (module < 1 || module > reading->modules.count)
		return -EPROTO;
	if (reading->modules.data[module - 1].kind == FEED_MODULE_SCRIPT &&
	    prof_frame_offset(frame) > reading->scripts.count)
		return -EPROTO;
	reading->modules.data[module - 1].used = true;
	return 0;
}

static int add_wrapper(struct reading *reading, uint64_t frame)
{
	int rc;

	if (u64map_get(&reading->wrapper_at, frame, &(uint64_t){ 0 }))
		return 0;
	rc = u64map_put(&reading->wrapper_at, frame, 1);
	return rc < 0 ? rc : reading_frames_vec_push(&reading->wrappers, frame);
}

static int take_stack(struct reading *reading, const struct read_record *record)
{
	const struct read_stack *from = record->stack;
	struct reading_stack stack = { reading->frames.count, from->frame_count, from->outcome };
	int rc = 0;

	if (from->id != reading->stacks.count + 1 || from->frame_count > FEED_FRAMES_MAX)
		return -EPROTO;
	if (stack.first + stack.count > READING_FRAMES_MAX)
		return -E2BIG;
	for (uint16_t i = 0; rc == 0 && i < stack.count; i++) {
		rc = check_frame(reading, record->frames[i]);
		if (rc == 0 && (record->frame_flags[i] & READ_FRAME_WRAPPER))
			rc = add_wrapper(reading, record->frames[i]);
		if (rc == 0)
			rc = reading_frames_vec_push(&reading->frames, record->frames[i]);
	}
	return rc < 0 ? rc : reading_stacks_vec_push(&reading->stacks, stack);
}

static int take_labels(struct reading *reading, const struct read_record *record)
{
	const struct read_labels *from = record->labels;
	struct reading_labels labels = { reading->label_pairs.count, from->count };
	int rc = 0;

	if (from->id != reading->label_sets.count + 1 || from->count > READ_LABELS_MAX)
		return -EPROTO;
	for (uint32_t i = 0; rc == 0 && i < from->count; i++) {
		struct reading_pair pair = { record->pairs[2 * i], record->pairs[2 * i + 1] };

		if (pair.name > reading->texts.count || pair.value > reading->texts.count)
			return -EPROTO;
		rc = reading_pairs_vec_push(&reading->label_pairs, pair);
	}
	return rc < 0 ? rc : reading_label_sets_vec_push(&reading->label_sets, labels);
}

/* ---- items ----------------------------------------------------------------------------------- */

static int add_item(struct reading *reading, const struct reading_item *item)
{
	const size_t texts = reading->texts.count;

	if (item->stack > reading->stacks.count || item->labels > reading->label_sets.count ||
	    item->state > texts || item->wait > texts || item->name > texts ||
	    item->kernel > texts || check_frame(reading, item->created_frame) < 0 ||
	    check_frame(reading, item->start_frame) < 0)
		return -EPROTO;
	if (reading->items.count >= READING_ITEMS_MAX)
		return -E2BIG;
	return reading_items_vec_push(&reading->items, *item);
}

static int take_goroutine(struct reading *reading, const struct read_goroutine *g)
{
	const struct reading_item item = {
		/* Go's own dump says of the main goroutine nothing either. */
		.created_frame = g->goid == 1 ? 0 : g->created_frame,
		.start_frame = g->start_frame,
		.goid = g->goid,
		.wait_ns = g->wait_ns,
		.object = g->wait_object,
		.values = { 1 },
		.stack = g->stack,
		.state = g->state,
		.wait = g->reason,
		.labels = g->labels,
		.tid = g->tid,
		.flags = g->flags,
	};

	return add_item(reading, &item);
}

static int take_thread(struct reading *reading, const struct read_thread *t)
{
	const struct reading_item item = {
		.values = { 1 },
		.stack = t->stack,
		.state = t->state,
		.wait = t->wait,
		.name = t->name,
		.kernel = t->kernel_stack,
		.tid = t->tid,
	};

	return add_item(reading, &item);
}

static int take_bucket(struct reading *reading, const struct read_bucket *b)
{
	struct reading_item item = { .bucket = b->bucket, .stack = b->stack };
	unsigned first = reading->type == PROFILE_MEMORY ? 2 : reading->type == PROFILE_ALLOC ? 4 : 0;

	item.values[0] = b->values[first];
	item.values[1] = b->values[first + 1];
	if (item.values[0] < 0 || item.values[1] < 0)
		return -EPROTO;
	if (!item.values[0] && !item.values[1])
		return 0;
	return add_item(reading, &item);
}

static int take_note(struct reading *reading, const struct read_note *note)
{
	if (!note->text || note->text > reading->texts.count)
		return -EPROTO;
	if (reading->note_count < READING_NOTES_MAX)
		reading->notes[reading->note_count++] = note->text;
	return 0;
}

int reading_take(void *ctx, const struct read_record *record)
{
	struct reading *reading = ctx;

	switch (record->kind) {
	case READ_MODULE:
		return take_module(reading, record);
	case READ_STRING:
		return take_string(reading, record);
	case READ_STACK:
		return take_stack(reading, record);
	case READ_SCRIPT:
		return take_script(reading, record->script);
	case READ_LABELS:
		return take_labels(reading, record);
	case READ_GOROUTINE:
		return take_goroutine(reading, record->goroutine);
	case READ_THREAD:
		return take_thread(reading, record->thread);
	case READ_BUCKET:
		return take_bucket(reading, record->bucket);
	case READ_PROFILE:
		reading->profile = *record->profile;
		return 0;
	case READ_NOTE:
		return take_note(reading, record->note);
	case READ_END:
		reading->end = *record->end;
		return 0;
	}
	return 0;
}
