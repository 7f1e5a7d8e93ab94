// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/memory/heap_leaks.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NEW_SHARE 0.5 /* of the time observed: in its last part it must have allocated, too */

/* Blocks of a size that became more. If there were hardly any before, a met block is one of them.
 * If there were many, it takes two old ones without any that ended. */
#define BEFORE_SHARE 3u
#define FEW_MIN	     2u
#define OBJECTS	     0 /* of a memory profile's values */
#define BYTES	     1
#define MORE_MAX     5.0 /* an estimate of few samples is hardly further above the blocks gained */

struct place {
	uint32_t followed, few;
	double bytes;
	double objects, object_bytes; /* of all its samples */
	uint64_t first_ns, last_ns; /* births; 0 = none */
};

/* Addresses of the place that are followed still, 0 = none: those that tell by themselves that they
 * stay, or too few. */
static uint32_t followed_of(const struct profile *p, uint32_t attrs, const char *which)
{
	const struct profile_attrs *a = &p->attrs[attrs];

	for (uint32_t i = 0; i < a->label_count; i++) {
		const struct profile_label *label = &p->labels[a->label_first + i];

		if (strcmp(profile_string(p, label->name), which) == 0)
			return (uint32_t)strtoul(profile_string(p, label->value), NULL, 10);
	}
	return 0;
}

static void add_event(const struct profile *p, struct place *place,
		      const struct profile_event *event)
{
	const uint32_t followed = followed_of(p, event->attrs, PROFILE_LABEL_FOLLOWED);
	const uint32_t few = followed_of(p, event->attrs, PROFILE_LABEL_FEW);

	place->followed = followed > place->followed ? followed : place->followed;
	place->few = few > place->few ? few : place->few;
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

/* The blocks of the place's size that the heap gained, NULL = it did not. */
static const struct profile_grown *grown_of(const struct profile *p, const struct place *place)
{
	const double bytes = place->objects > 0 ? round(place->object_bytes / place->objects) : 0;

	for (uint32_t i = 0; i < p->quality.probes.grown_count; i++) {
		const struct profile_grown *grown = &p->quality.probes.grown[i];

		if (bytes <= grown->block_bytes &&
		    (bytes > grown->block_bytes - 16.0 || grown->block_bytes <= 24))
			return grown;
	}
	return NULL;
}

static bool is_slow_leak(const struct profile *p, const struct place *place)
{
	const struct profile_grown *grown = place->few || place->followed ? grown_of(p, place) : NULL;

	return grown && place->objects <= MORE_MAX * (double)grown->blocks &&
	       (grown->before * BEFORE_SHARE <= grown->blocks || place->few + place->followed >= FEW_MIN);
}

static bool is_leak(const struct profile *p, const struct place *place, uint64_t end_ns)
{
	if (is_slow_leak(p, place) && place->first_ns < end_ns)
		return true;
	return place->followed >= HEAP_LEAK_FOLLOWED_MIN && place->first_ns < end_ns &&
	       (double)(place->last_ns - place->first_ns) > NEW_SHARE * (double)(end_ns - place->first_ns);
}

int heap_leaks_find(const struct profile *p, uint64_t end_ns, struct heap_leak **ret,
		    uint32_t *ret_count)
{
	cleanup_free struct place *places = calloc(p->node_count + 1u, sizeof(*places));
	cleanup_free struct heap_leak *leaks = NULL;
	uint32_t count = 0, suspects = 0;

	if (!places)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->event_count; i++)
		add_event(p, &places[p->events[i].node], &p->events[i]);
	for (uint32_t i = 0; i < p->sample_count; i++) {
		places[p->samples[i].node].objects += (double)p->samples[i].values[OBJECTS];
		places[p->samples[i].node].object_bytes += (double)p->samples[i].values[BYTES];
	}
	for (uint32_t node = 1; node < p->node_count; node++)
		suspects += is_leak(p, &places[node], end_ns);
	leaks = calloc(suspects + 1u, sizeof(*leaks));
	if (!leaks)
		return -ENOMEM;
	for (uint32_t node = 1; node < p->node_count; node++) {
		const struct place *place = &places[node];

		if (is_leak(p, place, end_ns))
			leaks[count++] = (struct heap_leak){
				.node = node,
				.followed = place->followed > place->few ? place->followed : place->few,
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
