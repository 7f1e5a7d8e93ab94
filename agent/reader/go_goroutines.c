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
#include "agent/base/u64map.h"
#include "agent/reader/go_labels.h"
#include "agent/reader/thread_ids.h"
#include "bpf/profiler.h"

#define BLOCK	       64u  /* neighbours read together */
#define GROUP	       512u /* goroutines between the first and the second reading: below 1 ms */
#define GROUP_BLOCKS   (GROUP / BLOCK)
#define ATTEMPTS       3u
#define STACK_MAX      (64u << 10) /* bytes of one stack at first */
#define STACK_DEEP_MAX (1u << 20)  /* when that was not enough */
#define DEEP_MAX       256u	   /* goroutines of one answer that are given that much */
#define STACKS_BYTES   (4u << 20)  /* of one group; the rest waits for the next */
#define MERGE_GAP      128u	   /* bytes between two g structures read as one piece */
#define G_LIST_MAX     (1ull << 28)
#define THREADS_MAX    65536u
#define G_SCAN	       0x1000u /* _Gscan: set by the garbage collector for a moment */

/* src/runtime/runtime2.go */
enum go_status {
	G_IDLE = 0,
	G_RUNNABLE = 1,
	G_RUNNING = 2,
	G_SYSCALL = 3,
	G_WAITING = 4,
	G_DEAD = 6,
	G_COPYSTACK = 8,
	G_PREEMPTED = 9,
	G_LEAKED = 10,
	G_DEADEXTRA = 11,
};

static const char *const state_words[] = {
	[G_IDLE] = "idle",	     [G_RUNNABLE] = "runnable",	  [G_RUNNING] = "running",
	[G_SYSCALL] = "syscall",     [G_WAITING] = "waiting",	  [G_DEAD] = "dead",
	[G_COPYSTACK] = "copystack", [G_PREEMPTED] = "preempted", [G_LEAKED] = "leaked",
	[G_DEADEXTRA] = "dead",
};

/* What must be equal in both readings. */
struct g_key {
	uint64_t goid, sched_sp, sched_pc, syscall_sp, stack_low;
	uint32_t status;
};

struct g_item {
	uint64_t va;
	uint8_t *g; /* copy in snapshot.g_bytes */
	struct g_key key;
	uint64_t sp, pc, high_va;
	uint8_t *stack; /* copy in snapshot.stack_bytes */
	uint32_t stack_len;
	bool has_g;
	bool wants_stack;
	bool moved;   /* the second reading differed */
	bool skipped; /* nobody asked for goroutines like this one */
};

struct snapshot {
	struct go_layout *layout;
	struct go_unwinder *unwinder;
	struct answer *answer;
	uint32_t flags;
	uint64_t now_ns;
	struct thread_ids thread_ids;
	struct u64map threads; /* m -> tid */
	struct u64map labels;  /* g.labels -> id */
	unsigned deep_count;
	uint8_t *g_bytes;
	uint8_t *stack_bytes;
	uint8_t *deep_bytes;
	struct g_item items[GROUP];
	struct go_walk walk;
	struct go_labels label_set;
};

/* ---- reading g structures -------------------------------------------------------------------- */

static uint64_t g_word(const uint8_t *g, uint32_t offset)
{
	uint64_t word;

	memcpy(&word, g + offset, sizeof(word));
	return word;
}

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

/* Reads the structures of all items into g_bytes, neighbours as one piece. */
static int read_structures(struct snapshot *s, struct g_item *items, unsigned count)
{
	struct target_piece pieces[GROUP];
	uint32_t size = s->layout->fields.g.size;
	unsigned piece_of[GROUP], piece_count = 0;
	uint8_t *at = s->g_bytes;
	int rc;

	for (unsigned i = 0; i < count; i++) {
		struct target_piece *last = piece_count ? &pieces[piece_count - 1] : NULL;
		uint64_t last_end = last ? last->va + last->len : 0;

		if (last && items[i].va >= last_end && items[i].va - last_end <= MERGE_GAP) {
			at += items[i].va - last_end;
			last->len += (uint32_t)(items[i].va - last_end) + size;
		} else {
			pieces[piece_count++] =
				(struct target_piece){ .va = items[i].va, .buf = at, .len = size };
		}
		piece_of[i] = piece_count - 1;
		items[i].g = at;
		at += size;
	}
	rc = target_read_batch(s->layout->image.target, pieces, piece_count);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < count; i++) {
		const struct target_piece *piece = &pieces[piece_of[i]];

		items[i].has_g = items[i].va + size <= piece->va + piece->got;
	}
	return 0;
}

static const char *wait_reason(const struct snapshot *s, const struct g_item *item)
{
	unsigned index = item->g[s->layout->fields.g.waitreason];
	bool waits = item->key.status == G_WAITING || item->key.status == G_LEAKED;

	return s->layout->wait_reasons[waits && index < s->layout->wait_reason_count ? index : 0];
}

