/* SPDX-License-Identifier: Apache-2.0 */
/* Protocol buffers, reading only: the fields of a message one by one. Wire format:
 * protobuf.dev/programming-guides/encoding. The input comes from outside: every length is checked,
 * groups (deprecated) and field number 0 are refused. Pure. */
#ifndef PROFD_API_PROTO_IN_H
#define PROFD_API_PROTO_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

enum proto_wire {
	PROTO_WIRE_VARINT = 0,
	PROTO_WIRE_FIXED64 = 1,
	PROTO_WIRE_BYTES = 2,
	PROTO_WIRE_FIXED32 = 5
};

/* The rest of a message; borrowed. */
struct proto_in {
	const uint8_t *at, *end;
};

struct proto_value {
	uint32_t field;
	enum proto_wire wire;
	uint64_t number;    /* of varints and fixed fields */
	struct proto_in in; /* of PROTO_WIRE_BYTES: the bytes */
};

static inline struct proto_in proto_in_of(const void *data, size_t len)
{
	const uint8_t *at = data;

	return (struct proto_in){ at, at + len };
}

/* Reads the next field: 1, or 0 at the end. -EPROTO when the bytes are no message. */
int proto_in_next(struct proto_in *in, struct proto_value *ret) must_use;
/* Reads the next number of a packed list: 1, or 0 at the end. -EPROTO. */
int proto_in_varint(struct proto_in *in, uint64_t *ret) must_use;

#endif
