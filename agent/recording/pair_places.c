// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/pair_places.h"

#include "agent/base/bytes.h"

void pair_places_deinit(struct pair_places *places)
{
	pair_numbers_vec_deinit(&places->pairs);
	u64map_deinit(&places->at);
}

int pair_places_decode(struct pair_places *places, const void *data, size_t len)
{
	struct bytes in = bytes_of(data, len);
	uint32_t pair = 0;
	int rc;

	places->pairs.count = 0;
	u64map_clear(&places->at);
	/* Each takes a byte at least. */
	rc = pair_numbers_vec_reserve(&places->pairs, len + 1);
	while (rc == 0 && bytes_left(&in) && !in.failed) {
		pair += (uint32_t)bytes_varint(&in);
		places->pairs.data[places->pairs.count++] = pair;
	}
	if (rc == 0 && in.failed)
		rc = -EPROTO;
	if (rc < 0)
		places->pairs.count = 0;
	return rc;
}

/* Only who adds needs it. */
static int index_pairs(struct pair_places *places)
{
	int rc = 0;

	for (size_t i = places->at.count; i < places->pairs.count && rc == 0; i++)
		rc = u64map_put(&places->at, places->pairs.data[i], i);
	return rc;
}

int pair_places_add(struct pair_places *places, uint32_t pair, uint32_t *ret)
{
	uint64_t at = 0;
	int rc = index_pairs(places);

	if (rc == 0 && !u64map_get(&places->at, pair, &at)) {
		at = places->pairs.count;
		rc = pair_numbers_vec_push(&places->pairs, pair);
		if (rc == 0)
			rc = index_pairs(places);
	}
	if (rc == 0)
		*ret = (uint32_t)at;
	return rc;
}

void pair_places_encode(const struct pair_places *places, struct buf *out)
{
	uint32_t before = 0;

	for (size_t i = 0; i < places->pairs.count; i++) {
		buf_add_varint(out, places->pairs.data[i] - before);
		before = places->pairs.data[i];
	}
}
