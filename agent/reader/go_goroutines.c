// SPDX-License-Identifier: Apache-2.0
/* The list of goroutines only grows and its elements never move, so it is read in groups: the g
 * structures, then the stacks of those that are parked, then the g structures again. A stack counts
 * only if the second reading equals the first where running would change it, and if it unwinds to
 * the end; else that goroutine is read again. What moved during all attempts is reported with its
 * state alone.
 *
 * Groups take blocks of neighbours (their structures lie side by side, which makes reading cheap)
 * from all over the list, so that what was read when the deadline comes is an unbiased sample. */
#include "agent/reader/go_goroutines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/reader/go_snapshot.h"

#define BLOCK	       64u  /* neighbours read together */
#define GROUP_BLOCKS   (GROUP / BLOCK)
#define ATTEMPTS       3u
#define STACK_MAX      (64u << 10) /* bytes of one stack at first */
#define STACK_DEEP_MAX (1u << 20)  /* when that was not enough */
#define DEEP_MAX       256u	   /* goroutines of one answer that are given that much */
#define STACKS_BYTES   (4u << 20)  /* of one group; the rest waits for the next */
#define MERGE_GAP      1024u	   /* bytes between two g structures read as one piece */
#define G_LIST_MAX     (1ull << 28)
#define THREADS_MAX    65536u
#define G_SCAN	       0x1000u /* _Gscan: set by the garbage collector for a moment */

/* ---- reading g structures -------------------------------------------------------------------- */

static struct g_key g_key_of(const struct go_fields *f, const uint8_t *g)
{
	struct g_key key = {
		.goid = g_word(g, f->g.goid),
		.sched_sp = g_word(g, f->g.sched + f->gobuf_sp),
		.sched_pc = g_word(g, f->g.sched + f->gobuf_pc),
		.syscall_sp = g_word(g, f->g.syscallsp),
		.stack_low = g_word(g, f->g.stack),
	};

	memcpy(&key.status, g + f->g.atomicstatus, sizeof(key.status));
	key.status &= ~G_SCAN;
	return key;
}

static bool g_key_equal(const struct g_key *a, const struct g_key *b)
{
	return a->goid == b->goid && a->sched_sp == b->sched_sp && a->sched_pc == b->sched_pc &&
	       a->syscall_sp == b->syscall_sp && a->stack_low == b->stack_low &&
	       a->status == b->status;
}

/* A g structure, copied. */
struct g_copy {
	uint8_t *g;
	bool whole;
};

/* Reads the structures of @items, or of those alone whose stack is wanted, into @bytes; neighbours
 * as one piece. */
static int read_structures(const struct snapshot *s, const struct g_item *items, unsigned count,
			   bool wanted_only, uint8_t *bytes, struct g_copy *ret)
{
	struct target_piece pieces[GROUP];
	uint32_t size = s->layout->fields.g.size;
	unsigned piece_of[GROUP], piece_count = 0;
	uint32_t end_of[GROUP]; /* bytes from the begin of its piece to the end of the structure */
	int rc;

	for (unsigned i = 0; i < count; i++) {
		struct target_piece *last = piece_count ? &pieces[piece_count - 1] : NULL;
		uint64_t last_end = last ? last->va + last->len : 0;

		ret[i] = (struct g_copy){ 0 };
		if (wanted_only && !items[i].wants_stack)
			continue;
		if (last && items[i].va >= last_end && items[i].va - last_end <= MERGE_GAP) {
			bytes += items[i].va - last_end;
			last->len += (uint32_t)(items[i].va - last_end) + size;
		} else {
			pieces[piece_count++] =
				(struct target_piece){ .va = items[i].va, .buf = bytes, .len = size };
		}
		piece_of[i] = piece_count - 1;
		end_of[i] = pieces[piece_of[i]].len;
		ret[i].g = bytes;
		bytes += size;
	}
	rc = target_read_batch(s->layout->image.target, pieces, piece_count);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < count; i++)
		ret[i].whole = ret[i].g && end_of[i] <= pieces[piece_of[i]].got;
	return 0;
}

/* Whether the request asks for goroutines like this one, as far as its state tells. */
static bool item_is_asked(const struct snapshot *s, const struct g_item *item)
{
	const char *reason = go_wait_reason(s, item);

	if (s->flags & READER_LOCKS_ONLY)
		return go_may_be_lock(reason);
	if (s->flags & READER_BLOCKED_ONLY)
		return go_goroutine_is_blocked(reason) && strcmp(reason, "IO wait") != 0;
	return true;
}

