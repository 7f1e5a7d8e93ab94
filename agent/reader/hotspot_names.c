// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/hotspot_names.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/bytes.h"
#include "agent/base/clock.h"
#include "agent/runtimes/hotspot_lines.h"
#include "agent/runtimes/hotspot_names.h"
#include "agent/runtimes/hotspot_scopes.h"
#include "bpf/arch.h"

#define HEAD_BYTES     1152u /* of any structure: offsets are below 1024 (hotspot_layout.c) */
#define SYMBOL_BYTES   512u  /* of a name; longer ones are cut */
#define FUNCTION_BYTES 768u
#define FILE_BYTES     512u
#define LINES_BYTES    (64u << 10) /* of a method's line table */
#define TABLE_BYTES    (4u << 20)  /* of a compiled method's PcDescs, and of its scopes */
#define HOPS_MAX       64u
#define HAS_LINES      1u /* of ConstMethod's flags: constMethodFlags.hpp */

struct symbol {
	uint8_t text[SYMBOL_BYTES];
	size_t len;
};

/* A part of a compiled method. */
struct table {
	uint8_t *data;
	size_t len, capacity;
};

struct work {
	struct target *target;
	const struct script_hotspot *h;
	struct script_names *names;
	int gone;	  /* -ESRCH or -EPERM: the process may not be read any more */
	uint64_t blob_va; /* of the compiled method whose tables are here, 0 = none */
	uint32_t blob_id;
	uint8_t blob[HEAD_BYTES];
	struct table pcs, scopes;
	uint8_t lines[LINES_BYTES];
};

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_address(uint64_t va)
{
	return va >= 4096 && !(va & 7) && va < ARCH_USUAL_END;
}

static bool read_all(struct work *w, uint64_t va, void *buf, size_t len)
{
	int rc = target_read(w->target, va, buf, len);

	if (rc == -ESRCH || rc == -EPERM)
		w->gone = rc;
	return rc == 0;
}

static bool read_word(struct work *w, uint64_t va, uint64_t *ret)
{
	return read_all(w, va, ret, sizeof(*ret));
}

static uint32_t u16_at(const uint8_t *data, uint32_t offset)
{
	uint16_t value;

	memcpy(&value, data + offset, sizeof(value));
	return value;
}

static bool read_symbol(struct work *w, uint64_t va, struct symbol *ret)
{
	uint16_t len;

	ret->len = 0;
	if (!is_address(va) || !read_all(w, va + w->h->symbol_length, &len, sizeof(len)))
		return false;
	len = len < SYMBOL_BYTES ? len : SYMBOL_BYTES;
	if (len && !read_all(w, va + w->h->symbol_body, ret->text, len))
		return false;
	ret->len = len;
	return true;
}

static bool read_table(struct work *w, uint64_t va, uint64_t end_va, struct table *ret)
{
	size_t len = end_va > va && end_va - va <= TABLE_BYTES ? (size_t)(end_va - va) : 0;

	ret->len = 0;
	if (len > ret->capacity) {
		uint8_t *data = realloc(ret->data, len);

		if (!data)
			return false;
		ret->data = data;
		ret->capacity = len;
	}
	if (!len || !read_all(w, va, ret->data, len))
		return false;
	ret->len = len;
	return true;
}

int hotspot_blob_find(struct target *target, const struct script_hotspot *hotspot, uint64_t pc,
		      uint64_t *ret)
{
	for (unsigned i = 0; i < SCRIPT_HOTSPOT_HEAPS; i++) {
		const struct script_hotspot_heap *heap = &hotspot->heaps[i];
		uint64_t segment = (pc - heap->start) >> hotspot->segment_shift;

		if (pc < heap->start || pc >= heap->end)
			continue;
		for (unsigned hop = 0; hop < HOPS_MAX; hop++) {
			uint8_t back;
			int rc = target_read(target, heap->segmap + segment, &back, 1);

			if (rc < 0)
				return rc;
			if (!back) {
				*ret = heap->start + (segment << hotspot->segment_shift) +
				       hotspot->heap_header;
				return 0;
			}
			if (back == 0xff || back > segment)
				return -ENOENT;
			segment -= back;
		}
	}
	return -ENOENT;
}

/* ---- methods --------------------------------------------------------------------------------- */

struct method {
	uint64_t made_va; /* its ConstMethod */
	uint8_t made[HEAD_BYTES];
	uint8_t pool[HEAD_BYTES];
	struct symbol class_name, name, file;
};

static bool read_method(struct work *w, uint64_t va, struct method *ret)
{
	const struct script_hotspot *h = w->h;

	return is_address(va) && read_word(w, va + h->method_const, &ret->made_va) &&
	       is_address(ret->made_va) && read_all(w, ret->made_va, ret->made, h->const_bytes);
}

