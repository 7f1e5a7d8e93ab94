// SPDX-License-Identifier: Apache-2.0
/* Readings of processes in a recorder: the groups come encoded, and get the numbers here that only
 * the recorder knows, of modules, processes and chunks. */
#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/recording/reading_chunk.h"
#include "agent/session/ingest/recorder_internal.h"
#include "bpf/profiler.h"

static uint64_t process_hash(const struct chunk_process *p)
{
	return recorder_process_hash(p->tgid, p->start_boottime_ns, p->exec_generation);
}

uint32_t recorder_begin_readings(struct recorder *r, uint8_t phase)
{
	if (phase == READING_END) {
		r->quality.samples = 0;
		r->quality.value = r->quality.value2 = 0;
		for (size_t i = 0; i < r->processes.count; i++)
			r->processes.data[i].value = 0, r->processes.data[i].samples = 0;
	}
	return ++r->read_round;
}

/* ---- modules --------------------------------------------------------------------------------- */

static int module_id(struct recorder *r, uint64_t key, uint32_t *ret)
{
	uint64_t id;
	int rc;

	if (u64map_get(&r->module_ids, key, &id)) {
		*ret = (uint32_t)id;
		return 0;
	}
	rc = u64map_put(&r->module_ids, key, r->module_count);
	if (rc == 0)
		*ret = r->module_count++;
	return rc;
}

static uint64_t translate(const struct reading *reading, uint64_t frame)
{
	if (prof_frame_kind(frame) != PROF_FRAME_MODULE)
		return frame;
	return prof_frame_module(reading->modules.data[prof_frame_module_id(frame) - 1].id,
				 prof_frame_offset(frame),
				 frame & (PROF_FRAME_RETURN | PROF_FRAME_GUESSED));
}

int recorder_translate_reading(struct recorder *r, struct reading *reading)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < reading->modules.count; i++)
		rc = module_id(r, reading->modules.data[i].key, &reading->modules.data[i].id);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < reading->frames.count; i++)
		reading->frames.data[i] = translate(reading, reading->frames.data[i]);
	for (size_t i = 0; i < reading->wrappers.count; i++)
		reading->wrappers.data[i] = translate(reading, reading->wrappers.data[i]);
	for (size_t i = 0; i < reading->items.count; i++) {
		struct reading_item *item = &reading->items.data[i];

		item->created_frame = translate(reading, item->created_frame);
		item->start_frame = translate(reading, item->start_frame);
	}
	return 0;
}

/* ---- the values of the beginning ------------------------------------------------------------- */

static int keep_value(struct recorder *r, uint64_t process, uint64_t bucket, const int64_t *values)
{
	struct start_value value = { { values[0], values[1] } };
	int rc = u64map_put(&r->start_at, hash_combine(process, bucket), r->start_values.count);

	return rc < 0 ? rc : start_values_vec_push(&r->start_values, value);
}

int recorder_keep_start(struct recorder *r, const struct chunk_process *process,
			const struct reading *reading)
{
	uint64_t hash = process_hash(process);
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < reading->items.count; i++)
		rc = keep_value(r, hash, reading->items.data[i].bucket,
				reading->items.data[i].values);
	return rc;
}

int recorder_subtract_start(const struct recorder *r, const struct chunk_process *process,
			    bool lived, struct reading *reading)
{
	uint64_t hash = process_hash(process), at;
	size_t kept = 0;

	if (lived && !u64map_get(&r->start_at, hash_combine(hash, READING_STARTED), &at))
		return -ENODATA;
	for (size_t i = 0; i < reading->items.count; i++) {
		struct reading_item item = reading->items.data[i];
		bool grew = false;

		if (u64map_get(&r->start_at, hash_combine(hash, item.bucket), &at))
			for (int v = 0; v < 2; v++)
				item.values[v] -= r->start_values.data[at].values[v];
		/* Less than before: the program changed its sampling rate meanwhile. */
		for (int v = 0; v < 2; v++) {
			item.values[v] = item.values[v] > 0 ? item.values[v] : 0;
			grew |= item.values[v] > 0;
		}
		if (grew)
			reading->items.data[kept++] = item;
	}
	reading->items.count = kept;
	return 0;
}

