// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/hotspot_layout.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "bpf/arch.h"

#define ENTRIES_MAX  4096u /* of a table; 17 has 788 */
#define ENTRIES_READ 256u  /* at once */
#define NAME_BYTES   64u
#define OFFSET_MAX   1024u /* of a field that is followed */
#define CODELETS_MAX 2048u
#define QUEUE_MAX    (4u << 20) /* bytes of the interpreter's code */

/* An entry of gHotSpotVMStructs: VMStructEntry. */
struct field_entry {
	uint64_t type, field, type_string;
	int32_t is_static;
	uint32_t padding;
	uint64_t offset;
	uint64_t address; /* of a static field */
};

/* An entry of gHotSpotVMTypes: VMTypeEntry. */
struct type_entry {
	uint64_t type, super;
	int32_t is_oop, is_integer, is_unsigned, padding;
	uint64_t bytes;
};

/* Places of what does not go into struct script_hotspot itself. */
struct places {
	uint64_t heaps, heap;				   /* CodeCache: 9 and newer, 8 */
	uint64_t interpreter, call_return, version, major; /* addresses of the static fields */
	uint16_t array_len, array_data;			   /* GrowableArray */
	uint16_t heap_memory, heap_segmap, heap_shift;
	uint16_t space_low, space_end; /* VirtualSpace */
	uint16_t queue_buffer, queue_limit, codelet_size, codelet_text, codelet_bytes;
	uint16_t version_major;
	uint16_t code_offset, deopt_offset;
	uint16_t pool_file, class_file;
	uint16_t pcs_next, scopes_offset;
};

struct layout {
	struct target *target;
	struct script_hotspot *h;
	struct places places;
	uint64_t deadline_ns;
	union {
		struct field_entry fields[ENTRIES_READ];
		struct type_entry types[ENTRIES_READ];
	};
	char names[2 * ENTRIES_READ][NAME_BYTES];
	struct target_piece pieces[2 * ENTRIES_READ];
};

enum wanted_kind { WANTED_OFFSET, WANTED_PLACE, WANTED_STATIC };

struct wanted {
	const char *type, *field;
	uint16_t at; /* in struct script_hotspot (OFFSET) or struct places */
	uint8_t kind;
};

#define FACT(type, field, member)                                                                  \
	{                                                                                          \
		type, field, offsetof(struct script_hotspot, member), WANTED_OFFSET                \
	}
#define PLACE(type, field, member)                                                                 \
	{                                                                                          \
		type, field, offsetof(struct places, member), WANTED_PLACE                         \
	}
#define STATIC(type, field, member)                                                                \
	{                                                                                          \
		type, field, offsetof(struct places, member), WANTED_STATIC                        \
	}

