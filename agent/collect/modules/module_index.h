/* SPDX-License-Identifier: Apache-2.0 */
/* The conversation with the symbolizer: which modules are to be indexed, their open descriptors on
 * the way there, the answers, and its questions for debug files. The symbolizer parses hostile
 * files and may die at any time. Unanswered requests go to its successor, then one module at a
 * time. So a file that kills it three times in a row is given up, and no other file with it. */
#ifndef PROFD_COLLECT_MODULE_INDEX_H
#define PROFD_COLLECT_MODULE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/collect/modules/module_table.h"

#define MODULE_INDEX_FLIGHT_MAX 64 /* requests unanswered, each with an open descriptor */

struct module_index_sink {
	void *ctx;
	/* @module is READY or FAILED now. @table_fd (-1 = none) holds @table_bytes of unwind table and is
	 * closed after the call. */
	void (*indexed)(void *ctx, struct module *module, int table_fd, uint64_t table_bytes);
	struct isolation *isolation; /* borrowed, NULL = none: opens what processes have mapped */
};

struct module_index;

struct module_index *module_index_create(struct module_table *modules,
					 const struct module_index_sink *sink);
void module_index_destroy(struct module_index *index);
CLEANUP_DEFINE(module_index, struct module_index *, module_index_destroy);

/* A new symbolizer; takes the channel over. What its predecessor had indexed is asked for again,
 * without tables, so that it can name frames of modules that are not in its cache. */
void module_index_set_peer(struct module_index *index, int channel_fd);
/* For epoll, -1 while there is no symbolizer. */
int module_index_fd(const struct module_index *index);

/* Asks for a module that nobody asked for (others are left alone). An urgent one overtakes the
 * rest, also when it was asked for before, and is opened now, because its process may be gone in a
 * millisecond. */
void module_index_ask(struct module_index *index, struct module *module, bool urgent);
/* A stack goes through @module: from now on it has names too. Read from the file at its origin,
 * now. False: that cannot be opened any more. */
bool module_index_name(struct module_index *index, struct module *module);
/* Sends what there is room for; gives up on what is unanswered for too long. */
void module_index_pump(struct module_index *index, uint64_t now_ns);
/* Handles what has arrived, at most @max messages, because publishing a table takes milliseconds.
 * The symbolizer being gone is noticed here. */
void module_index_receive(struct module_index *index, unsigned max);
/* Modules asked for and not answered yet. */
size_t module_index_pending(const struct module_index *index);
/* Children that hang for good where they opened a file (slow_files.h). */
unsigned module_index_hung(const struct module_index *index);
/* An answer of the symbolizer, or of who opens files for us, is likely within the next moment. */
bool module_index_is_due(const struct module_index *index, uint64_t now_ns);

#endif
