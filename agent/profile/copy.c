// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/vec.h"
#include "agent/profile/builder_internal.h"

static uint32_t *table(uint32_t count)
{
	return calloc((size_t)count + 1, sizeof(uint32_t));
}

static void copy_texts(struct copy *c)
{
	const struct profile *p = c->from;
	uint32_t i;

	for (i = 0; i < p->string_count; i++) {
		const char *text = profile_string(p, i);

		c->strings[i] = profile_builder_string(c->to, text, strlen(text));
	}
	for (i = 0; i < p->mapping_count; i++) {
		struct profile_mapping mapping = p->mappings[i];

		mapping.path = c->strings[mapping.path];
		c->mappings[i] = profile_builder_mapping(c->to, &mapping);
	}
	for (i = 0; i < p->function_count; i++) {
		const struct profile_function *f = &p->functions[i];
		struct profile_function function = { c->strings[f->name], c->strings[f->package],
						     c->strings[f->file], f->line,
						     c->strings[f->symbol] };

		c->functions[i] = profile_builder_function(c->to, &function);
	}
	for (i = 0; i < p->frame_count; i++) {
		struct profile_frame frame = p->frames[i];

		frame.function = c->functions[frame.function];
		frame.mapping = c->mappings[frame.mapping];
		c->frames[i] = profile_builder_frame(c->to, &frame);
	}
}

static int copy_attrs(struct copy *c)
{
	const struct profile *p = c->from;
	cleanup_free struct profile_label *labels = NULL;
	size_t capacity = 0;
	uint32_t i, k;
	int rc;

	for (i = 0; i < p->attrs_count; i++) {
		struct profile_attrs attrs = p->attrs[i];

		rc = vec_grow((void **)&labels, &capacity, attrs.label_count, sizeof(*labels), 0);
		if (rc < 0)
			return rc;
		for (k = 0; k < attrs.label_count; k++) {
			const struct profile_label *label = &p->labels[attrs.label_first + k];

			labels[k].name = c->strings[label->name];
			labels[k].value = c->strings[label->value];
		}
		attrs.process = c->processes[attrs.process];
		attrs.thread_name = c->strings[attrs.thread_name];
		attrs.state = c->strings[attrs.state];
		attrs.wait = c->strings[attrs.wait];
		attrs.extra = c->strings[attrs.extra];
		c->attrs[i] = profile_builder_attrs(c->to, &attrs, labels);
	}
	return 0;
}

/* In a profile of several hosts each process says whose it is. */
static uint32_t copy_host(const struct copy *c, uint32_t host)
{
	const char *name = c->from->meta.host;

	if (host)
		return c->strings[host];
	return strcmp(name, c->to->p->meta.host) == 0
		       ? 0
		       : profile_builder_string(c->to, name, strlen(name));
}

int copy_init(struct copy *copy, const struct profile *from, struct profile_builder *to)
{
	cleanup_copy struct copy c = { .from = from, .to = to };
	uint32_t i;
	int rc;

	c.strings = table(from->string_count);
	c.mappings = table(from->mapping_count);
	c.functions = table(from->function_count);
	c.frames = table(from->frame_count);
	c.processes = table(from->process_count);
	c.attrs = table(from->attrs_count);
	c.nodes = table(from->node_count);
	if (!c.strings || !c.mappings || !c.functions || !c.frames || !c.processes || !c.attrs ||
	    !c.nodes)
		return -ENOMEM;
	copy_texts(&c);
	for (i = 0; i < from->process_count; i++) {
		struct profile_process process = from->processes[i];

		process.exe = c.strings[process.exe];
		process.comm = c.strings[process.comm];
		process.service = c.strings[process.service];
		process.container = c.strings[process.container];
		process.image = c.strings[process.image];
		process.pod = c.strings[process.pod];
		process.namespace = c.strings[process.namespace];
		process.host = copy_host(&c, process.host);
		c.processes[i] = profile_builder_process(to, &process);
	}
	/* Attributes without a process get one of their own, not the other side's first. */
	if (from->attrs_count && !from->process_count)
		c.processes[0] =
			profile_builder_process(to, &(struct profile_process){ .host = copy_host(&c, 0) });
	rc = copy_attrs(&c);
	if (rc < 0)
		return rc;
	*copy = c;
	c = (struct copy){ 0 };
	return 0;
}

void copy_nodes(struct copy *copy, uint32_t root)
{
	const struct profile *p = copy->from;
	uint32_t i;

	copy->nodes[0] = root;
	for (i = 1; i < p->node_count; i++)
		copy->nodes[i] = profile_builder_node(copy->to, copy->nodes[p->nodes[i].parent],
						      copy->frames[p->nodes[i].frame]);
}

void copy_deinit(struct copy *copy)
{
	free(copy->strings);
	free(copy->mappings);
	free(copy->functions);
	free(copy->frames);
	free(copy->processes);
	free(copy->attrs);
	free(copy->nodes);
	*copy = (struct copy){ 0 };
}
