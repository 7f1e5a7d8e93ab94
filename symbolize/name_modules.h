/* SPDX-License-Identifier: Apache-2.0 */
/* The state of each module beside its images, and its way to names:
 *
 *    IDLE     -> WAITING   indexed, no DWARF of its own: asks for the debug file
 *    IDLE     -> QUEUED    indexed, with its own DWARF
 *    WAITING  -> QUEUED    after the answer, or 2 s
 *    QUEUED   -> BUILDING  it is the next one
 *    BUILDING -> IDLE      the builder is done
 *
 * A module whose names are for later gets its file again, with CONTROL_INDEX, when the names are
 * wanted. A request that comes before waits in WAITING for that.
 *
 * Bounded: above NAME_MODULES_MAX the slots of idle modules are used again (their images stay);
 * above NAME_MODULES_OPEN_MAX open files no further module is queued until it is indexed again. */
#ifndef PROFD_SYMBOLIZE_NAME_MODULES_H
#define PROFD_SYMBOLIZE_NAME_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "symbolize/elf_file.h"

#define NAME_MODULES_MAX      32768u
#define NAME_MODULES_OPEN_MAX 1024u

enum name_module_state {
	NAME_MODULE_IDLE,
	NAME_MODULE_WAITING,
	NAME_MODULE_QUEUED,
	NAME_MODULE_BUILDING
};

struct name_missing;

struct name_module {
	uint64_t key;
	uint64_t debug_asked_ns; /* monotonic, 0 = never */
	uint64_t fetch_asked_ns; /* the same, of the fetcher, which remembers what there is not */
	uint64_t lost_ns;	 /* the same, that its index was found to be gone */
	uint32_t index_request;	 /* of the present collector's CONTROL_INDEX, 0 = none */
	uint8_t state;		 /* enum name_module_state */
	bool urgent;		 /* somebody waits for its names */
	bool fetching;		 /* the fetcher has not answered yet */
	bool looked_at;		 /* somebody has asked for its names: worth fetching debug information */
	bool later;		 /* nobody has wanted its names yet: its file was closed unread */
	bool shares;		 /* its builder may read other modules' files too */
	bool large;		 /* a brief builder was not enough for it */
	bool debug_fetched;	 /* debug_fd is the fetcher's */
	bool fetched_in_vain;	 /* the fetcher's file made nothing complete: it would be the same again */
	uint8_t origins;	 /* enum symbol_origin bits of its index, 0 = none that has names */
	uint64_t size_bytes;	 /* of the file */
	uint64_t voucher;	 /* of the file (agent/wire/module_key.h) */
	uint64_t debug_bytes;	 /* of its debug file, while that is open */
	int fd;			 /* owned; -1 unless WAITING, QUEUED or BUILDING */
	uint64_t useless_debug;	 /* name_modules_debug_identity() of the host's file that made
				    nothing complete, 0 = none */
	struct name_missing *missing; /* owned; the first, NULL = none, or its names were not built
					 in this life */
	bool asked_missing;	 /* WAITING for that, */
	bool asked_package;	 /* or for the package that may have it */
	uint8_t found;		 /* how often a missing file has come */
	uint64_t found_ns;	 /* monotonic; the last time */
	int debug_fd;		 /* owned */
	struct elf_identity identity;
	void *skeleton;		 /* owned; NULL: no debug file can be used later */
	size_t skeleton_len;
};

VEC_DEFINE(name_module, struct name_module);

/* A file that debug information names and that was not there when it was read. */
struct name_missing {
	uint32_t kind; /* enum control_debug_kind */
	bool has_package; /* there is one, and it is not in it */
	uint8_t build_id_len;
	uint8_t build_id[ELF_BUILD_ID_MAX];
	char name[];
};

struct name_modules {
	struct name_module_vec modules; /* slots never move to another index */
	struct u64map by_key;
	size_t reuse_at;   /* where to look for an idle slot next */
	unsigned open;	   /* modules with an open file */
	unsigned waiting;
	unsigned queued;
};

void name_modules_init(struct name_modules *modules);
void name_modules_deinit(struct name_modules *modules);
/* Borrowed until the next name_modules_add(). */
struct name_module *name_modules_find(const struct name_modules *modules, uint64_t key);
/* The module of @key, new if it was not known. -ENOSPC every slot is busy, -ENOMEM. */
int name_modules_add(struct name_modules *modules, uint64_t key, struct name_module **ret) must_use;
struct name_module *name_modules_at(const struct name_modules *modules, size_t slot);
size_t name_modules_slot(const struct name_modules *modules, const struct name_module *module);
/* Changes state; IDLE closes its files. */
void name_modules_set_state(struct name_modules *modules, struct name_module *module,
			    enum name_module_state state);
/* Debug information of @module from now on; @fetched: not a file of the host. */
void name_modules_set_debug_take(struct name_module *module, int fd, bool fetched);
/* Identity of the file @fd in its present state: another number after it was written. 0 = not
 * known. */
uint64_t name_modules_debug_identity(int fd);
/* The next module to build, of those whose files have up to @bytes_max and that are not known to be
 * large; NULL: none. An urgent module comes first. Among equals the one with the smallest files
 * does, so that one large file does not keep a hundred small ones waiting. UINT64_MAX: of all. */
struct name_module *name_modules_next(const struct name_modules *modules, uint64_t bytes_max);
/* Queues those that have waited since before @before_ns for a debug file. */
void name_modules_stop_waiting(struct name_modules *modules, uint64_t before_ns);
/* The collector is another one: its request numbers mean nothing any more. */
void name_modules_forget_requests(struct name_modules *modules);
/* The fetcher is gone with everything it was asked for. */
void name_modules_forget_fetches(struct name_modules *modules);

#endif
