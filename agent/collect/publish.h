/* SPDX-License-Identifier: Apache-2.0 */
/* Publishes what is known about modules and processes to the maps of the BPF programs: files,
 * mappings, unwind tables and targets. The mappings of a process are published together, once all
 * of their modules are settled. Then PROF_WANT_MAPPED says that they are complete. Before that, the
 * programs read the kernel's own list of mappings and find modules by file. Loop thread only. */
#ifndef PROFD_COLLECT_PUBLISH_H
#define PROFD_COLLECT_PUBLISH_H

#include "agent/collect/collector_internal.h"

/* Adds the modules of the kernel and the vDSO. */
void publish_init(struct collector *c);
/* Callback of struct module_index_sink: @module is indexed, its unwind table is in @table_fd (-1 =
 * none; borrowed). */
void publish_indexed(void *ctx, struct module *module, int table_fd, uint64_t table_bytes);
/* The module of a mapping as the kernel describes it; 0 = memory without a file. False: the mapping
 * can never hold frames of interest. */
bool publish_module_of(struct collector *c, const struct module_file *file, const char *path,
		       uint32_t *ret_module);

/* The context of publish_changes(); the caller keeps it while the result is in use. */
struct publish_context {
	struct collector *c;
	struct proc *proc;
};

/* Callbacks for mapping_set that repeat its changes in BPF if the process is published. */
struct mapping_changes publish_changes(struct publish_context *context);
/* Publishes processes whose modules are settled, and renews the mappings of modules that changed.
 */
void publish_sweep(struct collector *c, uint64_t now_ns);
/* Whether all files of the demanded processes, and of those on which the server has not decided,
 * are indexed, and whether their script frames can be read: of the undecided only of those that
 * began after the collector. Processes that began after the demand are not waited for. */
bool publish_is_settled(struct collector *c);
/* Writes the decision about @proc into BPF. */
void publish_target(struct collector *c, struct proc *proc);
/* Takes mappings and decision of @proc out of BPF. */
void publish_withdraw(struct collector *c, struct proc *proc);
/* Takes the file of @module out of BPF. */
void publish_withdraw_file(struct collector *c, struct module *module);
/* The inode of @module holds another file now: its next mapping is another module. */
void publish_forget_file(struct collector *c, struct module *module);
/* Asks for the names of the JIT code of @proc unless the symbolizer has them. */
void publish_ask_jit(struct collector *c, struct proc *proc);
/* The id of the module of all JIT memory of @proc, made at its first use; 0 = no id is left. */
uint32_t publish_jit_module(struct collector *c, struct proc *proc);

#endif
