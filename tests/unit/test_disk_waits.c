// SPDX-License-Identifier: Apache-2.0
/* Waits for disks and what block devices had to do with them: an io session tells the parts apart,
 * others do not. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/profile/attribute.h"
#include "agent/profile/memory/interval.h"
#include "bpf/profiler.h"
#include "tests/support/session_fixture.h"

#define DISK	  (PROF_OFF_BLOCKED << 4 | PROF_WAIT_DISK)
#define SHARES(device, queue)                                                                      \
	((uint32_t)((device)*PROF_DISK_WHOLE) << 16 | (uint32_t)((queue)*PROF_DISK_WHOLE))

/* A wait of @ms that ended just now. */
static void wait_for_disk(struct session_fixture *f, const char *disk, uint32_t shares, uint64_t ms,
			  uint8_t state, uint64_t value2)
{
	struct feed_sample sample = { .time_ns = clock_monotonic_ns(),
				      .kernel_stack = 1,
				      .value = ms * NS_PER_MS,
				      .value2 = value2,
				      .proc = 1,
				      .tid = 7,
				      .type = PROF_SAMPLE_OFFCPU,
				      .state = state,
				      .comm = "worker",
				      .holder = shares,
				      .detail = PROF_DETAIL_SYNC };

	memcpy(&sample.object, disk, strnlen(disk, sizeof(sample.object)));
	fake_feed_any_sample(&f->feed, &sample);
}

static struct profile *profile_of(struct session_fixture *f, const char *id)
{
	struct err err = { 0 };
	struct profile *p = NULL;

	session_fixture_stop(f, id);
	if (sessions_profile(f->sessions, "default", id, &p, &err) < 0)
		fail_msg("%s", err.text);
	return p;
}

/* ms, to the nearest, of the samples whose attribute `disk` is this. */
static int64_t ms_of(const struct profile *p, const char *disk)
{
	char scratch[ATTRIBUTE_SCRATCH_SIZE];
	struct attribute attribute;
	int64_t sum = 0;

	assert_int_equal(attribute_parse(p, "disk", &attribute), 0);
	for (uint32_t i = 0; i < p->sample_count; i++)
		if (strcmp(attribute_text(p, p->samples[i].attrs, attribute, scratch), disk) == 0)
			sum += p->samples[i].values[1];
	return (sum + (int64_t)NS_PER_MS / 2) / (int64_t)NS_PER_MS;
}

static void test_parts_of_a_wait(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	cleanup(profile) struct profile *io = NULL, *all = NULL;
	char io_id[SESSION_ID_SIZE], all_id[SESSION_ID_SIZE];
	struct attribute attribute;

	request.type = PROFILE_IO;
	session_fixture_start(f, &request, io_id);
	request.type = PROFILE_OFFCPU;
	session_fixture_start(f, &request, all_id);
	clock_sleep_ns(50 * NS_PER_MS);
	wait_for_disk(f, "nvme0n1p", SHARES(0.5, 0.25), 8, DISK, 1024);
	wait_for_disk(f, "nvme0n1p", SHARES(0.5, 0.25), 1, PROF_OFF_RUNQUEUE << 4 | PROF_WAIT_DISK, 0);
	wait_for_disk(f, "vda", SHARES(1, 0), 4, DISK, 1024);
	wait_for_disk(f, "", 0, 2, DISK, 1024);
	wait_for_disk(f, "vda", SHARES(0.75, 0.75), 3, DISK, 1024); /* more than there is */
	io = profile_of(f, io_id);
	assert_int_equal(ms_of(io, "nvme0n1p device"), 4);
	assert_int_equal(ms_of(io, "nvme0n1p queue"), 2);
	assert_int_equal(ms_of(io, "vda device"), 4);
	assert_int_equal(ms_of(io, "vda queue"), 0);
	assert_int_equal(ms_of(io, "not joined"), 2 + 2 + 3);
	assert_int_equal(ms_of(io, ""), 1); /* waiting for a CPU afterwards */
	assert_int_equal(io->totals[1], 18 * NS_PER_MS);
	assert_int_equal(io->totals[0], 4); /* calls of fsync, not parts of them */
	all = profile_of(f, all_id);
	assert_int_equal(all->totals[1], 18 * NS_PER_MS);
	assert_int_equal(attribute_parse(all, "disk", &attribute), -EINVAL);
}

/* Parts of a wait that stands for others were left to chance together. */
static void test_parts_of_an_estimate(void **state)
{
	struct session_fixture *f = *state;
	struct session_request request = session_fixture_request("web", 60);
	cleanup_free struct profile_interval *whole = NULL, *parts = NULL;
	struct profile *p[2] = { NULL, NULL };
	char id[SESSION_ID_SIZE];

	request.type = PROFILE_IO;
	for (int joined = 0; joined < 2; joined++) {
		session_fixture_start(f, &request, id);
		clock_sleep_ns(50 * NS_PER_MS);
		for (int i = 0; i < 5; i++)
			wait_for_disk(f, "vda", joined ? SHARES(0.5, 0.3) : 0, 2, DISK, 4096);
		p[joined] = profile_of(f, id);
	}
	assert_int_equal(profile_intervals(p[0], 1, &whole), 0);
	assert_int_equal(profile_intervals(p[1], 1, &parts), 0);
	assert_true(whole[0].lo < whole[0].hi);
	assert_true(fabs(whole[0].lo / parts[0].lo - 1) < 1e-6 &&
		    fabs(whole[0].hi / parts[0].hi - 1) < 1e-6);
	(void)profile_unref(p[0]);
	(void)profile_unref(p[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_parts_of_a_wait, session_fixture_setup,
						session_fixture_teardown),
		cmocka_unit_test_setup_teardown(test_parts_of_an_estimate, session_fixture_setup,
						session_fixture_teardown),
	};

	return cmocka_run_group_tests_name("disk_waits", tests, NULL, NULL);
}
