// SPDX-License-Identifier: Apache-2.0
/* Interning side of the builder: every table of a profile is an array plus a hash index (intern.h).
 * An id that this builder never gave is refused (-EINVAL), so that a profile's references are
 * always in range and its readers need no checks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/vec.h"
#include "agent/profile/builder_internal.h"

static uint32_t fail(struct profile_builder *b, int error)
{
	if (!b->error)
		b->error = error;
	return 0;
}

/* Makes room for one more element of @array and indexes it as @id. */
#define APPEND(b, array, capacity, index, hash, id, max)                                           \
	append((b), (void **)&(b)->p->array, &(b)->capacity, (index), (hash), (id),                \
	       sizeof(*(b)->p->array), (max))

static bool append(struct profile_builder *b, void **array, size_t *capacity, struct intern *index,
		   uint64_t hash, uint32_t id, size_t size, size_t max)
{
	int rc = vec_grow(array, capacity, (size_t)id + 1, size, max);

	if (rc == 0 && index)
		rc = intern_add(index, hash, id);
	if (rc < 0)
		(void)fail(b, rc);
	return rc == 0;
}

struct profile_builder *profile_builder_create(const struct profile_meta *meta, uint32_t max_nodes)
{
	cleanup(profile_builder) struct profile_builder *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->p = calloc(1, sizeof(*b->p));
	if (!b->p)
		return NULL;
	b->p->meta = *meta;
	b->p->refs = 1;
	b->max_nodes = max_nodes ? max_nodes : 1;
	if (!APPEND(b, nodes, node_capacity, NULL, 0, 0, 0))
		return NULL;
	b->p->nodes[0] = (struct profile_node){ 0, 0 };
	b->p->node_count = 1;
	(void)profile_builder_string(b, "", 0);
	(void)profile_builder_mapping(b, &(struct profile_mapping){ 0 });
	return b->error ? NULL : take_ptr(b);
}

void profile_builder_destroy(struct profile_builder *b)
{
	if (!b)
		return;
	(void)profile_unref(b->p);
	intern_deinit(&b->strings);
	intern_deinit(&b->mappings);
	intern_deinit(&b->functions);
	intern_deinit(&b->frames);
	intern_deinit(&b->nodes);
	intern_deinit(&b->processes);
	intern_deinit(&b->attrs);
	intern_deinit(&b->samples);
	free(b);
}

const char *profile_builder_text(const struct profile_builder *b, uint32_t string)
{
	return string < b->p->string_count ? profile_string(b->p, string) : "";
}

uint32_t profile_builder_string(struct profile_builder *b, const char *text, size_t len)
{
	struct profile *p = b->p;
	uint64_t hash = hash_bytes(text, len, 1);
	struct intern_probe probe = intern_probe(&b->strings, hash);
	uint32_t id;
	int rc;

	if (b->error)
		return 0;
	while ((id = intern_next(&b->strings, &probe)) != INTERN_NONE) {
		const char *known = p->string_bytes + p->string_offsets[id];
		uint64_t end =
			id + 1 < p->string_count ? p->string_offsets[id + 1] : b->string_bytes_len;

		if (end - p->string_offsets[id] == len + 1 && !memcmp(known, text, len))
			return id;
	}
	/* A NUL inside would make two texts look the same to profile_string(). */
	if (memchr(text, 0, len))
		return fail(b, -EINVAL);
	rc = vec_grow((void **)&p->string_bytes, &b->string_bytes_capacity,
		      b->string_bytes_len + len + 1, 1, PROFILE_STRING_BYTES_MAX);
	if (rc < 0)
		return fail(b, rc);
	id = p->string_count;
	if (!APPEND(b, string_offsets, string_capacity, &b->strings, hash, id, PROFILE_STRINGS_MAX))
		return 0;
	p->string_offsets[id] = b->string_bytes_len;
	memcpy(p->string_bytes + b->string_bytes_len, text, len);
	p->string_bytes[b->string_bytes_len + len] = 0;
	b->string_bytes_len += len + 1;
	p->string_count++;
	return id;
}

