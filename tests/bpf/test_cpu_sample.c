// SPDX-License-Identifier: Apache-2.0
/* CPU samples of real programs on the real kernel: every chain of calls must come out exactly as it
 * is in the source, whatever the program was built without. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/io.h"
#include "bpf/outcome.h"
#include "tests/support/bpf_target.h"

#define CHAIN	 60u
#define CPU_NS_MIN 150000000ull /* some 150 ticks */
#define RATE_HZ	 997u
#define NO_FP	 "-O2 -fomit-frame-pointer -fno-optimize-sibling-calls"
#define WITH_FP	 "-O2 -fno-omit-frame-pointer -fno-optimize-sibling-calls"
#define WANT_CPU (PROF_WANT_CPU | PROF_WANT_MAPPED)
#define PROLOGUE                                                                                   \
	"#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"      \
	"#include <sys/mman.h>\n#include <fcntl.h>\n#include <unistd.h>\n"                         \
	"#define F __attribute__((noipa)) unsigned long\n"                                         \
	"static void ready(void) { puts(\"x\"); fflush(stdout); }\n"

/* f59 calls f58 … calls f0, which spins. */
static char *chain_source(const char *leaf)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	fprintf(out, "%sF f0(unsigned long x) { %s return x; }\n", PROLOGUE, leaf);
	for (unsigned i = 1; i < CHAIN; i++)
		fprintf(out, "F f%u(unsigned long x) { return f%u(x + 1) + x; }\n", i, i - 1);
	fprintf(out, "int main(void) { volatile unsigned long s = 0; ready(); for (;;) s += f%u(s); }\n",
		CHAIN - 1);
	assert_int_equal(fclose(out), 0);
	return text;
}

#define SPIN "for (int i = 0; i < 100000; i++) x = x * 3 + i;"

/* At the bottom long enough that its way down and up, on which a stack may be short, is a
 * thousandth of it: processors that predict returns badly take 5 us for it. */
static const char recursion_source[] = PROLOGUE
	"F down(unsigned long n) { unsigned long x = n;"
	" if (n) return down(n - 1) + 1; for (int k = 0; k < 40; k++) " SPIN " return x; }\n"
	"int main(int c, char **v) { volatile unsigned long s = 0; ready();"
	" for (;;) s += down(atoi(v[1])); }\n";

static const char signal_source[] = PROLOGUE
	"static char other[65536];\n"
	"F leaf(unsigned long x) { " SPIN " return x; }\n"
	"static void handler(int n) { volatile unsigned long s = leaf(n); (void)s; }\n"
	"F below(unsigned long n) { if (n) return below(n - 1) + 1; raise(SIGUSR1); return n; }\n"
	"int main(int c, char **v) { volatile unsigned long s = 0;"
	" stack_t t = { .ss_sp = other, .ss_size = sizeof(other) };"
	" struct sigaction a = { .sa_handler = handler, .sa_flags = atoi(v[1]) ? SA_ONSTACK : 0 };"
	" sigaltstack(&t, 0); sigaction(SIGUSR1, &a, 0); ready(); for (;;) s += below(5); }\n";

/* push %rbp; mov %rsp,%rbp; call *%rdi; nop; pop %rbp; ret in anonymous executable memory. With an
 * argument there is no nop: the call returns to code that does nothing more than return. */
static const char jit_source[] = PROLOGUE
	"static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x90, 0x5d, 0xc3 };\n"
	"F leaf(void) { unsigned long x = 1; " SPIN " return x; }\n"
	"F caller(unsigned long (*p)(unsigned long (*)(void))) { return p(leaf) + 1; }\n"
	"int main(int c, char **v) { volatile unsigned long s = 0;"
	" char *p = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,"
	" -1, 0); memcpy(p, code, sizeof(code)); if (c > 1) memcpy(p + 6, code + 7, 2);"
	" ready(); for (;;) s += caller((void *)p); }\n";

/* ---- running --------------------------------------------------------------------------------- */

struct run {
	struct bpf_agent *agent;
	pid_t pid;
	const char *path;
	struct bpf_recording recording;
};

static struct run run; /* ended by the teardown of each test, also of one that failed */

