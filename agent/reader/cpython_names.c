// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/cpython_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/bytes.h"
#include "agent/base/clock.h"
#include "agent/runtimes/cpython_layout.h"
#include "agent/runtimes/cpython_lines.h"
#include "agent/runtimes/cpython_strings.h"
#include "agent/runtimes/unicode.h"
#include "bpf/arch.h"

#define CODE_BYTES  (1024u + 128u) /* offsets are below 1024 (cpython_layout.c) */
#define HEAD_BYTES  (1024u + 8u)
#define TABLE_MAX   (256u << 10) /* the longest of the standard library has 40 KiB */
#define GROUP	    64u		 /* places of one round of batches */
#define GROUP_BYTES (4u << 20)	 /* of texts and tables of one round */

/* In an object of a free-threaded build: ob_ref_local, ob_ref_shared. */
#define FREE_LOCAL_AT	  12u
#define FREE_SHARED_AT	  16u
#define FREE_SHARED_SHIFT 2u

/* An object that a code object points to. */
struct part {
	uint64_t va;
	uint64_t data_va;
	uint8_t *data; /* in the group's memory */
	uint32_t bytes;
	uint8_t width; /* of a character */
	bool is_readable;
};

/* A place on its way to a name. */
struct work {
	uint64_t code_va;
	uint32_t position, cookie;
	uint32_t first_line;
	uint32_t cut_file_bytes; /* left out at the begin */
	struct part function, file, table;
	uint8_t code[CODE_BYTES];
};

struct group {
	struct target *target;
	const struct script_python *python;
	struct work works[GROUP];
	uint8_t heads[GROUP][3][HEAD_BYTES];
	struct target_piece pieces[3 * GROUP];
	uint8_t memory[GROUP_BYTES];
	size_t used;
};

static bool is_object(uint64_t va)
{
	return va >= 4096 && !(va & 7) && va < ARCH_USUAL_END;
}

/* ---- frames --------------------------------------------------------------------------------- */

int cpython_names_place(struct target *target, const struct script_python *python,
			const uint8_t frame[SCRIPT_PYTHON_FRAME_BYTES],
			struct control_script_place *ret)
{
	uint64_t words[SCRIPT_COOKIE_WORDS], type;
	const uint64_t code = bytes_u64_at(frame, python->frame_code) & ~7ull;
	const uint64_t at = bytes_u64_at(frame, python->frame_instr & ~7u);
	int64_t position;
	int32_t index;

	if (!is_object(code) ||
	    target_read(target, code + python->cookie_at, words, sizeof(words)) < 0 ||
	    target_read(target, code + python->object_type, &type, sizeof(type)) < 0 ||
	    (python->code_type && type != python->code_type))
		return -EINVAL;
	memcpy(&index, frame + python->frame_instr, sizeof(index));
	if (python->flags & SCRIPT_PYTHON_LASTI_BYTES)
		position = index >> 1;
	else if (python->flags & SCRIPT_PYTHON_LASTI_UNITS)
		position = index;
	else
		position = (int64_t)(at - code - python->code_bytecode) >> 1;
	if (position < -1 || position >= (int64_t)SCRIPT_POSITION_NONE)
		return -EINVAL;
	ret->a = code;
	ret->b = (uint64_t)(position < 0 ? SCRIPT_POSITION_NONE : (uint64_t)position)
			 << SCRIPT_POSITION_SHIFT |
		 script_cookie(words, python->cookie_words);
	return 0;
}

/* ---- code objects --------------------------------------------------------------------------- */

static uint32_t code_bytes(const struct script_python *python)
{
	const uint32_t ends[] = {
		python->code_filename + 8u,    python->code_name + 8u,
		python->code_qualname + 8u,    python->code_linetable + 8u,
		python->code_firstlineno + 8u, python->cookie_at + SCRIPT_COOKIE_WORDS * 8u
	};
	uint32_t bytes = 0;

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
		if (ends[i] > bytes)
			bytes = ends[i];
	return bytes < CODE_BYTES ? bytes : CODE_BYTES;
}

/* An object that was freed looks as before, but for its first words: allocators keep their lists
 * there. A count of references has at most 32 bits, whose upper neighbours are 0. Free-threaded
 * builds have two counts, of which a freed object has none: a u32 of the thread that made it, and
 * one of the others with two bits of flags (Include/object.h of 3.13). */