/* Several names of one member: one for each range of versions. */
static const struct wanted wanted[] = {
	STATIC("CodeCache", "_heaps", heaps),
	STATIC("CodeCache", "_heap", heap),
	STATIC("AbstractInterpreter", "_code", interpreter),
	STATIC("StubRoutines", "_call_stub_return_address", call_return),
	STATIC("JDK_Version", "_current", version),
	STATIC("Abstract_VM_Version", "_vm_major_version", major),
	PLACE("JDK_Version", "_major", version_major),
	PLACE("GrowableArrayBase", "_len", array_len),
	PLACE("GenericGrowableArray", "_len", array_len),
	PLACE("GrowableArray<int>", "_data", array_data),
	PLACE("CodeHeap", "_memory", heap_memory),
	PLACE("CodeHeap", "_segmap", heap_segmap),
	PLACE("CodeHeap", "_log2_segment_size", heap_shift),
	PLACE("VirtualSpace", "_low", space_low),
	PLACE("VirtualSpace", "_high_boundary", space_end),
	PLACE("StubQueue", "_stub_buffer", queue_buffer),
	PLACE("StubQueue", "_buffer_limit", queue_limit),
	PLACE("InterpreterCodelet", "_size", codelet_size),
	PLACE("InterpreterCodelet", "_description", codelet_text),
	PLACE("CodeBlob", "_code_offset", code_offset),
	PLACE("ConstantPool", "_source_file_name_index", pool_file),
	PLACE("InstanceKlass", "_source_file_name_index", class_file),
	PLACE("nmethod", "_deopt_handler_offset", deopt_offset),
	PLACE("nmethod", "_deoptimize_offset", deopt_offset),
	PLACE("nmethod", "_scopes_data_offset", scopes_offset),
	PLACE("nmethod", "_dependencies_offset", pcs_next),
	FACT("CodeBlob", "_name", blob_name),
	FACT("CodeBlob", "_code_begin", blob_code),
	FACT("CodeBlob", "_frame_size", blob_frame_words),
	FACT("CodeBlob", "_frame_complete_offset", blob_frame_complete),
	FACT("CodeBlob", "_mutable_data", blob_mutable),
	FACT("CodeBlob", "_relocation_size", blob_relocation),
	FACT("nmethod", "_compile_id", nmethod_compile_id),
	FACT("nmethod", "_orig_pc_offset", nmethod_orig_pc),
	FACT("nmethod", "_comp_level", nmethod_level),
	FACT("nmethod", "_method", nmethod_method),
	FACT("CompiledMethod", "_method", nmethod_method),
	FACT("CompiledMethod", "_deopt_handler_begin", nmethod_deopt),
	FACT("CompiledMethod", "_scopes_data_begin", nmethod_scopes),
	FACT("nmethod", "_scopes_pcs_offset", nmethod_pcs),
	FACT("nmethod", "_metadata_offset", nmethod_metadata),
	FACT("nmethod", "_immutable_data", nmethod_immutable),
	FACT("nmethod", "_immutable_data_size", nmethod_immutable_bytes),
	FACT("Method", "_constMethod", method_const),
	FACT("ConstMethod", "_constants", const_pool),
	FACT("ConstMethod", "_constMethod_size", const_words),
	FACT("ConstMethod", "_flags", const_flags),
	FACT("ConstMethod", "_flags._flags", const_flags),
	FACT("ConstMethod", "_code_size", const_code_size),
	FACT("ConstMethod", "_name_index", const_name),
	FACT("ConstMethod", "_signature_index", const_signature),
	FACT("ConstantPool", "_pool_holder", pool_class),
	FACT("Klass", "_name", class_name),
	FACT("Symbol", "_length", symbol_length),
	FACT("Symbol", "_body", symbol_body),
	FACT("Symbol", "_refcount", symbol_refcount),
	FACT("Symbol", "_hash_and_refcount", symbol_refcount),
};

static const struct wanted wanted_types[] = {
	FACT("HeapBlock", NULL, heap_header),
	FACT("ConstMethod", NULL, const_bytes),
	FACT("ConstantPool", NULL, pool_bytes),
	FACT("nmethod", NULL, nmethod_bytes),
	FACT("ContinuationEntry", NULL, continuation_bytes),
	PLACE("InterpreterCodelet", NULL, codelet_bytes),
};

static void put_u16(struct layout *l, const struct wanted *wish, uint64_t value)
{
	uint8_t *base = wish->kind == WANTED_OFFSET ? (uint8_t *)l->h : (uint8_t *)&l->places;
	uint16_t offset = (uint16_t)value;

	if (value && value < OFFSET_MAX)
		memcpy(base + wish->at, &offset, sizeof(offset));
}

/* ---- the tables ------------------------------------------------------------------------------ */

static bool is_final(int rc)
{
	return rc == -ESRCH || rc == -EPERM;
}

static int read_word(struct layout *l, uint64_t va, uint64_t *ret)
{
	return target_read(l->target, va, ret, sizeof(*ret));
}

/* The names at @vas (2 * @count) into l->names. */
static int read_names(struct layout *l, const uint64_t *vas, size_t count)
{
	int rc;

	for (size_t i = 0; i < count; i++)
		l->pieces[i] = (struct target_piece){ .va = vas[i],
						      .buf = l->names[i],
						      .len = vas[i] ? NAME_BYTES - 1 : 0 };
	rc = target_read_batch(l->target, l->pieces, count);
	for (size_t i = 0; rc == 0 && i < count; i++)
		l->names[i][l->pieces[i].got] = '\0';
	return rc;
}

