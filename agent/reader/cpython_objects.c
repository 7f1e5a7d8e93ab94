// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/cpython_objects.h"

#include <errno.h>
#include <string.h>

#include "agent/base/bytes.h"
#include "agent/runtimes/cpython_layout.h"
#include "agent/runtimes/cpython_strings.h"
#include "agent/runtimes/unicode.h"

/* Fields of a type, which are where they are in all versions. */
#define TYPE_NAME	 24u
#define TYPE_BASIC_BYTES 32u
#define TYPE_FLAGS	 168u
#define TYPE_BASE	 256u
#define TYPE_DICT_AT	 288u
#define TYPE_BYTES	 296u
#define TYPE_HAS_INLINE	 4u /* flag: the values of attributes lie behind the instance (3.13) */

#define BASES_MAX   8u
#define NAME_BYTES  32u
#define STR_BYTES   1024u /* of a string's characters */
#define HEAD_BYTES  (1024u + 8u)
#define KEY_BYTES   64u
#define ENTRY_GROUP 64u
#define VALUES_MAX  64u

/* ---- reading --------------------------------------------------------------------------------- */

static void note(struct cpython_objects *o, uint64_t va, const void *data, size_t bytes)
{
	if (o->note_count == CPYTHON_OBJECTS_NOTES || bytes > sizeof(o->noted) - o->noted_bytes) {
		o->is_full = true;
		return;
	}
	o->notes[o->note_count++] = (struct target_piece){ .va = va,
							   .buf = o->again + o->noted_bytes,
							   .len = (uint32_t)bytes };
	memcpy(o->noted + o->noted_bytes, data, bytes);
	o->noted_bytes += bytes;
}

int cpython_objects_read(struct cpython_objects *o, uint64_t va, void *ret, size_t bytes)
{
	int rc = va < ARCH_USUAL_END ? target_read(o->target, va, ret, bytes) : -EFAULT;

	if (rc == 0 && o->is_noting)
		note(o, va, ret, bytes);
	return rc;
}

int cpython_objects_word(struct cpython_objects *o, uint64_t va, uint64_t *ret)
{
	return cpython_objects_read(o, va, ret, sizeof(*ret));
}

void cpython_objects_begin(struct cpython_objects *o)
{
	o->is_noting = true;
	o->is_full = false;
	o->note_count = o->noted_bytes = 0;
}

int cpython_objects_unchanged(struct cpython_objects *o)
{
	int rc = target_read_batch(o->target, o->notes, o->note_count);

	o->is_noting = false;
	for (size_t i = 0; rc == 0 && i < o->note_count; i++)
		if (o->notes[i].got < o->notes[i].len)
			return 0;
	if (rc < 0)
		return rc;
	return !o->is_full && !memcmp(o->noted, o->again, o->noted_bytes);
}

/* ---- types ----------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	enum cpython_kind kind;
} kinds[] = {
	{ "coroutine", CPYTHON_COROUTINE },
	{ "generator", CPYTHON_COROUTINE },
	{ "async_generator", CPYTHON_COROUTINE },
	{ "coroutine_wrapper", CPYTHON_WRAPPER },
	{ "async_generator_asend", CPYTHON_WRAPPER },
	{ "async_generator_athrow", CPYTHON_WRAPPER },
	{ "_asyncio.Task", CPYTHON_TASK },
	{ "Task", CPYTHON_FOREIGN_TASK },
	{ "_GatheringFuture", CPYTHON_GATHER },
	{ "method", CPYTHON_METHOD },
	{ "weakref", CPYTHON_WEAKREF },
	{ "weakref.ReferenceType", CPYTHON_WEAKREF }, /* 3.12 and newer */
	{ "set", CPYTHON_SET },
	{ "dict", CPYTHON_DICT },
	{ "list", CPYTHON_LIST },
	{ "str", CPYTHON_STR },
	{ "int", CPYTHON_INT },
	{ "module", CPYTHON_MODULE },
};

static enum cpython_kind kind_of_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(name, kinds[i].name))
			return kinds[i].kind;
	return CPYTHON_OTHER;
}

/* A class is known by its own name, a class that is derived from it by the base's. */
static enum cpython_kind kind_of_type(struct cpython_objects *o, uint64_t type_va)
{
	enum cpython_kind kind = CPYTHON_OTHER;

