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

bool wakers_find(const struct wakers *wakers, uint32_t process, uint32_t tid, uint64_t from_ns,
		 uint64_t to_ns, uint32_t *ret_pair)
{
	const struct waking last = { .process = process, .tid = tid, .time_ns = to_ns };
	size_t low = 0, high = wakers->wakings.count;
	const struct waking *found;

	/* the first one behind it */
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (compare(&wakers->wakings.data[middle], &last) <= 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return false;
	found = &wakers->wakings.data[low - 1];
	if (found->process != process || found->tid != tid || found->time_ns < from_ns)
		return false;
	*ret_pair = found->pair;
	return true;
}
