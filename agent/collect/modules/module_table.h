/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped files and the other things that frames can lie in (kernel, vDSO, JIT memory of a process),
 * with dense ids, which are given again when a module was removed. A file is known by device, inode
 * and, where the kernel says it, inode generation. Files with the same content identity (key) share
 * the first one's id and unwind table: the canonical module. Pure bookkeeping; opening files and
 * talking to the symbolizer is module_index.c. */
#ifndef PROFD_COLLECT_MODULE_TABLE_H
#define PROFD_COLLECT_MODULE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "agent/base/cleanup.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"

/* Device as in /proc/PID/maps. */
struct module_file {
	uint64_t inode;
	uint64_t generation; /* 0 = not known */
	uint32_t dev_major, dev_minor;
};

/* The mapping through which a file can be opened: where it was last seen. */
struct module_origin {
	uint64_t start_va, end_va;
	uint32_t tgid;
	uint32_t parent_tgid; /* shares the mount namespace more often than not */
};

enum module_state {
	MODULE_SEEN,   /* nobody asked for it yet */
	MODULE_ASKED,  /* queued for or at the symbolizer */
	MODULE_READY,  /* indexed */
	MODULE_FAILED, /* unreadable or not ELF */
};

struct module {
	uint32_t id;
	uint32_t kind;	    /* enum feed_module_kind */
	uint64_t key;	    /* 0 = not known yet */
	struct module_file file;
	struct module_origin origin;
	char *path;	    /* owned, never NULL */
	enum module_state state;
	uint32_t flags;	    /* enum control_index_flag */
	uint32_t runtime;   /* bits of enum feed_proc_flag */
	uint32_t canonical; /* id of the module that stands for this one, often itself */
	uint32_t idle;	    /* looks in a row that found nothing that needs it (module_sweep.c) */
	uint32_t mappings;  /* how often it was mapped: what to index first */
	uint64_t table_bytes; /* charged for its published unwind table; 0 = none */
	uint64_t size_bytes, inode_changed_ns; /* of the file when it was opened (st_ctim); 0 = never */
	uint64_t opened_dev, opened_ino;       /* likewise, as stat() tells them */
	uint64_t voucher;   /* likewise (agent/wire/module_key.h) */
	uint64_t checked_ns; /* when it was last compared with them, CLOCK_MONOTONIC */
	bool missed;	    /* it was gone before it could be opened */
	bool gone;	    /* before its names could be read, though it was indexed */
	bool slow; /* its file system may not answer: only a copy of the file is read, nothing else
		      asked */
	uint64_t used_ns;   /* when a stack last went through it, CLOCK_MONOTONIC */
	uint8_t build_id_len;
	uint8_t build_id[FEED_BUILD_ID_MAX];
	uint8_t alloc_family; /* enum alloc_family */
	uint8_t alloc_count;
	struct control_alloc_site *alloc_sites; /* owned; NULL = it defines no allocator */
	struct script_runtime *script;		/* owned; NULL = it is no interpreter */
	bool script_fits; /* it was compared with a process, and BPF has it */
	bool fed;	    /* the feed has it */
	bool in_files;	    /* BPF's map of files has it */
	bool is_mapped;	    /* by a living process, as last looked */
	bool changed;	    /* flags or canonical id differ from what is in the BPF tables */
	bool table_evicted; /* had a table that gave way to others */
	bool names_later;   /* no stack went through it yet: nobody needs its names */
	bool aliased;	    /* BPF's stacks had its own id where another's stands for it by now */
	bool rows_later;    /* nothing was sampled since it was found: nobody needs its table */
};

struct control_alloc_site;
struct script_runtime;

struct module_table;

struct module_table *module_table_create(void);
void module_table_destroy(struct module_table *table);
CLEANUP_DEFINE(module_table, struct module_table *, module_table_destroy);

/* NULL if there is none of this id. Borrowed until it is removed. */
struct module *module_table_get(const struct module_table *table, uint32_t id);
/* All, by id: `size_t at = 0; while ((module = module_table_next(t, &at)))`. What is there may be
 * removed meanwhile. */
struct module *module_table_next(const struct module_table *table, size_t *at);
/* Number of modules in the table. */
uint32_t module_table_count(const struct module_table *table);
/* The module of @file, added at its first sight; a known file of another inode generation is
 * another file. When all ids are in use, one module that stands for all further files; NULL without
 * memory. */
struct module *module_table_file(struct module_table *table, const struct module_file *file,
				 const char *path);
/* The module of @file if it is known, else NULL. */
struct module *module_table_find(const struct module_table *table, const struct module_file *file);
/* One without a file. NULL: no more ids or memory. */
struct module *module_table_add(struct module_table *table, enum feed_module_kind kind,
				const char *path);
/* False if look-ups of @module's file find another module (or none) by now. */
bool module_table_is_current(const struct module_table *table, const struct module *module);
/* @module was opened, and is the file of @st. */
void module_opened(struct module *module, const struct stat *st);
/* @st may be of the file of @module, as it was opened or as it is mapped. Else whoever was asked
 * what it maps has executed another program since, or its number is another's. */
bool module_may_be_of(const struct module *module, const struct stat *st);
/* @st is of another file on the device of @file. Where stat() tells another device than mappings do
 * (overlay, btrfs) nobody knows. */
bool module_file_is_other(const struct module_file *file, const struct stat *st);
/* Whether @module was indexed from the file that @st describes. */
bool module_is_of(const struct module *module, const struct stat *st);
/* Something is sampled: its table is asked for with the next request, also if it was read without.
 */
void module_want_rows(struct module *module);
/* An answer may bring its table. */
bool module_is_awaited(const struct module *module);
/* Whether a program wrote the code of @module at run time: memory files and shared memory. */
bool module_is_jit(const struct module *module);
/* Makes the next look-up of @module's file find another module: there is another file under its
 * inode by now. */
void module_table_forget_file(struct module_table *table, struct module *module);

/* Records the identity; from now on the canonical module of that key stands for @module. */
void module_table_set_key(struct module_table *table, struct module *module, uint64_t key);
struct module *module_table_canonical(const struct module_table *table, uint32_t id);

/* Nobody may know its id any more, nor may it stand for another: the id is another's next, though
 * those that became free before it go first. -ENOMEM: it stays. */
int module_table_remove(struct module_table *table, struct module *module) must_use;

/* Unwind tables published, and which to take away first: the one unused for longest (NULL = none).
 */
uint64_t module_table_bytes(const struct module_table *table);
void module_table_charge(struct module_table *table, struct module *module, uint64_t bytes);
struct module *module_table_least_used(const struct module_table *table);

#endif
