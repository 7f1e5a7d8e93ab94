// SPDX-License-Identifier: Apache-2.0
/* Real mapping records of real processes; needs perf events on all CPUs. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/collect/kernel/mmap_records.h"
#include "tests/support/bpf_target.h"

static struct mmap_records *records;

static int open_records(void **state)
{
	struct err err = { 0 };

	if (mmap_records_create(&records, &err) < 0) {
		(void)fprintf(stderr, "skipped: %s\n", err.text);
		return 0;
	}
	return 0;
}

static int close_records(void **state)
{
	mmap_records_destroy(records);
	return 0;
}

static pid_t run_true(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)execl("/bin/true", "/bin/true", NULL);
		_exit(127);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return pid;
}

/* The program has exited, and all is known: that it executed, then what it mapped, by device and
 * inode. */
static void a_process_that_is_gone_is_known(void **state)
{
	cleanup(mmap_batch) struct mmap_batch batch = { 0 };
	struct pollfd poll_fd = { .events = POLLIN };
	uint64_t before_ns, exec_ns = 0, map_ns = 0;
	struct stat st;
	pid_t pid;

	if (!records)
		skip();
	assert_int_equal(stat("/bin/true", &st), 0);
	mmap_records_drain(records, &batch);
	before_ns = clock_monotonic_ns();
	pid = run_true();
	poll_fd.fd = mmap_records_poll_fd(records);
	assert_int_equal(poll(&poll_fd, 1, 60000), 1);
	mmap_records_drain(records, &batch);
	assert_true(batch.lost == 0);
	for (size_t i = 0; i < batch.count; i++) {
		const struct mmap_record *record = &batch.records[i];

		if (i > 0)
			assert_true(record->time_ns >= batch.records[i - 1].time_ns);
		if (record->tgid != (uint32_t)pid)
			continue;
		assert_true(record->time_ns >= before_ns &&
			    record->time_ns <= clock_monotonic_ns());
		if (record->kind == MMAP_RECORD_EXEC) {
			assert_string_equal(batch.texts + record->path_at, "true");
			exec_ns = record->time_ns;
		} else if (record->inode == st.st_ino && !map_ns) {
			assert_non_null(strstr(batch.texts + record->path_at, "true"));
			map_ns = record->time_ns;
		}
	}
	assert_true(exec_ns > 0 && map_ns > 0);
	/* The collector relies on this order: exec's record comes before the new image's mappings.
	 * */
	assert_true(exec_ns <= map_ns);
}

static bool is_exec_seen(void)
{
	cleanup(mmap_batch) struct mmap_batch batch = { 0 };
	pid_t pid = run_true();

	mmap_records_drain(records, &batch);
	for (size_t i = 0; i < batch.count; i++)
		if (batch.records[i].tgid == (uint32_t)pid && batch.records[i].kind == MMAP_RECORD_EXEC)
			return true;
	return false;
}

/* After the host slept, or a CPU went and came back between two looks, the list of its CPUs is what
 * it was, but their events are dead. */
static void dead_events_are_opened_anew(void **state)
{
	if (!records)
		skip();
	assert_true(is_exec_seen());
	assert_false(mmap_records_have_died(records));
	assert_false(mmap_records_have_died(records));
	bpf_target_kill_events();
	mmap_records_follow_cpus(records, false);
	assert_false(is_exec_seen());
	(void)mmap_records_have_died(records);
	assert_true(mmap_records_have_died(records));
	mmap_records_follow_cpus(records, true);
	assert_true(is_exec_seen());
	assert_false(mmap_records_have_died(records));
	assert_false(mmap_records_have_died(records));
}

static void an_overflow_is_counted(void **state)
{
	cleanup(mmap_batch) struct mmap_batch batch = { 0 };
	uint64_t lost = 0;

	if (!records)
		skip();
	for (int i = 0; i < 4000; i++) {
		void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		assert_true(p != MAP_FAILED);
		assert_int_equal(munmap(p, 4096), 0);
	}
	for (int round = 0; round < 3; round++) {
		mmap_records_drain(records, &batch);
		lost += batch.lost;
		/* The kernel says what it dropped with the next record that fits. */
		(void)run_true();
	}
	assert_true(lost > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_process_that_is_gone_is_known),
		cmocka_unit_test(dead_events_are_opened_anew),
		cmocka_unit_test(an_overflow_is_counted),
	};

	return cmocka_run_group_tests_name("mmap_records on a kernel", tests, open_records,
					   close_records);
}
