// SPDX-License-Identifier: Apache-2.0
/* Filters work on attribute sets, of which there are far fewer than samples; grouping works group
 * by group, so that one table old node -> new node, stamped with the group it was filled for,
 * serves all. Cost: samples + events + the nodes that each group really touches. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/profile/attribute.h"
#include "agent/profile/builder_internal.h"
#include "agent/profile/copy.h"
#include "agent/profile/quality.h"

struct selection {
	const struct profile *p;
	const struct profile_filter *filter;
	struct profile_builder *b;
	struct copy copy;
	bool *attrs_kept;     /* by attrs index */
	bool *node_kept;      /* by node; NULL = all */
	uint32_t *group;      /* by attrs index: dense group number */
	uint32_t *group_root; /* by group: node of the builder */
	uint32_t group_count;
	int64_t *values; /* sample_count × PROFILE_VALUES_MAX, after from/to; NULL = as they are */
	uint32_t *stamp; /* by node: group + 1 that copy.nodes[] was filled for */
};

static bool hex_matches(const struct profile_mapping *m, const char *wanted)
{
	char text[2 * sizeof(m->build_id) + 1];
	unsigned i;

	for (i = 0; i < m->build_id_len; i++)
		(void)snprintf(text + 2 * i, 3, "%02x", m->build_id[i]);
	text[2 * (size_t)m->build_id_len] = 0;
	return m->build_id_len && !strcmp(text, wanted);
}

/* `build-id`: stacks that touch a file with it. */
static int keep_build_id(struct selection *s, const char *wanted)
{
	const struct profile *p = s->p;
	cleanup_free bool *node = calloc(p->node_count, sizeof(*node));
	cleanup_free bool *mapping = calloc((size_t)p->mapping_count + 1, sizeof(*mapping));
	uint32_t i;

	if (!node || !mapping)
		return -ENOMEM;
	for (i = 0; i < p->mapping_count; i++)
		mapping[i] = hex_matches(&p->mappings[i], wanted);
	for (i = 1; i < p->node_count; i++)
		node[i] = node[p->nodes[i].parent] || mapping[p->frames[p->nodes[i].frame].mapping];
	if (s->node_kept)
		for (i = 0; i < p->node_count; i++)
			node[i] &= s->node_kept[i];
	free(s->node_kept);
	s->node_kept = take_ptr(node);
	return 0;
}

/* Stacks that begin with the filter's path. A node of the path keeps nothing by itself unless it is
 * the path's last. */
static int keep_path(struct selection *s)
{
	const struct profile *p = s->p;
	cleanup_free bool *node = calloc(p->node_count, sizeof(*node));
	cleanup_free uint32_t *along = calloc(p->node_count, sizeof(*along));

	if (!node || !along)
		return -ENOMEM;
	for (uint32_t i = 1; i < p->node_count; i++) {
		uint32_t parent = p->nodes[i].parent;
		uint32_t name = p->functions[p->frames[p->nodes[i].frame].function].name;

		node[i] = node[parent];
		if (node[parent] || (parent && !along[parent]) ||
		    strcmp(profile_string(p, name), s->filter->path[along[parent]]) != 0)
			continue;
		along[i] = along[parent] + 1;
		node[i] = along[i] == s->filter->path_count;
	}
	s->node_kept = take_ptr(node);
	return 0;
}

static int keep_wanted(struct selection *s)
{
	for (uint32_t i = 0; i < s->p->attrs_count; i++) {
		int rc = s->filter->wants(s->filter->wants_ctx, s->p, i);

		if (rc < 0)
			return rc;
		s->attrs_kept[i] &= rc > 0;
	}
	return 0;
}

static int keep(struct selection *s)
{
	const struct profile_filter *filter = s->filter;
	char scratch[ATTRIBUTE_SCRATCH_SIZE];
	struct attribute attribute;
	unsigned k;
	uint32_t i;
	int rc;

	for (i = 0; i < s->p->attrs_count; i++)
		s->attrs_kept[i] = true;
	if (filter->where_count > ARRAY_SIZE(filter->where_names))
		return -EINVAL;
	rc = filter->wants ? keep_wanted(s) : 0;
	if (rc == 0 && filter->path_count)
		rc = keep_path(s);
	if (rc < 0)
		return rc;
	for (k = 0; k < filter->where_count; k++) {
		if (!strcmp(filter->where_names[k], "build-id")) {
			rc = keep_build_id(s, filter->where_values[k]);
			if (rc < 0)
				return rc;
			continue;
		}
		rc = attribute_parse(s->p, filter->where_names[k], &attribute);
		if (rc < 0)
			return rc;
		for (i = 0; i < s->p->attrs_count; i++)
			s->attrs_kept[i] &= !strcmp(attribute_text(s->p, i, attribute, scratch),
						    filter->where_values[k]);
	}
	return 0;
}

