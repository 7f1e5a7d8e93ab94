/* SPDX-License-Identifier: Apache-2.0 */
/* One answer of the reader about one process, collected, and the chunks of a session it becomes.
 * Ids inside are the answer's own (dense from 1, 0 = none). Not thread-safe. */
#ifndef PROFD_RECORDING_READING_H
#define PROFD_RECORDING_READING_H

#include "agent/base/buf.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/profile/profile.h"
#include "agent/recording/reader_client.h"

#define READING_ITEMS_MAX      1000000u /* goroutines, threads or buckets of one process */
#define READING_FRAMES_MAX     (16u << 20) /* of all its stacks */
#define READING_TEXT_BYTES_MAX (64u << 20)
#define READING_MODULES_MAX    65536u
#define READING_SCRIPTS_MAX    1000000u
#define READING_NOTES_MAX      4u /* more are left out */

struct reading_module {
	uint64_t key;  /* of the symbolizer once the collector's file is found; 0 = no id is known */
	uint64_t file; /* module_file_number() of the mapped file, 0 = none */
	uint32_t id;  /* the session's, set before encoding */
	uint8_t kind; /* enum feed_module_kind */
	bool used;    /* by a frame */
	uint8_t build_id_len;
	uint8_t build_id[READ_BUILD_ID_MAX];
	char *path; /* owned */
};

struct reading_stack {
	size_t first; /* in frames */
	uint16_t count;
	uint8_t outcome;
};

struct reading_text {
	size_t first; /* in text */
	uint32_t len;
};

struct reading_labels {
	size_t first; /* in label_pairs */
	uint32_t count;
};

/* A script frame: texts, and lines. */
struct reading_script {
	uint32_t function, file;
	uint32_t line, first_line;
};

struct reading_pair {
	uint32_t name, value; /* texts */
};

/* A goroutine, a thread or a bucket. */
struct reading_item {
	uint64_t created_frame, start_frame; /* 0 = unknown */
	uint64_t goid;
	uint64_t bucket; /* identity of a bucket */
	uint64_t wait_ns;
	uint64_t object;   /* what is waited for: address of a channel, lock or semaphore, by the flags */
	int64_t values[2]; /* in the order of the profile's type */
	uint32_t stack;
	uint32_t state, wait, name, kernel; /* texts */
	uint32_t labels;
	uint32_t tid;
	uint32_t flags; /* enum read_goroutine_flag */
};

VEC_DEFINE(reading_modules, struct reading_module);
VEC_DEFINE(reading_stacks, struct reading_stack);
VEC_DEFINE(reading_frames, uint64_t);
VEC_DEFINE(reading_texts, struct reading_text);
VEC_DEFINE(reading_label_sets, struct reading_labels);
VEC_DEFINE(reading_pairs, struct reading_pair);
VEC_DEFINE(reading_scripts, struct reading_script);
VEC_DEFINE(reading_items, struct reading_item);

struct reading {
	enum profile_type type;
	struct reading_modules_vec modules;
	struct reading_stacks_vec stacks;
	struct reading_frames_vec frames;   /* of all stacks, innermost first */
	struct reading_frames_vec wrappers; /* frames with READ_FRAME_WRAPPER, each once */
	struct u64map wrapper_at;
	struct reading_texts_vec texts;
	struct buf text;
	struct reading_scripts_vec scripts; /* offsets of frames in modules of kind FEED_MODULE_SCRIPT
					     * are indices + 1, until script_numbers_give() */
	struct reading_label_sets_vec label_sets;
	struct reading_pairs_vec label_pairs;
	struct reading_items_vec items;
	uint32_t notes[READING_NOTES_MAX]; /* texts */
	uint32_t note_count;
	struct read_profile profile; /* MEMORY, BLOCK, MUTEX */
	struct read_end end;
};

/* Zero-initialized but for type. Empties it. */
void reading_clear(struct reading *reading);
static inline void cleanup_reading_fn(struct reading *reading)
{
	reading_clear(reading);
}
#define cleanup_reading __attribute__((__cleanup__(cleanup_reading_fn)))

/* A reader_record_fn; ctx is the struct reading. -EPROTO, -E2BIG, -ENOMEM. */
int reading_take(void *ctx, const struct read_record *record);

#endif
