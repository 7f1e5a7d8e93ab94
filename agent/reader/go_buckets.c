// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/go_buckets.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/text.h"
#include "agent/base/vec.h"
#include "agent/reader/go_functions.h"
#include "agent/reader/go_globals.h"
#include "bpf/profiler.h"

#define MEMORY_WORDS                                                                               \
	16u /* memRecord: active and future[3] of {allocs, frees, alloc and free bytes} */
#define EVENT_WORDS  2u	 /* blockRecord: count, cycles */
#define USUAL_FRAMES 64u /* read together with the header */
#define OPERANDS_MAX 16u
#define LOGICAL_STACK                                                                              \
	UINT64_MAX /* first "pc" of stacks that are expanded already (tracestack.go) */
#define RATE_DEFAULT (512u << 10)
#define RATE_MAX     (1ull << 40)
#define VALUE_MAX    0x1p62 /* of a count, of bytes, of nanoseconds */

_Static_assert((int)READER_MEMORY == (int)GO_BUCKET_MEMORY &&
		       (int)READER_BLOCK == (int)GO_BUCKET_BLOCK &&
		       (int)READER_MUTEX == (int)GO_BUCKET_MUTEX,
	       "requests name buckets by the runtime's numbers");

/* One bucket as read: its frames are frames[frame_at … + frame_count) of the list. */
struct bucket {
	uint64_t va;
	uint64_t size;
	uint32_t frame_at;
	uint32_t frame_count;
	uint64_t words[MEMORY_WORDS];
};
VEC_DEFINE(bucket, struct bucket);
VEC_DEFINE(pc, uint64_t);

struct bucket_list {
	struct bucket_vec buckets;
	struct pc_vec frames;
};

/* ---- what the program has turned on ---------------------------------------------------------- */

/* The first, or last, word in @range that the code of function @name refers to; 0 if there is none.
 */
static int find_operand(struct go_layout *layout, const char *name, const struct go_range *range,
			bool last, uint64_t *ret)
{
	uint64_t operands[OPERANDS_MAX];
	struct go_func func;
	int rc = go_function_by_name(layout, name, &func);

	*ret = 0;
	if (rc == 0)
		rc = go_function_operands(layout, &func, range, operands, OPERANDS_MAX);
	if (rc == -ESRCH || rc == -EPERM)
		return rc;
	for (int i = 0; i < rc && (last || !*ret); i++)
		if (operands[i] % 8 == 0)
			*ret = operands[i];
	return 0;
}

static bool is_linked(struct go_layout *layout, const char *name)
{
	struct go_func func;

	return go_function_by_name(layout, name, &func) == 0;
}

/* The heads are among what runtime.stkbucket refers to; plain variables until 1.18, hence in
 * noptrbss. */
static int list_operands(struct go_layout *layout, struct go_profile_places *places)
{
	const struct go_range *range =
		go_layout_since(layout, 19) ? &layout->bss : &layout->noptrbss;
	struct go_func func;
	int rc = go_function_by_name(layout, "runtime.stkbucket", &func);

	if (rc == 0)
		rc = go_function_operands(layout, &func, range, places->lists,
					  GO_LIST_OPERANDS_MAX);
	if (rc == -ESRCH || rc == -EPERM)
		return rc;
	places->list_count = rc > 0 ? (unsigned)rc : 0;
	return 0;
}

/* Other variables may point to the newest bucket too (one of them was chosen when the program was
 * examined): what the code uses as head decides. */
static void confirm_list(struct go_layout *layout, const struct go_profile_places *places,
			 uint32_t what)
{
	for (unsigned i = 0; i < places->list_count; i++) {
		struct go_bucket_head bucket;
		uint64_t head;

		if (places->lists[i] % 8 == 0 &&
		    target_read(layout->image.target, places->lists[i], &head, sizeof(head)) == 0 &&
		    head && go_bucket_read(layout->image.target, head, &bucket) &&
		    bucket.type == what) {
			layout->bucket_lists_va[what] = places->lists[i];
			return;
		}
	}
}

