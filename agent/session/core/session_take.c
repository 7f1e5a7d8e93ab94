// SPDX-License-Identifier: Apache-2.0
/* Decides what a session takes of a sample: of its types, the part within its time, thinned to its
 * rate. */
#include "agent/session/core/session_take.h"

#include <string.h>

#include "agent/base/hash.h"
#include "agent/recording/wait_types.h"
#include "agent/session/core/glance.h"
#include "agent/session/core/session_life.h"
#include "agent/session/core/session_way.h"
#include "agent/session/core/sessions.h"

#define ONE_EVENT	1024u /* feed_sample.value2 */
#define LEAST_THRESHOLD 10000 /* ns, or bytes */

/* true with probability @p, the same for the same event and seed whenever it is asked. */
static bool keeps(uint64_t seed, const struct feed_sample *sample, double p)
{
	uint64_t hash = hash_combine(hash_combine(seed, sample->time_ns),
				     (uint64_t)sample->cpu << 32 | sample->tid);

	return (double)(hash >> 11) * 0x1p-53 < p;
}

/* From the host's rate to the asked one: the expectation of the sum stays what it was. */
static bool thin_cpu(uint32_t rate_hz, uint64_t seed, const struct feed_sample *sample,
		     int64_t *value)
{
	double p = (double)rate_hz * (double)sample->value / 1e9;

	/* The periods of 99 Hz and of a session at 99 Hz differ by a rounding: not worth a lottery.
	 */
	if (p >= 0.999)
		return true;
	if (!keeps(seed, sample, p))
		return false;
	*value = (int64_t)((double)sample->value / p + 0.5);
	return true;
}

/* The threshold follows what the last second brought, so the present event has no part in it.
 * @least: the first threshold, in what @thinning is about (ns, bytes, faults). */
static void follow_second(uint32_t rate_hz, struct thinning *thinning, uint64_t time_ns,
			  int64_t least)
{
	uint64_t second = time_ns / NS_PER_S;
	double excess = (double)thinning->kept / rate_hz;

	if (second == thinning->second)
		return;
	if (excess > 1)
		thinning->threshold = (int64_t)((double)(thinning->threshold + least) * excess);
	else if (excess < 0.7)
		thinning->threshold = (int64_t)((double)thinning->threshold * 0.8);
	thinning->second = second;
	thinning->kept = 0;
}

/* Waits longer than the threshold are all kept, shorter ones in proportion to their length and with
 * the threshold as their value. */
static bool thin_waits(uint32_t rate_hz, uint64_t seed, struct thinning *thinning,
		       const struct feed_sample *sample, int64_t *value, uint64_t *value2)
{
	double p;

	follow_second(rate_hz, thinning, sample->time_ns,
		      sample->type == PROF_SAMPLE_FAULT ? PROF_FAULT_PERIOD : LEAST_THRESHOLD);
	if (*value < thinning->threshold) {
		p = (double)*value / (double)thinning->threshold;
		if (!keeps(seed, sample, p))
			return false;
		*value = thinning->threshold;
		/* a part of an event stays less than one, but shows that it stands for others */
		*value2 = *value2 ? (uint64_t)((double)*value2 / p + 0.5) : 1;
	}
	thinning->kept++;
	return true;
}

bool session_thin(uint32_t rate_hz, uint64_t seed, struct thinning *thinning,
		  const struct feed_sample *sample, int64_t *value, uint64_t *value2)
{
	if (sample->type == PROF_SAMPLE_ALLOC)
		return true;
	if (sample->type == PROF_SAMPLE_CPU)
		return thin_cpu(rate_hz, seed, sample, value);
	return thin_waits(rate_hz, seed, thinning, sample, value, value2);
}

static bool is_wanted_type(struct session *session, const struct feed_sample *sample)
{
	if (session->glances)
		return sample->type == PROF_SAMPLE_CPU;
	/* The detail of an allocation sample is a number, not a kind. */
	if (sample->type != PROF_SAMPLE_ALLOC && sample->detail == PROF_DETAIL_KERNEL_LOCK)
		return session->wants & PROF_WANT_KERNEL_LOCKS;
	if (sample->type == PROF_SAMPLE_WAKER)
		return session->wants & (wait_is_gil(sample->state) ? PROF_WANT_WAKERS | PROF_WANT_LOCKS
								    : PROF_WANT_WAKERS);
	/* A session that reads wants nothing of the kernel. */
	if (!session->wants || !(profile_type_info(session->info.type)->samples >> sample->type & 1))
		return false;
	return session_way(session)->takes(session, sample);
}

/* Threads of a Go program wait for work, not for locks: what its goroutines wait for the kernel
 * does not see. */
static bool is_of_runtime(struct session *session, const struct live_process *process)
{
	if (!profile_type_is_read(session->info.type, true) || !(process->facts.flags & FEED_PROC_GO) ||
	    profile_type_info(session->info.type)->way != PROFILE_WAY_WAITS)
		return false;
	recorder_skip(session->recorder, process->facts.tgid,
		      "a Go program among others: its waits are between goroutines, which the kernel does "
		      "not see; profile it alone");
	return true;
}