static bool is_alive(const struct script_python *python, const uint8_t *object)
{
	uint64_t count = bytes_u64_at(object, 0);
	uint32_t local;

	if (python->code_type && bytes_u64_at(object, python->object_type) != python->code_type)
		return false;
	if (!(python->flags & SCRIPT_PYTHON_FREE_THREADED))
		return (uint32_t)count && !(count >> 32 & 0xffff);
	memcpy(&local, object + FREE_LOCAL_AT, sizeof(local));
	return local || bytes_u64_at(object, FREE_SHARED_AT) >> FREE_SHARED_SHIFT;
}

/* Is work->code still the code object of the frame? */
static bool is_same_code(const struct script_python *python, const struct work *work)
{
	uint64_t words[SCRIPT_COOKIE_WORDS];

	memcpy(words, work->code + python->cookie_at, sizeof(words));
	return is_alive(python, work->code) &&
	       script_cookie(words, python->cookie_words) == work->cookie;
}

static void take_code(const struct script_python *python, struct work *work)
{
	uint32_t line;

	memcpy(&line, work->code + python->code_firstlineno, sizeof(line));
	if (line > INT32_MAX)
		work->code_va = 0;
	if (!work->code_va)
		return;
	work->first_line = line;
	work->file.va = bytes_u64_at(work->code, python->code_filename);
	work->function.va = bytes_u64_at(work->code, python->code_qualname ? python->code_qualname
								      : python->code_name);
	work->table.va = bytes_u64_at(work->code, python->code_linetable);
}

/* Reads the code objects of all places; one that is not (any more) the frame's has no address. */
static int read_codes(struct group *g, size_t count)
{
	uint32_t bytes = code_bytes(g->python);
	int rc;

	for (size_t i = 0; i < count; i++)
		g->pieces[i] = (struct target_piece){ .va = g->works[i].code_va,
						      .buf = g->works[i].code,
						      .len = g->works[i].code_va ? bytes : 0 };
	rc = target_read_batch(g->target, g->pieces, count);
	for (size_t i = 0; rc == 0 && i < count; i++)
		if (g->pieces[i].got < bytes || !is_same_code(g->python, &g->works[i]))
			g->works[i].code_va = 0;
	return rc;
}

/* ---- their strings and tables --------------------------------------------------------------- */

static struct part *part_of(struct work *work, unsigned which)
{
	return which == 0 ? &work->function : which == 1 ? &work->file : &work->table;
}

/* Memory for @part in the group; without it the part is not read. */
static void give_memory(struct group *g, struct part *part)
{
	part->is_readable = part->bytes <= sizeof(g->memory) - g->used;
	if (!part->is_readable)
		return;
	part->data = g->memory + g->used;
	g->used += part->bytes;
}

static void take_string(struct group *g, const uint8_t *head, struct work *work, unsigned which)
{
	const struct script_python *python = g->python;
	struct part *part = part_of(work, which);
	struct cpython_string string;
	uint64_t skipped = 0;
	uint32_t state;

	memcpy(&state, head + python->str_state, sizeof(state));
	if (cpython_string_head(bytes_u64_at(head, python->str_length), state, &string) < 0)
		return;
	/* A character has at least one byte of UTF-8. */
	if (string.chars > SCRIPT_NAME_MAX) {
		skipped = which == 1 ? string.chars - SCRIPT_NAME_MAX : 0;
		string.chars = SCRIPT_NAME_MAX;
	}
	part->width = string.width;
	part->bytes = (uint32_t)string.chars * string.width;
	part->data_va = part->va +
			(string.is_ascii ? python->str_ascii_data : python->str_compact_data) +
			skipped * string.width;
	give_memory(g, part);
}

static void take_table(struct group *g, const uint8_t *head, struct work *work)
{
	uint64_t bytes = bytes_u64_at(head, g->python->bytes_size);

	if (bytes > TABLE_MAX)
		return;
	work->table.bytes = (uint32_t)bytes;
	work->table.data_va = work->table.va + g->python->bytes_data;
	give_memory(g, &work->table);
}