/* Text of the root frame. Names alone would mix processes and threads that share one. */
static void group_text(const struct profile *p, uint32_t attrs, struct attribute attribute,
		       char *out, size_t size)
{
	char scratch[ATTRIBUTE_SCRATCH_SIZE];
	const char *value = attribute_text(p, attrs, attribute, scratch);
	const struct profile_attrs *a = &p->attrs[attrs];

	if (!*value) /* only what is off the CPU has a state */
		(void)snprintf(out, size, attribute.kind == ATTRIBUTE_STATE ? "[on CPU]" : "[none]");
	else if (attribute.kind == ATTRIBUTE_PID)
		(void)snprintf(out, size, "%s (%s)",
			       profile_string(p, p->processes[a->process].comm), value);
	else if (attribute.kind == ATTRIBUTE_TID)
		(void)snprintf(out, size, "%s (%s)", profile_string(p, a->thread_name), value);
	else
		(void)snprintf(out, size, "%s", value);
}

static uint32_t group_root(struct profile_builder *b, uint32_t name)
{
	struct profile_function function = { .name = name };
	struct profile_frame frame = { .kind = PROFILE_FRAME_MARKER };

	frame.function = profile_builder_function(b, &function);
	return profile_builder_node(b, 0, profile_builder_frame(b, &frame));
}

static int group(struct selection *s)
{
	__attribute__((__cleanup__(u64map_deinit))) struct u64map groups = { 0 };
	struct attribute attribute;
	char text[512];
	uint32_t i;
	int rc;

	if (!s->filter->group_by) {
		s->group_count = 1;
		return 0;
	}
	rc = attribute_parse(s->p, s->filter->group_by, &attribute);
	for (i = 0; rc == 0 && i < s->p->attrs_count; i++) {
		uint64_t known;
		uint32_t name;

		if (!s->attrs_kept[i])
			continue;
		group_text(s->p, i, attribute, text, sizeof(text));
		name = profile_builder_string(s->b, text, strlen(text));
		if (u64map_get(&groups, name, &known)) {
			s->group[i] = (uint32_t)known;
			continue;
		}
		s->group[i] = s->group_count;
		s->group_root[s->group_count] = group_root(s->b, name);
		rc = u64map_put(&groups, name, s->group_count++);
	}
	return rc;
}

static bool in_time(const struct profile_filter *filter, uint64_t time_ns)
{
	return time_ns >= filter->from_ns && (!filter->to_ns || time_ns < filter->to_ns);
}

/* The part of @event in the time window, with its end and its value there; false: nothing. */
static bool cut_event(const struct profile *p, const struct profile_filter *filter,
		      struct profile_event *event)
{
	uint64_t from_ns, to_ns = event->time_ns;

	if ((!filter->from_ns && !filter->to_ns) || !profile_has_lengths(p))
		return in_time(filter, event->time_ns);
	from_ns = to_ns > (uint64_t)event->value ? to_ns - (uint64_t)event->value : 0;
	if (from_ns < filter->from_ns)
		from_ns = filter->from_ns;
	if (filter->to_ns && to_ns >= filter->to_ns) {
		to_ns = filter->to_ns;
		event->time_ns = to_ns - 1;
	}
	if (from_ns >= to_ns)
		return false;
	event->value = (int64_t)(to_ns - from_ns);
	return true;
}

static int64_t share(int64_t value, int64_t part, int64_t whole)
{
	if (whole <= 0)
		return 0;
	return (int64_t)(((__int128)value * part + whole / 2) / whole);
}

/* Whether a cut at @time_ns goes through what one event sums up. */
static bool splits(const struct profile *p, uint64_t time_ns)
{
	return time_ns && p->meta.grain_ns && time_ns % p->meta.grain_ns && time_ns > p->meta.start_ns &&
	       time_ns < p->meta.start_ns + p->meta.duration_ns;
}

struct portion {
	int64_t count, all_count, value, all_value;
};

/* The part of each sample's values in the time window. The main value is the sum of the sample's
 * events there, counts go by the number of events that end there, and other values (bytes) by the
 * main value. */
static void cut_values(struct selection *s, const struct portion *portions)
{
	const struct profile_type_info *type = profile_type_info(s->p->meta.type);
	uint32_t i;
	unsigned k;

	for (i = 0; i < s->p->sample_count; i++) {
		const struct profile_sample *sample = &s->p->samples[i];
		const struct portion *part = &portions[i];
		int64_t *out = s->values + (size_t)i * PROFILE_VALUES_MAX;

		for (k = 0; k < type->value_count; k++) {
			if (k == type->value_index)
				out[k] = part->value;
			else if (!strcmp(type->values[k].unit, "count"))
				out[k] = share(sample->values[k], part->count, part->all_count);
			else
				out[k] = share(sample->values[k], part->value, part->all_value);
		}
	}
}