/* Time off the CPU is known at its end; what lies before the session or behind it is not its own.
 * false: nothing of it is. */
static bool cut_to_session(const struct session *session, struct feed_sample *sample,
			   int64_t *value)
{
	uint64_t from_ns = sample->time_ns - (uint64_t)*value, to_ns = sample->time_ns;

	/* The readings of the end are taken when it is over. */
	if (prof_sample_is_reading(sample->type))
		return to_ns >= session->start_ns;
	/* Memory in use was allocated before. */
	if (sample->type == PROF_SAMPLE_ALLOC && sample->state != FEED_ALLOC_BIRTH)
		return true;
	if (sample->type != PROF_SAMPLE_OFFCPU)
		return to_ns >= session->start_ns && to_ns < session->end_ns;
	if (from_ns < session->start_ns || from_ns > to_ns)
		from_ns = session->start_ns;
	if (to_ns >= session->end_ns)
		to_ns = session->end_ns - 1;
	if (from_ns >= to_ns)
		return false;
	sample->time_ns = to_ns;
	*value = (int64_t)(to_ns - from_ns);
	return true;
}

/* A wait for a disk is one sample for each part of it; the first is the event. */
static int add_parts(struct session *session, const struct feed_sample *sample,
		     struct feed_sample reduced, const struct live_process *process, int64_t value,
		     uint64_t value2)
{
	int64_t parts[WAIT_DISK_MAX];
	int rc = 0;

	wait_disk_parts(sample, value, parts);
	for (uint32_t i = 0; i < WAIT_DISK_MAX && rc == 0; i++) {
		if (!parts[i])
			continue;
		reduced.object = i == WAIT_DISK_UNJOINED ? 0 : sample->object;
		reduced.holder = i;
		rc = recorder_add(session->recorder, &reduced, process, parts[i], value2);
		value2 = 0;
	}
	return rc;
}

/* Calls that move bytes are summed up by place when each of them was recorded, however low the
 * session's rate: exact. Where there are too many, calls of places that have no sum yet are
 * thinned, and then stand for others. */
static int take_call(struct session *session, const struct feed_sample *sample,
		     struct feed_sample reduced, const struct live_process *process)
{
	struct thinning *thinning = &session->thinning_of_bytes;
	uint32_t rate_hz = session->info.rate_hz;
	int64_t value = (int64_t)sample->value;
	uint64_t value2 = sample->value2;
	bool exact = value2 == ONE_EVENT;
	int rc;

	follow_second(rate_hz, thinning, sample->time_ns, LEAST_THRESHOLD);
	if (exact) {
		reduced.state = CHUNK_IO_SUM;
		rc = recorder_add_up(session->recorder, &reduced, process, thinning->kept < rate_hz);
		thinning->kept += rc == RECORDER_BEGAN;
		if (rc != RECORDER_NONE)
			return rc < 0 ? rc : 0;
	}
	if (!session_thin(rate_hz, session->seed, thinning, sample, &value, &value2))
		return 0;
	if (exact && value != (int64_t)sample->value)
		reduced.state = 0;
	return recorder_add(session->recorder, &reduced, process, value, value2);
}

/* @reduced and @value: of what lies within the session's time. */
static int take_other(struct session *session, const struct feed_sample *sample,
		      struct feed_sample reduced, const struct live_process *process, int64_t value)
{
	uint64_t value2 = sample->value2;

	if (!prof_sample_is_reading(sample->type) && sample->type != PROF_SAMPLE_WAKER &&
	    !session_thin(session->info.rate_hz, session->seed, &session->thinning, sample, &value,
			  &value2))
		return 0;
	if (is_of_runtime(session, process))
		return 0;
	if (session->info.type == PROFILE_IO && sample->type == PROF_SAMPLE_OFFCPU)
		return add_parts(session, sample, reduced, process, value, value2);
	return recorder_add(session->recorder, &reduced, process, value, value2);
}

void session_take(struct sessions *s, struct session *session, const struct feed_sample *sample,
		  const struct live_process *process)
{
	struct feed_sample reduced = wait_reduce(session->info.type, sample);
	int64_t value = (int64_t)sample->value;
	int rc;

	if ((session->phase != PHASE_SAMPLING && session->phase != PHASE_CLOSING) ||
	    !is_wanted_type(session, sample) ||
	    /* In the file already: read again for a session whose file ended earlier. */
	    s->feed.cursor <= session->stored_position || sample->value > INT64_MAX ||
	    !cut_to_session(session, &reduced, &value))
		return;
	rc = session->glances ? glance_take(session, sample, process)
	     : sample->type == PROF_SAMPLE_IO ? take_call(session, sample, reduced, process)
					    : take_other(session, sample, reduced, process, value);
	if (rc == 0 && recorder_pending(session->recorder) >= RECORDER_PENDING_MAX)
		rc = recorder_seal(session->recorder, &s->tables, s->feed.cursor, false, NULL);
	if (rc < 0)
		session_life_fail(s, session, "the session's data does not fit in memory: %s",
				  strerror(-rc));
}