/* MemProfileRate is initialized data; in 1.17-1.19, when a function computed it at start,
 * zero-initialized like the other two, and used after mcache0. */
static int find_places(struct go_layout *layout, struct go_profile_places *places)
{
	struct go_profile_places found = { .searched = true };
	int rc = find_operand(layout, "runtime.profilealloc", &layout->noptrdata, false,
			      &found.memory_va);

	if (rc == 0 && !found.memory_va)
		rc = find_operand(layout, "runtime.profilealloc", &layout->noptrbss, true,
				  &found.memory_va);
	if (rc == 0)
		rc = find_operand(layout, "runtime.blockevent", &layout->noptrbss, false,
				  &found.block_va);
	if (rc == 0)
		rc = find_operand(layout, "runtime.mutexevent", &layout->noptrbss, false,
				  &found.mutex_va);
	if (rc < 0)
		return rc;
	rc = list_operands(layout, &found);
	if (rc < 0)
		return rc;
	/* src/cmd/link: runtime.disableMemoryProfiling is set when this function is unreachable. */
	found.memory_linked = layout->minor == 16 ||
			      is_linked(layout, "runtime.memProfileInternal") ||
			      is_linked(layout, "runtime.MemProfile");
	*places = found;
	return 0;
}

/* Value of a rate variable. false = unknown. */
static bool read_rate(struct go_layout *layout, uint64_t va, uint64_t *ret)
{
	uint64_t value;

	if (!va || target_read(layout->image.target, va, &value, sizeof(value)) < 0 ||
	    value > RATE_MAX)
		return false;
	*ret = value;
	return true;
}

/* ---- reading the list ------------------------------------------------------------------------ */

/* One bucket: usually a single read. -EPROTO if it is not a bucket of @type. */
static int read_bucket(struct target *target, uint64_t va, uint32_t type, struct bucket_list *list,
		       uint64_t *ret_next)
{
	uint64_t words[(GO_BUCKET_BYTES / 8) + GO_BUCKET_FRAMES_MAX + MEMORY_WORDS];
	unsigned record = type == GO_BUCKET_MEMORY ? MEMORY_WORDS : EVENT_WORDS;
	struct bucket bucket = { .va = va, .frame_at = (uint32_t)list->frames.count };
	struct go_bucket_head head;
	const uint64_t *frames = words + GO_BUCKET_BYTES / 8;
	size_t need;
	ssize_t got = target_read_some(target, va, words,
				       GO_BUCKET_BYTES + (USUAL_FRAMES + MEMORY_WORDS) * 8);
	int rc;

	if (got < 0)
		return (int)got;
	if ((size_t)got < sizeof(head))
		return -EPROTO;
	memcpy(&head, words, sizeof(head));
	if (head.type != type || !head.frame_count || head.frame_count > GO_BUCKET_FRAMES_MAX)
		return -EPROTO;
	need = GO_BUCKET_BYTES + (head.frame_count + record) * 8;
	rc = (size_t)got >= need ? 0 : target_read(target, va, words, need);
	if (rc < 0)
		return rc;
	if (go_bucket_hash(frames, head.frame_count, head.size) != head.hash)
		return -EPROTO;
	bucket.size = head.size;
	bucket.frame_count = (uint32_t)head.frame_count;
	memcpy(bucket.words, frames + head.frame_count, record * 8);
	rc = pc_vec_reserve(&list->frames, list->frames.count + head.frame_count);
	if (rc < 0)
		return rc;
	memcpy(list->frames.data + list->frames.count, frames, head.frame_count * 8);
	list->frames.count += head.frame_count;
	*ret_next = head.allnext;
	return bucket_vec_push(&list->buckets, bucket);
}