uint32_t profile_builder_mapping(struct profile_builder *b, const struct profile_mapping *m)
{
	struct profile *p = b->p;
	struct intern_probe probe;
	uint64_t hash;
	uint32_t id;

	if (b->error)
		return 0;
	if (m->path >= p->string_count || m->build_id_len > sizeof(m->build_id))
		return fail(b, -EINVAL);
	hash = hash_bytes(m->build_id, m->build_id_len, hash_combine(m->path, m->key));
	probe = intern_probe(&b->mappings, hash);
	while ((id = intern_next(&b->mappings, &probe)) != INTERN_NONE) {
		const struct profile_mapping *known = &p->mappings[id];

		if (known->path == m->path && known->key == m->key &&
		    known->build_id_len == m->build_id_len &&
		    !memcmp(known->build_id, m->build_id, m->build_id_len))
			return id;
	}
	id = p->mapping_count;
	if (!APPEND(b, mappings, mapping_capacity, &b->mappings, hash, id, PROFILE_MAPPINGS_MAX))
		return 0;
	p->mappings[id] = *m;
	p->mapping_count++;
	return id;
}

void profile_builder_mapping_unanswered(struct profile_builder *b, uint32_t id)
{
	if (!b->error && id < b->p->mapping_count)
		b->p->mappings[id].is_unanswered = true;
}

uint32_t profile_builder_function(struct profile_builder *b, const struct profile_function *f)
{
	struct profile *p = b->p;
	struct intern_probe probe;
	uint64_t hash;
	uint32_t id;

	if (b->error)
		return 0;
	if (f->name >= p->string_count || f->package >= p->string_count ||
	    f->file >= p->string_count || f->symbol >= p->string_count)
		return fail(b, -EINVAL);
	hash = hash_combine(hash_combine(f->name, f->package), f->file);
	probe = intern_probe(&b->functions, hash);
	while ((id = intern_next(&b->functions, &probe)) != INTERN_NONE) {
		struct profile_function *known = &p->functions[id];

		if (known->name == f->name && known->package == f->package &&
		    known->file == f->file) {
			if (!known->line)
				known->line = f->line;
			if (!known->symbol)
				known->symbol = f->symbol;
			return id;
		}
	}
	id = p->function_count;
	if (!APPEND(b, functions, function_capacity, &b->functions, hash, id,
		    PROFILE_FUNCTIONS_MAX))
		return 0;
	p->functions[id] = *f;
	p->function_count++;
	return id;
}

uint32_t profile_builder_frame(struct profile_builder *b, const struct profile_frame *f)
{
	struct profile *p = b->p;
	struct intern_probe probe;
	uint64_t hash;
	uint32_t id;

	if (b->error)
		return 0;
	if (f->function >= p->function_count || f->mapping >= p->mapping_count)
		return fail(b, -EINVAL);
	hash = hash_combine((uint64_t)f->function << 32 | f->mapping, f->offset);
	hash = hash_combine(hash, (uint64_t)f->line << 24 | (uint64_t)f->kind << 16 |
					  (uint64_t)f->flags << 8 | f->tier);
	probe = intern_probe(&b->frames, hash);
	while ((id = intern_next(&b->frames, &probe)) != INTERN_NONE) {
		const struct profile_frame *known = &p->frames[id];

		if (known->function == f->function && known->mapping == f->mapping &&
		    known->offset == f->offset && known->line == f->line &&
		    known->kind == f->kind && known->flags == f->flags && known->tier == f->tier)
			return id;
	}
	id = p->frame_count;
	if (!APPEND(b, frames, frame_capacity, &b->frames, hash, id, PROFILE_FRAMES_MAX))
		return 0;
	p->frames[id] = *f;
	p->frame_count++;
	return id;
}

static uint32_t add_node(struct profile_builder *b, uint64_t hash, uint32_t parent, uint32_t frame)
{
	struct profile *p = b->p;
	uint32_t id = p->node_count;

	if (!APPEND(b, nodes, node_capacity, &b->nodes, hash, id, 0))
		return 0;
	p->nodes[id] = (struct profile_node){ parent, frame };
	p->node_count++;
	return id;
}

static uint32_t find_node(const struct profile_builder *b, uint64_t hash, uint32_t parent,
			  uint32_t frame)
{
	struct intern_probe probe = intern_probe(&b->nodes, hash);
	uint32_t id;

	while ((id = intern_next(&b->nodes, &probe)) != INTERN_NONE)
		if (b->p->nodes[id].parent == parent && b->p->nodes[id].frame == frame)
			return id;
	return INTERN_NONE;
}