struct setup {
	const char *disable; /* feature */
	const char *path;
	const char *argument;
	unsigned publish;
	uint32_t mapping_flags;
	uint32_t wanted; /* 0: nobody has decided */
	unsigned ms;	 /* 0: 700 */
};

static uint64_t cpu_ns_of(pid_t pid)
{
	char path[64], text[64];
	unsigned long long ns = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	assert_true(io_read_small(AT_FDCWD, path, text, sizeof(text)) > 0);
	assert_int_equal(sscanf(text, "%llu", &ns), 1);
	return ns;
}

static void run_start(const struct setup *setup)
{
	struct features features = bpf_target_features(setup->disable);
	struct err err = { 0 };
	uint64_t before_ns;

	run = (struct run){ .path = setup->path };
	if (bpf_agent_create(&features, &run.agent, &err) < 0)
		fail_msg("%s", err.text);
	run.pid = bpf_target_start(setup->path, setup->argument);
	if (setup->publish)
		bpf_target_publish(run.agent, run.pid, setup->publish, setup->mapping_flags);
	if (setup->wanted)
		bpf_target_want(run.agent, run.pid, setup->wanted);
	else
		bpf_agent_set_undecided(run.agent, true);
	if (bpf_agent_set_cpu_rate(run.agent, RATE_HZ, &err) < 0)
		fail_msg("%s", err.text);
	before_ns = cpu_ns_of(run.pid);
	bpf_recording_poll(&run.recording, run.agent, setup->ms ? setup->ms : 700);
	/* On a busy machine it had less of that time. */
	for (unsigned i = 0; i < 600 && cpu_ns_of(run.pid) - before_ns < CPU_NS_MIN; i++)
		bpf_recording_poll(&run.recording, run.agent, 100);
}

static int run_end(void **state)
{
	bpf_agent_destroy(run.agent);
	if (run.pid)
		bpf_target_stop(run.pid);
	bpf_recording_deinit(&run.recording);
	bpf_target_forget_modules();
	run = (struct run){ 0 };
	return 0;
}

/* ---- checking -------------------------------------------------------------------------------- */

/* Does a user stack begin with f(k), f(k+1) … f59, main? */
static bool is_chain(const char *path, const struct prof_stack_event *stack)
{
	unsigned level;
	char name[16];

	if (sscanf(bpf_target_function(path, stack->frames[0]), "f%u", &level) != 1)
		return false;
	for (unsigned i = 0; i < stack->frame_count; i++, level++) {
		if (!(stack->frames[i] & PROF_FRAME_RETURN) != !i)
			return false;
		(void)snprintf(name, sizeof(name), "f%u", level);
		if (level == CHAIN)
			return !strcmp(bpf_target_function(path, stack->frames[i]), "main");
		if (strcmp(bpf_target_function(path, stack->frames[i]), name) != 0)
			return false;
	}
	return false;
}

static int find_function(const char *path, const struct prof_stack_event *stack, const char *name)
{
	for (int i = 0; i < stack->frame_count; i++)
		if (!strcmp(bpf_target_function(path, stack->frames[i]), name))
			return i;
	return -1;
}

struct tally {
	size_t samples, user, exact, complete, guessed, truncated;
	size_t deepest;
};

/* Counts samples of the run's program: those with an exact chain, those that reached the outermost
 * frame, those with a guessed frame. */
static struct tally tally_chain(void)
{
	struct tally tally = { 0 };

	for (size_t i = 0; i < run.recording.record_count; i++) {
		const struct bpf_record *record = &run.recording.records[i];
		bool guessed = false;

		if (record->sample.tgid != (uint32_t)run.pid)
			continue;
		tally.samples++;
		if (!record->user)
			continue;
		tally.user++;
		tally.exact += is_chain(run.path, record->user);
		tally.complete += record->user->outcome == OUTCOME_complete &&
				  find_function(run.path, record->user, "_start") ==
					  record->user->frame_count - 1;
		tally.truncated += record->user->outcome == OUTCOME_truncated;
		for (int f = 0; f < record->user->frame_count; f++)
			guessed |= prof_frame_kind(record->user->frames[f]) <= PROF_FRAME_KERNEL &&
				   record->user->frames[f] & PROF_FRAME_GUESSED;
		tally.guessed += guessed;
		if (record->user->frame_count > tally.deepest)
			tally.deepest = record->user->frame_count;
	}
	if (tally.samples < 25)
		fail_msg("only %zu samples", tally.samples);
	return tally;
}