static void take_field(struct layout *l, const struct field_entry *entry, const char *type,
		       const char *field)
{
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		const struct wanted *wish = &wanted[i];

		if (strcmp(wish->type, type) != 0 || strcmp(wish->field, field) != 0)
			continue;
		if (wish->kind == WANTED_STATIC && entry->is_static)
			memcpy((uint8_t *)&l->places + wish->at, &entry->address,
			       sizeof(entry->address));
		else if (wish->kind != WANTED_STATIC && !entry->is_static)
			/* an offset of 0 is told apart from an unknown one by the caller's needs */
			put_u16(l, wish, entry->offset);
	}
}

/* Reads entries of @bytes each into l->fields; the number of those before the end of the table. */
static ssize_t read_entries(struct layout *l, uint64_t va, size_t bytes)
{
	ssize_t got = target_read_some(l->target, va, l->fields, ENTRIES_READ * bytes);
	size_t count = 0;

	if (got < 0)
		return got;
	while (count < (size_t)got / bytes) {
		uint64_t type;

		memcpy(&type, (const uint8_t *)l->fields + count * bytes, sizeof(type));
		if (!type)
			break;
		count++;
	}
	return (ssize_t)count;
}

static int read_fields(struct layout *l)
{
	uint64_t vas[2 * ENTRIES_READ], va;
	int rc = read_word(l, l->h->structs, &va);

	if (rc == 0 && !va)
		return -EAGAIN;
	for (size_t done = 0; rc == 0 && done < ENTRIES_MAX; done += ENTRIES_READ) {
		ssize_t count = read_entries(l, va + done * sizeof(struct field_entry),
					     sizeof(struct field_entry));

		if (count < 0)
			return (int)count;
		for (size_t i = 0; i < (size_t)count; i++) {
			vas[2 * i] = l->fields[i].type;
			vas[2 * i + 1] = l->fields[i].field;
		}
		rc = read_names(l, vas, 2 * (size_t)count);
		for (size_t i = 0; rc == 0 && i < (size_t)count; i++)
			take_field(l, &l->fields[i], l->names[2 * i], l->names[2 * i + 1]);
		if (count < (ssize_t)ENTRIES_READ)
			break;
		if (clock_monotonic_ns() > l->deadline_ns)
			return -ETIMEDOUT;
	}
	return rc;
}

static int read_types(struct layout *l)
{
	uint64_t vas[ENTRIES_READ], va;
	int rc = read_word(l, l->h->types, &va);

	for (size_t done = 0; rc == 0 && done < ENTRIES_MAX; done += ENTRIES_READ) {
		ssize_t count = read_entries(l, va + done * sizeof(struct type_entry),
					     sizeof(struct type_entry));

		if (count < 0)
			return (int)count;
		for (size_t i = 0; i < (size_t)count; i++)
			vas[i] = l->types[i].type;
		rc = read_names(l, vas, (size_t)count);
		for (size_t i = 0; rc == 0 && i < (size_t)count; i++)
			for (size_t j = 0; j < ARRAY_SIZE(wanted_types); j++)
				if (!strcmp(wanted_types[j].type, l->names[i]))
					put_u16(l, &wanted_types[j], l->types[i].bytes);
		if (count < (ssize_t)ENTRIES_READ)
			break;
	}
	return rc;
}

/* ---- what follows from them ------------------------------------------------------------------ */

static int read_version(struct layout *l)
{
	const struct places *p = &l->places;
	uint32_t major = 0;
	int rc;

	/* JDK_Version went away with 22; the virtual machine of 8 has version 25. */
	if (p->version)
		rc = target_read(l->target, p->version + p->version_major, &major, 1);
	else
		rc = p->major ? target_read(l->target, p->major, &major, sizeof(major))
			      : -EOPNOTSUPP;
	if (rc == 0 && !major)
		return -EAGAIN;
	l->h->version = (uint16_t)major;
	return rc < 0 ? rc : major >= 8 && major < 100 ? 0 : -EOPNOTSUPP;
}

