// SPDX-License-Identifier: Apache-2.0
/* A dictionary as columns; the format is in settled.h. */
#include <errno.h>

#include "agent/recording/settled_internal.h"

#define CODE_NONE 0u

VEC_DEFINE(frames, uint64_t);
VEC_DEFINE(numbers, uint32_t);

struct encode {
	struct settled *s;
	struct buf columns[SETTLED_COLUMNS];
	struct numbers_vec comms; /* of attrs */
	uint32_t frame_count;
	struct numbers_vec order; /* nodes by their number: in the order of the walk */
	struct frames_vec calls;  /* frame above << 32 | frame below, each once, sorted */
	struct numbers_vec first; /* by frame: of calls, and one more */
};

static void encode_deinit(struct encode *e)
{
	for (int i = 0; i < SETTLED_COLUMNS; i++)
		buf_deinit(&e->columns[i]);
	numbers_vec_deinit(&e->comms);
	numbers_vec_deinit(&e->order);
	frames_vec_deinit(&e->calls);
	numbers_vec_deinit(&e->first);
}

static void put(struct encode *e, enum settled_column column, uint64_t value)
{
	buf_add_varint(&e->columns[column], value);
}

static void put_step(struct encode *e, enum settled_column column, uint64_t value, uint64_t before)
{
	buf_add_svarint(&e->columns[column], (int64_t)(value - before));
}

static void put_byte(struct encode *e, enum settled_column column, uint8_t value)
{
	buf_add(&e->columns[column], &value, 1);
}

/* ---- modules, texts, processes -----------------------------------------------------------------
 */

static int encode_modules(struct encode *e)
{
	const struct modules_vec *modules = &e->s->modules;
	cleanup_free struct chunk_module *list = calloc(modules->count + 1, sizeof(*list));

	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < modules->count; i++) {
		list[i] = modules->data[i].module;
		list[i].build_id = modules->data[i].build_id;
		list[i].path = chunk_text_of(modules->data[i].path);
	}
	chunk_encode_modules(&e->columns[COLUMN_MODULES], list, modules->count);
	return 0;
}

static uint64_t since_boot_ms(const struct chunk_process *p)
{
	return p->started_at_ns / NS_PER_MS - p->start_boottime_ns / NS_PER_MS;
}

static void encode_processes(struct encode *e)
{
	const struct settled *s = e->s;
	struct chunk_process before = { 0 };

	for (size_t i = 0; i < s->texts.count; i++) {
		put(e, COLUMN_TEXTS, s->texts.data[i].len);
		buf_add(&e->columns[COLUMN_TEXTS], s->texts.data[i].bytes, s->texts.data[i].len);
	}
	for (size_t i = 0; i < s->processes.count; i++) {
		const struct process *process = &s->processes.data[i];
		const struct chunk_process *p = &process->process;

		put_step(e, COLUMN_PROCESS_IDS, p->id, before.id);
		put_step(e, COLUMN_PROCESS_TGIDS, p->tgid, before.tgid);
		put(e, COLUMN_PROCESS_EXECS, p->exec_generation);
		put_step(e, COLUMN_PROCESS_STARTS, p->start_boottime_ns / NS_PER_MS,
			 before.start_boottime_ns / NS_PER_MS);
		put_step(e, COLUMN_PROCESS_CLOCKS, since_boot_ms(p), since_boot_ms(&before));
		put(e, COLUMN_PROCESS_COMMS, process->comm);
		put(e, COLUMN_PROCESS_EXES, process->exe);
		put(e, COLUMN_PROCESS_SERVICES, process->service);
		before = *p;
	}
}

