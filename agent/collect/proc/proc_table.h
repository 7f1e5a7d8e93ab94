/* SPDX-License-Identifier: Apache-2.0 */
/* Process instances by (tgid, start time, exec generation): one struct proc is one process under
 * one executable, with a dense id that is never reused. Ended instances stay findable for a while,
 * because their last samples arrive after their end. Pure: fed with events, it knows neither /proc
 * nor BPF. */
#ifndef PROFD_COLLECT_PROC_TABLE_H
#define PROFD_COLLECT_PROC_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/collect/proc/mapping_set.h"
#include "agent/collect/proc/script_frames.h"

#define PROC_TABLE_MAX	     65536u /* instances that have not ended */
#define PROC_TABLE_ENDED_MAX 8192u
#define PROC_TABLE_ENDED_NS  10000000000ull /* how long an ended instance is kept */

/* Texts of struct feed_proc, in its order behind the comm. */
enum proc_text {
	PROC_EXE,
	PROC_CMDLINE,
	PROC_CGROUP,
	PROC_ENVIRONMENT,
	PROC_PORTS,
	PROC_PROGRAM,
	PROC_TEXT_MAX,
};

struct proc {
	uint64_t start_boottime_ns;
	uint64_t seen_ns;  /* CLOCK_MONOTONIC when it entered the table */
	uint64_t begin_ns; /* CLOCK_MONOTONIC of fork or exec; 0 = before we looked */
	uint64_t ended_ns; /* 0 = alive */
	uint64_t layout;   /* of struct proc_facts; 0 = unknown */
	uint64_t facts_ns; /* when the facts were last read from /proc; 0 = inherited or none */
	uint64_t group_ns; /* when its control group was last compared with the one in the facts */
	uint64_t engaged_ns; /* when it was engaged */
	uint64_t maps_ns;  /* when its mappings were last read from /proc */
	uint32_t id;
	uint32_t tgid;
	uint32_t parent_tgid;
	uint32_t uid;
	uint32_t exec_generation;
	uint32_t flags;	   /* enum feed_proc_flag */
	uint32_t wanted;   /* bits of enum prof_want, 0 = undecided */
	uint64_t families; /* bits of family.c; inherited by fork and exec */
	uint32_t jit_module; /* of module_table, 0 = none yet */
	bool start_exact;  /* from the kernel, not from /proc's hundredths */
	bool exec_assumed; /* begun by a mapping record, not yet by its exec event */
	bool scanned;	   /* found in /proc by the scan that is under way */
	bool exec_mapped;  /* the first mapping of this instance has named its executable */
	bool fed;	   /* the feed has the present facts */
	bool fed_once;	   /* the feed knows the id */
	bool exit_fed;	   /* and that it has ended */
	bool sampled;	   /* a sample of it has come */
	bool engaged;	   /* facts read, modules asked for */
	bool published;	   /* its mappings are in the BPF table */
	bool unpublishable; /* they did not fit */
	bool fast;	   /* its threads have events of their own */
	uint8_t looks;	   /* of follow.c's timed second looks */
	char comm[16];
	char *text[PROC_TEXT_MAX]; /* owned, never NULL */
	struct mapping_set *mappings;
	struct script_frames *script; /* NULL = it has no runtime that is known */
	struct proc *older; /* former instance of the same tgid, still kept */
	struct proc *next_ended;
};

struct proc_table;

struct proc_table_counts {
	size_t alive, ended;
	uint64_t refused; /* instances that did not fit */
};

struct proc_table *proc_table_create(void);
/* For tests: instances are numbered from here on. */
void proc_table_set_next_id(struct proc_table *table, uint32_t id);
void proc_table_destroy(struct proc_table *table);
CLEANUP_DEFINE(proc_table, struct proc_table *, proc_table_destroy);
struct proc_table_counts proc_table_counts(const struct proc_table *table);

/* The running instance of @tgid, or NULL. Borrowed, like every struct proc, until
 * proc_table_purge(). */
struct proc *proc_table_find(struct proc_table *table, uint32_t tgid);
/* Whether @proc began then: exactly, if its own start is known exactly, else to a tick of /proc. */
bool proc_led_by(const struct proc *proc, uint64_t start_boottime_ns);
/* The instance that was @tgid at @time_ns, ended or not; NULL if none of this start time is known.
 * An exact @start_boottime_ns replaces one that was rounded by /proc. */
struct proc *proc_table_find_at(struct proc_table *table, uint32_t tgid, uint64_t start_boottime_ns,
				uint64_t time_ns);
struct proc *proc_table_by_id(struct proc_table *table, uint32_t id);

/* Adds an instance. The former instance of the same tgid must have been ended first. NULL when full
 * or without memory (counted). */
struct proc *proc_table_add(struct proc_table *table, uint32_t tgid, uint64_t start_boottime_ns,
			    uint64_t begin_ns);
/* The same with everything that a child inherits from @parent at fork: facts, mappings and what is
 * wanted of it. */
struct proc *proc_table_fork(struct proc_table *table, const struct proc *parent, uint32_t tgid,
			     uint64_t start_boottime_ns, uint64_t time_ns);
/* Ends @proc and begins the next instance of the same process: facts inherited, no mappings. NULL:
 * as above; @proc is ended all the same. */
struct proc *proc_table_exec(struct proc_table *table, struct proc *proc, uint64_t time_ns);
void proc_table_end(struct proc_table *table, struct proc *proc, uint64_t time_ns);
/* Forgets instances that ended long ago. */
void proc_table_purge(struct proc_table *table, uint64_t now_ns);

/* Sets a text; true if it changed. Without memory the old one stays. */
bool proc_set_text(struct proc *proc, enum proc_text which, const char *text);

/* Running instances, in no order: `size_t at = 0; while ((proc = proc_table_next(t,
 * &at)))`. No instance may begin meanwhile; ending is allowed. */
struct proc *proc_table_next(struct proc_table *table, size_t *at);
/* The same with instances that have ended and are still kept. */
struct proc *proc_table_next_kept(struct proc_table *table, size_t *at);

#endif
