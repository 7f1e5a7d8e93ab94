/* SPDX-License-Identifier: Apache-2.0 */
/* Private to symbolizer*.c: the process's state. symbolizer.c has the loop and the channels,
 * symbolizer_index.c the collector's requests, symbolizer_names.c the server's, symbolizer_debug.c
 * looks for files with debug information. */
#ifndef PROFD_SYMBOLIZE_SYMBOLIZER_INTERNAL_H
#define PROFD_SYMBOLIZE_SYMBOLIZER_INTERNAL_H

#include "agent/wire/control.h"
#include "symbolize/jit_maps.h"
#include "symbolize/module_cache.h"
#include "symbolize/name_builder.h"
#include "symbolize/name_modules.h"
#include "symbolize/symbol_store.h"
#include "symbolize/symbolizer.h"

#define SYMBOLIZER_REST_MS	  3000		   /* without an event: memory is given back */
#define SYMBOLIZER_NAMES_MAX	  32		   /* CONTROL_NAMES waiting for their answer */
#define SYMBOLIZER_INDEX_WALL_S	  10		   /* of one CONTROL_INDEX, before the process dies of it */
#define SYMBOLIZER_DEBUG_WAIT_NS  (2 * NS_PER_S)   /* for the collector to find a debug file */
#define SYMBOLIZER_FETCH_WAIT_NS  (45 * NS_PER_S)  /* of a builder for the fetcher */
#define SYMBOLIZER_DEBUG_AGAIN_NS                                                                  \
	(5 * NS_PER_S) /* default of symbolizer_options.debug_again_ns: less than                  \
			* after what the server asks again */
#define SYMBOLIZER_LOST_AGAIN_NS                                                                   \
	(300 * NS_PER_S) /* between two times that one module's lost index is built again */
#define SYMBOLIZER_BUILDERS	  2
#define SYMBOLIZER_NAMES_WAIT_NS                                                                   \
	(1200 * NS_PER_MS) /* for names being built; the server waits 2 s */

/* A builder, and the file that it asks for. The first one takes any file; the second one passes it
 * when it is long at its work: small files only, and only briefly. */
struct builder {
	struct name_builder child;
	uint64_t started_ns; /* monotonic */
	uint64_t asked_ns;   /* monotonic; 0 = it does not wait for a file */
	uint32_t request;
	unsigned silent; /* of its questions, in a row: not answered in time */
	bool is_fetched; /* the fetcher is at it, not the collector */
	struct control_debug_want want;
	struct name_missing *missing; /* owned; the first file that it asked for in vain */
	bool has_package;
};

struct names_request {
	uint64_t key;
	uint64_t arrived_ns;
	uint32_t request;
	uint32_t count;
	uint32_t answered; /* offsets answered so far */
	uint64_t *offsets; /* owned */
};

struct symbolizer {
	int control_fd;
	int collector_fd; /* -1 = none */
	int server_fd;
	int fetch_fd; /* to the server's fetcher; -1 = nothing is fetched */
	bool stopping;
	bool rested; /* nothing has happened since memory was given back */
	uint64_t debug_again_ns;
	struct module_cache *cache; /* NULL = none */
	struct symbol_store *store;
	struct name_modules modules;
	struct jit_maps jit;
	struct {
		uint64_t key;
		int fd; /* kallsyms; -1 = none */
		uint64_t read_ns; /* monotonic, 0 = not yet */
		uint64_t wait_ns; /* until it may be read again */
	} kernel;
	struct builder builders[SYMBOLIZER_BUILDERS];
	uint32_t question_count; /* of all builders */
	struct names_request names[SYMBOLIZER_NAMES_MAX]; /* ring */
	unsigned names_at, names_count;
	bool server_full; /* the last answer did not fit: wait for POLLOUT */
	uint64_t no_wait_until_ns; /* a request has just waited in vain */
	struct channel_message message;
	uint8_t answer[CHANNEL_MESSAGE_MAX];
};

void symbolizer_lose_collector(struct symbolizer *s);
void symbolizer_lose_server(struct symbolizer *s);
void symbolizer_lose_fetcher(struct symbolizer *s);

/* One message of the collector in s->message; its descriptors are taken or closed by the caller. */
void symbolizer_on_index(struct symbolizer *s);
/* Reads the kernel's names if they are those of @key and were not read yet, or may have changed
 * where @offsets are. */
void symbolizer_read_kernel(struct symbolizer *s, uint64_t key, const uint64_t *offsets,
			    size_t count);
void symbolizer_on_debug(struct symbolizer *s);

/* symbolizer_debug.c. Is there nothing that would make names of these origins (bits of enum
 * symbol_origin) better? */
bool symbolizer_is_complete(unsigned origins);
/* Asks for @module's debug file if that is worth it now; true if it was asked. */
bool symbolizer_want_debug(struct symbolizer *s, struct name_module *module);
/* A debug file may have been installed since: asked for while somebody looks at the module (may be
 * NULL). */
void symbolizer_look_for_debug(struct symbolizer *s, struct name_module *module);
/* There is no index of @module (may be NULL): if there was one, it is built again. */
void symbolizer_miss_index(struct symbolizer *s, struct name_module *module);
/* The file of @module has come; now it can be asked for the debug file. */
void symbolizer_has_file(struct symbolizer *s, struct name_module *module);
/* @module has been built: a debug file that did not complete it is not read for it again. */
void symbolizer_judge_debug(struct name_module *module);
/* The fetcher answers. */
void symbolizer_on_fetched(struct symbolizer *s);
/* The module of @key from the cache, if it has left this process's memory; NULL. */
struct name_module *symbolizer_recall(struct symbolizer *s, uint64_t key);
/* @b asks for a file. */
void symbolizer_on_question(struct symbolizer *s, struct builder *b);
/* Lets builders go on without a file for which they have waited too long. */
void symbolizer_answer_late_questions(struct symbolizer *s, uint64_t now_ns);

void symbolizer_on_names(struct symbolizer *s);
/* Answers what can be answered. */
void symbolizer_serve_names(struct symbolizer *s);
void symbolizer_drop_names(struct symbolizer *s);

#endif
