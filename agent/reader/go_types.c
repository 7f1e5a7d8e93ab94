// SPDX-License-Identifier: Apache-2.0
/* A descriptor is found in two passes over the types: first the name records ("*runtime.g" and the
 * like), whose distance from types_va is what descriptors refer to; then 8-aligned words that look
 * like a struct type with one of those names. The second pass costs one comparison per word and
 * type. */
#include "agent/reader/go_types.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define KIND_STRUCT	25u /* abi.Struct */
#define KIND_MASK	31u
#define TYPE_BYTES	80u /* rtype 48, pkgPath 8, fields slice 24 */
#define FIELD_BYTES	24u
#define FIELDS_MAX	256u
#define STRUCT_SIZE_MAX 65536u
#define NAME_BYTES	32u /* longest wanted name record with its head */
#define CANDIDATES_MAX	4u  /* another package called runtime may have types of these names */
#define PREFIX		"*runtime."

enum wanted_type { TYPE_G, TYPE_GOBUF, TYPE_M, TYPE_SUDOG, TYPE_MAX };
static const char *const type_names[TYPE_MAX] = { "g", "gobuf", "m", "sudog" };

/* A struct type as it was read once: what is checked is what is used. */
struct go_type {
	uint32_t size; /* bytes, 1 … STRUCT_SIZE_MAX - 1 */
	uint64_t fields_va;
	uint64_t field_count;
};

struct type_search {
	struct image *image;
	uint64_t types_va;
	unsigned minor;
	uint32_t name_offsets[TYPE_MAX]; /* from types_va, 0 = not found */
	/* The only copies of the descriptors: the program may change its own at any time. */
	struct go_type types[TYPE_MAX][CANDIDATES_MAX];
	unsigned type_count[TYPE_MAX];
};

/* ---- finding descriptors --------------------------------------------------------------------- */

/* Bytes of a name record before its text: flags and length, which was a big-endian u16 until 1.16.
 */
static unsigned name_head_bytes(unsigned minor)
{
	return minor == 16 ? 3 : 2;
}

static unsigned name_length(unsigned minor, const uint8_t *record)
{
	return minor == 16 ? (unsigned)record[1] << 8 | record[2] : record[1];
}

static int find_names(void *ctx, uint64_t va, const uint8_t *data, size_t len)
{
	struct type_search *search = ctx;
	unsigned head = name_head_bytes(search->minor);
	const uint8_t *at = data, *end = data + len;

	while ((at = memmem(at, (size_t)(end - at), PREFIX, sizeof(PREFIX) - 1))) {
		const uint8_t *name = at + sizeof(PREFIX) - 1;

		for (unsigned i = 0; i < TYPE_MAX; i++) {
			size_t name_len = strlen(type_names[i]);

			if ((size_t)(end - name) >= name_len && at - data >= head &&
			    !memcmp(name, type_names[i], name_len) &&
			    name_length(search->minor, at - head) == sizeof(PREFIX) - 1 + name_len)
				search->name_offsets[i] = (uint32_t)(va + (uint64_t)(at - data) -
								     head - search->types_va);
		}
		at = name;
	}
	return 0;
}

static int find_types(void *ctx, uint64_t unused_va, const uint8_t *data, size_t len)
{
	struct type_search *search = ctx;

	(void)unused_va;
	for (size_t at = 0; at + TYPE_BYTES <= len; at += 8) {
		struct go_type type;
		uint64_t size;
		uint32_t name;

		memcpy(&name, data + at + 40, sizeof(name));
		if ((data[at + 23] & KIND_MASK) != KIND_STRUCT || !name)
			continue;
		memcpy(&size, data + at, sizeof(size));
		if (!size || size >= STRUCT_SIZE_MAX)
			continue;
		type.size = (uint32_t)size;
		memcpy(&type.fields_va, data + at + 56, sizeof(type.fields_va));
		memcpy(&type.field_count, data + at + 64, sizeof(type.field_count));
		for (unsigned i = 0; i < TYPE_MAX; i++)
			if (name == search->name_offsets[i] &&
			    search->type_count[i] < CANDIDATES_MAX)
				search->types[i][search->type_count[i]++] = type;
	}
	return 0;
}

/* ---- fields of one descriptor ---------------------------------------------------------------- */

struct wanted_field {
	const char *name;
	uint32_t *ret;
	uint32_t bytes; /* that are read there */
	bool optional;
};

static int field_offset(const struct type_search *search, const uint8_t *field,
			const struct wanted_field *wanted, unsigned count)
{
	unsigned head = name_head_bytes(search->minor), len;
	uint64_t name_va, offset;
	uint8_t name[NAME_BYTES];
	int rc;

	memcpy(&name_va, field, sizeof(name_va));
	memcpy(&offset, field + 16, sizeof(offset));
	if (search->minor && search->minor <= 18) /* the lowest bit meant "embedded" */
		offset >>= 1;
	rc = image_read(search->image, name_va, name, head);
	if (rc < 0)
		return rc;
	len = name_length(search->minor, name);
	if (len > sizeof(name) - head || offset >= STRUCT_SIZE_MAX)
		return 0;
	rc = image_read(search->image, name_va + head, name + head, len);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < count; i++)
		if (len == strlen(wanted[i].name) && !memcmp(name + head, wanted[i].name, len))
			*wanted[i].ret = (uint32_t)offset;
	return 0;
}

