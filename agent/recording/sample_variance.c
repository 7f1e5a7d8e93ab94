// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/sample_variance.h"

#include "agent/base/hash.h"
#include "bpf/profiler.h"

#define EVENT 1024 /* value2 of one */

double sample_variance(struct sample_variance *v, const struct chunk_attr *attr,
		       const struct chunk_event *event, double value)
{
	uint64_t hash = hash_combine(attr->process, attr->tid);
	struct variance_wait *wait = &v->waits[hash % ARRAY_SIZE(v->waits)];
	double left_out, variance;

	if (attr->type == PROF_SAMPLE_CPU)
		return value * value; /* a tick stands for a time of which it saw nothing else */
	if (attr->type == PROF_SAMPLE_IO && attr->state == CHUNK_IO_SUM)
		return 0;
	if (event->value2 > EVENT) {
		*wait = (struct variance_wait){ .time_ns = event->time_ns,
						.process = attr->process,
						.tid = attr->tid,
						.left_out = 1 - EVENT / (double)event->value2,
						.value = value };
		return wait->left_out * value * value;
	}
	/* Below one event is a part that was thinned by itself, nobody knows with which probability. */
	left_out = event->value2 == 0 || event->value2 == EVENT ? 0 : 1;
	if (wait->time_ns != event->time_ns || wait->process != attr->process || wait->tid != attr->tid)
		return left_out * value * value;
	if (event->value2 == 0)
		left_out = wait->left_out;
	variance = left_out * value * value + 2 * wait->left_out * wait->value * value;
	wait->value += value;
	return variance;
}
