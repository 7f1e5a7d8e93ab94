// SPDX-License-Identifier: Apache-2.0
/* Probes on the allocator of a real program: a place that allocates seldom among others that do all the time is seen in
 * every window, and what the samples stand for remains what was allocated; calls whose return is probed are walked
 * through. */
#include <fcntl.h>
#include <gelf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/collect/alloc_heap.h"
#include "agent/collect/alloc_probes.h"
#include "bpf/outcome.h"
#include "symbolize/alloc_sites.h"
#include "tests/support/bpf_target.h"

#define WINDOWS	   30u
#define HITS	   5000u /* of a window, at least */
#define GAP_BYTES  16384u
#define RARE_BYTES 160u
#define INNER	   48u

/* 2,000 allocations of 64 bytes by one caller, then one by another, again and again; or one that posix_memalign() hands on
 * to malloc(). */
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

static unsigned find_sites(char path[512], struct control_alloc_site sites[ALLOC_SITES_MAX])
{
	FILE *maps = fopen("/proc/self/maps", "re");
	enum alloc_family family;
	char line[1024];
	unsigned count;
	Elf *elf;
	int fd;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "/libc.so.6") && sscanf(line, "%*s %*s %*s %*s %*s %511s", path) == 1)
			break;
	(void)fclose(maps);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	(void)elf_version(EV_CURRENT);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	assert_non_null(elf);
	count = alloc_sites_load(elf, sites, &family);
	(void)elf_end(elf);
	(void)close(fd);
	return count;
}

static void begin(const char *argument)
{
	struct features features = bpf_target_features(NULL);
	struct err err = { 0 };

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

/* What was seen of a function. */
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

/* Attaches to the program, whose C library is this test's, too. */
static int attach(bool relays)
{
	struct control_alloc_site sites[ALLOC_SITES_MAX];
	char path[512] = "";
	const struct alloc_attachment attachment = {
		.path = path,
		.tgid = (uint32_t)pid,
		.sites = sites,
		.site_count = find_sites(path, sites),
		.relays = relays,
	};
	const int fd = alloc_probes_attach(probes, &attachment);

	assert_true(fd >= 0);
	return fd;
}

/* Opens windows one after the other. */
static void watch(bool closely, struct seen *rarely, struct seen *often)
{
	struct bpf_recording recording = { 0 };
	int fd;

	begin(NULL);
	fd = attach(true);
	for (uint32_t window = 1; window <= WINDOWS; window++) {
		const struct alloc_slot slot = { .mean_gap_bytes = GAP_BYTES, .hits_max = UINT64_MAX,
						 .window = window, .closely = closely };
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
			add(recording.records[i].sample.value == RARE_BYTES ? rarely : often, &recording.records[i].sample);
	bpf_recording_deinit(&recording);
}

static void test_callers(void **state)
{
	struct seen rarely = { 0 }, often = { 0 };

	watch(true, &rarely, &often);
	print_message("%u samples in %u windows of what is rare, %u of the rest; stand for %.0f and %.0f\n", rarely.samples,
		      rarely.windows, often.samples, rarely.objects, often.objects);
	assert_in_range(rarely.windows, WINDOWS - 3, WINDOWS); /* callers may meet in a window */
	assert_true(often.samples < often.objects / 20);
	/* Some 60 samples of a window weigh most: 4 % in all. */
	assert_true(rarely.objects * 2000 / often.objects > 0.7 && rarely.objects * 2000 / often.objects < 1.4);
}

/* Without it hardly anything is seen of that place. */
static void test_one_gap(void **state)
{
	struct seen rarely = { 0 }, often = { 0 };

	watch(false, &rarely, &often);
	assert_true(often.samples > 100 && rarely.samples * 50 < often.samples);
}

/* Both returns are probed: posix_memalign() is to return to a page of the kernel's when malloc() is entered. */
static void test_probed_returns(void **state)
{
	const struct alloc_slot slot = { .mean_gap_bytes = 1, .hits_max = UINT64_MAX, .window = 1,
					 .track = ALLOC_TRACK_ALL, .closely = true };
	struct bpf_recording recording = { 0 };
	struct alloc_counts counts = { 0 };
	unsigned inner = 0;
	int fd;

	begin("nested");
	if (!alloc_probes_tells_addresses(probes)) {
		print_message("skipped: this kernel probes no returns by session (Linux 6.13)\n");
		skip();
	}
	fd = attach(false);
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

		if (recording.records[i].sample.type != PROF_SAMPLE_ALLOC || recording.records[i].sample.detail != ALLOC_BIRTH)
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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(test_callers, end),
					    cmocka_unit_test_teardown(test_one_gap, end),
					    cmocka_unit_test_teardown(test_probed_returns, end) };
	int rc;

	if (bpf_target_skip())
		return 0;
	program = bpf_target_compile("allocating", source, "-O2");
	rc = cmocka_run_group_tests_name("alloc_probes", tests, NULL, NULL);
	bpf_target_cleanup();
	free(program);
	return rc;
}
