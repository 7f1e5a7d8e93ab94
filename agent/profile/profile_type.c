// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/profile_type.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bpf/profiler.h"

#define COUNT(name)	  { name, "count" }
#define NANOSECONDS(name) { name, "nanoseconds" }
#define BYTES(name)	  { name, "bytes" }

#define SAMPLE(name) (1u << PROF_SAMPLE_##name)

#define NEEDS_CPU "the collector cannot sample the CPUs of this host"
#define NEEDS_FAULTS "the collector cannot sample page faults (`profd --features` says why)"
#define NEEDS_OFFCPU                                                                               \
	"the kernel lacks what following tasks off the CPU needs (5.10 or newer with BTF; "        \
	"`profd --features` says which)"
#define NEEDS_IO                                                                                   \
	"the kernel lacks what following the bytes of system calls needs (`profd --features` says which)"
#define NEEDS_UPROBES                                                                              \
	"programs that are not Go are observed by probes on their allocator, which this kernel or the " \
	"service's privileges do not allow: they take Linux 5.10 (`profd --features`)"

static const struct profile_type_info types[PROFILE_TYPE_MAX] = {
	[PROFILE_CPU] = {
		.word = "cpu", .alias = "profile", .noun = "CPU",
		.values = { COUNT("samples"), NANOSECONDS("cpu") }, .value_count = 2, .value_index = 1,
		.rate = true,
		.way = PROFILE_WAY_SAMPLED, .go_way = PROFILE_WAY_SAMPLED,
		.judged = PROFILE_JUDGED_SHARES, .kept = PROFILE_KEPT_MINUTES, .minute_slot = 0,
		.options = PROFILE_OPTION_CHILDREN,
		.wants = PROF_WANT_CPU, .samples = SAMPLE(CPU), .needs = NEEDS_CPU,
		.period = NANOSECONDS("cpu"), .metric = "process_cpu",
	},
	[PROFILE_OFFCPU] = {
		.word = "offcpu", .noun = "time off CPU",
		.values = { COUNT("events"), NANOSECONDS("offcpu") }, .value_count = 2, .value_index = 1,
		.rate = true, .spans = true,
		.way = PROFILE_WAY_WAITS, .go_way = PROFILE_WAY_WAITS,
		.judged = PROFILE_JUDGED_AMOUNTS, .kept = PROFILE_KEPT_MINUTES, .minute_slot = 1,
		.options = PROFILE_OPTION_CHILDREN | PROFILE_OPTION_WAKERS,
		.wants = PROF_WANT_OFFCPU,
		.samples = SAMPLE(OFFCPU) | SAMPLE(THREAD) | SAMPLE(STOLEN), .needs = NEEDS_OFFCPU,
		.metric = "offcpu",
	},
	[PROFILE_WALL] = {
		.word = "wall", .noun = "time",
		.values = { NANOSECONDS("wall") }, .value_count = 1, .value_index = 0,
		.rate = true, .spans = true,
		.way = PROFILE_WAY_WAITS, .go_way = PROFILE_WAY_WAITS,
		.judged = PROFILE_JUDGED_AMOUNTS, .kept = PROFILE_KEPT_MINUTES, .minute_slot = 2,
		.options = PROFILE_OPTION_CHILDREN | PROFILE_OPTION_WAKERS,
		.wants = PROF_WANT_CPU | PROF_WANT_OFFCPU,
		.samples = SAMPLE(CPU) | SAMPLE(OFFCPU) | SAMPLE(THREAD) | SAMPLE(STOLEN),
		.needs = NEEDS_OFFCPU, .metric = "wall",
	},
	[PROFILE_BLOCK] = {
		.word = "block", .noun = "blocked time",
		.values = { COUNT("contentions"), NANOSECONDS("delay") }, .value_count = 2, .value_index = 1,
		.rate = true, .spans = true, .counter = true,
		.way = PROFILE_WAY_WAITS, .go_way = PROFILE_WAY_SNAPSHOT,
		.judged = PROFILE_JUDGED_AMOUNTS, .kept = PROFILE_KEPT_SESSIONS,
		.options = PROFILE_OPTION_CHILDREN | PROFILE_OPTION_WAKERS,
		.wants = PROF_WANT_OFFCPU, .samples = SAMPLE(OFFCPU), .needs = NEEDS_OFFCPU,
		.extra = "lock", .period = COUNT("contentions"), .metric = "block",
	},
	[PROFILE_MUTEX] = {
		.word = "mutex", .noun = "contention",
		.values = { COUNT("contentions"), NANOSECONDS("delay") }, .value_count = 2, .value_index = 1,
		.rate = true, .spans = true, .counter = true,
		.way = PROFILE_WAY_WAITS, .go_way = PROFILE_WAY_SNAPSHOT,
		.judged = PROFILE_JUDGED_AMOUNTS, .kept = PROFILE_KEPT_SESSIONS,
		.options = PROFILE_OPTION_CHILDREN | PROFILE_OPTION_WAKERS | PROFILE_OPTION_KERNEL_LOCKS,
		.wants = PROF_WANT_OFFCPU | PROF_WANT_LOCKS,
		.samples = SAMPLE(OFFCPU) | SAMPLE(THREAD), .needs = NEEDS_OFFCPU,
		.extra = "lock", .period = COUNT("contentions"), .metric = "mutex",
	},
	[PROFILE_MEMORY] = {
		.word = "memory", .alias = "heap", .noun = "live heap",
		.values = { COUNT("inuse_objects"), BYTES("inuse_space") }, .value_count = 2, .value_index = 1,
		.way = PROFILE_WAY_PROBES, .go_way = PROFILE_WAY_SNAPSHOT,
		.judged = PROFILE_JUDGED_LEVELS, .kept = PROFILE_KEPT_SESSIONS,
		.wants = PROF_WANT_ALLOC | PROF_WANT_LIVE, .samples = SAMPLE(ALLOC), .needs = NEEDS_UPROBES,
		.period = BYTES("space"), .metric = "memory",
	},
	[PROFILE_ALLOC] = {
		.word = "alloc", .alias = "allocs", .noun = "allocations",
		.values = { COUNT("alloc_objects"), BYTES("alloc_space") }, .value_count = 2, .value_index = 1,
		.rate = true, .counter = true,
		.way = PROFILE_WAY_PROBES, .go_way = PROFILE_WAY_SNAPSHOT,
		.judged = PROFILE_JUDGED_LEVELS, .kept = PROFILE_KEPT_SESSIONS,
		.wants = PROF_WANT_ALLOC, .samples = SAMPLE(ALLOC), .needs = NEEDS_UPROBES,
		.period = BYTES("space"), .metric = "memory",
	},
	[PROFILE_GOROUTINE] = {
		.word = "goroutine", .noun = "goroutines",
		.values = { COUNT("goroutine") }, .value_count = 1, .value_index = 0,
		.way = PROFILE_WAY_SNAPSHOT, .go_way = PROFILE_WAY_SNAPSHOT,
		.judged = PROFILE_JUDGED_COUNTS, .kept = PROFILE_KEPT_SESSIONS,
		.options = PROFILE_OPTION_INSTANT | PROFILE_OPTION_TASKS,
		.extra = "createdBy", .period = COUNT("goroutine"), .metric = "goroutines",
	},
	[PROFILE_IO] = {
		.word = "io", .noun = "I/O time",
		.values = { COUNT("operations"), NANOSECONDS("delay"), BYTES("bytes") },
		.value_count = 3, .value_index = 1,
		.rate = true, .spans = true,
		.way = PROFILE_WAY_WAITS, .go_way = PROFILE_WAY_WAITS,
		.judged = PROFILE_JUDGED_AMOUNTS, .kept = PROFILE_KEPT_NOT,
		.options = PROFILE_OPTION_CHILDREN | PROFILE_OPTION_WAKERS | PROFILE_OPTION_PATHS,
		.wants = PROF_WANT_OFFCPU | PROF_WANT_IO,
		.samples = SAMPLE(OFFCPU) | SAMPLE(IO) | SAMPLE(MOVED), .needs = NEEDS_IO,
		.only_on_demand = "io may make every system call of the host take longer while it is taken",
		.extra = "kind", .metric = "io",
	},
	[PROFILE_FAULTS] = {
		.word = "faults", .noun = "page faults",
		.values = { COUNT("faults") }, .value_count = 1, .value_index = 0,
		.rate = true,
		.way = PROFILE_WAY_SAMPLED, .go_way = PROFILE_WAY_SAMPLED,
		.judged = PROFILE_JUDGED_AMOUNTS, .kept = PROFILE_KEPT_MINUTES, .minute_slot = 3,
		.options = PROFILE_OPTION_CHILDREN,
		.wants = PROF_WANT_FAULTS, .samples = SAMPLE(FAULT), .needs = NEEDS_FAULTS,
		.period = COUNT("faults"), .metric = "faults",
	},
};

