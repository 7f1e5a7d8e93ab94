// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/go_process.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/base/clock.h"

static void go_process_destroy(struct go_process *p)
{
	go_walks_deinit(&p->walks);
	go_unwinder_deinit(&p->unwinder);
	go_layout_destroy(p->layout);
	target_maps_deinit(&p->maps);
	target_close(&p->target);
	free(p);
}
CLEANUP_DEFINE(go_process, struct go_process *, go_process_destroy);

static int go_process_create(uint32_t tgid, uint64_t start_boottime_ns, struct go_process **ret,
			     struct err *err)
{
	cleanup(go_process) struct go_process *p = calloc(1, sizeof(*p));
	int rc;

	if (!p)
		return -ENOMEM;
	p->target = TARGET_NONE;
	rc = target_open(tgid, start_boottime_ns, &p->target);
	if (rc == 0)
		rc = target_maps_read(&p->target, &p->maps);
	if (rc == 0)
		rc = go_layout_create(&p->target, &p->maps, &p->layout, err);
	if (rc == 0)
		rc = go_unwinder_init(&p->unwinder, p->layout);
	if (rc < 0)
		return rc;
	*ret = take_ptr(p);
	return 0;
}

/* Still the process and executable that were examined? Its maps are read anew: libraries come and
 * go. */
static int go_process_refresh(struct go_process *p)
{
	struct target_maps maps;
	int rc = target_check(&p->target);

	if (rc == 0)
		rc = target_maps_read(&p->target, &maps);
	if (rc < 0)
		return rc;
	target_maps_deinit(&p->maps);
	p->maps = maps;
	for (size_t i = 0; i < maps.module_count; i++)
		if (maps.modules[i].inode == p->layout->image.inode &&
		    maps.maps[maps.modules[i].first_map].start_va == p->layout->image.start_va)
			return 0;
	return -ESTALE;
}

void go_processes_forget(struct go_processes *all, struct go_process *process)
{
	for (unsigned i = 0; i < GO_PROCESSES_MAX; i++)
		if (all->items[i] == process) {
			go_process_destroy(all->items[i]);
			all->items[i] = NULL;
		}
}

void go_processes_expire(struct go_processes *all, uint64_t before_ns)
{
	for (unsigned i = 0; i < GO_PROCESSES_MAX; i++)
		if (all->items[i] && all->items[i]->used_ns < before_ns)
			go_processes_forget(all, all->items[i]);
}

int go_processes_get(struct go_processes *all, uint32_t tgid, uint64_t start_boottime_ns,
		     struct go_process **ret, struct err *err)
{
	struct go_process *found = NULL;
	unsigned slot = 0;
	int rc;

	for (unsigned i = 0; i < GO_PROCESSES_MAX; i++) {
		struct go_process *p = all->items[i];

		if (p && p->target.tgid == tgid)
			found = p;
		/* A free slot, else the one that was not asked for longest. */
		if (!p || (all->items[slot] && p->used_ns < all->items[slot]->used_ns))
			slot = i;
	}
	if (found && (found->target.start_boottime_ns == start_boottime_ns || !start_boottime_ns) &&
	    go_process_refresh(found) == 0) {
		found->used_ns = clock_monotonic_ns();
		*ret = found;
		return 0;
	}
	if (found)
		go_processes_forget(all, found);
	rc = go_process_create(tgid, start_boottime_ns, &found, err);
	if (rc < 0)
		return rc;
	if (all->items[slot])
		go_processes_forget(all, all->items[slot]);
	found->used_ns = clock_monotonic_ns();
	all->items[slot] = found;
	*ret = found;
	return 0;
}