/* Has every field that is read been found? Those that may be at offset 0 are left out. */
static bool is_complete(const struct script_hotspot *h, const struct places *p)
{
	const uint16_t needed[] = {
		h->heap_header,	       h->const_bytes,	       h->pool_bytes,
		h->nmethod_bytes,      h->blob_name,	       h->blob_code,
		h->blob_frame_words,   h->blob_frame_complete, h->nmethod_pcs,
		h->nmethod_compile_id, h->nmethod_orig_pc,     h->nmethod_deopt,
		h->nmethod_method,     h->nmethod_pcs_end,     h->nmethod_scopes,
		h->method_const,       h->const_pool,	       h->const_code_size,
		h->const_name,	       h->const_words,	       h->const_flags,
		h->pool_class,	       h->class_name,	       h->symbol_body,
		h->file_index,
	};

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (!needed[i])
			return false;
	if (h->symbol_refcount > 6 || h->symbol_refcount & 1)
		return false;
	/* BPF takes the pool and the three numbers of a method with one read. */
	if (h->const_pool > SCRIPT_HOTSPOT_MADE_BYTES - 8 ||
	    h->const_code_size > SCRIPT_HOTSPOT_MADE_BYTES - 8)
		return false;
	return p->call_return && p->interpreter && h->const_name == h->const_code_size + 2 &&
	       h->const_signature == h->const_name + 2;
}

/* Where a compiled method's parts are: from 25 on in memory of their own, up to 22 in the blob, of
 * which 8 says all by offsets. 23 and 24 have yet other places. */
static bool place_parts(struct script_hotspot *h, const struct places *p)
{
	h->nmethod_pcs_end = p->pcs_next;
	if (!p->code_offset)
		return h->nmethod_metadata;
	h->flags |= SCRIPT_HOTSPOT_OFFSETS;
	h->blob_code = p->code_offset;
	h->nmethod_deopt = p->deopt_offset;
	h->nmethod_scopes = p->scopes_offset;
	if (h->version == 8) { /* the scopes end where the PcDescs begin */
		h->nmethod_immutable = 0;
		h->nmethod_immutable_bytes = h->nmethod_pcs;
		return h->nmethod_metadata;
	}
	h->nmethod_pcs_end = p->scopes_offset;
	h->nmethod_metadata = 0;
	return h->nmethod_immutable && h->nmethod_immutable_bytes && h->blob_mutable &&
	       h->blob_relocation;
}

static int derive(struct layout *l)
{
	const struct places *p = &l->places;
	struct script_hotspot *h = l->h;

	if (!place_parts(h, p))
		return -EOPNOTSUPP;
	h->file_index = p->class_file;
	if (p->pool_file) {
		h->flags |= SCRIPT_HOTSPOT_POOL_FILE;
		h->file_index = p->pool_file;
	}
	/* frame_x86.hpp: interpreter_frame_bcp_offset; 9 put the class's mirror before it. */
	h->frame_bcp = p->heaps ? 64 : 56;
	/* continuationEntry.hpp, which 21 does not describe: without debug code six words */
	if (!h->continuation_bytes && h->version >= 20)
		h->continuation_bytes = 48;
	return is_complete(h, p) ? 0 : -EOPNOTSUPP;
}

static int read_heap(struct layout *l, uint64_t heap_va, struct script_hotspot_heap *ret)
{
	const struct places *p = &l->places;
	uint64_t memory = heap_va + p->heap_memory;
	uint32_t shift;
	int rc = read_word(l, memory + p->space_low, &ret->start);

	if (rc == 0)
		rc = read_word(l, memory + p->space_end, &ret->end);
	if (rc == 0)
		rc = read_word(l, heap_va + p->heap_segmap + p->space_low, &ret->segmap);
	if (rc == 0)
		rc = target_read(l->target, heap_va + p->heap_shift, &shift, sizeof(shift));
	if (rc < 0)
		return rc;
	if (!ret->start || !ret->segmap)
		return -EAGAIN;
	if (ret->end <= ret->start || ret->end >= ARCH_USUAL_END || shift < 4 || shift > 12)
		return -EOPNOTSUPP;
	l->h->segment_shift = (uint8_t)shift;
	return 0;
}

static int read_heaps(struct layout *l)
{
	const struct places *p = &l->places;
	uint64_t array, data = p->heap;
	uint32_t count = 1;
	int rc = 0;

	if (!p->heaps && !p->heap)
		return -EOPNOTSUPP;
	if (p->heaps) {
		rc = read_word(l, p->heaps, &array);
		if (rc == 0 && !array)
			return -EAGAIN;
		if (rc == 0)
			rc = target_read(l->target, array + p->array_len, &count, sizeof(count));
		if (rc == 0)
			rc = read_word(l, array + p->array_data, &data);
		if (rc == 0 && !count)
			return -EAGAIN;
		if (rc == 0 && count > SCRIPT_HOTSPOT_HEAPS)
			return -EOPNOTSUPP;
	}
	for (uint32_t i = 0; rc == 0 && i < count; i++) {
		uint64_t heap;

		rc = read_word(l, data + 8 * i, &heap);
		if (rc == 0)
			rc = heap ? read_heap(l, heap, &l->h->heaps[i]) : -EAGAIN;
	}
	return rc;
}