static int index_samples(const struct profile *p, struct intern *ret)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < p->sample_count; i++)
		rc = intern_add(ret, hash_combine(p->samples[i].node, p->samples[i].attrs), i);
	return rc;
}

static uint32_t find_sample(const struct profile *p, const struct intern *index,
			    const struct profile_event *event)
{
	struct intern_probe probe = intern_probe(index, hash_combine(event->node, event->attrs));
	uint32_t id;

	while ((id = intern_next(index, &probe)) != INTERN_NONE)
		if (p->samples[id].node == event->node && p->samples[id].attrs == event->attrs)
			return id;
	return INTERN_NONE;
}

static int cut_time(struct selection *s)
{
	__attribute__((__cleanup__(intern_deinit))) struct intern index = { 0 };
	const struct profile *p = s->p;
	cleanup_free struct portion *portions = NULL;
	uint32_t i, id;
	int rc;

	if (!s->filter->from_ns && !s->filter->to_ns)
		return 0;
	if (!p->event_count || splits(p, s->filter->from_ns) || splits(p, s->filter->to_ns))
		return -ENODATA;
	portions = calloc((size_t)p->sample_count + 1, sizeof(*portions));
	s->values = calloc((size_t)p->sample_count + 1, PROFILE_VALUES_MAX * sizeof(*s->values));
	if (!portions || !s->values)
		return -ENOMEM;
	rc = index_samples(p, &index);
	if (rc < 0)
		return rc;
	for (i = 0; i < p->event_count; i++) {
		struct profile_event e = p->events[i];

		id = find_sample(p, &index, &e);
		if (id == INTERN_NONE)
			continue;
		portions[id].all_count++;
		portions[id].all_value = profile_add(portions[id].all_value, e.value);
		portions[id].count += in_time(s->filter, e.time_ns);
		if (cut_event(p, s->filter, &e))
			portions[id].value = profile_add(portions[id].value, e.value);
	}
	cut_values(s, portions);
	return 0;
}

/* The builder's node of @node in @group; fills the path from the nearest known ancestor downwards.
 */
static uint32_t map_node(struct selection *s, uint32_t group, uint32_t node, uint32_t *path)
{
	const struct profile *p = s->p;
	uint32_t depth = 0, at = node;

	while (s->stamp[at] != group + 1) {
		path[depth++] = at;
		at = p->nodes[at].parent;
	}
	while (depth) {
		uint32_t child = path[--depth];

		s->copy.nodes[child] =
			profile_builder_node(s->b, s->copy.nodes[p->nodes[child].parent],
					     s->copy.frames[p->nodes[child].frame]);
		s->stamp[child] = group + 1;
	}
	return s->copy.nodes[node];
}

static bool wanted(const struct selection *s, uint32_t node, uint32_t attrs)
{
	return s->attrs_kept[attrs] && (!s->node_kept || s->node_kept[node]);
}

/* Indices of @count elements ordered by group; element i has attributes attrs_at(i). */
static int by_group(const struct selection *s, const uint32_t *attrs, size_t stride, size_t count,
		    uint32_t **ret_order, uint32_t **ret_first)
{
	cleanup_free uint32_t *order = malloc((count + 1) * sizeof(*order));
	cleanup_free uint32_t *first = calloc((size_t)s->group_count + 2, sizeof(*first));
	const char *at = (const char *)attrs;
	uint32_t g;
	size_t i;

	if (!order || !first)
		return -ENOMEM;
	/* first[g + 1] is the write position of group g and ends as the start of group g + 1. */
	for (i = 0; i < count; i++) {
		g = s->group[*(const uint32_t *)(at + i * stride)];
		if (g + 2 <= s->group_count + 1)
			first[g + 2]++;
	}
	for (g = 2; g < s->group_count + 2; g++)
		first[g] += first[g - 1];
	for (i = 0; i < count; i++)
		order[first[s->group[*(const uint32_t *)(at + i * stride)] + 1]++] = (uint32_t)i;
	*ret_order = take_ptr(order);
	*ret_first = take_ptr(first);
	return 0;
}

