/* SPDX-License-Identifier: Apache-2.0 */
/* The modules, process instances and stacks that the present collector announced, by its
 * ids. Everything is bounded; an evicted item can be asked for again (CONTROL_WANT). Emptied when a
 * new collector begins. Not thread-safe: guarded by the lock of struct sessions. */
#ifndef PROFD_SESSION_LIVE_TABLES_H
#define PROFD_SESSION_LIVE_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/clock.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/session/services/service_rules.h"
#include "agent/session/services/user_names.h"
#include "agent/wire/feed.h"

#define LIVE_MODULES_MAX   (1u << 18) /* PROF_MODULES_MAX */
#define LIVE_PROCESSES_MAX (1u << 16)
#define LIVE_STACK_BYTES   (64u << 20) /* of each of two generations */
#define LIVE_EXITED_NS                                                                             \
	(30ull * 1000000000)   /* an exited process stays known for its last samples               \
				*/
#define LIVE_SLOTS	   256 /* sessions that can be matched at once */
#define LIVE_CPU_SPAN_NS   1000000000ull /* readings closer together are too coarse (USER_HZ) */

struct live_module {
	bool known;
	uint64_t freed; /* live_tables.freed when this id was another's last; 0 = it never was */
	uint64_t key;
	uint64_t file; /* module_file_number() of its mapped file, 0 = none */
	uint8_t kind; /* enum feed_module_kind */
	uint8_t build_id_len;
	uint8_t build_id[FEED_BUILD_ID_MAX];
	char *path; /* owned */
};

struct live_process {
	uint32_t proc;
	uint32_t parent_tgid, uid, exec_generation;
	uint64_t started_at_ns; /* realtime when first seen: one value for all instances, though clocks
				   are set */
	uint64_t exited_ns; /* monotonic, 0 = runs */
	char *text;	    /* owned: the strings of facts */
	uint64_t *families; /* owned: it belongs to (struct control_families) */
	uint32_t family_count;
	struct service_facts facts;
	struct service_identity identity;
	/* The sessions that profile it, valid while match_generation is the sessions'. */
	uint64_t match_generation;
	uint64_t match[LIVE_SLOTS / 64];
	uint64_t plan_generation; /* likewise of plan */
	uint16_t plan;		  /* of continuous profiling */
	uint16_t build_looks;	  /* samples in which the build of its executable was looked for */
	uint32_t build_generation; /* exec_generation + 1 for which it is known; 0 = not yet */
	uint32_t wanted_sent; /* last CONTROL_TARGET, 0 = none yet */
	/* Whether its allocator can be probed: when the collector last said so, monotonic, 0 =
	 * never, and why not, "" = it can. */
	uint64_t alloc_asked_ns;
	char alloc_reason[200];
	char live_reason[200]; /* the same of what stays in use, where births can be observed */
	/* CPU time as the kernel accounts it: last reading, and the rate between the last two. */
	uint64_t cpu_read_ns, cpu_ns;
	double cpus;
};

struct live_stack {
	uint64_t id;
	uint64_t freed; /* live_tables.freed when its modules' ids were good */
	uint16_t frame_count;
	uint8_t outcome;
	uint64_t frames[]; /* leaf first, modules by the collector's ids */
};

VEC_DEFINE(live_modules, struct live_module);
VEC_DEFINE(live_processes, struct live_process *);

struct live_stacks {
	struct u64map at; /* id -> struct live_stack * */
	size_t bytes;
};

struct live_tables {
	const struct service_rule *rules; /* borrowed */
	unsigned rule_count;
	struct live_modules_vec modules;	/* by id */
	struct live_processes_vec processes;	/* any order */
	struct u64map process_at;		/* proc -> struct live_process * */
	struct u64map tgid_at;			/* tgid -> its newest instance */
	struct live_stacks young, old;
	uint64_t freed; /* FEED_MODULE_FREED so far */
	uint32_t module_count;
	uint64_t refused; /* entries that did not fit */
	struct user_names users;
};

void live_tables_init(struct live_tables *tables, const struct service_rule *rules,
		      unsigned rule_count);
void live_tables_deinit(struct live_tables *tables);
void live_tables_clear(struct live_tables *tables);

/* Records of the feed; @clock: of its collector, now. -EPROTO malformed, -ENOMEM, -ENOSPC over the
 * bound (counted). */
int live_tables_add_module(struct live_tables *tables, const void *data, size_t len) must_use;
int live_tables_add_process(struct live_tables *tables, const struct clock_triple *clock,
			    const void *data, size_t len, struct live_process **ret) must_use;
int live_tables_add_stack(struct live_tables *tables, const void *data, size_t len) must_use;

bool live_process_is_of_family(const struct live_process *process, uint64_t family);

/* A process whose facts never came: named after one of its threads. */
int live_tables_add_nameless(struct live_tables *tables, uint32_t proc, const char comm[16],
			     struct live_process **ret) must_use;

/* NULL = not known. Borrowed until the tables change. */
const struct live_module *live_tables_module(const struct live_tables *tables, uint32_t module);
struct live_process *live_tables_process(const struct live_tables *tables, uint32_t proc);
/* Keeps the stack from eviction for another generation. */
const struct live_stack *live_tables_stack(struct live_tables *tables, uint64_t id);
uint32_t live_tables_stack_count(const struct live_tables *tables);

/* Forgets processes that exited before @now_ns - LIVE_EXITED_NS. */
void live_tables_expire(struct live_tables *tables, uint64_t now_ns);
/* A reading of its CPU time (FEED_PROC_CPU) at @time_ns: process->cpus is the rate since the
 * reading before, or, at the first one, since its start. */
void live_process_read_cpu(struct live_process *process, uint64_t time_ns, uint64_t cpu_ns);

#endif