#define assert_share(part, whole, percent)                                                         \
	do {                                                                                       \
		if (100 * (part) < (whole) * (percent))                                            \
			fail_msg("%s: %zu of %zu, expected %u %%", #part, (size_t)(part),          \
				 (size_t)(whole), (unsigned)(percent));                            \
	} while (0)

/* ---- tests ----------------------------------------------------------------------------------- */

static char *chain, *chain_fp, *chain_syscall, *recursion, *signals, *jit, *paged_out;

static void test_chain(void **state)
{
	const struct setup setup = { .path = chain, .publish = PUBLISH_MAPPINGS | PUBLISH_TABLES,
				     .wanted = WANT_CPU };
	struct tally tally;

	run_start(&setup);
	tally = tally_chain();
	assert_share(tally.exact, tally.samples, 97);
	assert_share(tally.complete, tally.samples, 97);
	assert_int_equal(tally.guessed, 0);
	for (size_t i = 0; i < run.recording.record_count; i++) {
		const struct prof_sample_event *sample = &run.recording.records[i].sample;

		assert_int_equal(sample->value, 1000000000 / RATE_HZ);
		assert_int_equal(sample->type, PROF_SAMPLE_CPU);
		assert_int_equal(sample->tid, run.pid);
		assert_string_equal(sample->comm, "chain");
		assert_true(sample->start_boottime_ns >= bpf_target_start_boottime_ns(run.pid));
	}
}

/* Nothing is published but the files: neither mappings nor a decision on the process. */
static void test_young(void **state)
{
	const struct setup setup = { .path = chain, .publish = PUBLISH_FILES | PUBLISH_TABLES };
	struct tally tally;

	run_start(&setup);
	tally = tally_chain();
	assert_share(tally.exact, tally.samples, 97);
	assert_share(tally.complete, tally.samples, 97);
	assert_int_equal(tally.guessed, 0);
}

/* Bare addresses, kept apart by process, and the collector is told. */
static void test_young_without_walk(void **state)
{
	const struct setup setup = { .disable = "vma_walk", .path = chain,
				     .publish = PUBLISH_FILES | PUBLISH_TABLES };
	size_t unknown = 0;

	run_start(&setup);
	for (size_t i = 0; i < run.recording.stack_count; i++)
		if (run.recording.stacks[i]->tgid == (uint32_t)run.pid)
			assert_int_equal(prof_frame_kind(run.recording.stacks[i]->frames[0]),
					 PROF_FRAME_ADDRESS);
	for (size_t i = 0; i < run.recording.task_count; i++)
		unknown += run.recording.tasks[i].head.kind == PROF_EVENT_UNKNOWN_PC &&
			   run.recording.tasks[i].tgid == (uint32_t)run.pid;
	assert_in_range(unknown, 1, 5);
}

static void test_without_loop(void **state)
{
	const struct setup setup = { .disable = "bpf_loop", .path = chain,
				     .publish = PUBLISH_MAPPINGS | PUBLISH_TABLES,
				     .wanted = WANT_CPU };
	struct tally tally;

	run_start(&setup);
	tally = tally_chain();
	assert_share(tally.exact, tally.samples, 97);
	assert_share(tally.complete, tally.samples, 97);
}

/* Each thing that an older kernel may lack: the stacks of a program that computes stay whole. */
static void test_each_feature_missing(void **state)
{
	static const char *const features[] = {
		"hardware_cycles", "task_btf",	      "task_pt_regs", "task_storage",
		"vma_walk",	   "irq_work",	      "uprobe_multi", "uprobe_session", "uprobe_events",
		"thread_events",   "lock_contention", "task_work",    "fexit",
		"wakers",	   "block_requests",  "io_uring",     "stolen",
		"file_names",	   "page_faults",     "waits",	     "io_calls",     "page_fault_user"
	};

	assert_int_equal(FEATURE_MAX,
			 ARRAY_SIZE(features) + 6); /* five are required; bpf_loop has a test */

	for (size_t i = 0; i < ARRAY_SIZE(features); i++) {
		const struct setup setup = { .disable = features[i], .path = chain, .ms = 300,
					     .publish = PUBLISH_MAPPINGS | PUBLISH_TABLES,
					     .wanted = WANT_CPU };
		struct tally tally;

		run_start(&setup);
		tally = tally_chain();
		assert_share(tally.user, tally.samples, 97);
		if (tally.exact * 100 < tally.user * 97)
			fail_msg("without %s: %zu of %zu chains", features[i], tally.exact,
				 tally.user);
		assert_share(tally.complete, tally.user, 97);
		assert_int_equal(tally.guessed, 0);
		run_end(NULL);
	}
}

