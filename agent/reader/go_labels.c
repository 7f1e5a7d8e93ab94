// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/go_labels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKET_SLOTS	  8u   /* src/runtime/map.go: bucketCnt */
#define BUCKET_BYTES	  272u /* 8 tophash, 8 keys and 8 values of 16 bytes, overflow pointer */
#define BUCKETS_SHIFT_MAX 10u
#define OVERFLOWS_MAX	  64u
#define TOPHASH_USED	  5u /* smaller ones mark empty and moved slots */

struct go_string {
	uint64_t va;
	uint64_t len;
};

struct label_pair {
	struct go_string key;
	struct go_string value;
};

static uint16_t text_length(const struct go_string *s)
{
	return s->len < GO_LABEL_TEXT_MAX ? (uint16_t)s->len : GO_LABEL_TEXT_MAX;
}

/* Texts of all pairs in one batch. */
static int read_texts(struct target *target, const struct label_pair *pairs, unsigned count,
		      struct go_labels *ret)
{
	struct target_piece pieces[2 * GO_LABELS_MAX];
	int rc;

	for (unsigned i = 0; i < count; i++) {
		struct go_label *label = &ret->items[i];

		label->key_len = text_length(&pairs[i].key);
		label->value_len = text_length(&pairs[i].value);
		pieces[2 * i] = (struct target_piece){ .va = pairs[i].key.va,
						       .buf = label->key,
						       .len = label->key_len };
		pieces[2 * i + 1] = (struct target_piece){ .va = pairs[i].value.va,
							   .buf = label->value,
							   .len = label->value_len };
	}
	rc = target_read_batch(target, pieces, 2 * (size_t)count);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < count; i++)
		if (pieces[2 * i].got != pieces[2 * i].len ||
		    pieces[2 * i + 1].got != pieces[2 * i + 1].len)
			return -EFAULT;
	ret->count = count;
	return 0;
}

static int read_slice(struct target *target, uint64_t va, struct go_labels *ret)
{
	struct label_pair pairs[GO_LABELS_MAX];
	uint64_t slice[3];
	unsigned count;
	int rc = target_read(target, va, slice, sizeof(slice));

	if (rc < 0)
		return rc;
	if (!slice[1] || slice[1] > slice[2] || slice[1] > 65536)
		return -EFAULT;
	count = slice[1] < GO_LABELS_MAX ? (unsigned)slice[1] : GO_LABELS_MAX;
	rc = target_read(target, slice[0], pairs, count * sizeof(pairs[0]));
	return rc < 0 ? rc : read_texts(target, pairs, count, ret);
}

/* One bucket and its overflow chain; appends to @pairs. */
static int read_bucket_chain(struct target *target, uint64_t va, struct label_pair *pairs,
			     unsigned *count)
{
	uint8_t bucket[BUCKET_BYTES];

	for (unsigned step = 0; va && step < OVERFLOWS_MAX; step++) {
		int rc = target_read(target, va, bucket, sizeof(bucket));

		if (rc < 0)
			return rc;
		for (unsigned slot = 0; slot < BUCKET_SLOTS && *count < GO_LABELS_MAX; slot++) {
			if (bucket[slot] < TOPHASH_USED)
				continue;
			memcpy(&pairs[*count].key, bucket + 8 + slot * 16, 16);
			memcpy(&pairs[*count].value, bucket + 8 + BUCKET_SLOTS * 16 + slot * 16,
			       16);
			(*count)++;
		}
		memcpy(&va, bucket + BUCKET_BYTES - 8, sizeof(va));
	}
	return 0;
}

static int compare_labels(const void *a, const void *b)
{
	const struct go_label *x = a, *y = b;
	size_t len = x->key_len < y->key_len ? x->key_len : y->key_len;
	int order = memcmp(x->key, y->key, len);

	return order ? order : (int)x->key_len - (int)y->key_len;
}

/* hmap: count int at 0, B uint8 at 9, buckets at 16 (src/runtime/map.go until 1.23). */
static int read_map(struct target *target, uint64_t va, struct go_labels *ret)
{
	struct label_pair pairs[GO_LABELS_MAX];
	uint64_t hmap_va, buckets_va, used;
	uint8_t hmap[24];
	unsigned count = 0;
	int rc = target_read(target, va, &hmap_va, sizeof(hmap_va));

	if (rc == 0)
		rc = target_read(target, hmap_va, hmap, sizeof(hmap));
	if (rc < 0)
		return rc;
	memcpy(&used, hmap, sizeof(used));
	memcpy(&buckets_va, hmap + 16, sizeof(buckets_va));
	if (!used || used > 65536 || hmap[9] > BUCKETS_SHIFT_MAX)
		return -EFAULT;
	for (unsigned i = 0; i < 1u << hmap[9] && count < GO_LABELS_MAX && rc == 0; i++)
		rc = read_bucket_chain(target, buckets_va + i * (uint64_t)BUCKET_BYTES, pairs,
				       &count);
	if (rc == 0)
		rc = read_texts(target, pairs, count, ret);
	if (rc == 0)
		qsort(ret->items, ret->count, sizeof(ret->items[0]), compare_labels);
	return rc;
}

int go_labels_read(struct target *target, uint64_t va, bool is_map, struct go_labels *ret)
{
	int rc;

	ret->count = 0;
	rc = is_map ? read_map(target, va, ret) : read_slice(target, va, ret);
	return rc == -ESRCH || rc == -EPERM ? rc : 0;
}