static bool may_be_lock(const char *reason)
{
	return !strncmp(reason, "sync.Mutex.", 11) || !strncmp(reason, "sync.RWMutex.", 13) ||
	       !strcmp(reason, "semacquire");
}

/* Whether the request asks for goroutines like this one, as far as its state tells. */
static bool item_is_asked(const struct snapshot *s, const struct g_item *item)
{
	const char *reason = wait_reason(s, item);

	if (s->flags & READER_LOCKS_ONLY)
		return may_be_lock(reason);
	if (s->flags & READER_BLOCKED_ONLY)
		return go_goroutine_is_blocked(reason) && strcmp(reason, "IO wait") != 0;
	return true;
}

/* Where the stack of a goroutine that does not run begins; nothing for one that does. */
static void item_classify(const struct snapshot *s, struct g_item *item)
{
	const struct go_fields *f = &s->layout->fields;
	const uint8_t *g = item->g;

	item->wants_stack = item->moved = item->skipped = false;
	item->stack_len = 0;
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
	default:
		/* A stack pointer outside the stack is a torn reading. */
		item->moved =
			item->sp < item->key.stack_low || item->sp >= item->high_va || item->sp & 7;
		item->wants_stack = !item->moved;
	}
}

/* Reads the stacks of the first items, as many as fit; returns how many items are done. */
static int read_stacks(struct snapshot *s, struct g_item *items, unsigned count)
{
	struct target_piece pieces[GROUP];
	unsigned piece_count = 0, done;
	uint32_t used = 0;
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
	}
	rc = target_read_batch(s->layout->image.target, pieces, piece_count);
	if (rc < 0)
		return rc;
	for (unsigned i = 0, piece = 0; i < done; i++)
		if (items[i].wants_stack)
			items[i].stack_len = pieces[piece++].got;
	return (int)done;
}

/* Second reading: the part of g that tells whether it ran. */
static int verify_structures(struct snapshot *s, struct g_item *items, unsigned count)
{
	struct target_piece pieces[GROUP];
	uint32_t size = s->layout->fields.g.size;
	cleanup_free uint8_t *again = malloc((size_t)count * size + 1);
	unsigned piece_count = 0;
	int rc;

	if (!again)
		return -ENOMEM;
	for (unsigned i = 0; i < count; i++)
		if (items[i].wants_stack) {
			pieces[piece_count] =
				(struct target_piece){ .va = items[i].va,
						       .buf = again + (size_t)piece_count * size,
						       .len = size };
			piece_count++;
		}
	rc = target_read_batch(s->layout->image.target, pieces, piece_count);
	if (rc < 0)
		return rc;
	for (unsigned i = 0, piece = 0; i < count; i++) {
		struct g_key key;

		if (!items[i].wants_stack)
			continue;
		if (pieces[piece].got == size) {
			key = g_key_of(&s->layout->fields, pieces[piece].buf);
			items[i].moved = !g_key_equal(&key, &items[i].key);
		} else {
			items[i].moved = true;
		}
		piece++;
	}
	return 0;
}

/* ---- facts of one goroutine ------------------------------------------------------------------ */

static uint32_t thread_id(struct snapshot *s, uint64_t m_va)
{
	uint64_t tid = 0;

	if (!m_va || u64map_get(&s->threads, m_va, &tid))
		return (uint32_t)tid;
	if (target_read(s->layout->image.target, m_va + s->layout->fields.m_procid, &tid,
			sizeof(tid)) < 0 ||
	    tid > INT32_MAX)
		tid = 0;
	tid = thread_ids_outer(&s->thread_ids, (uint32_t)tid);
	/* A full table only means reading again. */
	(void)!u64map_put(&s->threads, m_va, tid);
	return (uint32_t)tid;
}

static int label_set_id(struct snapshot *s, uint64_t va, uint32_t *ret)
{
	uint32_t pairs[2 * GO_LABELS_MAX];
	uint64_t known;
	int rc;

	*ret = 0;
	if (!va)
		return 0;
	if (u64map_get(&s->labels, va, &known)) {
		*ret = (uint32_t)known;
		return 0;
	}
	rc = go_labels_read(s->layout->image.target, va, !go_layout_since(s->layout, 24),
			    &s->label_set);
	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < s->label_set.count; i++) {
		const struct go_label *label = &s->label_set.items[i];

		pairs[2 * i] = answer_string(s->answer, label->key, label->key_len);
		pairs[2 * i + 1] = answer_string(s->answer, label->value, label->value_len);
	}
	*ret = answer_labels(s->answer, pairs, s->label_set.count);
	(void)!u64map_put(&s->labels, va, *ret);
	return 0;
}

