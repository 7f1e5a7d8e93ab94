// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/heap_leaks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NEW_SHARE 0.5 /* of the time observed: in its last part it must have allocated, too */

struct place {
	uint32_t followed;
	double bytes;
	uint64_t first_ns, last_ns; /* births; 0 = none */
};

/* Addresses of the place that are followed still, 0 = none. */
static uint32_t followed_of(const struct profile *p, uint32_t attrs)
{
	const struct profile_attrs *a = &p->attrs[attrs];

	for (uint32_t i = 0; i < a->label_count; i++) {
		const struct profile_label *label = &p->labels[a->label_first + i];

		if (strcmp(profile_string(p, label->name), PROFILE_LABEL_FOLLOWED) == 0)
			return (uint32_t)strtoul(profile_string(p, label->value), NULL, 10);
	}
	return 0;
}

static void add_event(struct place *place, const struct profile_event *event, uint32_t followed)
{
	place->followed = followed > place->followed ? followed : place->followed;
	place->bytes += (double)event->value;
	if (!place->first_ns || event->time_ns < place->first_ns)
		place->first_ns = event->time_ns;
	if (event->time_ns > place->last_ns)
		place->last_ns = event->time_ns;
}

static int by_growth(const void *left, const void *right)
{
	const struct heap_leak *a = left, *b = right;

	return (a->bytes_per_s < b->bytes_per_s) - (a->bytes_per_s > b->bytes_per_s);
}

static bool is_leak(const struct place *place, uint64_t end_ns)
{
	return place->followed >= HEAP_LEAK_FOLLOWED_MIN && place->first_ns < end_ns &&
	       (double)(place->last_ns - place->first_ns) > NEW_SHARE * (double)(end_ns - place->first_ns);
}

int heap_leaks_find(const struct profile *p, uint64_t end_ns, struct heap_leak **ret, uint32_t *ret_count)
{
	cleanup_free struct place *places = calloc(p->node_count + 1u, sizeof(*places));
	cleanup_free struct heap_leak *leaks = NULL;
	uint32_t count = 0, suspects = 0;

	if (!places)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->event_count; i++)
		add_event(&places[p->events[i].node], &p->events[i], followed_of(p, p->events[i].attrs));
	for (uint32_t node = 1; node < p->node_count; node++)
		suspects += is_leak(&places[node], end_ns);
	leaks = calloc(suspects + 1u, sizeof(*leaks));
	if (!leaks)
		return -ENOMEM;
	for (uint32_t node = 1; node < p->node_count; node++) {
		const struct place *place = &places[node];

		if (is_leak(place, end_ns))
			leaks[count++] = (struct heap_leak){
				.node = node,
				.followed = place->followed,
				.bytes = (int64_t)place->bytes,
				.bytes_per_s = place->bytes * 1e9 / (double)(end_ns - place->first_ns),
				.since_ns = place->first_ns,
			};
	}
	qsort(leaks, count, sizeof(*leaks), by_growth);
	*ret = take_ptr(leaks);
	*ret_count = count;
	return 0;
}