const struct profile_type_info *profile_type_info(enum profile_type type)
{
	return (unsigned)type < PROFILE_TYPE_MAX ? &types[type] : NULL;
}

int profile_type_parse(const char *word, enum profile_type *ret)
{
	for (unsigned i = 0; i < PROFILE_TYPE_MAX; i++) {
		if (strcmp(word, types[i].word) != 0 &&
		    (!types[i].alias || strcmp(word, types[i].alias) != 0))
			continue;
		*ret = (enum profile_type)i;
		return 0;
	}
	return -EINVAL;
}

const char *profile_option_name(uint32_t option)
{
	switch (option) {
	case PROFILE_OPTION_CHILDREN:
		return "children";
	case PROFILE_OPTION_WAKERS:
		return "wakers";
	case PROFILE_OPTION_KERNEL_LOCKS:
		return "kernelLocks";
	case PROFILE_OPTION_PATHS:
		return "paths";
	case PROFILE_OPTION_TASKS:
		return "tasks";
	default:
		return NULL;
	}
}

uint32_t profile_types_kept(enum profile_kept kept)
{
	uint32_t bits = 0;

	for (unsigned i = 0; i < PROFILE_TYPE_MAX; i++)
		bits |= (uint32_t)(types[i].kept == kept) << i;
	return bits;
}

const char *profile_type_words(uint32_t options, char out[PROFILE_WORDS_SIZE])
{
	const char *last = NULL;
	size_t len = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < PROFILE_TYPE_MAX; i++) {
		if (options && !(types[i].options & options))
			continue;
		if (last)
			len += (size_t)snprintf(out + len, PROFILE_WORDS_SIZE - len, "%s%s",
						len ? ", " : "", last);
		last = types[i].word;
	}
	if (last)
		(void)snprintf(out + len, PROFILE_WORDS_SIZE - len, "%s%s", len ? " and " : "", last);
	return out;
}
