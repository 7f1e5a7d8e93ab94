// SPDX-License-Identifier: Apache-2.0
/* tools/test: beside others */
/* Probes on the allocator of a real program: a place that allocates seldom among others that do all
 * the time is seen in every window, and what the samples stand for remains what was allocated;
 * calls whose return is probed are walked through. */
#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/collect/alloc/alloc_heap.h"
#include "agent/collect/alloc/alloc_probes.h"
#include "agent/collect/proc/proc_maps.h"
#include "bpf/outcome.h"
#include "tests/support/bpf_target.h"
#include "tests/support/libc_sites.h"

#define VERIFIED_MAX	100000u
#define VERIFIED_OLD_MAX 200000u /* of walks without bpf_loop() */
#define FD_MAX	   1024
#define WINDOWS	   30u
#define HITS	   5000u /* of a window, at least */
#define GAP_BYTES  16384u
#define RARE_BYTES 160u
#define INNER	   48u
#define WAYS	   4u

/* 2,000 allocations of 64 bytes by one caller, then one by another, again and again; or one that
 * posix_memalign() hands on to malloc(). */
static const char source[] =
	"#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
	"#define F __attribute__((noipa)) void\n"
	"void *volatile kept;\n"
	"F often(void) { kept = malloc(64); free(kept); }\n"
	"F rarely(void) { kept = malloc(160); free(kept); }\n"
	"F nested(void) { void *p; if (!posix_memalign(&p, 16, 48)) free(p); kept = p; }\n"
	"int main(int c, char **v) { puts(\"x\"); fflush(stdout); for (; c > 1; usleep(1000)) nested();"
	" for (;; usleep(100)) { for (int i = 0; i < 2000; i++) often(); rarely(); } }\n";

static char *program;
static struct bpf_agent *agent;
static struct alloc_probes *probes;
static pid_t pid;
static unsigned way; /* of attaching, the newest first */

static void begin(const char *argument)
{
	static const char *const newest_first[] = { "uprobe_session", "uprobe_multi", "bpf_loop",
						    "task_storage", "task_btf" };
	struct features features = bpf_target_features(NULL);
	struct err err = { 0 };

	for (unsigned i = 0; i < (way < WAYS - 1 ? way : ARRAY_SIZE(newest_first)); i++)
		assert_int_equal(features_disable(&features, newest_first[i], "the test", NULL), 0);
	/* as on arm64: the verifier sees the other program of page faults */
	if (way)
		assert_int_equal(features_disable(&features, "page_fault_user", "the test", NULL), 0);
	if (bpf_agent_create(&features, &agent, &err) < 0 || alloc_probes_create(agent, &probes, &err) < 0)
		fail_msg("%s", err.text);
	pid = bpf_target_start(program, argument);
	bpf_target_publish(agent, pid, PUBLISH_MAPPINGS | PUBLISH_TABLES, 0);
	bpf_target_want(agent, pid, PROF_WANT_MAPPED);
}

static int end(void **state)
{
	alloc_probes_destroy(probes);
	probes = NULL;
	bpf_agent_destroy(agent);
	agent = NULL;
	if (pid)
		bpf_target_stop(pid);
	pid = 0;
	bpf_target_forget_modules();
	return 0;
}

/* The samples of one function. */
struct seen {
	unsigned samples, windows;
	uint32_t last_window;
	double objects;
};

static void add(struct seen *seen, const struct prof_sample_event *sample)
{
	seen->windows += sample->source != seen->last_window;
	seen->last_window = sample->source;
	seen->samples++;
	seen->objects += 1 / alloc_inclusion(sample->value, sample->value2);
}

struct bias {
	const char *path;
	uint64_t bias;
};

static int find_bias(void *ctx, const struct proc_map *map)
{
	struct bias *of = ctx;

	if (strcmp(map->path, of->path) == 0)
		of->bias = map->start_va - map->pgoff_fo;
	return 0;
}

/* Attaches to the program, whose C library is this test's, too. */
static int attach(bool relays, bool whole)
{
	struct control_alloc_site sites[ALLOC_SITES_MAX];
	enum alloc_family family;
	char path[512];
	struct alloc_attachment attachment = {
		.path = path,
		.tgid = (uint32_t)pid,
		.sites = sites,
		.site_count = libc_sites(path, sites, &family),
		.relays = relays,
		.returns = whole,
		.frees = whole,
	};
	struct bias of = { .path = path };
	int fd;

	assert_true(proc_maps_read((uint32_t)pid, 10000, find_bias, &of) > 0);
	attachment.bias = of.bias;
	fd = alloc_probes_attach(probes, &attachment);
	assert_true(fd >= 0);
	return fd;
}

