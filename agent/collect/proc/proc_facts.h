/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of one process from /proc, read in bounded pieces. The target chose everything but the
 * numbers: bytes are passed on as they are, cut at the sizes below. */
#ifndef PROFD_COLLECT_PROC_FACTS_H
#define PROFD_COLLECT_PROC_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/collect/proc/program_name.h"

#define PROC_FACTS_COMM_SIZE	    16u	  /* TASK_COMM_LEN */
#define PROC_FACTS_EXE_SIZE	    4096u /* PATH_MAX */
#define PROC_FACTS_CMDLINE_SIZE	    513u
#define PROC_FACTS_CGROUP_SIZE	    1024u
#define PROC_FACTS_ENVIRONMENT_SIZE 4736u /* three lines of at most 1 KiB, and the container's */

struct proc_facts {
	uint64_t start_boottime_ns; /* rounded down to USER_HZ, all that /proc shows */
	uint32_t parent_tgid;
	uint32_t uid; /* effective */
	bool kthread;
	bool ended;	 /* nobody has taken its exit status yet */
	uint64_t cpu_ns; /* user and system time so far */
	uint64_t faults; /* page faults so far */
	/* Hash of where stack, heap and environment begin, at random for each exec: the same in a
	 * process and its forks that have not executed. 0 = unknown. */
	uint64_t layout;
	char comm[PROC_FACTS_COMM_SIZE];
	char exe[PROC_FACTS_EXE_SIZE];	       /* as the process sees it, without " (deleted)"; "" = none */
	char cmdline[PROC_FACTS_CMDLINE_SIZE]; /* arguments separated by spaces */
	char program[PROGRAM_NAME_SIZE]; /* the inferred name, "" = none */
	char cgroup[PROC_FACTS_CGROUP_SIZE];
	char environment[PROC_FACTS_ENVIRONMENT_SIZE]; /* NAME=value lines of the names of feed.h */
	/* The process's own variables cannot be read, or the process wrote over them: programs that
	 * change their title do (setproctitle(3)). @environment has none of them then. */
	bool environment_lost;
};

/* Reads all of it. The files are opened below one descriptor of /proc/PID, which belongs to one
 * struct pid of the kernel. Once the process is gone they answer -ESRCH, also when its pid is used
 * again. The start time is compared with @start_boottime_ns (0 = any) as proc_facts_same_start()
 * does, first and last. -ESRCH: gone, or another process instance. Facts that cannot be read are
 * empty. May hang (isolation.h). */
int proc_facts_read(uint32_t tgid, uint64_t start_boottime_ns, struct proc_facts *ret) must_use;
/* Only start, parent, comm, kthread, ended, cpu_ns, faults and layout; other members untouched. */
int proc_facts_read_stat(uint32_t tgid, struct proc_facts *ret) must_use;

/* Its control group alone, as proc_facts_read() has it. -ESRCH: gone, or another process instance.
 */
int proc_facts_read_group(uint32_t tgid, uint64_t start_boottime_ns,
			  char ret[PROC_FACTS_CGROUP_SIZE]) must_use;

/* Effective user. -ESRCH. */
int proc_facts_read_uid(uint32_t tgid, uint32_t *ret) must_use;

/* How long its threads have been ready to run and had no CPU, in all (proc_pid_schedstat(5)): waits
 * count when they are over. -E2BIG: more than @threads_max threads, -ENODATA: the kernel does not
 * say, -ESRCH. */
int proc_facts_run_delay(uint32_t tgid, unsigned threads_max, uint64_t *ret_ns) must_use;

/* Does this process have this thread now? */
bool proc_facts_is_thread(uint32_t tgid, uint32_t tid);

/* True if the two stamps can be of one process: equal at the resolution of /proc (USER_HZ). */
bool proc_facts_same_start(uint64_t a_ns, uint64_t b_ns);

/* ---- pure parts ------------------------------------------------------------------------------ */

/* /proc/PID/stat (proc(5)); the name may hold anything, also parentheses and newlines. -EINVAL. */
int proc_facts_parse_stat(const char *text, struct proc_facts *ret) must_use;
/* The innermost group from /proc/PID/cgroup: the v2 path, else the one of name=systemd, else the
 * longest of the v1 controllers; a path of "/" counts only if there is no other. "" if there is
 * none. */
void proc_facts_parse_cgroup(const char *text, char *ret, size_t size);
/* Picks the three names out of @len bytes of NUL-separated environment. False: it has none of them
 * and does not begin with a variable, so something else was written there. */
bool proc_facts_parse_environ(const char *text, size_t len, char *ret, size_t size);
/* The bytes at the beginning of @lines (as in struct proc_facts) that are the process's own
 * variables. The lines of its container are behind. */
size_t proc_facts_own_environment(const char *lines);

#endif