/* ---- handing over ---------------------------------------------------------------------------- */

static int find_process(struct recorder *r, struct chunk_process *p)
{
	uint64_t hash = process_hash(p), id;
	int rc;

	if (u64map_get(&r->process_ids, hash, &id)) {
		p->id = (uint32_t)id;
		return 0;
	}
	p->id = r->process_count;
	rc = recorder_add_process(r, p, hash);
	return rc;
}

static struct buf *add_chunk(struct recorder_group *group, enum store_chunk_kind kind)
{
	group->kinds[group->chunk_count] = kind;
	return &group->data[group->chunk_count++];
}

static void place(struct recorder_group *group, uint32_t process, bool last)
{
	for (unsigned i = 0; i < group->chunk_count; i++)
		if (group->kinds[i] == STORE_CHUNK_READINGS)
			reading_chunk_place(&group->data[i], group->seq, process, last);
}

int recorder_add_groups(struct recorder *r, struct chunk_process *process,
			struct recorder_group *groups, uint64_t position, uint64_t samples,
			int64_t value)
{
	struct recorder_group *tail = groups;
	struct buf *out;
	int rc = process ? find_process(r, process) : 0;

	if (rc < 0)
		return rc;
	if (process) {
		out = &groups->data[0];
		buf_add_varint(out, 1);
		chunk_encode_process(out, process);
		rc = out->error;
	}
	while (tail->next)
		tail = tail->next;
	r->quality.samples += samples;
	r->quality.value += value;
	out = add_chunk(tail, STORE_CHUNK_QUALITY);
	chunk_encode_quality(out, &r->quality);
	if (rc < 0 || out->error) {
		r->quality.samples -= samples;
		r->quality.value -= value;
		return -ENOMEM;
	}
	if (process) {
		r->processes.data[process->id].value += value;
		r->processes.data[process->id].samples += samples;
	}
	for (struct recorder_group *group = groups; group; group = group->next) {
		group->seq = r->next_seq++;
		group->position = position;
		place(group, process ? process->id : 0, !process);
	}
	*r->groups_end = groups;
	r->groups_end = &tail->next;
	r->quality_changed = false;
	return 0;
}

void recorder_end_readings(struct recorder *r, uint8_t phase)
{
	r->phases_read |= 1u << phase;
}

bool recorder_has_read(const struct recorder *r, uint8_t phase)
{
	return r->phases_read >> phase & 1;
}

void recorder_groups_free(struct recorder_group *groups)
{
	while (groups) {
		struct recorder_group *next = groups->next;

		recorder_free_group(groups);
		groups = next;
	}
}

/* ---- after a restart ------------------------------------------------------------------------- */

static int reload_head(void *ctx, const struct chunk_reading *head)
{
	struct recorder *r = ctx;

	if (head->seq >= r->next_seq)
		r->next_seq = head->seq + 1;
	if (head->round > r->read_round)
		r->read_round = head->round;
	if (head->last && head->phase <= READING_STATES)
		r->phases_read |= 1u << head->phase;
	return 0;
}

static int reload_item(void *ctx, const struct chunk_reading *head, const struct chunk_item *item)
{
	struct recorder *r = ctx;
	struct recorder_process *process;
	bool two;

	if (head->process >= r->processes.count)
		return 0;
	process = &r->processes.data[head->process];
	if (head->phase == READING_START)
		return keep_value(r, process->hash, item->bucket, item->values);
	two = item->bucket != 0 || head->phase == READING_STATES;
	process->value += item->values[two];
	process->samples += head->phase == READING_STATES ? (uint64_t)item->values[0] : 1;
	return 0;
}

int recorder_reload_reading(struct recorder *r, const void *data, size_t len)
{
	const struct reading_sink sink = { .ctx = r, .reading = reload_head, .item = reload_item };

	return reading_chunk_decode(data, len, &sink);
}