/* As bpf/hotspot.bpf.h: what cannot be read is 0. */
static uint64_t symbol_word(struct work *w, uint64_t at_va)
{
	uint64_t va, word;

	if (!read_word(w, at_va, &va) || !read_word(w, va & ~1ull, &word))
		return 0;
	return script_hotspot_symbol(w->h, word);
}

static uint32_t cookie_of(struct work *w, const struct method *method)
{
	const struct script_hotspot *h = w->h;
	uint64_t pool_va = bytes_u64_at(method->made, h->const_pool), class_va;
	uint64_t facts = bytes_u64_at(method->made, h->const_code_size), name, class_name;

	if (!read_word(w, pool_va + h->pool_class, &class_va))
		class_va = 0;
	name = symbol_word(w, pool_va + h->pool_bytes + 8 * (facts >> 16 & 0xffff));
	class_name = symbol_word(w, class_va + h->class_name);
	return script_hotspot_cookie(method->made_va, facts, name, class_name);
}

static bool read_entry(struct work *w, uint64_t pool_va, uint32_t index, struct symbol *ret)
{
	uint64_t va;

	ret->len = 0;
	/* The low bit of an entry is a tag in some versions. */
	return index && read_word(w, pool_va + w->h->pool_bytes + 8ull * index, &va) &&
	       read_symbol(w, va & ~1ull, ret);
}

static bool read_texts(struct work *w, struct method *method)
{
	const struct script_hotspot *h = w->h;
	uint64_t pool_va = bytes_u64_at(method->made, h->const_pool), class_va, name_va;
	uint16_t file = 0;

	if (!is_address(pool_va) || !read_all(w, pool_va, method->pool, h->pool_bytes))
		return false;
	class_va = bytes_u64_at(method->pool, h->pool_class);
	if (!is_address(class_va) || !read_word(w, class_va + h->class_name, &name_va) ||
	    !read_symbol(w, name_va, &method->class_name) ||
	    !read_entry(w, pool_va, u16_at(method->made, h->const_name), &method->name))
		return false;
	if (h->flags & SCRIPT_HOTSPOT_POOL_FILE)
		file = (uint16_t)u16_at(method->pool, h->file_index);
	else
		(void)read_all(w, class_va + h->file_index, &file, sizeof(file));
	(void)read_entry(w, pool_va, file, &method->file);
	return method->name.len && method->class_name.len;
}

/* The table lies behind the bytecodes. */
static void read_line(struct work *w, const struct method *method, uint32_t bci, uint32_t *ret,
		      uint32_t *ret_first)
{
	const struct script_hotspot *h = w->h;
	uint64_t from = h->const_bytes + u16_at(method->made, h->const_code_size);
	uint64_t end = 8ull * bytes_u32_at(method->made, h->const_words);
	ssize_t got;

	*ret = *ret_first = 0;
	if (!(u16_at(method->made, h->const_flags) & HAS_LINES) || end <= from)
		return;
	end = end - from < LINES_BYTES ? end - from : LINES_BYTES;
	got = target_read_some(w->target, method->made_va + from, w->lines, (size_t)end);
	if (got <= 0 || hotspot_line(w->lines, (size_t)got, hotspot_packing_of(h->version),
				     bci == HOTSPOT_BCI_NONE ? 0 : bci, ret, ret_first) < 0)
		*ret = *ret_first = 0;
}

static void add_method(struct work *w, const struct method *method, uint32_t bci)
{
	char function[FUNCTION_BYTES], file[FILE_BYTES];
	uint32_t line, first_line;

	hotspot_function_name(method->class_name.text, method->class_name.len, method->name.text,
			      method->name.len, function, sizeof(function));
	hotspot_file_name(method->class_name.text, method->class_name.len, method->file.text,
			  method->file.len, file, sizeof(file));
	read_line(w, method, bci, &line, &first_line);
	script_names_add(w->names, function, file, line, first_line);
}

static void name_interpreted(struct work *w, const struct control_script_place *place)
{
	uint64_t va = place->a & SCRIPT_HOTSPOT_POINTER_MASK;
	uint32_t position = script_word_position(place->b);
	struct method method, after;

	w->names->tier = FEED_TIER_INTERPRETED;
	if (!read_method(w, va, &method) || cookie_of(w, &method) != script_word_cookie(place->b) ||
	    !read_texts(w, &method))
		return;
	add_method(w, &method, position == SCRIPT_POSITION_NONE ? HOTSPOT_BCI_NONE : position);
	if (!read_method(w, va, &after) || cookie_of(w, &after) != script_word_cookie(place->b))
		script_names_drop(w->names);
}