/* Callers by frame pointer, the innermost frame by its row: nothing is a guess. */
static void test_frame_pointers(void **state)
{
	static const uint32_t flags[] = { 0, PROF_MAPPING_FP };

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		const struct setup setup = { .path = chain_fp,
					     .publish = PUBLISH_MAPPINGS | PUBLISH_TABLES,
					     .mapping_flags = flags[i], .wanted = WANT_CPU };
		struct tally tally;

		run_start(&setup);
		tally = tally_chain();
		assert_share(tally.exact, tally.samples, 97);
		assert_share(tally.complete, tally.samples, 97);
		assert_int_equal(tally.guessed, 0);
		run_end(NULL);
	}
}

/* No table at all: frame pointers are followed and said to be guesses. */
static void test_no_rows(void **state)
{
	const struct setup setup = { .path = chain_fp, .publish = PUBLISH_MAPPINGS,
				     .wanted = WANT_CPU };
	struct tally tally;

	run_start(&setup);
	tally = tally_chain();
	assert_share(tally.guessed, tally.samples, 97);
	for (size_t i = 0; i < run.recording.stack_count; i++) {
		const struct prof_stack_event *stack = run.recording.stacks[i];

		if (stack->tgid != (uint32_t)run.pid)
			continue;
		/* f0 is a leaf without a frame of its own, which hides its caller */
		assert_int_equal(stack->outcome, OUTCOME_no_rows);
		assert_false(stack->frames[0] & PROF_FRAME_GUESSED);
		if (find_function(chain_fp, stack, "f0") == 0)
			assert_int_equal(find_function(chain_fp, stack, "main"), CHAIN - 1);
	}
}

static void test_truncated(void **state)
{
	static const struct {
		const char *disable;
		unsigned frames;
	} cases[] = { { NULL, PROF_FRAMES_MAX }, { "bpf_loop", PROF_FRAMES_MAX } };

	for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
		const struct setup setup = { .disable = cases[c].disable, .path = recursion,
					     .argument = "700", .wanted = WANT_CPU, .ms = 300,
					     .publish = PUBLISH_MAPPINGS | PUBLISH_TABLES };
		struct tally tally;

		run_start(&setup);
		tally = tally_chain();
		assert_share(tally.truncated, tally.samples, 97);
		assert_int_equal(tally.deepest, cases[c].frames + 1);
		for (size_t i = 0; i < run.recording.stack_count; i++) {
			const struct prof_stack_event *stack = run.recording.stacks[i];

			if (stack->outcome == OUTCOME_truncated)
				assert_int_equal(
					prof_frame_kind(stack->frames[stack->frame_count - 1]),
					PROF_FRAME_TRUNCATED);
		}
		run_end(NULL);
	}
}

/* One frame fewer than the limit is whole: 505 turns, main and the three outermost frames. */
static void test_deepest_whole(void **state)
{
	const struct setup setup = { .path = recursion, .argument = "507", .wanted = WANT_CPU,
				     .ms = 300, .publish = PUBLISH_MAPPINGS | PUBLISH_TABLES };
	struct tally tally;

	run_start(&setup);
	tally = tally_chain();
	assert_share(tally.complete, tally.samples, 97);
	assert_int_equal(tally.deepest, PROF_FRAMES_MAX);
}

static uint64_t outcomes_of(uint32_t outcome)
{
	struct bpf_costs costs;

	assert_int_equal(bpf_agent_costs(run.agent, &costs), 0);
	return costs.outcomes[outcome];
}