/* The full tree: what finds no node falls to the root's [truncated] child. It may find its way from
 * there through stacks that were cut themselves, which keeps the innermost frames right. */
static uint32_t overflow_node(struct profile_builder *b)
{
	static const char text[] = PROFILE_TRUNCATED;
	struct profile_function function = { 0 };
	struct profile_frame frame = { .kind = PROFILE_FRAME_MARKER };
	uint64_t hash;
	uint32_t id;

	b->overflow_calls++;
	if (b->overflow_node)
		return b->overflow_node;
	function.name = profile_builder_string(b, text, sizeof(text) - 1);
	frame.function = profile_builder_function(b, &function);
	id = profile_builder_frame(b, &frame);
	if (b->error)
		return 0;
	hash = hash_combine(0, id);
	b->overflow_node = find_node(b, hash, 0, id);
	if (b->overflow_node == INTERN_NONE)
		b->overflow_node = add_node(b, hash, 0, id);
	return b->overflow_node;
}

uint32_t profile_builder_node(struct profile_builder *b, uint32_t parent, uint32_t frame)
{
	uint64_t hash = hash_combine(parent, frame);
	uint32_t id;

	if (b->error)
		return 0;
	if (parent >= b->p->node_count || frame >= b->p->frame_count)
		return fail(b, -EINVAL);
	id = find_node(b, hash, parent, frame);
	if (id != INTERN_NONE)
		return id;
	if (b->p->node_count >= b->max_nodes)
		return overflow_node(b);
	return add_node(b, hash, parent, frame);
}

enum profile_tier profile_builder_tier(const struct profile_builder *b, uint32_t node)
{
	const struct profile *p = b->p;

	while (node && node < p->node_count && !p->frames[p->nodes[node].frame].tier)
		node = p->nodes[node].parent;
	return node && node < p->node_count ? p->frames[p->nodes[node].frame].tier : PROFILE_TIER_NONE;
}

uint32_t profile_builder_process(struct profile_builder *b, const struct profile_process *process)
{
	struct profile *p = b->p;
	struct intern_probe probe;
	uint64_t hash;
	uint32_t id;

	if (b->error)
		return 0;
	if (process->exe >= p->string_count || process->comm >= p->string_count ||
	    process->service >= p->string_count || process->host >= p->string_count ||
	    process->container >= p->string_count || process->image >= p->string_count ||
	    process->pod >= p->string_count || process->namespace >= p->string_count)
		return fail(b, -EINVAL);
	hash = hash_combine(process->started_at_ns,
			    (uint64_t)process->pid << 32 | process->service);
	/* By name too: fork and exec in one tick of the clock are two instances of one pid. */
	hash = hash_combine(hash, (uint64_t)process->exe << 32 | process->comm);
	hash = hash_combine(hash, process->host);
	probe = intern_probe(&b->processes, hash);
	while ((id = intern_next(&b->processes, &probe)) != INTERN_NONE) {
		const struct profile_process *known = &p->processes[id];

		if (known->pid == process->pid && known->host == process->host && known->exe == process->exe &&
		    known->comm == process->comm &&
		    known->started_at_ns == process->started_at_ns &&
		    known->service == process->service)
			return id;
	}
	id = p->process_count;
	if (!APPEND(b, processes, process_capacity, &b->processes, hash, id, PROFILE_PROCESSES_MAX))
		return 0;
	p->processes[id] = *process;
	p->processes[id].value = 0;
	p->process_count++;
	return id;
}

static bool attrs_equal(const struct profile *p, uint32_t id, const struct profile_attrs *attrs,
			const struct profile_label *labels)
{
	const struct profile_attrs *known = &p->attrs[id];

	return known->process == attrs->process && known->tid == attrs->tid &&
	       known->thread_name == attrs->thread_name && known->state == attrs->state &&
	       known->wait == attrs->wait && known->extra == attrs->extra &&
	       known->label_count == attrs->label_count &&
	       (!attrs->label_count || !memcmp(p->labels + known->label_first, labels,
					       attrs->label_count * sizeof(*labels)));
}

