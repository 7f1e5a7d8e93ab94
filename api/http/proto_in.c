// SPDX-License-Identifier: Apache-2.0
#include "api/http/proto_in.h"

#include <errno.h>

#define FIELD_MAX 0x1fffffffu

static int take_varint(struct proto_in *in, uint64_t *ret)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64 && in->at < in->end; shift += 7) {
		uint8_t byte = *in->at++;

		if (shift == 63 && byte > 1)
			return -EPROTO;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = value;
			return 0;
		}
	}
	return -EPROTO;
}

static int take_fixed(struct proto_in *in, size_t bytes, uint64_t *ret)
{
	uint64_t value = 0;

	if ((size_t)(in->end - in->at) < bytes)
		return -EPROTO;
	for (size_t i = 0; i < bytes; i++)
		value |= (uint64_t)in->at[i] << (8 * i);
	in->at += bytes;
	*ret = value;
	return 0;
}

static int take_bytes(struct proto_in *in, struct proto_in *ret)
{
	uint64_t len;

	if (take_varint(in, &len) < 0 || len > (uint64_t)(in->end - in->at))
		return -EPROTO;
	*ret = proto_in_of(in->at, (size_t)len);
	in->at += len;
	return 0;
}

int proto_in_next(struct proto_in *in, struct proto_value *ret)
{
	struct proto_value value = { 0 };
	uint64_t tag;
	int rc;

	if (in->at == in->end)
		return 0;
	if (take_varint(in, &tag) < 0 || !(tag >> 3) || tag >> 3 > FIELD_MAX)
		return -EPROTO;
	value.field = (uint32_t)(tag >> 3);
	value.wire = (enum proto_wire)(tag & 7);
	switch (value.wire) {
	case PROTO_WIRE_VARINT:
		rc = take_varint(in, &value.number);
		break;
	case PROTO_WIRE_FIXED64:
		rc = take_fixed(in, 8, &value.number);
		break;
	case PROTO_WIRE_FIXED32:
		rc = take_fixed(in, 4, &value.number);
		break;
	case PROTO_WIRE_BYTES:
		rc = take_bytes(in, &value.in);
		break;
	default:
		rc = -EPROTO;
	}
	if (rc < 0)
		return rc;
	*ret = value;
	return 1;
}

int proto_in_varint(struct proto_in *in, uint64_t *ret)
{
	if (in->at == in->end)
		return 0;
	return take_varint(in, ret) < 0 ? -EPROTO : 1;
}
