// SPDX-License-Identifier: Apache-2.0
/* A settled dictionary back; the format is in settled.h. */
#include <errno.h>

#include "agent/recording/settled_internal.h"

#define ID_PAIR	  40 /* bits of a made-up stack id: first pair + 1, outcome, code */
#define ID_OUTCOME 32

struct owner { /* what attributes need of their process */
	uint32_t tgid;
	char comm[16];
};

struct decode {
	const struct chunk_sink *sink;
	struct bytes columns[SETTLED_COLUMNS];
	uint64_t first_pair, pair_count, first_attr, attr_count;
	struct chunk_text *texts;
	uint32_t text_count;
	struct owner *owners;
	struct u64map owner_at; /* process id -> index of owners */
	uint64_t *frames;
	uint32_t frame_count;
	uint32_t *calls, *first; /* frames below a frame, and by frame the first of them */
	uint32_t *node_frames, *parents; /* by node, 0 = the root */
	uint32_t node_count;		 /* the root included */
	uint8_t *shown;			 /* by node: outcome + 1 of the stack that was handed out; NULL for trees */
};

static void decode_deinit(struct decode *d)
{
	free(d->texts);
	free(d->owners);
	u64map_deinit(&d->owner_at);
	free(d->frames);
	free(d->calls);
	free(d->first);
	free(d->node_frames);
	free(d->parents);
	free(d->shown);
}

/* Entries of a column take a byte at least, so that nothing is allocated for what cannot be there.
 */
static uint32_t most_of(const struct decode *d, enum settled_column column)
{
	return (uint32_t)bytes_left(&d->columns[column]);
}

/* Integers of a column: a level of more than 127 takes two bytes. */
static uint32_t varints_of(const struct decode *d, enum settled_column column)
{
	uint32_t count = 0;

	for (const uint8_t *at = d->columns[column].at; at < d->columns[column].end; at++)
		count += *at < 0x80;
	return count;
}

static uint64_t take(struct decode *d, enum settled_column column)
{
	return bytes_varint(&d->columns[column]);
}

static uint64_t take_step(struct decode *d, enum settled_column column)
{
	return (uint64_t)bytes_svarint(&d->columns[column]);
}

static bool is_spent(const struct decode *d, enum settled_column first, enum settled_column last)
{
	for (enum settled_column i = first; i <= last; i++)
		if (d->columns[i].failed || bytes_left(&d->columns[i]))
			return false;
	return true;
}

/* ---- texts and processes --------------------------------------------------------------------- */

static int decode_texts(struct decode *d)
{
	struct bytes *in = &d->columns[COLUMN_TEXTS];

	d->texts = calloc(most_of(d, COLUMN_TEXTS) + 1u, sizeof(*d->texts));
	if (!d->texts)
		return -ENOMEM;
	while (bytes_left(in)) {
		uint64_t len = bytes_varint(in);
		const char *text = bytes_take(in, len);

		d->texts[d->text_count++] = (struct chunk_text){ text ? text : "", text ? (size_t)len : 0 };
	}
	return in->failed ? -EPROTO : 0;
}

static struct chunk_text take_text(struct decode *d, enum settled_column column)
{
	uint64_t at = take(d, column);

	if (at < d->text_count)
		return d->texts[at];
	d->columns[column].failed = true;
	return (struct chunk_text){ "", 0 };
}

static int decode_process(struct decode *d, uint32_t i, struct chunk_process *p)
{
	static const struct chunk_text none = { "", 0 };
	uint64_t since_boot_ns = p->started_at_ns - p->start_boottime_ns;
	struct owner *owner = &d->owners[i];
	int rc;

	p->id += (uint32_t)take_step(d, COLUMN_PROCESS_IDS);
	p->tgid += (uint32_t)take_step(d, COLUMN_PROCESS_TGIDS);
	p->exec_generation = (uint32_t)take(d, COLUMN_PROCESS_EXECS);
	p->start_boottime_ns += take_step(d, COLUMN_PROCESS_STARTS) * NS_PER_MS;
	p->started_at_ns = p->start_boottime_ns + since_boot_ns +
			   take_step(d, COLUMN_PROCESS_CLOCKS) * NS_PER_MS;
	p->comm = take_text(d, COLUMN_PROCESS_COMMS);
	p->exe = take_text(d, COLUMN_PROCESS_EXES);
	p->service = take_text(d, COLUMN_PROCESS_SERVICES);
	p->cmdline = p->unit = p->container = none;
	owner->tgid = p->tgid;
	memcpy(owner->comm, p->comm.text,
	       p->comm.len < sizeof(owner->comm) ? p->comm.len : sizeof(owner->comm));
	rc = d->sink->attr ? u64map_put(&d->owner_at, p->id, i) : 0;
	return rc == 0 && d->sink->process ? d->sink->process(d->sink->ctx, p) : rc;
}