static int read_list(struct go_layout *layout, uint32_t type, struct answer *answer,
		     struct bucket_list *list)
{
	uint64_t va = 0;
	int rc = 0;

	if (layout->bucket_lists_va[type])
		rc = target_read(layout->image.target, layout->bucket_lists_va[type], &va,
				 sizeof(va));
	for (; rc == 0 && va; answer->end.listed++) {
		if (list->buckets.count >= GO_BUCKETS_MAX || answer_is_late(answer)) {
			answer->end.flags |= READ_END_SAMPLED;
			break;
		}
		rc = read_bucket(layout->image.target, va, type, list, &va);
	}
	answer->end.read = list->buckets.count;
	return rc == -EPROTO || rc == -EFAULT ? -EIO : rc;
}

static void bucket_list_deinit(struct bucket_list *list)
{
	bucket_vec_deinit(&list->buckets);
	pc_vec_deinit(&list->frames);
}

/* ---- stacks ---------------------------------------------------------------------------------- */

/* From 1.21 a bucket lists one pc per inlined call too; frames name all of them by the innermost
 * one. Returns how many pcs from @pcs[0] on are of the same physical frame. */
static unsigned physical_run(const struct go_layout *layout, const uint64_t *pcs, unsigned count)
{
	struct go_func func;
	unsigned run = 1;
	uint64_t at = pcs[0] - 1, parent;
	uint32_t name;

	if (go_table_find(&layout->table, at, &func) < 0)
		return 1;
	for (unsigned depth = 0; depth < GO_INLINE_MAX && run < count; depth++) {
		if (go_table_inlined(&layout->table, &func, at, &name, &parent) != 1)
			break;
		if (pcs[run] == parent + 1)
			run++;
		at = parent;
	}
	return run;
}

/* Name of the innermost function at the call before @pc, inlined or not; "" if unknown. */
static void logical_name(const struct go_layout *layout, uint64_t pc, char *buf, size_t size)
{
	struct go_func func;
	uint64_t parent;
	uint32_t name;

	buf[0] = '\0';
	if (go_table_find(&layout->table, pc - 1, &func) < 0)
		return;
	if (go_table_inlined(&layout->table, &func, pc - 1, &name, &parent) != 1)
		name = func.name;
	if (go_table_name(&layout->table, name, buf, size) < 0)
		buf[0] = '\0';
}

static bool is_allocator_frame(const struct go_layout *layout, uint64_t pc)
{
	char name[GO_NAME_MAX + 1];

	logical_name(layout, pc, name, sizeof(name));
	return text_begins(name, "runtime.") ||
	       (go_layout_since(layout, 23) && text_begins(name, "internal/runtime/"));
}

/* How many of the innermost frames are the allocator itself, which runtime/pprof leaves out unless
 * there is nothing else. */
static unsigned allocator_frames(const struct go_layout *layout, const uint64_t *pcs,
				 unsigned count)
{
	unsigned hidden = 0;

	while (hidden < count && is_allocator_frame(layout, pcs[hidden]))
		hidden++;
	return hidden < count ? hidden : 0;
}