/* The result of an earlier reading, if the goroutine has not run since. */
static const struct go_seen *find_seen(const struct snapshot *s, const struct g_item *item)
{
	const struct go_seen now = {
		.goid = item->key.goid,
		.wait_since = g_word(item->g, s->layout->fields.g.waitsince),
		.pc = item->key.sched_pc,
		.sp = item->key.sched_sp,
	};

	return item->key.syscall_sp ? NULL : go_walks_find(s->walks, item->index, &now);
}

/* Finds the begin of the stack of a goroutine that does not run; a running one gets none. */
static void item_classify(const struct snapshot *s, struct g_item *item)
{
	const struct go_fields *f = &s->layout->fields;
	const uint8_t *g = item->g;

	item->wants_stack = item->moved = item->skipped = item->has_sudog = false;
	item->stack_len = 0;
	item->sudog_va = 0;
	item->seen = NULL;
	if (!item->has_g)
		return;
	item->key = g_key_of(f, g);
	item->skipped = !item_is_asked(s, item);
	if (item->skipped)
		return;
	item->high_va = g_word(g, f->g.stack + 8);
	if (item->key.syscall_sp) {
		item->sp = item->key.syscall_sp;
		item->pc = g_word(g, f->g.syscallpc);
	} else {
		item->sp = item->key.sched_sp;
		item->pc = item->key.sched_pc;
		if (item->key.status == G_RUNNING)
			return;
	}
	switch (item->key.status) {
	case G_IDLE:
	case G_DEAD:
	case G_DEADEXTRA:
		return;
	case G_COPYSTACK: /* the stack is being moved: look again */
		item->moved = true;
		return;
	case G_WAITING:
	case G_LEAKED:
		item->seen = find_seen(s, item);
		if (item->seen)
			return;
		if (f->g.waiting != GO_NO_FIELD)
			item->sudog_va = g_word(g, f->g.waiting);
		break;
	default:
		break;
	}
	/* A stack pointer outside the stack is a torn reading. */
	item->moved = item->sp < item->key.stack_low || item->sp >= item->high_va || item->sp & 7;
	item->wants_stack = !item->moved;
}

/* Reads the stacks of the first items, as many as fit, and what they wait for; returns how many
 * items are done. */
static int read_stacks(struct snapshot *s, struct g_item *items, unsigned count)
{
	struct target_piece pieces[2 * GROUP];
	unsigned piece_count = 0, done;
	uint32_t used = 0, first, span = go_sudog_span(&s->layout->fields, &first);
	int rc;

	for (done = 0; done < count; done++) {
		struct g_item *item = &items[done];
		uint64_t len = item->high_va - item->sp;

		if (!item->wants_stack)
			continue;
		if (len > STACK_MAX)
			len = STACK_MAX;
		if (len > STACKS_BYTES - used)
			break;
		item->stack = s->stack_bytes + used;
		used += (uint32_t)len;
		pieces[piece_count++] = (struct target_piece){ .va = item->sp,
							       .buf = item->stack,
							       .len = (uint32_t)len };
		if (item->sudog_va && span)
			pieces[piece_count++] = (struct target_piece){ .va = item->sudog_va + first,
								       .buf = item->sudog,
								       .len = span };
	}
	rc = target_read_batch(s->layout->image.target, pieces, piece_count);
	if (rc < 0)
		return rc;
	for (unsigned i = 0, piece = 0; i < done; i++) {
		if (!items[i].wants_stack)
			continue;
		items[i].stack_len = pieces[piece++].got;
		if (items[i].sudog_va && span)
			items[i].has_sudog = pieces[piece++].got == span;
	}
	return (int)done;
}

/* Second reading: the part of g that tells whether it ran. */
static int verify_structures(const struct snapshot *s, struct g_item *items, unsigned count)
{
	struct g_copy again[GROUP];
	int rc = read_structures(s, items, count, true, s->again_bytes, again);

	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < count; i++) {
		struct g_key key;

		if (!items[i].wants_stack)
			continue;
		items[i].moved = true;
		if (again[i].whole) {
			key = g_key_of(&s->layout->fields, again[i].g);
			items[i].moved = !g_key_equal(&key, &items[i].key);
		}
	}
	return 0;
}

/* ---- one group ------------------------------------------------------------------------------- */