static int decode_processes(struct decode *d)
{
	struct chunk_process p = { 0 };
	int rc = 0;

	d->owners = calloc(most_of(d, COLUMN_PROCESS_IDS) + 1u, sizeof(*d->owners));
	if (!d->owners)
		return -ENOMEM;
	for (uint32_t i = 0; rc == 0 && bytes_left(&d->columns[COLUMN_PROCESS_IDS]); i++)
		rc = decode_process(d, i, &p);
	return rc < 0 ? rc : is_spent(d, COLUMN_PROCESS_IDS, COLUMN_PROCESS_SERVICES) ? 0 : -EPROTO;
}

/* ---- the tree -------------------------------------------------------------------------------- */

static int decode_frames(struct decode *d)
{
	uint64_t head = 0, low = 0;

	d->frames = calloc(most_of(d, COLUMN_FRAME_HEADS) + 1u, sizeof(*d->frames));
	if (!d->frames)
		return -ENOMEM;
	while (bytes_left(&d->columns[COLUMN_FRAME_HEADS])) {
		uint64_t step = take(d, COLUMN_FRAME_HEADS);

		head += step;
		low = take(d, COLUMN_FRAME_LOWS) + (step ? 0 : low);
		d->frames[d->frame_count++] = head << SETTLED_LOW_BITS | (low & ((1ull << SETTLED_LOW_BITS) - 1));
	}
	return is_spent(d, COLUMN_FRAME_HEADS, COLUMN_FRAME_LOWS) ? 0 : -EPROTO;
}

/* Decodes the calls of one frame, or of the root. */
static int decode_calls_of(struct decode *d, uint32_t above, uint32_t *at)
{
	uint64_t count = take(d, COLUMN_CALL_COUNTS), below = above;

	d->first[above] = *at;
	for (uint64_t i = 0; i < count; i++) {
		below += i ? take(d, COLUMN_CALL_FRAMES) + 1 : take_step(d, COLUMN_CALL_FRAMES);
		if (d->columns[COLUMN_CALL_FRAMES].failed || below >= d->frame_count)
			return -EPROTO;
		d->calls[(*at)++] = (uint32_t)below;
	}
	return 0;
}

static int decode_calls(struct decode *d)
{
	uint32_t at = 0;
	int rc = 0;

	d->calls = calloc(most_of(d, COLUMN_CALL_FRAMES) + 1u, sizeof(*d->calls));
	d->first = calloc(d->frame_count + 2u, sizeof(*d->first));
	if (!d->calls || !d->first)
		return -ENOMEM;
	for (uint32_t above = 0; rc == 0 && above <= d->frame_count; above++)
		rc = decode_calls_of(d, above, &at);
	d->first[d->frame_count + 1] = at;
	return rc < 0 ? rc : is_spent(d, COLUMN_CALL_COUNTS, COLUMN_CALL_FRAMES) ? 0 : -EPROTO;
}

/* The walk: @way holds the nodes above, so that going up finds the parent. */
static int decode_walk(struct decode *d)
{
	struct {
		uint32_t node, calls, count, next; /* the frames below it: first of d->calls, how
						      many, place of the next */
	} way[FEED_FRAMES_MAX + 1], *above = way;
	struct bytes ups = d->columns[COLUMN_NODE_UPS], firsts = d->columns[COLUMN_NODE_FIRSTS],
		     nexts = d->columns[COLUMN_NODE_NEXTS];
	const uint32_t *first = d->first, *calls = d->calls;

	*above = (__typeof__(*above)){ 0, first[d->frame_count],
				       first[d->frame_count + 1] - first[d->frame_count], 0 };
	for (uint32_t i = 1; i < d->node_count; i++) {
		uint64_t up = bytes_varint(&ups), place;
		uint32_t frame;

		if (up > (uint64_t)(above - way) || above - up == way + FEED_FRAMES_MAX)
			return -EPROTO;
		above -= up;
		place = above->next;
		if (above->count > 1)
			place += place ? bytes_varint(&nexts) : bytes_varint(&firsts);
		if (place >= above->count)
			return -EPROTO;
		above->next = (uint32_t)place + 1;
		frame = calls[above->calls + place];
		d->parents[i] = above->node;
		d->node_frames[i] = frame;
		*++above = (__typeof__(*above)){ i, first[frame], first[frame + 1] - first[frame], 0 };
	}
	d->columns[COLUMN_NODE_UPS] = ups;
	d->columns[COLUMN_NODE_FIRSTS] = firsts;
	d->columns[COLUMN_NODE_NEXTS] = nexts;
	return is_spent(d, COLUMN_NODE_UPS, COLUMN_NODE_NEXTS) ? 0 : -EPROTO;
}