static void add_group_samples(struct selection *s, uint32_t g, const uint32_t *order,
			      const uint32_t *first, uint32_t *path)
{
	const struct profile *p = s->p;
	uint32_t i;

	for (i = first[g]; i < first[g + 1]; i++) {
		const struct profile_sample *sample = &p->samples[order[i]];
		const int64_t *values = sample->values;
		int64_t any = 0;
		unsigned k;

		if (!wanted(s, sample->node, sample->attrs))
			continue;
		if (s->values) {
			values = s->values + (size_t)order[i] * PROFILE_VALUES_MAX;
			for (k = 0; k < PROFILE_VALUES_MAX; k++)
				any |= values[k];
			if (!any)
				continue;
		}
		/* For a part of its events the variance of the sample is a bound. */
		profile_builder_estimate(s->b, map_node(s, g, sample->node, path),
					 s->copy.attrs[sample->attrs], values, sample->variance);
	}
}

static int add_all(struct selection *s)
{
	const struct profile *p = s->p;
	cleanup_free uint32_t *samples = NULL, *first_sample = NULL, *events = NULL,
			      *first_event = NULL;
	cleanup_free uint32_t *path = calloc(p->node_count, sizeof(*path));
	cleanup_free uint32_t *event_node = calloc((size_t)p->event_count + 1, sizeof(*event_node));
	uint32_t g, i;
	int rc;

	if (!path || !event_node)
		return -ENOMEM;
	rc = by_group(s, p->samples ? &p->samples->attrs : NULL, sizeof(*p->samples),
		      p->sample_count, &samples, &first_sample);
	if (rc == 0)
		rc = by_group(s, p->events ? &p->events->attrs : NULL, sizeof(*p->events),
			      p->event_count, &events, &first_event);
	if (rc < 0)
		return rc;
	for (g = 0; g < s->group_count; g++) {
		s->stamp[0] = g + 1;
		s->copy.nodes[0] = s->filter->group_by ? s->group_root[g] : 0;
		add_group_samples(s, g, samples, first_sample, path);
		for (i = first_event[g]; i < first_event[g + 1]; i++) {
			struct profile_event e = p->events[events[i]];

			if (wanted(s, e.node, e.attrs) && cut_event(p, s->filter, &e))
				event_node[events[i]] = map_node(s, g, e.node, path);
		}
	}
	for (i = 0; i < p->event_count; i++) {
		struct profile_event e = p->events[i];

		if (!wanted(s, e.node, e.attrs) || !cut_event(p, s->filter, &e))
			continue;
		e.node = event_node[i];
		e.attrs = s->copy.attrs[e.attrs];
		profile_builder_event(s->b, &e);
	}
	return 0;
}

static struct profile_meta cut_meta(const struct profile_meta *meta,
				    const struct profile_filter *filter)
{
	struct profile_meta cut = *meta;
	uint64_t end = meta->start_ns + meta->duration_ns;

	if (filter->from_ns > cut.start_ns)
		cut.start_ns = filter->from_ns;
	if (filter->to_ns && filter->to_ns < end)
		end = filter->to_ns;
	cut.duration_ns = end > cut.start_ns ? end - cut.start_ns : 0;
	return cut;
}

static void selection_deinit(struct selection *s)
{
	copy_deinit(&s->copy);
	profile_builder_destroy(s->b);
	free(s->attrs_kept);
	free(s->node_kept);
	free(s->group);
	free(s->group_root);
	free(s->values);
	free(s->stamp);
}

static int selection_init(struct selection *s)
{
	const struct profile *p = s->p;
	struct profile_meta meta = cut_meta(&p->meta, s->filter);
	size_t attrs = (size_t)p->attrs_count + 1;

	/* Grouping copies a path once per group; bounded like any tree. */
	s->b = profile_builder_create(&meta,
				      s->filter->group_by ? PROFILE_FRAMES_MAX : p->node_count);
	s->attrs_kept = calloc(attrs, sizeof(*s->attrs_kept));
	s->group = calloc(attrs, sizeof(*s->group));
	s->group_root = calloc(attrs, sizeof(*s->group_root));
	s->stamp = calloc(p->node_count, sizeof(*s->stamp));
	if (!s->b || !s->attrs_kept || !s->group || !s->group_root || !s->stamp)
		return -ENOMEM;
	return copy_init(&s->copy, p, s->b);
}

int profile_select(const struct profile *p, const struct profile_filter *filter,
		   struct profile **ret)
{
	__attribute__((__cleanup__(selection_deinit))) struct selection s = { .p = p,
									      .filter = filter };
	struct profile_quality quality = p->quality;
	int rc = selection_init(&s);

	if (rc == 0)
		rc = keep(&s);
	if (rc == 0)
		rc = group(&s);
	if (rc == 0)
		rc = cut_time(&s);
	if (rc == 0)
		rc = add_all(&s);
	if (rc < 0)
		return rc;
	return profile_builder_finish(s.b, &quality, ret);
}
