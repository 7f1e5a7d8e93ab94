/* SPDX-License-Identifier: Apache-2.0 */
/* Collects an answer of the reader (agent/wire/read_stream.h) and resolves its ids, for tests. */
#ifndef PROFD_TESTS_READ_COLLECT_H
#define PROFD_TESTS_READ_COLLECT_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/vec.h"
#include "agent/wire/read_stream.h"

VEC_DEFINE(record, struct read_record);

struct read_collect {
	void **chunks;
	size_t chunk_count;
	size_t chunk_capacity;
	struct record_vec all;
	struct record_vec strings; /* index = id - 1, as with the others */
	struct record_vec stacks;
	struct record_vec label_sets;
	struct record_vec modules;
	struct record_vec goroutines;
	struct record_vec threads;
	struct record_vec buckets;
	const struct read_target *target;
	const struct read_profile *profile;
	const struct read_heap *heap;
	const struct read_end *end;
};

/* A flush function of struct read_writer; ctx is the struct read_collect. Fails the test on
 * malformed records and on references to what was not defined before. */
int read_collect_flush(void *ctx, const void *data, size_t len);
void read_collect_deinit(struct read_collect *c);
/* NUL-terminated text of a string id, "" for 0; valid until the fourth next call. */
const char *read_collect_string(const struct read_collect *c, uint32_t id);

#endif