/* ---- compiled methods ------------------------------------------------------------------------ */

static bool is_nmethod(const struct work *w, uint64_t name_va)
{
	for (unsigned i = 0; i < SCRIPT_HOTSPOT_NAMES; i++)
		if (name_va && name_va == w->h->nmethod_names[i])
			return true;
	return false;
}

/* Reads the compiled method at @va with its tables; those of the last one are kept. */
static bool read_nmethod(struct work *w, uint64_t va, uint32_t compile_id)
{
	const struct script_hotspot *h = w->h;
	uint64_t base = va, scopes_va, end_va;

	if (!is_address(va) || !read_all(w, va, w->blob, h->nmethod_bytes) ||
	    !is_nmethod(w, bytes_u64_at(w->blob, h->blob_name)) ||
	    bytes_u32_at(w->blob, h->nmethod_compile_id) != compile_id) {
		w->blob_va = 0;
		return false;
	}
	if (w->blob_va == va && w->blob_id == compile_id)
		return true;
	if (h->nmethod_immutable)
		base = bytes_u64_at(w->blob, h->nmethod_immutable);
	(void)read_table(w, base + bytes_u32_at(w->blob, h->nmethod_pcs),
			 base + bytes_u32_at(w->blob, h->nmethod_pcs_end), &w->pcs);
	if (h->flags & SCRIPT_HOTSPOT_OFFSETS) {
		scopes_va = base + bytes_u32_at(w->blob, h->nmethod_scopes);
		end_va = base + bytes_u32_at(w->blob, h->nmethod_immutable_bytes);
	} else {
		scopes_va = bytes_u64_at(w->blob, h->nmethod_scopes);
		end_va = base + bytes_u32_at(w->blob, h->nmethod_pcs);
	}
	(void)read_table(w, scopes_va, end_va, &w->scopes);
	w->blob_va = va;
	w->blob_id = compile_id;
	return true;
}

/* Is the code still that of a class that is loaded? The methods that it names are freed after it
 * has lost its own, or its block (heap.hpp: a length and a flag) is free. */
static bool same_nmethod(struct work *w, uint64_t va, uint32_t compile_id)
{
	const struct script_hotspot *h = w->h;
	uint64_t method_va;
	uint8_t is_used;
	uint32_t id;

	return read_word(w, va + h->nmethod_method, &method_va) &&
	       method_va == bytes_u64_at(w->blob, h->nmethod_method) && method_va &&
	       read_all(w, va - h->heap_header + h->heap_header / 2, &is_used, 1) && is_used == 1 &&
	       read_all(w, va + h->nmethod_compile_id, &id, sizeof(id)) && id == compile_id;
}

static uint64_t metadata_va(const struct work *w, uint64_t va)
{
	const struct script_hotspot *h = w->h;

	if (h->nmethod_metadata)
		return va + bytes_u32_at(w->blob, h->nmethod_metadata);
	return bytes_u64_at(w->blob, h->blob_mutable) + bytes_u32_at(w->blob, h->blob_relocation);
}

/* Adds the methods at the pc, innermost first. False: the debug information has none. */
static bool add_scopes(struct work *w, uint64_t va, uint32_t pc)
{
	uint64_t metadata = metadata_va(w, va), method_va = 0;
	struct hotspot_scope scopes[HOTSPOT_SCOPES_MAX];
	struct method method;
	uint32_t begin;
	int count;

	if (hotspot_scopes_begin(w->pcs.data, w->pcs.len, pc, &begin) < 0)
		return false;
	count = hotspot_scopes_read(w->scopes.data, w->scopes.len,
				    hotspot_packing_of(w->h->version), begin, scopes);
	for (int i = 0; i < count; i++) {
		if (!read_word(w, metadata + 8ull * (scopes[i].method - 1), &method_va) ||
		    !read_method(w, method_va, &method) || !read_texts(w, &method))
			return false;
		add_method(w, &method, scopes[i].bci);
	}
	return count > 0;
}

/* compilerDefinitions.hpp: levels 1 to 3 are C1's, 4 is C2's; wrappers of native methods have 0. */
static enum feed_tier tier_of(const struct work *w)
{
	uint8_t level = w->h->nmethod_level ? w->blob[w->h->nmethod_level] : 0;

	if (level == 4)
		return FEED_TIER_OPTIMIZED;
	return level >= 1 && level <= 3 ? FEED_TIER_BASELINE : FEED_TIER_UNKNOWN;
}

