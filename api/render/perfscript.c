// SPDX-License-Identifier: Apache-2.0
/* The text of `perf script -F +pid`, innermost frame first, for tools that start from it
 * (stackcollapse-perf.pl, inferno, the Firefox profiler's importer). Source:
 * tools/perf/builtin-script.c. */
#include <inttypes.h>
#include <string.h>

#include "agent/base/clock.h"
#include "api/render/render.h"

/* A line per frame: no control characters; blanks in the command name would move the columns. */
static void clean(struct buf *out, const char *text, bool word)
{
	while (*text) {
		const char *run = text;

		while ((unsigned char)*text >= 0x20 && !(word && *text == ' '))
			text++;
		buf_add(out, run, (size_t)(text - run));
		if (*text) {
			buf_add_char(out, '_');
			text++;
		}
	}
}

static void write_stack(struct buf *out, const struct profile *p, uint32_t node)
{
	for (; node; node = p->nodes[node].parent) {
		const struct profile_frame *frame = &p->frames[p->nodes[node].frame];

		buf_printf(out, "\t%16" PRIx64 " ", frame->offset);
		clean(out, profile_string(p, p->functions[frame->function].name), false);
		/* As perf writes it: readers take what stands in the last parentheses for the file. */
		if (frame->flags & PROFILE_FRAME_INLINED) {
			buf_add_str(out, " (inlined)\n");
			continue;
		}
		buf_add_str(out, " (");
		clean(out, frame->mapping ? profile_string(p, p->mappings[frame->mapping].path)
					  : "[unknown]",
		      false);
		buf_add_str(out, ")\n");
	}
	buf_add_char(out, '\n');
}

static void write_event(struct buf *out, const struct profile *p, const char *name,
			const struct profile_event *event)
{
	const struct profile_attrs *attrs = &p->attrs[event->attrs];
	const struct profile_process *process =
		attrs->process < p->process_count ? &p->processes[attrs->process] : NULL;
	const char *thread = profile_string(p, attrs->thread_name);
	uint32_t pid = process ? process->pid : 0;

	if (!*thread && process)
		thread = profile_string(p, process->comm);
	clean(out, *thread ? thread : "unknown", true);
	buf_printf(out, " %u/%u [000] %" PRIu64 ".%06" PRIu64 ": %" PRId64 " %s:\n", pid,
		   attrs->tid ? attrs->tid : pid, (uint64_t)(event->time_ns / NS_PER_S),
		   (uint64_t)(event->time_ns % NS_PER_S / 1000), event->value, name);
	write_stack(out, p, event->node);
}

int render_perfscript(const struct profile *p, const struct render_options *options,
		      struct buf *out, struct err *err)
{
	const struct profile_type_info *info = profile_type_info(p->meta.type);
	const char *name = info->values[options->value_index].name;
	bool main_value = options->value_index == info->value_index;

	(void)err;
	if (main_value && p->event_count) {
		for (uint32_t i = 0; i < p->event_count && !out->error; i++)
			write_event(out, p, name, &p->events[i]);
		return out->error;
	}
	for (uint32_t i = 0; i < p->sample_count && !out->error; i++) {
		struct profile_event event = {
			.time_ns = p->meta.start_ns,
			.node = p->samples[i].node,
			.attrs = p->samples[i].attrs,
			.value = p->samples[i].values[options->value_index],
		};

		write_event(out, p, name, &event);
	}
	return out->error;
}