	for (unsigned i = 0; i < BASES_MAX && !kind && cpython_is_object(type_va); i++) {
		uint64_t name_va;
		char name[NAME_BYTES] = "";
		ssize_t got;

		if (cpython_objects_word(o, type_va + TYPE_NAME, &name_va) < 0 ||
		    name_va >= ARCH_USUAL_END)
			break;
		got = target_read_some(o->target, name_va, name, sizeof(name) - 1);
		kind = got > 0 ? kind_of_name(name) : CPYTHON_OTHER;
		if (cpython_objects_word(o, type_va + TYPE_BASE, &type_va) < 0)
			break;
	}
	return kind;
}

enum cpython_kind cpython_objects_kind(struct cpython_objects *o, uint64_t va)
{
	bool was_noting = o->is_noting;
	enum cpython_kind kind;
	uint64_t type_va;

	if (!cpython_is_object(va) ||
	    cpython_objects_word(o, va + o->python->object_type, &type_va) < 0)
		return CPYTHON_OTHER;
	for (size_t i = 0; i < o->type_count; i++)
		if (o->types[i].va == type_va)
			return o->types[i].kind;
	o->is_noting = false;
	kind = kind_of_type(o, type_va);
	o->is_noting = was_noting;
	if (o->type_count < CPYTHON_OBJECTS_TYPES) {
		o->types[o->type_count].va = type_va;
		o->types[o->type_count++].kind = kind;
	}
	return kind;
}

/* ---- strings and numbers --------------------------------------------------------------------- */

int cpython_objects_str(struct cpython_objects *o, uint64_t va, char *ret, size_t size)
{
	const struct script_python *python = o->python;
	const uint32_t bytes = (python->str_state > python->str_length ? python->str_state
								       : python->str_length) + 8u;
	uint8_t head[HEAD_BYTES], data[STR_BYTES];
	struct cpython_string string;
	int rc;

	if (!cpython_is_object(va) || bytes > sizeof(head))
		return -EINVAL;
	/* The head begins with the count of references, which changes. */
	rc = cpython_objects_read(o, va + 8, head + 8, bytes - 8);
	if (rc == 0)
		rc = cpython_string_head(bytes_u64_at(head, python->str_length),
					 bytes_u32_at(head, python->str_state), &string);
	if (rc < 0)
		return rc;
	if (string.chars > STR_BYTES / string.width)
		string.chars = STR_BYTES / string.width;
	va += string.is_ascii ? python->str_ascii_data : python->str_compact_data;
	rc = string.chars ? cpython_objects_read(o, va, data, string.chars * string.width) : 0;
	if (rc == 0)
		(void)unicode_utf8(data, string.chars, string.width, ret, size);
	return rc;
}

/* struct _PyLongValue: the number of digits of 30 bits in the tag's bits from 3 on, the sign in its
 * lowest two: 0 is positive, 1 is zero. */
int cpython_objects_int(struct cpython_objects *o, uint64_t va, uint64_t *ret)
{
	uint8_t data[16];
	uint64_t tag, value;
	int rc;

	if (cpython_minor(o->python) < 12 || !cpython_is_object(va))
		return -EINVAL;
	rc = cpython_objects_read(o, va + 16, data, sizeof(data));
	if (rc < 0)
		return rc;
	tag = bytes_u64_at(data, 0);
	value = bytes_u32_at(data, 8) & 0x3fffffffu;
	if ((tag & 3) > 1 || tag >> 3 > 2)
		return -EINVAL;
	if (tag >> 3 == 2)
		value |= (uint64_t)(bytes_u32_at(data, 12) & 0x3fffffffu) << 30;
	*ret = (tag & 3) == 1 ? 0 : value;
	return 0;
}

/* ---- dicts ----------------------------------------------------------------------------------- */

/* Where a dict has its entries. */
struct entries {
	uint64_t va;
	uint64_t values_va; /* the values are there; 0: in the entries */
	uint32_t count;
	uint8_t bytes; /* of an entry, which begins with hash (24 bytes) or key (16 bytes) */
};

static bool has_old_keys(const struct cpython_objects *o)
{
	return cpython_minor(o->python) <= 10;
}

/* The first value of struct _dictvalues. */
static uint64_t first_value(const struct cpython_objects *o, uint64_t values_va)
{
	return values_va + (cpython_minor(o->python) >= 13 ? 8 : 0);
}