bool go_goroutine_is_blocked(const char *reason)
{
	static const char *const prefixes[] = { "chan ",   "select",	"sync.",    "semacquire",
						"IO wait", "coroutine", "synctest." };

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (!strncmp(reason, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}


/* Of a lock; what only says "semacquire" is told by the functions it waits in. */
static bool is_lock_wait(const struct snapshot *s, const char *reason)
{
	return may_be_lock(reason) && (strcmp(reason, "semacquire") != 0 || s->walk.lock_wait);
}

/* What a goroutine waits for: the first sudog it is queued with (channels; semaphores too
 * from 1.26), else the mutex found in its stack. */
static int wait_object(struct snapshot *s, const struct g_item *item, struct read_goroutine *out)
{
	const struct go_fields *f = &s->layout->fields;
	uint64_t sudog_va = f->g.waiting == GO_NO_FIELD ? 0 : g_word(item->g, f->g.waiting);
	uint64_t channel_va = 0, element_va = 0;
	struct target_piece pieces[2] = {
		{ .va = sudog_va + f->sudog_c, .buf = &channel_va, .len = 8 },
		{ .va = sudog_va + f->sudog_elem, .buf = &element_va, .len = 8 },
	};
	int rc;

	if (s->walk.count && s->walk.lock_va) {
		out->wait_object = s->walk.lock_va;
		out->flags |= READ_GOROUTINE_ON_LOCK;
		return 0;
	}
	if (!sudog_va)
		return 0;
	rc = target_read_batch(s->layout->image.target, pieces, 2);
	if (rc < 0)
		return rc;
	if (channel_va) {
		out->wait_object = channel_va;
		out->flags |= READ_GOROUTINE_ON_CHANNEL;
	} else if (element_va) {
		out->wait_object = element_va;
		out->flags |= READ_GOROUTINE_ON_SEMAPHORE;
	}
	return 0;
}

static int start_facts(struct snapshot *s, const struct g_item *item, const char *reason,
		       struct read_goroutine *out)
{
	const struct go_fields *f = &s->layout->fields;
	uint64_t start_pc = g_word(item->g, f->g.startpc), go_pc = g_word(item->g, f->g.gopc);
	struct go_pc start = { 0 };
	int rc = start_pc ? go_unwinder_pc(s->unwinder, start_pc, &start) : 0;

	if (rc < 0)
		return rc;
	if (start.flags & GO_PC_FINALIZER) {
		if (strstr(reason, "finalizer wait") || strstr(reason, "cleanup wait"))
			out->flags |= READ_GOROUTINE_SYSTEM;
	} else if (start.flags & GO_PC_RUNTIME) {
		out->flags |= READ_GOROUTINE_SYSTEM;
	}
	if (start.flags & GO_PC_IN_TABLE)
		out->start_frame = answer_frame(s->answer, start_pc, 0);
	if (go_pc >= s->layout->table.min_va && go_pc < s->layout->table.max_va)
		out->created_frame = answer_frame(s->answer, go_pc, PROF_FRAME_RETURN);
	return 0;
}

/* ---- writing one goroutine ------------------------------------------------------------------- */

/* How many of the innermost frames are the runtime's way to wait, as its block profile leaves them
 * out. */
static unsigned parking_frames(struct snapshot *s)
{
	struct go_pc info;
	unsigned count = 0;

	if (!(s->flags & (READER_BLOCKED_ONLY | READER_LOCKS_ONLY)))
		return 0;
	while (count + 1 < s->walk.count &&
	       go_unwinder_pc(s->unwinder, s->walk.pcs[count], &info) == 0 &&
	       info.flags & GO_PC_PARKING)
		count++;
	return count;
}

static uint32_t write_walk(struct snapshot *s)
{
	uint64_t frames[READ_FRAMES_MAX + 1];
	uint8_t flags[READ_FRAMES_MAX + 1];
	unsigned count = 0;

	for (unsigned i = parking_frames(s); i < s->walk.count; i++, count++) {
		frames[count] = answer_frame(s->answer, s->walk.pcs[i],
					     s->walk.exact[i] ? 0 : PROF_FRAME_RETURN);
		flags[count] = s->walk.flags[i];
	}
	if (s->walk.end != GO_WALK_TRUNCATED)
		return answer_stack(s->answer, 0, frames, flags, count);
	frames[count] = (uint64_t)PROF_FRAME_TRUNCATED << PROF_FRAME_KIND_SHIFT;
	flags[count] = 0;
	return answer_stack(s->answer, 1, frames, flags, count + 1);
}

static int write_item(struct snapshot *s, const struct g_item *item)
{
	const struct go_fields *f = &s->layout->fields;
	struct read_goroutine out = { .goid = item->key.goid };
	uint64_t since = g_word(item->g, f->g.waitsince), locked_m = g_word(item->g, f->g.lockedm);
	uint32_t status = item->key.status;
	const char *reason = wait_reason(s, item);
	int rc;

	if (status >= ARRAY_SIZE(state_words) || !state_words[status])
		return 0;
	rc = start_facts(s, item, reason, &out);
	if (rc < 0)
		return rc;
	if (go_goroutine_is_blocked(reason))
		out.flags |= READ_GOROUTINE_BLOCKED;
	if (is_lock_wait(s, reason))
		out.flags |= READ_GOROUTINE_LOCK_WAIT;
	if (s->flags & READER_LOCKS_ONLY && !(out.flags & READ_GOROUTINE_LOCK_WAIT))
		return 0;
	if (s->flags & (READER_BLOCKED_ONLY | READER_LOCKS_ONLY) &&
	    out.flags & READ_GOROUTINE_SYSTEM)
		return 0;
	if (f->g.parent_goid != GO_NO_FIELD)
		out.parent_goid = g_word(item->g, f->g.parent_goid);
	if (since && since <= s->now_ns &&
	    (status == G_WAITING || status == G_SYSCALL || status == G_LEAKED))
		out.wait_ns = s->now_ns - since;
	if (locked_m)
		out.flags |= READ_GOROUTINE_LOCKED;
	out.tid = thread_id(s, locked_m ? locked_m : g_word(item->g, f->g.m));
	if (status == G_LEAKED)
		out.flags |= READ_GOROUTINE_LEAKED;
	if (status == G_RUNNING && !s->walk.count)
		out.flags |= READ_GOROUTINE_RUNNING;
	else if (!s->walk.count)
		out.flags |= READ_GOROUTINE_INCONSISTENT;
	rc = label_set_id(s, g_word(item->g, f->g.labels), &out.labels);
	if (rc == 0 && (status == G_WAITING || status == G_LEAKED))
		rc = wait_object(s, item, &out);
	if (rc < 0)
		return rc;
	out.stack = write_walk(s);
	/* "leaked" is how the runtime marks it; it still waits. */
	out.state = answer_text(s->answer, state_words[status == G_LEAKED ? G_WAITING : status]);
	out.reason = answer_text(s->answer, reason);
	read_writer_fixed(s->answer->writer, READ_GOROUTINE, &out, sizeof(out));
	return s->answer->writer->error;
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
		rc = write_item(s, &items[i]);
		if (rc < 0)
			return rc;
	}
	return (int)left;
}

/* Reads @count items, of which .va is set. */
static int read_group(struct snapshot *s, unsigned count)
{
	for (unsigned attempt = 1; count; attempt++) {
		unsigned left = 0;
		int rc = read_structures(s, s->items, count);

		if (rc < 0)
			return rc;
		for (unsigned i = 0; i < count; i++)
			item_classify(s, &s->items[i]);
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
			count += part;
			block = (block + step) % blocks;
		}
		for (unsigned i = 0; i < count; i++)
			s->items[i].va = elements[i];
		rc = read_group(s, count);
		if (rc < 0)
			return rc;
		s->answer->end.read += count;
	}
	return 0;
}