static int decode_nodes(struct decode *d)
{
	uint32_t count = varints_of(d, COLUMN_NODE_UPS) + 1;

	d->parents = calloc(count, sizeof(*d->parents));
	d->node_frames = calloc(count, sizeof(*d->node_frames));
	d->shown = d->sink->tree ? NULL : calloc(count, sizeof(*d->shown));
	if (!d->parents || !d->node_frames || (!d->shown && !d->sink->tree))
		return -ENOMEM;
	d->node_count = count;
	return decode_walk(d);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* By number; for trees in the order of user stacks, with their numbers and without outcomes. */
struct pairs {
	uint32_t first, count;
	uint32_t *numbers;	 /* NULL: they are by number */
	uint32_t *user, *kernel; /* codes */
	uint8_t *user_outcomes, *kernel_outcomes;
};

static void pairs_deinit(struct pairs *pairs)
{
	free(pairs->numbers);
	free(pairs->user);
	free(pairs->kernel);
	free(pairs->user_outcomes);
	free(pairs->kernel_outcomes);
}

static uint64_t stack_id(const struct pairs *pairs, uint32_t code, uint8_t outcome)
{
	return code ? (uint64_t)(pairs->first + 1) << ID_PAIR | (uint64_t)outcome << ID_OUTCOME | code
		    : 0;
}

static int show_stack(struct decode *d, const struct pairs *pairs, uint32_t code, uint8_t outcome)
{
	uint64_t frames[FEED_FRAMES_MAX];
	struct chunk_stack stack = { .id = stack_id(pairs, code, outcome),
				     .outcome = outcome,
				     .frames = frames };
	uint32_t node = code - CHUNK_CODE_NODE;

	if (code < CHUNK_CODE_NODE || d->shown[node] == (uint8_t)(outcome + 1) ||
	    (d->sink->wants_stack && !d->sink->wants_stack(d->sink->ctx, stack.id)))
		return 0;
	d->shown[node] = (uint8_t)(outcome + 1);
	for (; node; node = d->parents[node])
		frames[stack.frame_count++] = d->frames[d->node_frames[node]];
	return d->sink->stack(d->sink->ctx, &stack);
}

struct runs { /* of pairs whose user stacks ascend */
	uint32_t *next, *end; /* numbers of pairs, by run */
	uint32_t count;
};

static void runs_deinit(struct runs *runs)
{
	free(runs->next);
	free(runs->end);
}

/* The numbers of the pairs of each user stack: the next of the run that each belongs to. */
static int take_runs(struct decode *d, uint32_t pairs, struct runs *ret)
{
	uint32_t most = most_of(d, COLUMN_RUN_LENGTHS);
	uint64_t next = 0;

	ret->next = malloc((most + 1u) * sizeof(*ret->next));
	ret->end = malloc((most + 1u) * sizeof(*ret->end));
	if (!ret->next || !ret->end)
		return -ENOMEM;
	for (; bytes_left(&d->columns[COLUMN_RUN_LENGTHS]); ret->count++) {
		ret->next[ret->count] = (uint32_t)next;
		next += take(d, COLUMN_RUN_LENGTHS);
		if (next > pairs)
			return -EPROTO;
		ret->end[ret->count] = (uint32_t)next;
	}
	return next == pairs && is_spent(d, COLUMN_RUN_LENGTHS, COLUMN_RUN_LENGTHS) ? 0 : -EPROTO;
}

/* true: the next node of the walk is not below this one. */
static bool is_leaf(const struct decode *d, uint32_t code)
{
	uint32_t node = code - CHUNK_CODE_NODE;

	return code >= CHUNK_CODE_NODE && (node + 1 == d->node_count || d->parents[node + 1] != node);
}

static uint32_t take_run(struct decode *d, uint32_t runs)
{
	uint32_t run = 0;

	for (unsigned byte = 0; byte < 4 && (uint64_t)runs > 1ull << (8 * byte); byte++)
		run |= (uint32_t)bytes_u8(&d->columns[COLUMN_RUNS + byte]) << (8 * byte);
	return run;
}

static void take_outcomes(struct decode *d, struct pairs *pairs, uint32_t pair)
{
	pairs->user_outcomes[pair] = bytes_u8(&d->columns[COLUMN_USER_OUTCOMES]);
	pairs->kernel_outcomes[pair] = bytes_u8(&d->columns[COLUMN_KERNEL_OUTCOMES]);
}

/* In the order of user stacks; a run's length says how many pairs it can give. */
static int fill_pairs(struct decode *d, struct pairs *pairs)
{
	__attribute__((__cleanup__(runs_deinit))) struct runs runs = { 0 };
	const uint32_t codes = d->node_count + CHUNK_CODE_NODE;
	struct bytes leaves = d->columns[COLUMN_LEAF_PAIRS], inner = d->columns[COLUMN_INNER_PAIRS],
		     kernels = d->columns[COLUMN_KERNELS];
	uint32_t at = 0;
	int rc = take_runs(d, pairs->count, &runs);

	for (uint32_t code = 0; rc == 0 && code < codes; code++) {
		uint64_t count = bytes_varint(is_leaf(d, code) ? &leaves : &inner);

		for (; count; count--, at++) {
			uint32_t run = take_run(d, runs.count), pair, to;
			uint64_t kernel = bytes_varint(&kernels);

			if (run >= runs.count || runs.next[run] == runs.end[run] || kernel >= codes)
				return -EPROTO;
			pair = runs.next[run]++;
			to = pairs->numbers ? at : pair;
			pairs->user[to] = code;
			pairs->kernel[to] = (uint32_t)kernel;
			if (pairs->numbers)
				pairs->numbers[to] = pair;
			else
				take_outcomes(d, pairs, pair);
		}
	}
	d->columns[COLUMN_LEAF_PAIRS] = leaves;
	d->columns[COLUMN_INNER_PAIRS] = inner;
	d->columns[COLUMN_KERNELS] = kernels;
	if (rc < 0)
		return rc;
	return at == pairs->count &&
			       is_spent(d, COLUMN_LEAF_PAIRS, pairs->numbers ? COLUMN_KERNELS : COLUMN_KERNEL_OUTCOMES)
		       ? 0
		       : -EPROTO;
}

static int take_pairs(struct decode *d, struct pairs *pairs)
{
	if (d->pair_count > most_of(d, COLUMN_KERNELS) || d->first_pair > UINT32_MAX - 1 - d->pair_count)
		return -EPROTO;
	pairs->first = (uint32_t)d->first_pair;
	pairs->count = (uint32_t)d->pair_count;
	pairs->user = malloc((pairs->count + 1u) * sizeof(*pairs->user));
	pairs->kernel = malloc((pairs->count + 1u) * sizeof(*pairs->kernel));
	if (!pairs->user || !pairs->kernel)
		return -ENOMEM;
	if (d->sink->tree) {
		pairs->numbers = malloc((pairs->count + 1u) * sizeof(*pairs->numbers));
		return pairs->numbers ? fill_pairs(d, pairs) : -ENOMEM;
	}
	pairs->user_outcomes = malloc(pairs->count + 1u);
	pairs->kernel_outcomes = malloc(pairs->count + 1u);
	return pairs->user_outcomes && pairs->kernel_outcomes ? fill_pairs(d, pairs) : -ENOMEM;
}

static int decode_pairs(struct decode *d)
{
	__attribute__((__cleanup__(pairs_deinit))) struct pairs pairs = { 0 };
	const struct chunk_sink *sink = d->sink;
	int rc = take_pairs(d, &pairs);

	if (rc == 0 && sink->tree)
		return sink->tree(sink->ctx, &(struct chunk_tree){
						     { d->frames, d->node_frames, d->parents, d->frame_count, d->node_count },
						     pairs.first, pairs.count, pairs.numbers, pairs.user, pairs.kernel });
	for (uint32_t i = 0; rc == 0 && sink->pair && i < pairs.count; i++) {
		const struct chunk_pair pair = {
			.user = stack_id(&pairs, pairs.user[i], pairs.user_outcomes[i]),
			.kernel = stack_id(&pairs, pairs.kernel[i], pairs.kernel_outcomes[i]),
		};

		rc = sink->pair(sink->ctx, pairs.first + i, &pair);
	}
	for (uint32_t i = 0; rc == 0 && sink->stack && i < pairs.count; i++) {
		rc = show_stack(d, &pairs, pairs.user[i], pairs.user_outcomes[i]);
		if (rc == 0)
			rc = show_stack(d, &pairs, pairs.kernel[i], pairs.kernel_outcomes[i]);
	}
	return rc;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static int take_comm(struct decode *d, const struct owner *owner, struct chunk_attr *attr)
{
	uint64_t code = take(d, COLUMN_ATTR_COMMS);

	if (code > d->text_count || (code && d->texts[code - 1].len > sizeof(attr->comm)))
		return -EPROTO;
	if (code)
		memcpy(attr->comm, d->texts[code - 1].text, d->texts[code - 1].len);
	else
		memcpy(attr->comm, owner->comm, sizeof(attr->comm));
	return 0;
}

static const struct owner *owner_of(const struct decode *d, uint32_t process)
{
	static const struct owner nobody;
	uint64_t at;

	return u64map_get(&d->owner_at, process, &at) ? &d->owners[at] : &nobody;
}

static int decode_attrs(struct decode *d)
{
	uint32_t process = 0;
	int rc = d->first_attr > UINT32_MAX || d->attr_count > UINT32_MAX - d->first_attr ? -EPROTO : 0;

	for (uint32_t i = 0; rc == 0 && i < d->attr_count; i++) {
		struct chunk_attr attr = { 0 };
		const struct owner *owner;

		attr.process = process += (uint32_t)take_step(d, COLUMN_ATTR_PROCESSES);
		owner = owner_of(d, process);
		attr.tid = owner->tgid + (uint32_t)take_step(d, COLUMN_ATTR_TIDS);
		attr.type = bytes_u8(&d->columns[COLUMN_ATTR_TYPES]);
		attr.state = bytes_u8(&d->columns[COLUMN_ATTR_STATES]);
		attr.detail = bytes_u8(&d->columns[COLUMN_ATTR_DETAILS]);
		rc = take_comm(d, owner, &attr);
		attr.object = take(d, COLUMN_ATTR_OBJECTS);
		attr.holder = (uint32_t)take(d, COLUMN_ATTR_HOLDERS);
		if (rc == 0 && d->columns[COLUMN_ATTR_HOLDERS].failed)
			rc = -EPROTO;
		if (rc == 0)
			rc = d->sink->attr(d->sink->ctx, (uint32_t)d->first_attr + i, &attr);
	}
	return rc < 0 ? rc : is_spent(d, COLUMN_ATTR_PROCESSES, COLUMN_ATTR_HOLDERS) ? 0 : -EPROTO;
}

int settled_decode(struct bytes *in, const struct chunk_sink *sink)
{
	__attribute__((__cleanup__(decode_deinit))) struct decode d = { .sink = sink };
	int rc;

	d.first_pair = bytes_varint(in);
	d.pair_count = bytes_varint(in);
	d.first_attr = bytes_varint(in);
	d.attr_count = bytes_varint(in);
	rc = chunk_decode_columns(in, d.columns, SETTLED_COLUMNS, SETTLED_COLUMNS);

	if (rc == 0 && sink->module)
		rc = chunk_decode_modules(&d.columns[COLUMN_MODULES], sink);
	/* Processes and threads are skipped for a sink that takes stacks only. */
	if (rc == 0 && (sink->process || sink->attr))
		rc = decode_texts(&d);
	if (rc == 0 && (sink->process || sink->attr))
		rc = decode_processes(&d);
	if (rc == 0)
		rc = decode_frames(&d);
	if (rc == 0)
		rc = decode_calls(&d);
	if (rc == 0)
		rc = decode_nodes(&d);
	if (rc == 0)
		rc = decode_pairs(&d);
	return rc == 0 && sink->attr ? decode_attrs(&d) : rc;
}