/* A deep stack, alone and with its own second reading. */
static int walk_deep(struct snapshot *s, struct g_item *item)
{
	struct target *target = s->layout->image.target;
	uint32_t size = s->layout->fields.g.size;
	struct go_stack_view view = { .sp = item->sp, .high_va = item->high_va };
	uint64_t len = item->high_va - item->sp;
	uint8_t again[GO_G_BYTES_MAX];
	struct g_key key;
	ssize_t got;
	int rc;

	if (s->deep_count++ >= DEEP_MAX)
		return 0;
	if (!s->deep_bytes)
		s->deep_bytes = malloc(STACK_DEEP_MAX);
	if (!s->deep_bytes)
		return -ENOMEM;
	got = target_read_some(target, item->sp, s->deep_bytes,
			       len < STACK_DEEP_MAX ? len : STACK_DEEP_MAX);
	rc = got < 0 ? (int)got : target_read(target, item->va, again, size);
	if (rc < 0)
		return rc == -EFAULT ? 0 : rc;
	key = g_key_of(&s->layout->fields, again);
	item->moved = !g_key_equal(&key, &item->key);
	view.data = s->deep_bytes;
	view.len = (uint32_t)got;
	return go_unwinder_walk(s->unwinder, item->pc, &view, &s->walk);
}

/* Unwinds an item whose second reading agreed. 1 = it is settled, 0 = to be read again. */
static int settle_stack(struct snapshot *s, struct g_item *item)
{
	const struct go_stack_view view = { .sp = item->sp,
					    .high_va = item->high_va,
					    .data = item->stack,
					    .len = item->stack_len };
	int rc = go_unwinder_walk(s->unwinder, item->pc, &view, &s->walk);

	if (rc == 0 && s->walk.end == GO_WALK_SHORT)
		rc = walk_deep(s, item);
	if (rc < 0)
		return rc;
	/* Still short: what there is, marked as cut. */
	if (s->walk.end == GO_WALK_SHORT && s->walk.count && !item->moved)
		s->walk.end = GO_WALK_TRUNCATED;
	if (s->walk.end == GO_WALK_TRUNCATED)
		s->answer->end.incomplete++;
	return !item->moved && s->walk.end <= GO_WALK_TRUNCATED;
}

static bool item_is_dead(const struct g_item *item)
{
	return !item->has_g || item->key.status == G_IDLE || item->key.status == G_DEAD ||
	       item->key.status == G_DEADEXTRA;
}

/* Writes what is settled and moves the rest to the front; returns how many are left. @last: nothing
 * may be left. */
static int settle_items(struct snapshot *s, struct g_item *items, unsigned count, bool last)
{
	unsigned left = 0;

	for (unsigned i = 0; i < count; i++) {
		int rc = 1;

		s->walk.count = 0;
		s->walk.lock_va = 0;
		s->walk.lock_wait = false;
		if (item_is_dead(&items[i])) {
			s->answer->end.dead++;
			continue;
		}
		if (items[i].skipped)
			continue;
		if (items[i].moved)
			rc = 0;
		else if (items[i].wants_stack)
			rc = settle_stack(s, &items[i]);
		if (rc < 0)
			return rc;
		if (rc == 0 && !last) {
			items[left++] = items[i];
			continue;
		}
		if (rc == 0) {
			s->answer->end.inconsistent++;
			s->walk.count = 0;
		}
		rc = go_write_item(s, &items[i]);
		if (rc < 0)
			return rc;
	}
	return (int)left;
}

/* Reads @count items, of which .va is set. */
static int read_group(struct snapshot *s, unsigned count)
{
	for (unsigned attempt = 1; count; attempt++) {
		struct g_copy copies[GROUP];
		unsigned left = 0;
		int rc = read_structures(s, s->items, count, false, s->g_bytes, copies);

		if (rc < 0)
			return rc;
		for (unsigned i = 0; i < count; i++) {
			s->items[i].g = copies[i].g;
			s->items[i].has_g = copies[i].whole;
			item_classify(s, &s->items[i]);
		}
		for (unsigned done = 0; done < count;) {
			struct g_item *part = s->items + done;
			int part_count = read_stacks(s, part, count - done);

			if (part_count < 0)
				return part_count;
			rc = verify_structures(s, part, (unsigned)part_count);
			if (rc == 0)
				rc = settle_items(s, part, (unsigned)part_count,
						  attempt >= ATTEMPTS);
			if (rc < 0)
				return rc;
			memmove(s->items + left, part, (unsigned)rc * sizeof(*part));
			left += (unsigned)rc;
			done += (unsigned)part_count;
		}
		count = left;
	}
	return 0;
}

