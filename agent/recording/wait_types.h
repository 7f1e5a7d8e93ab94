/* SPDX-License-Identifier: Apache-2.0 */
/* The types that are cuts of the stream of times off the CPU. Pure. */
#ifndef PROFD_RECORDING_WAIT_TYPES_H
#define PROFD_RECORDING_WAIT_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/profile/profile.h"
#include "agent/wire/feed.h"

/* Does this time off the CPU belong to a profile of @type? Time on the run queue belongs to what
 * the thread had waited for. */
bool wait_is_wanted(enum profile_type type, const struct feed_sample *sample);
/* @sample without what @type does not tell apart: every difference would be a dictionary entry. */
struct feed_sample wait_reduce(enum profile_type type, const struct feed_sample *sample);

/* @state of a sample: does the thread wait for CPython's global lock? */
bool wait_is_gil(uint8_t state);

/* The part that a thread's own requests to a block device had in its wait for a disk:
 * feed_sample.holder of the wait's parts, whose object is the device's name. */
enum wait_disk {
	WAIT_DISK_UNJOINED, /* nothing: it waits for others' requests, for locks, for a turn */
	WAIT_DISK_DEVICE,
	WAIT_DISK_QUEUE,
	WAIT_DISK_MAX,
};
/* How much of @value, of a sample before wait_reduce(), each part is. */
void wait_disk_parts(const struct feed_sample *sample, int64_t value, int64_t ret[WAIT_DISK_MAX]);

#endif
