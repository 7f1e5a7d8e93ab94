/* SPDX-License-Identifier: Apache-2.0 */
/* A message of another profiler while it is decoded: the tables that its profiles share, its texts,
 * and one struct received for each profile. The bytes come from strangers: each number is checked,
 * each table is bounded. */
#ifndef PROFD_API_RECEIVE_MESSAGE_H
#define PROFD_API_RECEIVE_MESSAGE_H

#include "agent/session/receive.h"
#include "api/http/proto_in.h"
#include "api/receive/arena.h"
#include "api/receive/value_types.h"

#define MESSAGE_BYTES_MAX (32u << 20) /* uncompressed */
#define MESSAGE_LIST_MAX  256u	      /* profiles */

VEC_DEFINE(received_list, struct received);

/* Zero-initialized is empty. */
struct message {
	struct received_tables tables;
	struct arena arena;
	struct received_list_vec list; /* their texts and tables are the message's */
	uint32_t rejected; /* profiles that were left out */
	char why[200];	   /* the first of them, "" = none */
};
void message_deinit(struct message *message);
static inline void cleanup_message_fn(struct message *message)
{
	message_deinit(message);
}
#define cleanup_message __attribute__((__cleanup__(cleanup_message_fn)))

/* Fills @err with InvalidBody for the field @what and returns -EINVAL. */
int message_bad(struct err *err, const char *what, const char *expected);
/* As proto_in_next(), with @err. */
int message_next(struct proto_in *in, struct proto_value *ret, const char *what, struct err *err)
	must_use;
/* The text of @value. -EINVAL: no UTF-8, or longer than RECEIVED_TEXT_MAX. */
int message_text(struct message *message, const struct proto_value *value, const char *what,
		 const char **ret, struct err *err) must_use;
/* Calls @take for each number of a repeated field, packed or not. */
typedef int message_number_fn(void *ctx, uint64_t number);
int message_numbers(const struct proto_value *value, const char *what, message_number_fn *take,
		    void *ctx, struct err *err) must_use;
/* The kind of a frame (enum profile_frame_kind), by the name of its mapping and by its innermost
 * function; @line is NULL if that has no name. */
uint8_t message_frame_kind(const char *mapping, const struct received_line *line);
/* The bytes that @hex stands for, at most 32; 0 = it is no hexadecimal. */
uint8_t message_build_id(const char *hex, uint8_t ret[32]);
/* Appends a note for the quality of @received, cut to its room. */
void message_note(struct received *received, const char *fmt, ...) printf_like(2, 3);
/* Counts a profile that is left out. */
void message_reject(struct message *message, const struct err *err);

#endif