/* ---- the tree -------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void sort_once(struct frames_vec *list)
{
	size_t kept = 0;

	if (list->count)
		qsort(list->data, list->count, sizeof(*list->data), by_value);
	for (size_t i = 0; i < list->count; i++)
		if (!kept || list->data[kept - 1] != list->data[i])
			list->data[kept++] = list->data[i];
	list->count = kept;
}

static uint32_t find(const struct frames_vec *list, uint64_t value)
{
	const uint64_t *at = bsearch(&value, list->data, list->count, sizeof(value), by_value);

	return (uint32_t)(at - list->data);
}

/* The sorted table of frames; each node learns its frame's place. */
static int encode_frames(struct encode *e)
{
	struct nodes_vec *nodes = &e->s->nodes;
	struct frames_vec frames = { 0 };
	uint64_t head = 0, low = 0;
	int rc = frames_vec_reserve(&frames, nodes->count);

	if (rc < 0)
		return rc;
	for (size_t i = 1; i < nodes->count; i++)
		frames.data[frames.count++] = nodes->data[i].frame;
	sort_once(&frames);
	for (size_t i = 0; i < frames.count; i++) {
		bool same = i && frames.data[i] >> SETTLED_LOW_BITS == head;

		put(e, COLUMN_FRAME_HEADS, (frames.data[i] >> SETTLED_LOW_BITS) - head);
		head = frames.data[i] >> SETTLED_LOW_BITS;
		low = (frames.data[i] & ((1ull << SETTLED_LOW_BITS) - 1)) - (same ? low : 0);
		put(e, COLUMN_FRAME_LOWS, low);
		low = frames.data[i] & ((1ull << SETTLED_LOW_BITS) - 1);
	}
	for (size_t i = 1; i < nodes->count; i++)
		nodes->data[i].frame_at = find(&frames, nodes->data[i].frame);
	e->frame_count = (uint32_t)frames.count;
	frames_vec_deinit(&frames);
	return 0;
}

static uint32_t frame_above(const struct encode *e, const struct node *node)
{
	return node->parent == SETTLED_ROOT ? e->frame_count : e->s->nodes.data[node->parent].frame_at;
}

/* Writes for each frame the frames that come below it anywhere in the tree. */
static int encode_calls(struct encode *e)
{
	const struct nodes_vec *nodes = &e->s->nodes;
	struct frames_vec *calls = &e->calls;
	int rc = frames_vec_reserve(calls, nodes->count);

	if (rc == 0)
		rc = numbers_vec_reserve(&e->first, e->frame_count + 2u);
	if (rc < 0)
		return rc;
	for (size_t i = 1; i < nodes->count; i++)
		calls->data[calls->count++] =
			(uint64_t)frame_above(e, &nodes->data[i]) << 32 | nodes->data[i].frame_at;
	sort_once(calls);
	for (uint32_t above = 0, at = 0; above <= e->frame_count; above++) {
		uint32_t begin = at, before = above;

		e->first.data[above] = at;
		for (; at < calls->count && calls->data[at] >> 32 == above; at++) {
			if (at == begin)
				put_step(e, COLUMN_CALL_FRAMES, (uint32_t)calls->data[at], before);
			else
				put(e, COLUMN_CALL_FRAMES, (uint32_t)calls->data[at] - before - 1);
			before = (uint32_t)calls->data[at];
		}
		put(e, COLUMN_CALL_COUNTS, at - begin);
	}
	e->first.data[e->frame_count + 1] = (uint32_t)calls->count;
	return 0;
}

/* A child in the list of its parent's. */
struct child {
	uint32_t parent, frame_at, node;
};
VEC_DEFINE(children, struct child);

static int by_parent(const void *a, const void *b)
{
	const struct child *x = a, *y = b;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	return x->frame_at < y->frame_at ? -1 : x->frame_at > y->frame_at;
}

/* Numbers the nodes in the order of a walk. */
static int walk(struct settled *s, struct numbers_vec *order)
{
	struct children_vec children = { 0 };
	struct numbers_vec open = { 0 };
	cleanup_free uint32_t *first = calloc(s->nodes.count + 1, sizeof(*first));
	int rc = first ? children_vec_reserve(&children, s->nodes.count) : -ENOMEM;

	if (rc == 0)
		rc = numbers_vec_reserve(&open, s->nodes.count);
	if (rc == 0)
		rc = numbers_vec_reserve(order, s->nodes.count);
	for (uint32_t i = 1; rc == 0 && i < s->nodes.count; i++) {
		const struct node *node = &s->nodes.data[i];

		children.data[children.count++] = (struct child){ node->parent, node->frame_at, i };
		first[node->parent + 1]++;
	}
	if (rc == 0 && children.count)
		qsort(children.data, children.count, sizeof(*children.data), by_parent);
	for (size_t i = 0; rc == 0 && i < s->nodes.count; i++)
		first[i + 1] += first[i];
	if (rc == 0)
		open.data[open.count++] = SETTLED_ROOT;
	while (open.count) {
		uint32_t at = open.data[--open.count];

		s->nodes.data[at].number = (uint32_t)order->count;
		order->data[order->count++] = at;
		for (uint32_t i = first[at + 1]; i-- > first[at];) {
			uint32_t child = children.data[i].node;

			s->nodes.data[child].depth = s->nodes.data[at].depth + 1;
			open.data[open.count++] = child;
		}
	}
	children_vec_deinit(&children);
	numbers_vec_deinit(&open);
	return rc;
}