/* Every sample of paged_out has a stack, and 97 % of them one that ends with @outcome: complete
 * from run() on, or cut in down(). */
static void check_paged_out(const char *disable, const char *argument, uint32_t outcome)
{
	const struct setup setup = { .disable = disable, .path = paged_out, .argument = argument,
				     .wanted = WANT_CPU, .ms = 300,
				     .publish = PUBLISH_MAPPINGS | PUBLISH_TABLES };
	size_t due = 0, samples = 0;

	run_start(&setup);
	for (size_t i = 0; i < run.recording.record_count; i++) {
		const struct bpf_record *record = &run.recording.records[i];

		if (record->sample.tgid != (uint32_t)run.pid)
			continue;
		assert_non_null(record->user);
		samples++;
		due += record->user->outcome == outcome &&
		       (outcome == OUTCOME_complete
				? find_function(paged_out, record->user, "run") >= 61
				: find_function(paged_out, record->user, "down") >= 0 &&
					  record->user->frame_count < 61);
	}
	assert_true(samples >= 25);
	assert_share(due, samples, 97);
	assert_true(outcomes_of(outcome) >= due);
}

/* A stack page that cannot be read ends the stack with an outcome of its own. No sample is missing.
 * */
static void test_paged_out(void **state)
{
	check_paged_out("task_work", "once", OUTCOME_user_read_fault);
	assert_int_equal(outcomes_of(OUTCOME_read_retried), 0);
}

/* With task work the stack is walked again before the thread goes on: each stack is whole and
 * counts once. But a thread is not made to wait for a server of its memory: it would hang here for
 * ever. */
static void test_paged_out_is_retried(void **state)
{
	struct features features = bpf_target_features(NULL);

	if (!features_has(&features, FEATURE_TASK_WORK)) {
		printf("skipped: %s\n", features.reason[FEATURE_TASK_WORK]);
		return;
	}
	check_paged_out(NULL, "spin", OUTCOME_complete);
	assert_true(run.recording.retried_count >= 10);
	assert_true(outcomes_of(OUTCOME_read_retried) >= run.recording.retried_count);
	run_end(NULL);
	check_paged_out(NULL, "hang", OUTCOME_user_read_fault);
	assert_true(outcomes_of(OUTCOME_read_retried) > 0);
}

/* leaf < handler < trampoline < raise … < below × 6 < main, on the same and on another stack. */
static void test_signal(void **state)
{
	static const char *const arguments[] = { "0", "1" };

	for (size_t a = 0; a < ARRAY_SIZE(arguments); a++) {
		const struct setup setup = { .path = signals, .argument = arguments[a],
					     .wanted = WANT_CPU, .ms = 300,
					     .publish = PUBLISH_MAPPINGS | PUBLISH_TABLES };
		size_t samples = 0, exact = 0;

		run_start(&setup);
		for (size_t i = 0; i < run.recording.record_count; i++) {
			const struct prof_stack_event *user = run.recording.records[i].user;
			int below;

			if (!user || find_function(signals, user, "leaf") != 0)
				continue;
			samples++;
			below = find_function(signals, user, "below");
			exact += find_function(signals, user, "handler") == 1 && below > 2 &&
				 find_function(signals, user, "main") == below + 6 &&
				 user->outcome == OUTCOME_complete;
		}
		assert_true(samples > 25);
		assert_share(exact, samples, 97);
		run_end(NULL);
	}
}

/* leaf (rows) < generated code (frame pointer, @guess, or returns at once) < caller (rows). */
static void check_jit(const char *argument, uint64_t guess)
{
	const struct setup setup = { .path = jit, .argument = argument, .wanted = WANT_CPU,
				     .publish = PUBLISH_MAPPINGS | PUBLISH_TABLES };
	size_t samples = 0, exact = 0, unknown = 0;

	run_start(&setup);
	for (size_t i = 0; i < run.recording.record_count; i++) {
		const struct prof_stack_event *user = run.recording.records[i].user;

		if (!user || find_function(jit, user, "leaf") != 0)
			continue;
		samples++;
		exact += prof_frame_kind(user->frames[1]) == PROF_FRAME_ADDRESS &&
			 !(user->frames[1] & PROF_FRAME_GUESSED) &&
			 find_function(jit, user, "caller") == 2 &&
			 (user->frames[2] & PROF_FRAME_GUESSED) == guess &&
			 find_function(jit, user, "main") == 3 &&
			 user->outcome == (guess ? OUTCOME_guessed : OUTCOME_complete);
	}
	assert_true(samples > 25);
	assert_share(exact, samples, 97);
	for (size_t i = 0; i < run.recording.task_count; i++)
		unknown += run.recording.tasks[i].head.kind == PROF_EVENT_UNKNOWN_PC;
	/* at most one in 250 ms */
	assert_in_range(unknown, 1, 5);
	run_end(NULL);
}