int go_goroutines_read(struct go_unwinder *unwinder, struct answer *answer, uint32_t flags)
{
	struct go_layout *layout = unwinder->layout;
	cleanup_free struct snapshot *s = calloc(1, sizeof(*s));
	cleanup_free uint8_t *g_bytes = malloc(GROUP * (size_t)(layout->fields.g.size + MERGE_GAP));
	cleanup_free uint8_t *stack_bytes = malloc(STACKS_BYTES);
	uint64_t slice[3];
	int rc;

	if (!s || !g_bytes || !stack_bytes)
		return -ENOMEM;
	s->layout = layout;
	s->unwinder = unwinder;
	s->answer = answer;
	s->flags = flags;
	s->now_ns = clock_monotonic_ns();
	s->g_bytes = g_bytes;
	s->stack_bytes = stack_bytes;
	u64map_init(&s->threads, THREADS_MAX);
	u64map_init(&s->labels, 1u << 20);
	rc = target_read(layout->image.target, layout->allgs_va, slice, sizeof(slice));
	if (rc == 0 && (!slice[1] || slice[1] > slice[2] || slice[2] > G_LIST_MAX))
		rc = -EIO;
	if (rc == 0)
		rc = thread_ids_load(layout->image.target, &s->thread_ids);
	if (rc == 0) {
		answer->end.listed = slice[1];
		rc = read_all(s, slice[0], slice[1]);
	}
	/* No program is without a live goroutine: this was not the list. */
	if (rc == 0 && answer->end.dead == answer->end.read && !(answer->end.flags & READ_END_SAMPLED))
		rc = -EIO;
	thread_ids_deinit(&s->thread_ids);
	u64map_deinit(&s->threads);
	u64map_deinit(&s->labels);
	free(s->deep_bytes);
	return rc == -EFAULT ? -EIO : rc;
}
