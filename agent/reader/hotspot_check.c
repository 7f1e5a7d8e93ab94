// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/hotspot_check.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/reader/hotspot_layout.h"
#include "agent/reader/hotspot_names.h"

#define METHODS_MAX 16u	 /* that are looked at */
#define BLOCKS_MAX  512u /* of each heap, on the way to them */
#define YOUNG_NS    (60 * NS_PER_S) /* a process of this age may still be starting */
#define FIT_OF	    16u	 /* so many of FIT_OF methods must have a name */
#define FIT	    15u

struct check {
	struct target *target;
	const struct script_hotspot *h;
	uint64_t deadline_ns;
	struct control_script_place places[METHODS_MAX];
	size_t count;
};

static bool is_final(int rc)
{
	return rc == -ESRCH || rc == -EPERM || rc == -ETIMEDOUT;
}

/* The call stub lies in a blob whose name is known since the first versions. */
static int check_call_stub(struct check *c)
{
	static const char start[] = "StubRoutines";
	char name[sizeof(start)] = "";
	uint64_t blob, name_va;
	int rc = hotspot_blob_find(c->target, c->h, c->h->call_return, &blob);

	if (rc == 0)
		rc = target_read(c->target, blob + c->h->blob_name, &name_va, sizeof(name_va));
	if (rc == 0)
		rc = target_read(c->target, name_va, name, sizeof(name) - 1);
	if (rc < 0)
		return is_final(rc) ? rc : -EOPNOTSUPP;
	return strcmp(name, start) == 0 ? 0 : -EOPNOTSUPP;
}

/* Notes the compiled method at @blob, if it is one. */
static int take_blob(struct check *c, uint64_t blob)
{
	const struct script_hotspot *h = c->h;
	uint64_t name_va, code;
	uint32_t id;
	int rc = target_read(c->target, blob + h->blob_name, &name_va, sizeof(name_va));
	bool is_method = false;

	for (size_t i = 0; i < SCRIPT_HOTSPOT_NAMES; i++)
		is_method |= name_va && name_va == h->nmethod_names[i];
	if (rc < 0 || !is_method)
		return rc;
	rc = target_read(c->target, blob + h->blob_code, &code, sizeof(code));
	if (rc == 0)
		rc = target_read(c->target, blob + h->nmethod_compile_id, &id, sizeof(id));
	if (rc < 0)
		return rc;
	code = h->flags & SCRIPT_HOTSPOT_OFFSETS ? (uint32_t)code : code - blob;
	if (code > SCRIPT_POSITION_MASK)
		return -EOPNOTSUPP;
	c->places[c->count++] = (struct control_script_place){
		.a = (uint64_t)SCRIPT_HOTSPOT_COMPILED << SCRIPT_HOTSPOT_FRAME_SHIFT | blob,
		.b = code << SCRIPT_POSITION_SHIFT | id,
	};
	return 0;
}

/* Blocks of a heap follow each other; free ones have their length, too. */
static int list_methods(struct check *c, const struct script_hotspot_heap *heap)
{
	uint64_t at = heap->start;

	for (unsigned i = 0; i < BLOCKS_MAX && c->count < METHODS_MAX && at < heap->end; i++) {
		uint8_t head[16];
		uint64_t segments = 0;
		bool is_used;
		int rc = target_read(c->target, at, head, c->h->heap_header);

		if (clock_monotonic_ns() > c->deadline_ns)
			return -ETIMEDOUT;
		if (rc < 0)
			return is_final(rc) ? rc : 0; /* the heap has not grown so far */
		/* heap.hpp: length and a flag, of 8 bytes each, or 4 since 25 */
		memcpy(&segments, head, c->h->heap_header / 2);
		is_used = head[c->h->heap_header / 2] == 1;
		if (!segments || segments > (heap->end - at) >> c->h->segment_shift)
			return 0;
		rc = is_used ? take_blob(c, at + c->h->heap_header) : 0;
		if (rc < 0)
			return is_final(rc) ? rc : -EOPNOTSUPP;
		at += segments << c->h->segment_shift;
	}
	return 0;
}

static int check_methods(struct check *c)
{
	cleanup_script_names struct script_names names = { .count = 0 };
	size_t fit = 0;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < SCRIPT_HOTSPOT_HEAPS; i++)
		if (c->h->heaps[i].end)
			rc = list_methods(c, &c->h->heaps[i]);
	/* Nothing is compiled yet, or ever (-Xint): the call stub was where it should be. */
	if (rc == 0 && !c->count)
		return 0;
	if (rc == 0)
		rc = hotspot_names_read(c->target, c->h, c->places, c->count, &names,
					c->deadline_ns);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < names.count; i++) {
		size_t begin = i ? names.ends[i - 1] : 0;
		uint16_t count;

		memcpy(&count, names.payload.data + begin, sizeof(count));
		fit += count > 0;
	}
	return fit * FIT_OF >= c->count * FIT ? 0 : -EOPNOTSUPP;
}

int hotspot_check(struct target *target, struct script_runtime *runtime, uint64_t deadline_ns)
{
	struct script_runtime checked = *runtime;
	struct check check = { .target = target,
			       .h = &checked.hotspot,
			       .deadline_ns = deadline_ns };
	int rc = hotspot_layout_read(target, &checked.hotspot, deadline_ns);
	bool is_young = clock_boottime_ns() - target->start_boottime_ns < YOUNG_NS;

	if (rc == 0 && checked.hotspot.heap_header != 8 && checked.hotspot.heap_header != 16)
		rc = -EOPNOTSUPP;
	if (rc == 0)
		rc = check_call_stub(&check);
	if (rc == 0)
		rc = check_methods(&check);
	if (rc == -EOPNOTSUPP && is_young)
		return -EAGAIN;
	if (rc < 0)
		return rc;
	/* The ranges said where the library's code is; it is walked as any other. */
	memset(checked.ranges, 0, sizeof(checked.ranges));
	*runtime = checked;
	return 0;
}