/* Encodes for each node the place of its frame among the frames that come below that of its parent.
 */
static int encode_nodes(struct encode *e)
{
	const struct nodes_vec *nodes = &e->s->nodes;
	int rc = walk(e->s, &e->order);
	cleanup_free uint32_t *next = calloc(nodes->count, sizeof(*next)); /* of a node's children */

	if (!next)
		rc = -ENOMEM;
	for (size_t i = 1; rc == 0 && i < e->order.count; i++) {
		const struct node *node = &nodes->data[e->order.data[i]];
		uint32_t above = frame_above(e, node), first = e->first.data[above];
		uint32_t place = find(&e->calls, (uint64_t)above << 32 | node->frame_at) - first;

		put(e, COLUMN_NODE_UPS, nodes->data[e->order.data[i - 1]].depth + 1 - node->depth);
		if (e->first.data[above + 1] - first > 1)
			put(e, next[node->parent] ? COLUMN_NODE_NEXTS : COLUMN_NODE_FIRSTS, place - next[node->parent]);
		next[node->parent] = place + 1;
	}
	return rc;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static uint32_t code_of(const struct settled *s, uint64_t id, uint8_t *ret_outcome)
{
	uint64_t at;

	*ret_outcome = 0;
	if (!id)
		return CODE_NONE;
	if (!u64map_get(&s->stack_at, id, &at))
		return CHUNK_CODE_MISSING;
	*ret_outcome = s->stacks.data[at].outcome;
	return s->nodes.data[s->stacks.data[at].node].number + CHUNK_CODE_NODE;
}

static bool is_leaf(const struct encode *e, uint32_t code)
{
	const struct node *nodes = e->s->nodes.data;
	uint32_t number = code - CHUNK_CODE_NODE;

	return code >= CHUNK_CODE_NODE &&
	       (number + 1 == e->order.count ||
		nodes[e->order.data[number + 1]].depth <= nodes[e->order.data[number]].depth);
}

/* How many pairs have each user stack: of the leaves, few have none. */
static void encode_counts(struct encode *e, const uint64_t *by_code)
{
	uint32_t codes = (uint32_t)e->s->nodes.count + CHUNK_CODE_NODE;

	for (uint32_t code = 0, at = 0; code < codes; code++) {
		uint32_t begin = at;

		while (at < e->s->pairs.count && by_code[at] >> 32 == code)
			at++;
		put(e, is_leaf(e, code) ? COLUMN_LEAF_PAIRS : COLUMN_INNER_PAIRS, at - begin);
	}
}

/* Pairs whose user stacks ascend are a run: those that came at one time. @run: by pair. */
static void find_runs(struct encode *e, const uint64_t *by_code, uint32_t *run)
{
	size_t count = e->s->pairs.count;
	uint32_t runs = 0;

	for (size_t i = 0, begin = 0; i < count; i++) {
		if (i && by_code[i] >> 32 < by_code[i - 1] >> 32) {
			put(e, COLUMN_RUN_LENGTHS, i - begin);
			begin = i;
			runs++;
		}
		run[i] = runs;
		if (i + 1 == count)
			put(e, COLUMN_RUN_LENGTHS, i + 1 - begin);
	}
}

static int encode_pairs(struct encode *e)
{
	const struct pairs_vec *pairs = &e->s->pairs;
	cleanup_free uint64_t *by_code = calloc(pairs->count + 1, sizeof(*by_code));
	cleanup_free uint32_t *run = calloc(pairs->count + 1, sizeof(*run));
	uint32_t runs;
	uint8_t outcome;

	if (!by_code || !run)
		return -ENOMEM;
	for (size_t i = 0; i < pairs->count; i++)
		by_code[i] = (uint64_t)code_of(e->s, pairs->data[i].user, &outcome) << 32 | i;
	find_runs(e, by_code, run);
	runs = pairs->count ? run[pairs->count - 1] + 1 : 0;
	if (pairs->count)
		qsort(by_code, pairs->count, sizeof(*by_code), by_value);
	encode_counts(e, by_code);
	for (size_t i = 0; i < pairs->count; i++) {
		uint32_t pair = (uint32_t)by_code[i];

		for (unsigned byte = 0; byte < 4 && (uint64_t)runs > 1ull << (8 * byte); byte++)
			put_byte(e, COLUMN_RUNS + byte, (uint8_t)(run[pair] >> (8 * byte)));
		(void)code_of(e->s, pairs->data[pair].user, &outcome);
		put_byte(e, COLUMN_USER_OUTCOMES, outcome);
		put(e, COLUMN_KERNELS, code_of(e->s, pairs->data[pair].kernel, &outcome));
		put_byte(e, COLUMN_KERNEL_OUTCOMES, outcome);
	}
	return 0;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static uint32_t tgid_of(const struct settled *s, uint32_t process)
{
	uint64_t at;

	return u64map_get(&s->process_at, process, &at) ? s->processes.data[at].process.tgid : 0;
}

/* 0 when it is the process's own. */
static int comm_of(struct settled *s, const struct chunk_attr *attr, uint32_t *ret)
{
	const struct chunk_text text = { attr->comm, strnlen(attr->comm, sizeof(attr->comm)) };
	uint64_t at;
	int rc = settled_find_text(s, text, ret);

	if (rc == 0)
		*ret = u64map_get(&s->process_at, attr->process, &at) && s->processes.data[at].comm == *ret ? 0
													     : *ret + 1;
	return rc;
}

/* Before the texts are written: threads' names are among them. */
static int find_comms(struct encode *e)
{
	const struct attrs_vec *attrs = &e->s->attrs;
	int rc = numbers_vec_reserve(&e->comms, attrs->count + 1);

	for (size_t i = 0; rc == 0 && i < attrs->count; i++)
		rc = comm_of(e->s, &attrs->data[i], &e->comms.data[i]);
	return rc;
}

static void encode_attrs(struct encode *e)
{
	const struct attrs_vec *attrs = &e->s->attrs;

	for (size_t i = 0; i < attrs->count; i++) {
		const struct chunk_attr *attr = &attrs->data[i];

		put_step(e, COLUMN_ATTR_PROCESSES, attr->process, i ? attrs->data[i - 1].process : 0);
		put_step(e, COLUMN_ATTR_TIDS, attr->tid, tgid_of(e->s, attr->process));
		put_byte(e, COLUMN_ATTR_TYPES, attr->type);
		put_byte(e, COLUMN_ATTR_STATES, attr->state);
		put_byte(e, COLUMN_ATTR_DETAILS, attr->detail);
		put(e, COLUMN_ATTR_COMMS, e->comms.data[i]);
		put(e, COLUMN_ATTR_OBJECTS, attr->object);
		put(e, COLUMN_ATTR_HOLDERS, attr->holder);
	}
}

/* ---- all of it ------------------------------------------------------------------------------- */

int settled_encode(struct settled *s, struct buf *out, struct chunk_parts *parts)
{
	__attribute__((__cleanup__(encode_deinit))) struct encode e = { .s = s };
	int rc = find_comms(&e);

	if (rc == 0)
		rc = encode_modules(&e);
	if (rc == 0)
		rc = encode_frames(&e);
	if (rc == 0)
		rc = encode_calls(&e);
	if (rc == 0)
		rc = encode_nodes(&e);
	if (rc == 0)
		rc = encode_pairs(&e);
	if (rc < 0)
		return rc;
	encode_processes(&e);
	encode_attrs(&e);
	buf_add_varint(out, s->first_pair);
	buf_add_varint(out, s->pairs.count);
	buf_add_varint(out, s->first_attr);
	buf_add_varint(out, s->attrs.count);
	chunk_encode_columns(out, e.columns, SETTLED_COLUMNS, parts);
	return out->error;
}
