// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/wakers.h"

#include <stdlib.h>

void wakers_deinit(struct wakers *wakers)
{
	wakings_vec_deinit(&wakers->wakings);
}

int wakers_add(struct wakers *wakers, const struct waking *waking)
{
	return wakings_vec_push(&wakers->wakings, *waking);
}

static int compare(const struct waking *a, const struct waking *b)
{
	if (a->process != b->process)
		return a->process < b->process ? -1 : 1;
	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	return (a->time_ns > b->time_ns) - (a->time_ns < b->time_ns);
}

static int by_thread_and_time(const void *left, const void *right)
{
	return compare(left, right);
}

void wakers_sort(struct wakers *wakers)
{
	if (wakers->wakings.count)
		qsort(wakers->wakings.data, wakers->wakings.count, sizeof(*wakers->wakings.data),
		      by_thread_and_time);
}

/* The index of the first one of a thread that is later than @time_ns, or of the next thread's. */
static size_t first_after(const struct wakers *wakers, uint32_t process, uint32_t tid,
			  uint64_t time_ns)
{
	const struct waking last = { .process = process, .tid = tid, .time_ns = time_ns };
	size_t low = 0, high = wakers->wakings.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare(&wakers->wakings.data[middle], &last) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static const struct waking *waking_at(const struct wakers *wakers, size_t at, uint32_t process,
				      uint32_t tid)
{
	const struct waking *found = at < wakers->wakings.count ? &wakers->wakings.data[at] : NULL;

	return found && found->process == process && found->tid == tid ? found : NULL;
}

bool wakers_find(const struct wakers *wakers, uint32_t process, uint32_t tid, uint64_t from_ns,
		 uint64_t to_ns, uint32_t *ret_pair)
{
	size_t after = first_after(wakers, process, tid, to_ns);
	const struct waking *found = after ? waking_at(wakers, after - 1, process, tid) : NULL;

	if (!found || found->time_ns < from_ns)
		return false;
	*ret_pair = found->pair;
	return true;
}

const struct waking *wakers_find_release(const struct wakers *releases, uint32_t process,
					 uint32_t holder, uint64_t from_ns, uint64_t to_ns)
{
	size_t after = first_after(releases, process, holder, to_ns);
	const struct waking *found = waking_at(releases, after, process, holder);

	/* It had the lock when the wait ended, by a time limit. */
	if (found && found->since_ns <= to_ns)
		return found;
	found = after ? waking_at(releases, after - 1, process, holder) : NULL;
	return found && found->time_ns >= from_ns ? found : NULL;
}