/* Opens windows one after the other. */
static void watch(struct seen *rarely, struct seen *often)
{
	struct bpf_recording recording = { 0 };
	int fd;

	begin(NULL);
	fd = attach(true, false);
	for (uint32_t window = 1; window <= WINDOWS; window++) {
		const struct alloc_slot slot = { .mean_gap_bytes = GAP_BYTES, .hits_max = UINT64_MAX,
						 .window = window };
		struct alloc_counts counts = { 0 };

		alloc_probes_set_slot(probes, 0, &slot);
		while (counts.allocations < HITS) {
			bpf_recording_poll(&recording, agent, 1);
			alloc_probes_counts(probes, 0, &counts);
		}
		alloc_probes_set_slot(probes, 0, &(struct alloc_slot){ 0 });
	}
	(void)close(fd);
	bpf_recording_poll(&recording, agent, 1);
	for (size_t i = 0; i < recording.record_count; i++)
		if (recording.records[i].sample.type == PROF_SAMPLE_ALLOC)
			add(recording.records[i].sample.value == RARE_BYTES ? rarely : often,
			    &recording.records[i].sample);
	bpf_recording_deinit(&recording);
}

/* The kernel looks at every way through a program while the collector waits, some 5 us each step,
 * so the first session begins late where there are too many; beyond 1,000,000 it refuses the
 * program. */
