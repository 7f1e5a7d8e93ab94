// SPDX-License-Identifier: Apache-2.0
/* What a session takes of a sample: of the types it wants, the part within its time, thinned to its
 * rate. */
#include <string.h>

#include "agent/base/hash.h"
#include "agent/recording/wait_types.h"
#include "agent/session/alloc_session.h"
#include "agent/session/sessions_internal.h"

#define ONE_EVENT 1024u /* feed_sample.value2 */

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

/* The threshold follows what the last second brought, so the present event has no part in it. */
static void follow_second(uint32_t rate_hz, struct thinning *thinning, uint64_t time_ns)
{
	uint64_t second = time_ns / NS_PER_S;
	double excess = (double)thinning->kept / rate_hz;

	if (second == thinning->second)
		return;
	if (excess > 1)
		thinning->threshold = (int64_t)((double)(thinning->threshold + 10000) * excess);
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

	follow_second(rate_hz, thinning, sample->time_ns);
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
	/* Of what is in use the detail is a number. */
	if (sample->type != PROF_SAMPLE_ALLOC && sample->detail == PROF_DETAIL_KERNEL_LOCK)
		return session->wants & PROF_WANT_KERNEL_LOCKS;
	switch (sample->type) {
	case PROF_SAMPLE_CPU:
		return session->wants & PROF_WANT_CPU;
	case PROF_SAMPLE_OFFCPU:
		return (session->wants & PROF_WANT_OFFCPU) &&
		       wait_is_wanted(session->info.type, sample);
	case PROF_SAMPLE_ALLOC:
		return alloc_session_is(session) && alloc_session_takes(session, sample);
	case PROF_SAMPLE_IO:
		return session->wants & PROF_WANT_IO;
	case PROF_SAMPLE_WAKER:
		return session->wants & PROF_WANT_WAKERS;
	case PROF_SAMPLE_THREAD:
		return (session->wants & PROF_WANT_OFFCPU) &&
		       (session->info.type == PROFILE_OFFCPU || session->info.type == PROFILE_WALL ||
			session->info.type == PROFILE_MUTEX);
	case PROF_SAMPLE_STOLEN:
		return session->info.type == PROFILE_OFFCPU || session->info.type == PROFILE_WALL;
	case PROF_SAMPLE_MOVED:
		return session->info.type == PROFILE_IO;
	}
	return false;
}

/* Threads of a Go program wait for work, not for locks: what its goroutines wait for the kernel does
 * not see. */
static bool is_of_runtime(struct session *session, const struct live_process *process)
{
	if ((session->info.type != PROFILE_BLOCK && session->info.type != PROFILE_MUTEX) ||
	    !(process->facts.flags & FEED_PROC_GO))
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
	/* What is in use was allocated before. */
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
static int add_parts(struct session *session, const struct feed_sample *sample, struct feed_sample reduced,
		     const struct live_process *process, int64_t value, uint64_t value2)
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

/* Of calls that move bytes each of which was recorded those of one place add up, however low the session's rate: exact.
 * Only of places that have no sum yet some are thinned where there are too many, and then stand for others. */
static int take_call(struct session *session, const struct feed_sample *sample, struct feed_sample reduced,
		     const struct live_process *process)
{
	struct thinning *thinning = &session->thinning_of_bytes;
	uint32_t rate_hz = session->info.rate_hz;
	int64_t value = (int64_t)sample->value;
	uint64_t value2 = sample->value2;
	bool exact = value2 == ONE_EVENT;
	int rc;

	follow_second(rate_hz, thinning, sample->time_ns);
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
static int take_other(struct session *session, const struct feed_sample *sample, struct feed_sample reduced,
		      const struct live_process *process, int64_t value)
{
	uint64_t value2 = sample->value2;

	if (!prof_sample_is_reading(sample->type) && sample->type != PROF_SAMPLE_WAKER &&
	    !session_thin(session->info.rate_hz, session->seed, &session->thinning, sample, &value, &value2))
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
	rc = sample->type == PROF_SAMPLE_IO ? take_call(session, sample, reduced, process)
					    : take_other(session, sample, reduced, process, value);
	if (rc == 0 && recorder_pending(session->recorder) >= RECORDER_PENDING_MAX)
		rc = recorder_seal(session->recorder, &s->tables, s->feed.cursor, false, NULL);
	if (rc < 0)
		session_life_fail(s, session, "the session's data does not fit in memory: %s",
				  strerror(-rc));
}