/* Fields of @type; -EOPNOTSUPP if a required one is not there or does not lie inside of it. */
static int candidate_fields(const struct type_search *search, const struct go_type *type,
			    const struct wanted_field *wanted, unsigned count, uint32_t *ret_size,
			    const char **ret_missing)
{
	uint8_t field[FIELD_BYTES];

	for (unsigned i = 0; i < count; i++)
		*wanted[i].ret = GO_NO_FIELD;
	for (unsigned i = 0; i < type->field_count && i < FIELDS_MAX; i++) {
		int rc = image_read(search->image, type->fields_va + i * (uint64_t)FIELD_BYTES,
				    field, sizeof(field));

		if (rc == 0)
			rc = field_offset(search, field, wanted, count);
		if (rc < 0)
			return rc;
	}
	for (unsigned i = 0; i < count; i++) {
		bool absent = *wanted[i].ret == GO_NO_FIELD;

		/* Both below STRUCT_SIZE_MAX: the sum does not overflow. */
		if (absent ? wanted[i].optional : *wanted[i].ret + wanted[i].bytes <= type->size)
			continue;
		*ret_missing = wanted[i].name;
		return -EOPNOTSUPP;
	}
	*ret_size = type->size;
	return 0;
}

static int type_fields(const struct type_search *search, enum wanted_type type,
		       const struct wanted_field *wanted, unsigned count, uint32_t *ret_size,
		       char missing[64])
{
	const char *field = "its type";
	int rc = -EOPNOTSUPP;

	for (unsigned i = 0; i < search->type_count[type] && rc < 0; i++)
		rc = candidate_fields(search, &search->types[type][i], wanted, count, ret_size,
				      &field);
	if (rc == -EOPNOTSUPP)
		(void)snprintf(missing, 64, "runtime.%s: %s", type_names[type], field);
	return rc;
}

int go_types_fields(struct image *image, uint64_t types_va, uint64_t etypes_va, unsigned minor,
		    struct go_fields *ret, char missing[64])
{
	struct type_search search = { .image = image, .types_va = types_va, .minor = minor };
	struct go_fields f = { 0 };
	struct go_g_fields *g = &f.g;
	const struct wanted_field g_fields[] = {
		{ "stack", &g->stack, 16, false },
		{ "m", &g->m, 8, false },
		{ "sched", &g->sched, 8, false },
		{ "syscallsp", &g->syscallsp, 8, false },
		{ "syscallpc", &g->syscallpc, 8, false },
		{ "goid", &g->goid, 8, false },
		{ "atomicstatus", &g->atomicstatus, 4, false },
		{ "waitreason", &g->waitreason, 1, false },
		{ "waitsince", &g->waitsince, 8, false },
		{ "gopc", &g->gopc, 8, false },
		{ "startpc", &g->startpc, 8, false },
		{ "lockedm", &g->lockedm, 8, false },
		{ "labels", &g->labels, 8, false },
		{ "parentGoid", &g->parent_goid, 8, true },
		{ "waiting", &g->waiting, 8, true },
	};
	const struct wanted_field gobuf_fields[] = { { "sp", &f.gobuf_sp, 8, false },
						     { "pc", &f.gobuf_pc, 8, false },
						     { "g", &f.gobuf_g, 8, false } };
	const struct wanted_field m_fields[] = { { "g0", &f.m_g0, 8, false },
						 { "procid", &f.m_procid, 8, false },
						 { "curg", &f.m_curg, 8, false } };
	const struct wanted_field sudog_fields[] = { { "elem", &f.sudog_elem, 8, false },
						     { "c", &f.sudog_c, 8, false } };
	uint32_t gobuf_size = 0, sudog_size = 0;
	int rc;

	rc = image_scan(image, types_va, etypes_va, NAME_BYTES, find_names, &search);
	if (rc == 0)
		rc = image_scan(image, types_va, etypes_va, TYPE_BYTES, find_types, &search);
	if (rc == 0)
		rc = type_fields(&search, TYPE_G, g_fields, ARRAY_SIZE(g_fields), &g->size,
				 missing);
	if (rc == 0)
		rc = type_fields(&search, TYPE_GOBUF, gobuf_fields, ARRAY_SIZE(gobuf_fields),
				 &gobuf_size, missing);
	if (rc == 0)
		rc = type_fields(&search, TYPE_M, m_fields, ARRAY_SIZE(m_fields), &f.m_size,
				 missing);
	if (rc == 0)
		rc = type_fields(&search, TYPE_SUDOG, sudog_fields, ARRAY_SIZE(sudog_fields),
				 &sudog_size, missing);
	if (rc == 0 && (g->size > GO_G_BYTES_MAX || g->sched + gobuf_size > g->size)) {
		(void)snprintf(missing, 64, "runtime.g: its size");
		rc = -EOPNOTSUPP;
	}
	if (rc < 0)
		return rc;
	*ret = f;
	return 0;
}