static void test_verified(void **state)
{
	unsigned seen = 0;

	begin(NULL);
	for (int fd = 0; fd < FD_MAX; fd++) {
		char name[32], what[64] = "";
		struct bpf_prog_info info = { 0 };
		uint32_t len = sizeof(info);

		(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		if (readlink(name, what, sizeof(what) - 1) < 0 || !strstr(what, "bpf-prog"))
			continue;
		assert_int_equal(bpf_obj_get_info_by_fd(fd, &info, &len), 0);
		if (strncmp(info.name, "alloc_", strlen("alloc_")) != 0)
			continue;
		seen++;
		if (info.verified_insns > (way < WAYS - 1 ? VERIFIED_MAX : VERIFIED_OLD_MAX))
			fail_msg("%s: the verifier takes %u steps", info.name, info.verified_insns);
	}
	assert_true(seen >= 2);
}

static void test_callers(void **state)
{
	struct seen rarely = { 0 }, often = { 0 };

	watch(&rarely, &often);
	print_message(
		"%u samples in %u windows of what is rare, %u of the rest; stand for %.0f and %.0f\n",
		rarely.samples, rarely.windows, often.samples, rarely.objects, often.objects);
	assert_in_range(rarely.windows, WINDOWS - 3, WINDOWS); /* callers may meet in a window */
	assert_true(often.samples < often.objects / 20);
	/* Some 60 samples of a window weigh most: 4 % in all. */
	assert_true(rarely.objects * 2000 / often.objects > 0.7 &&
		    rarely.objects * 2000 / often.objects < 1.4);
}

/* Both returns are probed: posix_memalign() is to return to a page of the kernel's when malloc() is
 * entered. */
static void test_probed_returns(void **state)
{
	const struct alloc_slot slot = { .mean_gap_bytes = 1, .hits_max = UINT64_MAX, .window = 1,
					 .track = ALLOC_TRACK_ALL };
	struct bpf_recording recording = { 0 };
	struct alloc_counts counts = { 0 };
	unsigned inner = 0;
	int fd;

	begin("nested");
	fd = attach(false, true);
	alloc_probes_set_slot(probes, 0, &slot);
	while (counts.sampled < 40) {
		bpf_recording_poll(&recording, agent, 1);
		alloc_probes_counts(probes, 0, &counts);
	}
	(void)close(fd);
	bpf_recording_poll(&recording, agent, 1);
	for (size_t i = 0; i < recording.record_count; i++) {
		const struct prof_stack_event *stack = recording.records[i].user;
		bool found = false;

		if (recording.records[i].sample.type != PROF_SAMPLE_ALLOC ||
		    recording.records[i].sample.detail != ALLOC_BIRTH)
			continue;
		assert_int_equal(recording.records[i].sample.value, INNER);
		assert_non_null(stack);
		assert_int_equal(stack->outcome, OUTCOME_complete);
		inner += strcmp(bpf_target_function(program, stack->frames[0]), "nested") != 0;
		for (uint32_t k = 0; k < stack->frame_count; k++) {
			assert_int_equal(prof_frame_kind(stack->frames[k]), PROF_FRAME_MODULE);
			found |= strcmp(bpf_target_function(program, stack->frames[k]), "nested") == 0;
		}
		assert_true(found);
	}
	assert_true(inner >= 10);
	bpf_recording_deinit(&recording);
}

/* Sampled blocks have addresses, and the ends of each are seen. */
static void test_births_and_deaths(void **state)
{
	const struct alloc_slot slot = { .mean_gap_bytes = GAP_BYTES, .hits_max = UINT64_MAX, .window = 1,
					 .track = ALLOC_TRACK_ALL };
	struct bpf_recording recording = { 0 };
	struct alloc_counts counts = { 0 };
	unsigned births = 0, deaths = 0;
	int fd;

	begin(NULL);
	fd = attach(true, true);
	alloc_probes_set_slot(probes, 0, &slot);
	while (counts.sampled < 200) {
		bpf_recording_poll(&recording, agent, 1);
		alloc_probes_counts(probes, 0, &counts);
	}
	alloc_probes_set_slot(probes, 0, &(struct alloc_slot){ 0 });
	(void)close(fd);
	for (unsigned i = 0; i < 5000 && alloc_probes_are_in(probes, (uint32_t)pid); i++)
		(void)usleep(1000);
	assert_false(alloc_probes_are_in(probes, (uint32_t)pid));
	bpf_recording_poll(&recording, agent, 1);
	for (size_t i = 0; i < recording.record_count; i++) {
		const struct prof_sample_event *sample = &recording.records[i].sample;

		if (sample->type != PROF_SAMPLE_ALLOC)
			continue;
		births += sample->detail == ALLOC_BIRTH && sample->object;
		deaths += sample->detail == ALLOC_DEATH;
	}
	print_message("way %u: %u births, %u deaths, %lu of %lu hits returned to a probe\n", way,
		      births, deaths, counts.returns, counts.hits);
	/* a wait for the kernel, or a walk that could not be made, costs some of them */
	assert_true(births >= 190);
	assert_true(deaths >= births - 2 && deaths <= births);
	bpf_recording_deinit(&recording);
}

/* Waits until so many calls were seen, without taking anything out of the ring. */
static void let_hit(const struct alloc_slot *slot)
{
	struct alloc_counts counts = { 0 };

	alloc_probes_set_slot(probes, 0, slot);
	while (counts.hits < HITS) {
		(void)usleep(1000);
		alloc_probes_counts(probes, 0, &counts);
	}
	alloc_probes_set_slot(probes, 0, &(struct alloc_slot){ 0 });
}

/* Probes that cost more than foreseen wake up the reader of the ring at once. */
static void test_alarm(void **state)
{
	struct alloc_slot slot = { .mean_gap_bytes = GAP_BYTES, .hits_max = UINT64_MAX, .window = 1 };
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct bpf_recording recording = { 0 };
	unsigned alarms = 0;
	int fd, epoll_fd;

	begin(NULL);
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, bpf_agent_wakeup_fd(agent), &event), 0);
	(void)epoll_wait(epoll_fd, &event, 1, 0); /* what is in the ring already */
	fd = attach(true, false);
	let_hit(&slot);
	assert_int_equal(epoll_wait(epoll_fd, &event, 1, 0), 0);
	slot.window = 2;
	slot.hits_alarm = HITS / 8;
	let_hit(&slot);
	assert_int_equal(epoll_wait(epoll_fd, &event, 1, 10000), 1);
	(void)close(epoll_fd);
	(void)close(fd);
	bpf_recording_poll(&recording, agent, 1);
	for (size_t i = 0; i < recording.record_count; i++) {
		const struct prof_sample_event *sample = &recording.records[i].sample;

		if (sample->type != PROF_SAMPLE_ALLOC || sample->detail != ALLOC_BUSY)
			continue;
		assert_int_equal(sample->source, 2);
		assert_int_equal(sample->holder, 0);
		assert_int_equal(sample->tgid, pid);
		alarms++;
	}
	/* again and again, as one may find no room; each CPU counts by itself */
	assert_true(alarms >= 2);
	bpf_recording_deinit(&recording);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(test_verified, end),
					    cmocka_unit_test_teardown(test_callers, end),
					    cmocka_unit_test_teardown(test_probed_returns, end),
					    cmocka_unit_test_teardown(test_births_and_deaths, end),
					    cmocka_unit_test_teardown(test_alarm, end) };
	int rc = 0;

	if (bpf_target_skip())
		return 0;
	program = bpf_target_compile("allocating", source, "-O2");
	/* by one link with sessions, by two links, by single events, and as on 5.10 */
	for (way = 0; way < WAYS && rc == 0; way++)
		rc = cmocka_run_group_tests_name("alloc_probes", tests, NULL, NULL);
	bpf_target_cleanup();
	free(program);
	return rc;
}