static int write_stack(struct go_unwinder *u, struct answer *answer, const uint64_t *pcs,
		       unsigned count, bool memory, uint32_t *ret)
{
	uint64_t frames[READ_FRAMES_MAX + 1];
	uint8_t flags[READ_FRAMES_MAX + 1] = { 0 };
	unsigned at, written = 0;

	if (pcs[0] == LOGICAL_STACK) {
		pcs++;
		count--;
	}
	at = memory ? allocator_frames(u->layout, pcs, count) : 0;
	while (at < count && written < READ_FRAMES_MAX) {
		struct go_pc info;
		int rc = go_unwinder_pc(u, pcs[at] - 1, &info);

		if (rc < 0)
			return rc;
		if (info.flags & GO_PC_GOEXIT && written)
			break;
		flags[written] = info.flags & GO_PC_WRAPPER ? READ_FRAME_WRAPPER : 0;
		frames[written++] = answer_frame(answer, pcs[at], PROF_FRAME_RETURN);
		at += physical_run(u->layout, pcs + at, count - at);
	}
	if (at < count && written == READ_FRAMES_MAX)
		frames[written++] = (uint64_t)PROF_FRAME_TRUNCATED << PROF_FRAME_KIND_SHIFT;
	*ret = answer_stack(answer, written > READ_FRAMES_MAX, frames, flags, written);
	return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* @value as an integer. A program may write any number into its buckets, and a double that no
 * int64_t can hold must not be converted: 0 if it is not a number, else the nearest. */
static int64_t settle(double value)
{
	if (!(value > -VALUE_MAX))
		return isnan(value) ? 0 : -(int64_t)VALUE_MAX;
	return value < VALUE_MAX ? (int64_t)value : (int64_t)VALUE_MAX;
}

void go_unsample(int64_t *count, int64_t *bytes, uint64_t rate)
{
	double average, scale;

	if (*count <= 0 || *bytes <= 0) {
		*count = *bytes = 0;
		return;
	}
	if (rate <= 1)
		return;
	average = (double)*bytes / (double)*count;
	scale = 1 / (1 - exp(-average / (double)rate));
	*count = settle((double)*count * scale);
	*bytes = settle((double)*bytes * scale);
}

/* Publication (src/runtime/mprof.go): allocations wait in future[] until the collection after the
 * next has settled their frees; active is a consistent picture. Before the first collection it is
 * empty, and the runtime shows the sums. */
static void memory_values(const struct bucket *b, uint64_t rate, bool before_gc, int64_t *values)
{
	uint64_t active[4], all[4]; /* the words are whatever the program wrote: modulo 2^64 */

	for (unsigned i = 0; i < 4; i++) {
		all[i] = b->words[i] + b->words[4 + i] + b->words[8 + i] + b->words[12 + i];
		active[i] = before_gc ? all[i] : b->words[i];
	}
	values[0] = (int64_t)active[0];
	values[1] = (int64_t)active[2];
	values[2] = (int64_t)(active[0] - active[1]);
	values[3] = (int64_t)(active[2] - active[3]);
	values[4] = (int64_t)all[0];
	values[5] = (int64_t)all[2];
	go_unsample(&values[0], &values[1], rate);
	go_unsample(&values[2], &values[3], rate);
	go_unsample(&values[4], &values[5], rate);
}

struct event_scale {
	double ticks_per_ns;
	double factor; /* 1.19 and older keep one of so many mutex events unscaled */
	bool count_is_integer;
};

static void event_values(const struct bucket *b, const struct event_scale *scale, int64_t *values)
{
	double count;

	memcpy(&count, &b->words[0], sizeof(count));
	if (scale->count_is_integer)
		count = (double)(int64_t)b->words[0];
	if (!(count >= 0 && count < 1e18))
		count = 0;
	values[0] = settle(round(count * scale->factor));
	values[1] = settle((double)(int64_t)b->words[1] * scale->factor / scale->ticks_per_ns);
}

static bool is_before_gc(const struct bucket_list *list)
{
	for (size_t i = 0; i < list->buckets.count; i++)
		if (list->buckets.data[i].words[0] || list->buckets.data[i].words[1])
			return false;
	return true;
}

/* ---- whole ----------------------------------------------------------------------------------- */

static int write_list(struct go_unwinder *u, struct answer *answer, const struct bucket_list *list,
		      const struct read_profile *profile, const struct event_scale *scale)
{
	bool memory = profile->what == READER_MEMORY;

	read_writer_fixed(answer->writer, READ_PROFILE, profile, sizeof(*profile));
	for (size_t i = 0; i < list->buckets.count; i++) {
		const struct bucket *b = &list->buckets.data[i];
		struct read_bucket out = { .bucket = b->va, .object_bytes = b->size };
		int rc;

		if (memory)
			memory_values(b, profile->rate, profile->before_gc, out.values);
		else
			event_values(b, scale, out.values);
		if (!out.values[0] && !out.values[1] && !out.values[4])
			continue;
		rc = write_stack(u, answer, list->frames.data + b->frame_at, b->frame_count, memory,
				 &out.stack);
		if (rc < 0)
			return rc;
		read_writer_fixed(answer->writer, READ_BUCKET, &out, sizeof(out));
		if (answer->writer->error)
			return answer->writer->error;
	}
	return 0;
}

/* Fills the rate of @profile. -ENODATA if the program has this profile off. */
static int profile_rate(struct go_layout *layout, const struct go_profile_places *places,
			bool empty, struct read_profile *profile, struct err *err)
{
	uint64_t va = profile->what == READER_BLOCK ? places->block_va : places->mutex_va, rate = 0;

	if (profile->what == READER_MEMORY) {
		if (!places->memory_linked)
			return err_set(err, ENODATA, NULL, NULL,
				       "this Go program was linked without its heap profile "
				       "(nothing in it "
				       "refers to runtime.MemProfile, as net/http/pprof would)");
		profile->rate_assumed = !read_rate(layout, places->memory_va, &profile->rate);
		if (profile->rate_assumed)
			profile->rate = RATE_DEFAULT;
		if (!profile->rate && empty)
			return err_set(err, ENODATA, NULL, NULL,
				       "this Go program has turned its heap profile off "
				       "(runtime.MemProfileRate = 0)");
		return 0;
	}
	if (empty && (!read_rate(layout, va, &rate) || !rate))
		return err_set(err, ENODATA, NULL, NULL,
			       "this Go program has not turned its %s profile on (runtime.%s)",
			       profile->what == READER_BLOCK ? "block" : "mutex",
			       profile->what == READER_BLOCK ? "SetBlockProfileRate"
							     : "SetMutexProfileFraction");
	return 0;
}

static int list_head(struct go_layout *layout, uint32_t what, uint64_t *ret)
{
	*ret = 0;
	if (!layout->bucket_lists_va[what])
		return 0;
	return target_read(layout->image.target, layout->bucket_lists_va[what], ret, sizeof(*ret));
}

int go_buckets_read(struct go_unwinder *unwinder, struct go_profile_places *places,
		    const struct cpu_ticks *ticks, uint32_t what, struct answer *answer,
		    struct err *err)
{
	struct go_layout *layout = unwinder->layout;
	struct read_profile profile = { .what = what };
	struct event_scale scale = { .factor = 1, .count_is_integer = layout->minor == 16 };
	struct bucket_list list = { 0 };
	uint64_t head, fraction;
	int rc = places->searched ? 0 : find_places(layout, places);

	if (rc == 0)
		confirm_list(layout, places, what);
	/* A list that was empty when the program was examined has no known place before 1.21. */
	if (rc == 0 && !layout->bucket_lists_va[what])
		rc = go_globals_find_buckets(layout);
	if (rc == 0)
		rc = list_head(layout, what, &head);
	if (rc == 0)
		rc = profile_rate(layout, places, !head, &profile, err);
	if (rc == 0)
		rc = read_list(layout, what, answer, &list);
	if (rc == 0 && what == READER_MEMORY) {
		profile.before_gc = is_before_gc(&list);
	} else if (rc == 0) {
		profile.ticks_per_ns = scale.ticks_per_ns = cpu_ticks_per_ns(ticks);
		if (what == READER_MUTEX && !go_layout_since(layout, 20) &&
		    read_rate(layout, places->mutex_va, &fraction) && fraction)
			scale.factor = (double)fraction;
	}
	if (rc == 0)
		rc = write_list(unwinder, answer, &list, &profile, &scale);
	bucket_list_deinit(&list);
	return rc == -EFAULT ? -EIO : rc;
}