static int find_entries(struct cpython_objects *o, uint64_t dict_va, struct entries *ret)
{
	const bool is_old = has_old_keys(o);
	uint8_t dict[48], keys[40];
	uint64_t keys_va, count, index_bytes;
	int rc = cpython_is_object(dict_va)
			 ? cpython_objects_read(o, dict_va + 16, dict + 16, sizeof(dict) - 16)
			 : -EINVAL;

	keys_va = rc == 0 ? bytes_u64_at(dict, 32) : 0;
	if (rc == 0)
		rc = cpython_is_object(keys_va)
			     ? cpython_objects_read(o, keys_va + 8, keys + 8, sizeof(keys) - 8)
			     : -EINVAL;
	if (rc < 0)
		return rc;
	count = bytes_u64_at(keys, is_old ? 32 : 24);
	if (is_old) {
		uint64_t size = bytes_u64_at(keys, 8);

		index_bytes = size <= UINT8_MAX ? size : size <= UINT16_MAX ? 2 * size : 4 * size;
		if (size > 4 * CPYTHON_DICT_MAX)
			return -EINVAL;
	} else {
		if (keys[9] > 32 || keys[10] > 2)
			return -EINVAL;
		index_bytes = 1ull << keys[9];
	}
	if (count > CPYTHON_DICT_MAX)
		return -EINVAL;
	*ret = (struct entries){ .va = keys_va + (is_old ? 40 : 32) + index_bytes,
				 .count = (uint32_t)count,
				 .bytes = is_old || !keys[10] ? 24 : 16 };
	if (cpython_is_object(bytes_u64_at(dict, 40)))
		ret->values_va = first_value(o, bytes_u64_at(dict, 40));
	return 0;
}

static int value_of(struct cpython_objects *o, const struct entries *entries, uint32_t index,
		    const uint8_t *entry, uint64_t *ret)
{
	if (entries->values_va)
		return cpython_objects_word(o, entries->values_va + 8ull * index, ret);
	*ret = bytes_u64_at(entry, entries->bytes - 8u);
	return 0;
}

int cpython_objects_lookup(struct cpython_objects *o, uint64_t dict_va, const char *key,
			   uint64_t *ret)
{
	uint8_t group[ENTRY_GROUP * 24];
	struct entries entries;
	int rc = find_entries(o, dict_va, &entries);

	for (uint32_t i = 0; rc == 0 && i < entries.count; i++) {
		const uint32_t left = entries.count - i, in_group = i % ENTRY_GROUP;
		const uint8_t *entry = group + in_group * entries.bytes;
		char text[KEY_BYTES];
		uint64_t key_va;

		if (!in_group)
			rc = cpython_objects_read(o, entries.va + (uint64_t)i * entries.bytes, group,
						  (size_t)entries.bytes *
							  (left < ENTRY_GROUP ? left : ENTRY_GROUP));
		if (rc < 0)
			break;
		key_va = bytes_u64_at(entry, entries.bytes - 16u);
		if (cpython_objects_str(o, key_va, text, sizeof(text)) < 0 || strcmp(text, key) != 0)
			continue;
		rc = value_of(o, &entries, i, entry, ret);
		return rc < 0 ? rc : *ret ? 0 : -ENOENT;
	}
	return rc < 0 ? rc : -ENOENT;
}