static void name_compiled(struct work *w, const struct control_script_place *place,
			  bool is_innermost)
{
	const struct script_hotspot *h = w->h;
	uint64_t va = place->a & SCRIPT_HOTSPOT_POINTER_MASK, code;
	uint32_t id = script_word_cookie(place->b), pc;
	struct method method;

	if (!read_nmethod(w, va, id))
		return;
	w->names->tier = tier_of(w);
	w->names->is_approximate = is_innermost;
	code = h->flags & SCRIPT_HOTSPOT_OFFSETS ? bytes_u32_at(w->blob, h->blob_code)
						 : bytes_u64_at(w->blob, h->blob_code) - va;
	/* The description at a pc is of the code before it. */
	pc = script_word_position(place->b) - (uint32_t)code + is_innermost;
	if (!add_scopes(w, va, pc)) {
		script_names_drop(w->names);
		w->names->is_approximate = false; /* the method without a line */
		if (read_method(w, bytes_u64_at(w->blob, h->nmethod_method), &method) &&
		    read_texts(w, &method))
			add_method(w, &method, HOTSPOT_BCI_NONE);
	}
	if (!same_nmethod(w, va, id))
		script_names_drop(w->names);
}

/* ---- stubs ----------------------------------------------------------------------------------- */

static void name_stub(struct work *w, uint64_t pc)
{
	const struct script_hotspot *h = w->h;
	char text[SYMBOL_BYTES] = "", name[SYMBOL_BYTES] = "[java stub: ";
	uint64_t blob_va, name_va;
	size_t at = strlen(name);
	ssize_t got;

	if (pc == h->call_return) {
		script_names_add(w->names, "[java call stub]", "", 0, 0);
		return;
	}
	if (pc - h->interpreter < h->interpreter_end - h->interpreter) {
		script_names_add(w->names, "[java interpreter]", "", 0, 0);
		return;
	}
	if (hotspot_blob_find(w->target, h, pc, &blob_va) < 0 ||
	    !read_word(w, blob_va + h->blob_name, &name_va))
		return;
	got = target_read_some(w->target, name_va, text, 128);
	if (got <= 0)
		return;
	hotspot_plain_name(text, strnlen(text, (size_t)got), name + at, sizeof(name) - at - 1);
	at = strlen(name);
	memcpy(name + at, "]", 2);
	script_names_add(w->names, name, "", 0, 0);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void name_place(struct work *w, const struct control_script_place *place)
{
	uint32_t kind = (uint32_t)(place->a >> SCRIPT_HOTSPOT_FRAME_SHIFT) & 15;

	script_names_begin(w->names);
	switch (kind) {
	case SCRIPT_HOTSPOT_INTERPRETED:
		name_interpreted(w, place);
		break;
	case SCRIPT_HOTSPOT_COMPILED:
	case SCRIPT_HOTSPOT_INNERMOST:
		name_compiled(w, place, kind == SCRIPT_HOTSPOT_INNERMOST);
		break;
	case SCRIPT_HOTSPOT_STUB:
		name_stub(w, place->a & SCRIPT_HOTSPOT_POINTER_MASK);
		break;
	default:
		break;
	}
}

static bool fits(const struct script_hotspot *h)
{
	return h->nmethod_bytes <= 1024 && h->const_bytes <= 1024 && h->pool_bytes <= 1024 &&
	       h->nmethod_level < 1024 &&
	       h->segment_shift < 32 && h->blob_name < 1024 && h->blob_code < 1024 &&
	       h->nmethod_compile_id < 1024 && h->nmethod_pcs < 1024 && h->nmethod_pcs_end < 1024 &&
	       h->nmethod_scopes < 1024 && h->nmethod_metadata < 1024 && h->blob_mutable < 1024 &&
	       h->blob_relocation < 1024 && h->nmethod_immutable < 1024 &&
	       h->nmethod_immutable_bytes < 1024 && h->nmethod_method < 1024 &&
	       h->const_pool < 1024 && h->const_code_size < 1024 && h->const_name < 1024 &&
	       h->const_words < 1024 && h->const_flags < 1024 && h->pool_class < 1024 &&
	       h->file_index < 1024 && h->class_name < 1024;
}

int hotspot_names_read(struct target *target, const struct script_hotspot *hotspot,
		       const struct control_script_place *places, size_t count,
		       struct script_names *names, uint64_t deadline_ns)
{
	cleanup_free struct work *w = NULL;
	int rc = 0;

	if (!fits(hotspot))
		return -EINVAL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->target = target;
	w->h = hotspot;
	w->names = names;
	for (size_t i = 0; rc == 0 && i < count; i++) {
		name_place(w, &places[i]);
		rc = w->gone ? w->gone : clock_monotonic_ns() > deadline_ns ? -ETIMEDOUT : 0;
	}
	free(w->pcs.data);
	free(w->scopes.data);
	return rc < 0 ? rc : names->payload.error;
}