static bool attrs_valid(const struct profile *p, const struct profile_attrs *attrs,
			const struct profile_label *labels)
{
	uint32_t i;

	/* Process 0 without any process is "not known" and allowed. */
	if (attrs->process >= p->process_count && attrs->process)
		return false;
	if (attrs->thread_name >= p->string_count || attrs->state >= p->string_count ||
	    attrs->wait >= p->string_count || attrs->extra >= p->string_count)
		return false;
	for (i = 0; i < attrs->label_count; i++)
		if (labels[i].name >= p->string_count || labels[i].value >= p->string_count)
			return false;
	return true;
}

uint32_t profile_builder_attrs(struct profile_builder *b, const struct profile_attrs *attrs,
			       const struct profile_label *labels)
{
	struct profile *p = b->p;
	struct intern_probe probe;
	uint64_t hash;
	uint32_t id, i;
	int rc;

	if (b->error)
		return 0;
	if (!attrs_valid(p, attrs, labels))
		return fail(b, -EINVAL);
	hash = hash_combine((uint64_t)attrs->process << 32 | attrs->tid, attrs->thread_name);
	hash = hash_combine(hash, (uint64_t)attrs->state << 32 | attrs->wait);
	hash = hash_combine(hash, attrs->extra);
	for (i = 0; i < attrs->label_count; i++)
		hash = hash_combine(hash, (uint64_t)labels[i].name << 32 | labels[i].value);
	probe = intern_probe(&b->attrs, hash);
	while ((id = intern_next(&b->attrs, &probe)) != INTERN_NONE)
		if (attrs_equal(p, id, attrs, labels))
			return id;
	rc = vec_grow((void **)&p->labels, &b->label_capacity,
		      (size_t)p->label_count + attrs->label_count, sizeof(*p->labels),
		      PROFILE_LABELS_MAX);
	if (rc < 0)
		return fail(b, rc);
	id = p->attrs_count;
	if (!APPEND(b, attrs, attrs_capacity, &b->attrs, hash, id, PROFILE_ATTRS_MAX))
		return 0;
	if (attrs->label_count)
		memcpy(p->labels + p->label_count, labels, attrs->label_count * sizeof(*labels));
	p->attrs[id] = *attrs;
	p->attrs[id].label_first = p->label_count;
	p->label_count += attrs->label_count;
	p->attrs_count++;
	return id;
}

void profile_builder_estimate(struct profile_builder *b, uint32_t node, uint32_t attrs,
			      const int64_t *values, double variance)
{
	uint64_t hash = hash_combine(node, attrs);
	struct intern_probe probe = intern_probe(&b->samples, hash);
	struct profile *p = b->p;
	unsigned k, count;
	uint32_t id;

	if (b->error)
		return;
	if (node >= p->node_count || attrs >= p->attrs_count) {
		(void)fail(b, -EINVAL);
		return;
	}
	while ((id = intern_next(&b->samples, &probe)) != INTERN_NONE)
		if (p->samples[id].node == node && p->samples[id].attrs == attrs)
			break;
	if (id == INTERN_NONE) {
		id = p->sample_count;
		if (!APPEND(b, samples, sample_capacity, &b->samples, hash, id,
			    PROFILE_SAMPLES_MAX))
			return;
		p->samples[id] = (struct profile_sample){ .node = node, .attrs = attrs };
		p->sample_count++;
	}
	count = profile_type_info(p->meta.type)->value_count;
	for (k = 0; k < count; k++)
		p->samples[id].values[k] = profile_add(p->samples[id].values[k], values[k]);
	p->samples[id].variance += variance;
}

void profile_builder_sample(struct profile_builder *b, uint32_t node, uint32_t attrs,
			    const int64_t *values)
{
	profile_builder_estimate(b, node, attrs, values, 0);
}

void profile_builder_event(struct profile_builder *b, const struct profile_event *event)
{
	struct profile *p = b->p;

	if (b->error)
		return;
	if (event->node >= p->node_count || event->attrs >= p->attrs_count) {
		(void)fail(b, -EINVAL);
		return;
	}
	if (!APPEND(b, events, event_capacity, NULL, 0, p->event_count, PROFILE_EVENTS_MAX))
		return;
	p->events[p->event_count++] = *event;
}
