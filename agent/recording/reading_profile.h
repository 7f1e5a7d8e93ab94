/* SPDX-License-Identifier: Apache-2.0 */
/* READINGS chunks (reading_chunk.h) into a profile under construction: attributes as
 * agent/profile/goroutine/goroutine_analysis.h expects them, wrappers that the compiler made left
 * out as in Go's own listings. */
#ifndef PROFD_RECORDING_READING_PROFILE_H
#define PROFD_RECORDING_READING_PROFILE_H

#include "agent/base/vec.h"
#include "agent/profile/profile.h"
#include "agent/profile/stack_resolver.h"

struct reading_bytes {
	char *data; /* owned */
	size_t len;
};
VEC_DEFINE(reading_bytes, struct reading_bytes);

/* Copies a chunk. -ENOMEM, -EPROTO, 1 = it was left out because its number is not below
 * @seq_end. */
int reading_keep(struct reading_bytes_vec *chunks, const void *data, size_t len, uint32_t seq_end)
	must_use;
void reading_forget(struct reading_bytes_vec *chunks);

/* Functions that the owner of the other chunks lends. */
struct reading_lender {
	void *ctx;
	bool (*stack)(void *ctx, uint64_t id, struct stack_frames *ret); /* false = unknown */
	uint32_t (*process)(void *ctx, uint32_t id); /* index in the builder */
	struct stack_modules modules;
	/* Id of the stack with which a thread was last seen on a CPU, 0 = it was not. */
	uint64_t (*running)(void *ctx, uint32_t process, uint32_t tid);
};

/* Adds the samples of the last complete reading, @bare: without their attributes. Damaged chunks
 * are counted in *@damaged. -ENOMEM. */
int reading_build(const struct reading_bytes_vec *chunks, enum profile_type type, bool bare,
		  const struct reading_lender *lender, const struct name_source *names,
		  struct profile_builder *builder, unsigned *damaged) must_use;

#endif