static int read_heads(struct group *g, size_t count)
{
	const struct script_python *python = g->python;
	const uint32_t string_bytes =
		(python->str_state > python->str_length ? python->str_state : python->str_length) +
		8u;
	const uint32_t table_bytes = python->bytes_size + 8u;
	int rc;

	for (size_t i = 0; i < 3 * count; i++)
		g->pieces[i] = (struct target_piece){
			.va = part_of(&g->works[i / 3], i % 3)->va,
			.buf = g->heads[i / 3][i % 3],
			.len = i % 3 == 2 ? table_bytes : string_bytes,
		};
	for (size_t i = 0; i < 3 * count; i++)
		if (g->pieces[i].len > HEAD_BYTES || !g->works[i / 3].code_va ||
		    !is_object(g->pieces[i].va))
			g->pieces[i].len = 0;
	rc = target_read_batch(g->target, g->pieces, 3 * count);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < 3 * count; i++) {
		if (!g->pieces[i].len || g->pieces[i].got < g->pieces[i].len)
			continue;
		if (i % 3 == 2)
			take_table(g, g->heads[i / 3][2], &g->works[i / 3]);
		else
			take_string(g, g->heads[i / 3][i % 3], &g->works[i / 3], i % 3);
	}
	return 0;
}

static int read_parts(struct group *g, size_t count)
{
	int rc;

	for (size_t i = 0; i < 3 * count; i++) {
		const struct part *part = part_of(&g->works[i / 3], i % 3);

		g->pieces[i] = (struct target_piece){ .va = part->data_va,
						      .buf = part->data,
						      .len = part->is_readable ? part->bytes : 0 };
	}
	rc = target_read_batch(g->target, g->pieces, 3 * count);
	for (size_t i = 0; rc == 0 && i < 3 * count; i++)
		if (g->pieces[i].got < g->pieces[i].len)
			part_of(&g->works[i / 3], i % 3)->is_readable = false;
	return rc;
}

/* ---- names ---------------------------------------------------------------------------------- */

static void give_name(const struct script_python *python, const struct work *work,
		      struct cpython_name *ret)
{
	enum cpython_lines_format format = cpython_lines_format_of(cpython_minor(python));

	*ret = (struct cpython_name){ 0 };
	if (!work->code_va || !work->function.is_readable)
		return;
	ret->is_known = true;
	ret->first_line = work->first_line;
	(void)unicode_utf8(work->function.data, work->function.bytes / work->function.width,
				  work->function.width, ret->function, sizeof(ret->function));
	if (work->file.is_readable)
		(void)unicode_utf8(work->file.data, work->file.bytes / work->file.width,
					  work->file.width, ret->file, sizeof(ret->file));
	if (!work->table.is_readable ||
	    cpython_lines_find(format, work->table.data, work->table.bytes, work->first_line,
			       work->position, &ret->line) < 0)
		ret->line = 0;
}

static int read_group(struct group *g, const struct control_script_place *places, size_t count,
		      struct cpython_name *ret)
{
	int rc;

	g->used = 0;
	for (size_t i = 0; i < count; i++) {
		struct work *work = &g->works[i];
		uint64_t code_va = script_word_pointer(places[i].a);

		work->code_va = is_object(code_va) ? code_va : 0;
		work->position = script_word_position(places[i].b);
		work->cookie = script_word_cookie(places[i].b);
		work->function = work->file = work->table = (struct part){ 0 };
	}
	rc = read_codes(g, count);
	for (size_t i = 0; rc == 0 && i < count; i++)
		take_code(g->python, &g->works[i]);
	if (rc == 0)
		rc = read_heads(g, count);
	if (rc == 0)
		rc = read_parts(g, count);
	if (rc == 0)
		rc = read_codes(g, count); /* what was read meanwhile is theirs if they still live */
	for (size_t i = 0; rc == 0 && i < count; i++)
		give_name(g->python, &g->works[i], &ret[i]);
	return rc;
}

int cpython_names_read(struct target *target, const struct script_python *python,
		       const struct control_script_place *places, size_t count,
		       struct cpython_name *ret, uint64_t deadline_ns)
{
	cleanup_free struct group *g = NULL;
	int rc = 0;

	if (python->cookie_words > SCRIPT_COOKIE_WORDS || python->cookie_at > 1024 ||
	    code_bytes(python) >= CODE_BYTES || python->object_type > 1024)
		return -EINVAL;
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	g->target = target;
	g->python = python;
	for (size_t at = 0; rc == 0 && at < count; at += GROUP) {
		if (clock_monotonic_ns() > deadline_ns)
			return -ETIMEDOUT;
		rc = read_group(g, places + at, count - at < GROUP ? count - at : GROUP, ret + at);
	}
	return rc;
}