/* Codelets follow each other; those in which methods begin stand together, and others come after
 * them. They are made while the virtual machine starts. */
static int find_entries(struct layout *l, const uint8_t *code, size_t len)
{
	static const char start[] = "method entry point", native[] = "native method entry point";
	const struct places *p = &l->places;
	bool is_whole = false;
	size_t at = 0;

	for (unsigned i = 0; i < CODELETS_MAX && !is_whole && at + p->codelet_bytes <= len; i++) {
		char text[sizeof(native)] = "";
		uint64_t text_va;
		uint32_t bytes;
		int rc;

		memcpy(&bytes, code + at + p->codelet_size, sizeof(bytes));
		memcpy(&text_va, code + at + p->codelet_text, sizeof(text_va));
		if (bytes < p->codelet_bytes || bytes > len - at)
			break;
		rc = target_read(l->target, text_va, text, sizeof(text) - 1);
		if (is_final(rc))
			return rc;
		if (!strncmp(text, start, strlen(start)) || !strcmp(text, native)) {
			if (!l->h->entries)
				l->h->entries = l->h->interpreter + at;
			l->h->entries_end = l->h->interpreter + at + bytes;
		} else {
			is_whole = l->h->entries != 0;
		}
		at += bytes;
		if (clock_monotonic_ns() > l->deadline_ns)
			return -ETIMEDOUT;
	}
	return is_whole ? 0 : -EAGAIN;
}

static int read_interpreter(struct layout *l)
{
	const struct places *p = &l->places;
	cleanup_free uint8_t *code = NULL;
	uint64_t queue;
	uint32_t bytes;
	int rc = read_word(l, p->interpreter, &queue);

	if (rc == 0 && !queue)
		return -EAGAIN;
	if (rc == 0)
		rc = read_word(l, queue + p->queue_buffer, &l->h->interpreter);
	if (rc == 0)
		rc = target_read(l->target, queue + p->queue_limit, &bytes, sizeof(bytes));
	if (rc == 0)
		rc = read_word(l, p->call_return, &l->h->call_return);
	if (rc < 0)
		return rc;
	if (!l->h->interpreter || !bytes || !l->h->call_return)
		return -EAGAIN;
	if (bytes > QUEUE_MAX || !p->codelet_bytes || p->codelet_bytes > 64 ||
	    p->codelet_text + 8u > p->codelet_bytes || p->codelet_size + 4u > p->codelet_bytes)
		return -EOPNOTSUPP;
	l->h->interpreter_end = l->h->interpreter + bytes;
	code = malloc(bytes);
	if (!code)
		return -ENOMEM;
	rc = target_read(l->target, l->h->interpreter, code, bytes);
	return rc < 0 ? rc : find_entries(l, code, bytes);
}

int hotspot_layout_read(struct target *target, struct script_hotspot *hotspot, uint64_t deadline_ns)
{
	cleanup_free struct layout *l = calloc(1, sizeof(*l));
	struct script_hotspot h = { .structs = hotspot->structs, .types = hotspot->types };
	int rc;

	if (!l)
		return -ENOMEM;
	memcpy(h.nmethod_names, hotspot->nmethod_names, sizeof(h.nmethod_names));
	l->target = target;
	l->h = &h;
	l->deadline_ns = deadline_ns;
	rc = read_fields(l);
	if (rc == 0)
		rc = read_types(l);
	if (rc == 0)
		rc = read_version(l);
	if (rc == 0)
		rc = derive(l);
	if (rc == 0)
		rc = read_heaps(l);
	if (rc == 0)
		rc = read_interpreter(l);
	if (rc == 0)
		*hotspot = h;
	/* The tables point to memory that is there, or the library is another than its file says. */
	return rc == -EFAULT ? -EOPNOTSUPP : rc;
}