static void test_jit(void **state)
{
	check_jit(NULL, PROF_FRAME_GUESSED);
	check_jit("returns", 0);
}

static void test_kernel_frames(void **state)
{
	const struct setup setup = { .path = chain_syscall, .wanted = WANT_CPU,
				     .publish = PUBLISH_MAPPINGS | PUBLISH_TABLES };
	size_t with_kernel = 0, whole = 0;

	run_start(&setup);
	for (size_t i = 0; i < run.recording.record_count; i++) {
		const struct bpf_record *record = &run.recording.records[i];

		if (!record->kernel)
			continue;
		with_kernel++;
		for (int f = 0; f < record->kernel->frame_count; f++) {
			assert_int_equal(prof_frame_kind(record->kernel->frames[f]),
					 PROF_FRAME_KERNEL);
			assert_int_equal(!(record->kernel->frames[f] & PROF_FRAME_RETURN), !f);
		}
		/* read() of libc, then f0 … f59, main and the three outermost */
		whole += record->user && record->kernel->frame_count >= 2 &&
			 record->user->outcome == OUTCOME_complete &&
			 find_function(chain_syscall, record->user, "main") -
					 find_function(chain_syscall, record->user, "f0") ==
				 (int)CHAIN;
	}
	assert_share(with_kernel, run.recording.record_count, 50);
	assert_share(whole, with_kernel, 97);
}

static int setup_group(void **state)
{
	char *spin = chain_source(SPIN);
	char *syscalls = chain_source("static char b[65536]; static int fd;"
				      "if (!fd) fd = open(\"/dev/zero\", 0);"
				      "x += read(fd, b, sizeof(b));");

	chain = bpf_target_compile("chain", spin, NO_FP);
	chain_fp = bpf_target_compile("chain_fp", spin, WITH_FP);
	chain_syscall = bpf_target_compile("chain_syscall", syscalls, NO_FP);
	recursion = bpf_target_compile("recursion", recursion_source, NO_FP);
	signals = bpf_target_compile("signals", signal_source, NO_FP);
	jit = bpf_target_compile("jit", jit_source, NO_FP);
	paged_out = bpf_target_compile("paged_out", "#include \"tests/workloads/paged_out.c\"\n",
				       NO_FP " -I.");
	free(spin);
	free(syscalls);
	return 0;
}

static int teardown_group(void **state)
{
	char *paths[] = { chain, chain_fp, chain_syscall, recursion, signals, jit, paged_out };

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		free(paths[i]);
	bpf_target_cleanup();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_chain, run_end),
		cmocka_unit_test_teardown(test_young, run_end),
		cmocka_unit_test_teardown(test_young_without_walk, run_end),
		cmocka_unit_test_teardown(test_without_loop, run_end),
		cmocka_unit_test_teardown(test_each_feature_missing, run_end),
		cmocka_unit_test_teardown(test_frame_pointers, run_end),
		cmocka_unit_test_teardown(test_no_rows, run_end),
		cmocka_unit_test_teardown(test_truncated, run_end),
		cmocka_unit_test_teardown(test_deepest_whole, run_end),
		cmocka_unit_test_teardown(test_paged_out, run_end),
		cmocka_unit_test_teardown(test_paged_out_is_retried, run_end),
		cmocka_unit_test_teardown(test_signal, run_end),
		cmocka_unit_test_teardown(test_jit, run_end),
		cmocka_unit_test_teardown(test_kernel_frames, run_end),
	};

	if (bpf_target_skip())
		return 0;
	return cmocka_run_group_tests_name("cpu_sample", tests, setup_group, teardown_group);
}