/* ---- whole ----------------------------------------------------------------------------------- */

static uint64_t gcd(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* A step that visits each of @count blocks once, far from its neighbours. */
static uint64_t block_step(uint64_t count)
{
	uint64_t step =
		count * 618 / 1000 | 1; /* near the golden ratio: evenly spread at any time */

	if (count <= GROUP_BLOCKS)
		return 1;
	while (gcd(step, count) != 1)
		step++;
	return step;
}

static int read_all(struct snapshot *s, uint64_t array_va, uint64_t listed)
{
	struct target *target = s->layout->image.target;
	uint64_t blocks = (listed + BLOCK - 1) / BLOCK, step = block_step(blocks), block = 0;

	for (uint64_t visited = 0; visited < blocks;) {
		uint64_t elements[GROUP];
		unsigned count = 0;
		int rc;

		if (answer_is_late(s->answer)) {
			s->answer->end.flags |= READ_END_SAMPLED;
			return 0;
		}
		for (; visited < blocks && count + BLOCK <= GROUP; visited++) {
			uint64_t first = block * BLOCK;
			unsigned part = listed - first < BLOCK ? (unsigned)(listed - first) : BLOCK;

			rc = target_read(target, array_va + first * 8, elements + count, part * 8);
			if (rc < 0)
				return rc == -EFAULT ? -EIO : rc;
			for (unsigned i = 0; i < part; i++) {
				s->items[count + i].va = elements[count + i];
				s->items[count + i].index = first + i;
			}
			count += part;
			block = (block + step) % blocks;
		}
		rc = read_group(s, count);
		if (rc < 0)
			return rc;
		s->answer->end.read += count;
	}
	return 0;
}

static void snapshot_destroy(struct snapshot *s)
{
	if (!s)
		return;
	thread_ids_deinit(&s->thread_ids);
	u64map_deinit(&s->threads);
	u64map_deinit(&s->labels);
	free(s->stack_ids);
	free(s->deep_bytes);
	free(s->stack_bytes);
	free(s->g_bytes);
	free(s->again_bytes);
	free(s);
}
CLEANUP_DEFINE(snapshot, struct snapshot *, snapshot_destroy);

static struct snapshot *snapshot_create(struct go_unwinder *unwinder, struct go_walks *walks,
					struct answer *answer, uint32_t flags)
{
	struct snapshot *s = calloc(1, sizeof(*s));
	size_t g_bytes = GROUP * (size_t)(unwinder->layout->fields.g.size + MERGE_GAP);

	if (!s)
		return NULL;
	s->layout = unwinder->layout;
	s->unwinder = unwinder;
	s->walks = walks;
	s->answer = answer;
	s->flags = flags;
	s->now_ns = clock_monotonic_ns();
	u64map_init(&s->threads, THREADS_MAX);
	u64map_init(&s->labels, 1u << 20);
	s->g_bytes = malloc(g_bytes);
	s->again_bytes = malloc(g_bytes);
	s->stack_bytes = malloc(STACKS_BYTES);
	if (!s->g_bytes || !s->again_bytes || !s->stack_bytes) {
		snapshot_destroy(s);
		return NULL;
	}
	go_walks_begin(walks);
	return s;
}

int go_goroutines_read(struct go_unwinder *unwinder, struct go_walks *walks, struct answer *answer,
		       uint32_t flags)
{
	struct target *target = unwinder->layout->image.target;
	cleanup(snapshot) struct snapshot *s = snapshot_create(unwinder, walks, answer, flags);
	uint64_t slice[3];
	int rc;

	if (!s)
		return -ENOMEM;
	rc = target_read(target, s->layout->allgs_va, slice, sizeof(slice));
	if (rc == 0 && (!slice[1] || slice[1] > slice[2] || slice[2] > G_LIST_MAX))
		rc = -EIO;
	if (rc == 0)
		rc = thread_ids_load(target, &s->thread_ids);
	if (rc == 0) {
		answer->end.listed = slice[1];
		rc = read_all(s, slice[0], slice[1]);
	}
	/* No program is without a live goroutine: this was not the list. */
	if (rc == 0 && answer->end.dead == answer->end.read && !(answer->end.flags & READ_END_SAMPLED))
		rc = -EIO;
	return rc == -EFAULT ? -EIO : rc;
}
