/* SPDX-License-Identifier: Apache-2.0 */
/* Follows processes: events of BPF, mapping records of the kernel and /proc become process
 * instances with their mappings. Mapping records are applied in the order of their times with BPF's
 * events. Loop thread only. */
#ifndef PROFD_COLLECT_FOLLOW_H
#define PROFD_COLLECT_FOLLOW_H

#include "agent/collect/collector_internal.h"

/* Adds every process of /proc that is not known and ends those that are gone. */
void follow_scan(struct collector *c);
/* Reads again on which ports each process listens. The caller drains events first. */
void follow_ports(struct collector *c);
/* Writes every running process and its CPU time into the feed. @begin_ns: all processes that began
 * before are included, because the caller drained events after that time. */
void follow_cpu(struct collector *c, uint64_t begin_ns);
/* Asks for the modules of @proc; @urgent: before others, and for their unwind tables. */
void follow_ask(struct collector *c, const struct proc *proc, bool urgent);
/* Asks for all modules that nobody asked for, the most mapped first. */
void follow_ask_all(struct collector *c);
/* A first session begins: asks for the unwind tables of all running processes. */
void follow_want_rows(struct collector *c);
/* Moves mapping records out of the kernel; follow_apply() applies them. */
void follow_drain(struct collector *c);
/* @lost mapping records were dropped: every process is read again when it is next needed. */
void follow_lost(struct collector *c, uint64_t lost);
/* Applies drained mapping records up to @time_ns. */
void follow_apply(struct collector *c, uint64_t time_ns);
/* Applies all mapping records up to @time_ns, draining them first if necessary. */
void follow_until(struct collector *c, uint64_t time_ns);
/* Applies a fork, exec, exit or unknown pc. */
void follow_task(struct collector *c, const struct prof_task_event *event);
/* The process instance of a sample, added if it was not known; NULL when the table is full. */
struct proc *follow_sampled(struct collector *c, uint32_t tgid, uint64_t start_boottime_ns,
			    uint64_t time_ns, const char *comm);
/* Reads facts and mappings from /proc and asks for the modules. A process that is gone keeps what
 * it inherited and what was recorded. */
void follow_engage(struct collector *c, struct proc *proc);
/* Reads processes again at fixed ages, because they change after their start. */
void follow_look_again(struct collector *c, uint64_t now_ns);
/* Asks again for names of JIT code: runtimes write their maps at any time. */
void follow_jit(struct collector *c);
/* Ends a process instance in BPF and in the feed. */
void follow_end(struct collector *c, struct proc *proc, uint64_t time_ns);

#endif
