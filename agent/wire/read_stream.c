// SPDX-License-Identifier: Apache-2.0
#include "agent/wire/read_stream.h"

#include <errno.h>
#include <string.h>

#define PAD(len) (((len) + 7) & ~(size_t)7)

/* Sizes of the fixed parts by kind. */
static const size_t fixed_sizes[] = {
	[READ_TARGET] = sizeof(struct read_target),
	[READ_MODULE] = sizeof(struct read_module),
	[READ_STRING] = sizeof(struct read_string),
	[READ_STACK] = sizeof(struct read_stack),
	[READ_LABELS] = sizeof(struct read_labels),
	[READ_GOROUTINE] = sizeof(struct read_goroutine),
	[READ_THREAD] = sizeof(struct read_thread),
	[READ_PROFILE] = sizeof(struct read_profile),
	[READ_BUCKET] = sizeof(struct read_bucket),
	[READ_END] = sizeof(struct read_end),
	[READ_HEAP] = sizeof(struct read_heap),
	[READ_SCRIPT] = sizeof(struct read_script),
	[READ_NOTE] = sizeof(struct read_note),
};

/* ---- writing --------------------------------------------------------------------------------- */

void read_writer_init(struct read_writer *w, int (*flush)(void *, const void *, size_t), void *ctx)
{
	w->flush = flush;
	w->ctx = ctx;
	w->len = 0;
	w->error = 0;
}

static void writer_flush(struct read_writer *w)
{
	int rc;

	if (w->error || !w->len)
		return;
	rc = w->flush(w->ctx, w->data, w->len);
	w->len = 0;
	if (rc < 0)
		w->error = rc;
}

void *read_writer_record(struct read_writer *w, enum read_kind kind, size_t len)
{
	size_t padded = PAD(len);
	struct read_head *head;

	if (!w->error && padded > sizeof(w->data))
		w->error = -EMSGSIZE;
	if (!w->error && padded > sizeof(w->data) - w->len)
		writer_flush(w);
	if (w->error)
		return NULL;
	head = (struct read_head *)(void *)(w->data + w->len);
	memset(head, 0, padded);
	head->kind = kind;
	head->len = (uint32_t)padded;
	w->len += padded;
	return head;
}

void read_writer_module(struct read_writer *w, const struct read_module *module, const char *path,
			const char *go_id)
{
	size_t path_len = strnlen(path, READ_STRING_MAX);
	uint16_t go_id_len = module->go_id_len <= READ_GO_ID_MAX ? module->go_id_len : 0;
	struct read_module *out =
		read_writer_record(w, READ_MODULE, sizeof(*out) + path_len + go_id_len);

	if (!out)
		return;
	memcpy((char *)out + sizeof(out->head), (const char *)module + sizeof(out->head),
	       sizeof(*out) - sizeof(out->head));
	out->path_len = (uint16_t)path_len;
	out->go_id_len = go_id_len;
	memcpy(out + 1, path, path_len);
	memcpy((char *)(out + 1) + path_len, go_id, go_id_len);
}

void read_writer_string(struct read_writer *w, uint32_t id, const char *text, size_t len)
{
	struct read_string *out;

	if (len > READ_STRING_MAX)
		len = READ_STRING_MAX;
	out = read_writer_record(w, READ_STRING, sizeof(*out) + len);
	if (!out)
		return;
	out->id = id;
	out->len = (uint32_t)len;
	memcpy(out + 1, text, len);
}

void read_writer_stack(struct read_writer *w, uint32_t id, uint8_t outcome, const uint64_t *frames,
		       const uint8_t *flags, unsigned count)
{
	struct read_stack *out;

	/* One more than READ_FRAMES_MAX: the marker of a cut stack. */
	if (count > READ_FRAMES_MAX + 1) {
		w->error = w->error ? w->error : -EMSGSIZE;
		return;
	}
	out = read_writer_record(w, READ_STACK, sizeof(*out) + count * (size_t)9);
	if (!out)
		return;
	out->id = id;
	out->outcome = outcome;
	out->frame_count = (uint16_t)count;
	memcpy(out + 1, frames, count * sizeof(*frames));
	memcpy((char *)(out + 1) + count * sizeof(*frames), flags, count);
}

void read_writer_labels(struct read_writer *w, uint32_t id, const uint32_t *pairs, unsigned count)
{
	struct read_labels *out;

	if (count > READ_LABELS_MAX)
		count = READ_LABELS_MAX;
	out = read_writer_record(w, READ_LABELS, sizeof(*out) + count * (size_t)8);
	if (!out)
		return;
	out->id = id;
	out->count = count;
	memcpy(out + 1, pairs, count * (size_t)8);
}

void read_writer_fixed(struct read_writer *w, enum read_kind kind, const void *record, size_t size)
{
	struct read_head *out = read_writer_record(w, kind, size);

	if (out)
		memcpy(out + 1, (const struct read_head *)record + 1, size - sizeof(*out));
}

int read_writer_finish(struct read_writer *w)
{
	writer_flush(w);
	return w->error;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Checks the variable part of @ret against @room, the bytes after the fixed part. */
static int record_tail(struct read_record *ret, const char *tail, size_t room)
{
	switch (ret->kind) {
	case READ_TARGET:
		return ret->target->version_len <= sizeof(ret->target->version) ? 0 : -EPROTO;
	case READ_MODULE:
		ret->text = tail;
		ret->go_id = tail + ret->module->path_len;
		return (size_t)ret->module->path_len + ret->module->go_id_len <= room &&
				       ret->module->build_id_len <= READ_BUILD_ID_MAX &&
				       ret->module->go_id_len <= READ_GO_ID_MAX
			       ? 0
			       : -EPROTO;
	case READ_STRING:
		ret->text = tail;
		return ret->string->len <= room && ret->string->len <= READ_STRING_MAX ? 0
										       : -EPROTO;
	case READ_STACK:
		ret->frames = (const uint64_t *)(const void *)tail;
		ret->frame_flags = (const uint8_t *)tail + ret->stack->frame_count * (size_t)8;
		return ret->stack->frame_count <= READ_FRAMES_MAX + 1 &&
				       ret->stack->frame_count * (size_t)9 <= room
			       ? 0
			       : -EPROTO;
	case READ_LABELS:
		ret->pairs = (const uint32_t *)(const void *)tail;
		return ret->labels->count <= READ_LABELS_MAX &&
				       ret->labels->count * (size_t)8 <= room
			       ? 0
			       : -EPROTO;
	default:
		return 0;
	}
}

int read_stream_next(const void *payload, size_t len, size_t *at, struct read_record *ret)
{
	while (*at < len) {
		const char *start = (const char *)payload + *at;
		struct read_record record = { .any = start };
		struct read_head head;
		size_t fixed;
		int rc;

		if (len - *at < sizeof(head))
			return -EPROTO;
		memcpy(&head, start, sizeof(head));
		if (head.len < sizeof(head) || head.len % 8 || head.len > len - *at)
			return -EPROTO;
		*at += head.len;
		if (head.kind >= ARRAY_SIZE(fixed_sizes) || !fixed_sizes[head.kind])
			continue;
		fixed = fixed_sizes[head.kind];
		if (head.len < fixed)
			return -EPROTO;
		record.kind = head.kind;
		rc = record_tail(&record, start + fixed, head.len - fixed);
		if (rc < 0)
			return rc;
		*ret = record;
		return 1;
	}
	return 0;
}
