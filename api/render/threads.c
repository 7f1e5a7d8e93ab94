// SPDX-License-Identifier: Apache-2.0
#include "api/render/threads.h"

#include <errno.h>
#include <stdio.h>

#include "agent/base/u64map.h"

struct sorted {
	struct thread_row row;
	uint32_t pid;
	uint32_t old;
};

static int compare_threads(const void *a, const void *b)
{
	const struct sorted *x = a, *y = b;
	bool x_main = x->row.tid == x->pid, y_main = y->row.tid == y->pid;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	if (x_main != y_main)
		return x_main ? -1 : 1;
	if (x->row.value != y->row.value)
		return x->row.value < y->row.value ? 1 : -1;
	return x->old < y->old ? -1 : x->old > y->old;
}

static int collect(const struct profile *p, unsigned value_index, struct threads *threads,
		   struct sorted *rows)
{
	struct u64map known = { 0 };
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < p->attrs_count; i++) {
		const struct profile_attrs *attrs = &p->attrs[i];
		uint64_t key = (uint64_t)attrs->process << 32 | attrs->tid, at;

		if (!u64map_get(&known, key, &at)) {
			at = threads->count++;
			rows[at] = (struct sorted){
				.row = { attrs->process, attrs->tid, attrs->thread_name, 0 },
				.pid = attrs->process < p->process_count
					       ? p->processes[attrs->process].pid
					       : 0,
				.old = (uint32_t)at,
			};
			rc = u64map_put(&known, key, at);
		}
		threads->of_attrs[i] = (uint32_t)at;
	}
	for (uint32_t i = 0; rc == 0 && i < p->sample_count; i++)
		rows[threads->of_attrs[p->samples[i].attrs]].row.value +=
			p->samples[i].values[value_index];
	u64map_deinit(&known);
	return rc;
}

int threads_build(const struct profile *p, unsigned value_index, struct threads *ret)
{
	cleanup_free struct sorted *rows = calloc(p->attrs_count + 1, sizeof(*rows));
	cleanup_free uint32_t *place = calloc(p->attrs_count + 1, sizeof(*place));
	cleanup_threads struct threads threads = { 0 };
	int rc;

	threads.items = calloc(p->attrs_count + 1, sizeof(*threads.items));
	threads.of_attrs = calloc(p->attrs_count + 1, sizeof(*threads.of_attrs));
	if (!rows || !place || !threads.items || !threads.of_attrs)
		return -ENOMEM;
	rc = collect(p, value_index, &threads, rows);
	if (rc < 0)
		return rc;
	qsort(rows, threads.count, sizeof(*rows), compare_threads);
	for (uint32_t i = 0; i < threads.count; i++) {
		threads.items[i] = rows[i].row;
		place[rows[i].old] = i;
	}
	for (uint32_t i = 0; i < p->attrs_count; i++)
		threads.of_attrs[i] = place[threads.of_attrs[i]];
	*ret = threads;
	threads = (struct threads){ 0 };
	return 0;
}

void threads_deinit(struct threads *threads)
{
	free(threads->items);
	free(threads->of_attrs);
	*threads = (struct threads){ 0 };
}

void thread_title(const struct profile *p, const struct thread_row *thread, char *out, size_t size)
{
	const char *comm = "", *name = profile_string(p, thread->name);
	uint32_t pid = 0;

	if (thread->process < p->process_count) {
		comm = profile_string(p, p->processes[thread->process].comm);
		pid = p->processes[thread->process].pid;
	}
	if (thread->tid && thread->tid != pid)
		(void)snprintf(out, size, "%s / %s (%u)", comm, name, thread->tid);
	else
		(void)snprintf(out, size, "%s (%u)", *comm ? comm : name, pid);
}