static int dict_values(struct cpython_objects *o, uint64_t dict_va, uint64_t *ret, size_t max)
{
	uint8_t entry[24] = { 0 };
	struct entries entries;
	size_t count = 0;
	int rc = find_entries(o, dict_va, &entries);

	for (uint32_t i = 0; rc == 0 && i < entries.count && count < max; i++) {
		if (!entries.values_va)
			rc = cpython_objects_read(o, entries.va + (uint64_t)i * entries.bytes, entry,
						  entries.bytes);
		if (rc == 0)
			rc = value_of(o, &entries, i, entry, &ret[count]);
		count += rc == 0;
	}
	return rc < 0 ? rc : (int)count;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static int plain_values(struct cpython_objects *o, uint64_t va, uint64_t *ret, size_t max)
{
	size_t count = max < VALUES_MAX ? max : VALUES_MAX;

	while (count && cpython_objects_read(o, va, ret, count * sizeof(*ret)) < 0)
		count--; /* the values end before @max, and a page with them */
	return (int)count;
}

/* Where the attributes of an instance are: *ret_dict, or *ret_values; both 0: it has none. */
static int find_attributes(struct cpython_objects *o, uint64_t va, uint64_t *ret_dict,
			   uint64_t *ret_values, size_t *max)
{
	const unsigned minor = cpython_minor(o->python);
	uint8_t type[TYPE_BYTES], head[8];
	uint64_t type_va, word;
	int64_t dict_at;
	int rc = cpython_is_object(va)
			 ? cpython_objects_word(o, va + o->python->object_type, &type_va)
			 : -EINVAL;

	*ret_dict = *ret_values = 0;
	if (rc == 0)
		rc = cpython_is_object(type_va)
			     ? cpython_objects_read(o, type_va + 16, type + 16, sizeof(type) - 16)
			     : -EINVAL;
	if (rc < 0)
		return rc;
	dict_at = (int64_t)bytes_u64_at(type, TYPE_DICT_AT);
	if (dict_at > 0)
		return dict_at > 4096 ? -EINVAL
				      : cpython_objects_word(o, va + (uint64_t)dict_at, ret_dict);
	if (!dict_at || minor <= 10)
		return 0;
	if (minor == 11) {
		rc = cpython_objects_word(o, va - 32, ret_values);
		return rc < 0 || *ret_values ? rc : cpython_objects_word(o, va - 24, ret_dict);
	}
	rc = cpython_objects_word(o, va - 24, &word);
	if (rc < 0)
		return rc;
	if (minor == 12) {
		*(word & 1 ? ret_values : ret_dict) = word & 1 ? word + 1 : word;
		return 0;
	}
	*ret_dict = word;
	if (word || !(bytes_u64_at(type, TYPE_FLAGS) & TYPE_HAS_INLINE))
		return 0;
	word = bytes_u64_at(type, TYPE_BASIC_BYTES);
	if (word > 4096)
		return -EINVAL;
	/* struct _dictvalues: how many values there is room for, then three bytes more. */
	rc = cpython_objects_read(o, va + word, head, sizeof(head));
	*ret_values = va + word + 8;
	*max = rc == 0 && head[0] < *max ? head[0] : *max;
	return rc;
}

int cpython_objects_attributes(struct cpython_objects *o, uint64_t va, uint64_t *ret, size_t max)
{
	uint64_t dict_va, values_va;
	int rc = find_attributes(o, va, &dict_va, &values_va, &max);

	if (rc < 0)
		return rc;
	if (dict_va)
		return dict_values(o, dict_va, ret, max);
	return cpython_is_object(values_va) ? plain_values(o, values_va, ret, max) : 0;
}

/* ---- lists and sets -------------------------------------------------------------------------- */

int cpython_objects_list(struct cpython_objects *o, uint64_t va, uint64_t *ret, size_t max)
{
	uint64_t head[2]; /* ob_size, ob_item */
	int rc = cpython_is_object(va) ? cpython_objects_read(o, va + 16, head, sizeof(head)) : -EINVAL;
	size_t count;

	if (rc < 0)
		return rc;
	if (head[0] > INT32_MAX || (head[0] && !cpython_is_object(head[1])))
		return -EINVAL;
	count = head[0] < max ? (size_t)head[0] : max;
	rc = count ? cpython_objects_read(o, head[1], ret, count * sizeof(*ret)) : 0;
	return rc < 0 ? rc : (int)count;
}

int cpython_objects_set(struct cpython_objects *o, uint64_t va,
			int (*each)(void *ctx, uint64_t element_va), void *ctx)
{
	uint64_t head[4], again[4], slots[2 * ENTRY_GROUP]; /* fill, used, mask, table; key and hash */
	int rc = cpython_is_object(va) ? cpython_objects_read(o, va + 16, head, sizeof(head)) : -EINVAL;

	if (rc < 0)
		return rc;
	if (head[1] > CPYTHON_SET_MAX || head[2] >= 8ull * CPYTHON_SET_MAX)
		return -E2BIG;
	for (uint64_t i = 0; rc == 0 && i <= head[2]; i++) {
		const uint64_t left = head[2] + 1 - i, in_group = i % ENTRY_GROUP;

		if (!in_group)
			rc = cpython_objects_read(o, head[3] + 16 * i, slots,
						  16 * (left < ENTRY_GROUP ? left : ENTRY_GROUP));
		if (rc == 0 && cpython_is_object(slots[2 * in_group]))
			rc = each(ctx, slots[2 * in_group]);
	}
	if (rc == 0)
		rc = cpython_objects_read(o, va + 16, again, sizeof(again));
	return rc == 0 && (again[2] != head[2] || again[3] != head[3]) ? -EAGAIN : rc;
}
