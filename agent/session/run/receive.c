// SPDX-License-Identifier: Apache-2.0
/* Received profiles (receive.h) become chunks of a finished session. A received profile is stored
 * as a reading: values by stack and labels, without times of single samples. Its modules have
 * random keys, so that the names a stranger sends are names of that session alone. */
#include "agent/base/text.h"
#include "agent/session/receive.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "agent/base/hash.h"
#include "agent/base/parse.h"
#include "agent/base/ulid.h"
#include "agent/profile/quality.h"
#include "agent/recording/reading.h"
#include "agent/session/core/sessions.h"
#include "agent/session/records/session_record.h"
#include "agent/session/run/run.h"
#include "agent/session/snapshot/reading_groups.h"

#define AHEAD_MAX_NS	(600 * NS_PER_S) /* by which a sender's clock may be fast */
#define NS_PER_DAY	(86400 * NS_PER_S)
#define NAMES_PER_CHUNK 8192u
#define CHUNKS_MAX	512u
#define ROUND		1u
#define OWN_OFFSET	(1ull << 39) /* above the offsets of files: number of a place */

VEC_DEFINE(bufs, struct buf);

struct receive {
	const struct received *from;
	struct reading reading;
	struct u64map text_at, stack_at, labels_at; /* hash -> number in the reading */
	struct u64map offset_at; /* frame word -> place + 1 */
	uint64_t *words;	 /* place -> frame word, 0 = not used */
	uint64_t key;		 /* of the first module; the others follow */
	struct bufs_vec names;
	int64_t count, value;
	double frames, unnamed, cut; /* weighted by the samples' first value */
};

static void receive_deinit(struct receive *r)
{
	reading_clear(&r->reading);
	u64map_deinit(&r->text_at);
	u64map_deinit(&r->stack_at);
	u64map_deinit(&r->labels_at);
	u64map_deinit(&r->offset_at);
	free(r->words);
	for (size_t i = 0; i < r->names.count; i++)
		buf_deinit(&r->names.data[i]);
	bufs_vec_deinit(&r->names);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static int check_name(const char *service, struct err *err)
{
	struct selector selector;

	for (const char *c = service; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return err_set(err, EINVAL, "InvalidParam", "service",
				       "the service's name has a control character");
	if (selector_parse(service, NULL, &selector) < 0 || selector.kind != SELECTOR_SERVICE)
		return err_set(err, EINVAL, "InvalidParam", "service",
			       "'%.64s' cannot name a service: expected 1 to 255 bytes of UTF-8 that "
			       "mean no process, unit, container, port or host",
			       service);
	return 0;
}

static int check_time(const struct sessions *s, const struct received *from, struct err *err)
{
	const uint64_t now_ns = clock_realtime_ns();
	const uint64_t kept_ns = s->options.retention_days * NS_PER_DAY;

	if (from->start_ns > now_ns + AHEAD_MAX_NS)
		return err_set(err, EINVAL, "InvalidParam", "from",
			       "the profile begins in the future: is the sender's clock right?");
	if (now_ns > kept_ns && from->start_ns < now_ns - kept_ns)
		return err_set(err, EINVAL, "InvalidParam", "from",
			       "the profile begins before the %u days that sessions are kept",
			       s->options.retention_days);
	if (from->duration_ns > RECEIVED_DURATION_MAX_S * NS_PER_S)
		return err_set(err, EINVAL, "InvalidParam", "until",
			       "the profile covers more than 24 h");
	if (!from->duration_ns && profile_type_info(from->type)->rate)
		return err_set(err, EINVAL, "InvalidParam", "until",
			       "%s: the time that the profile covers is missing",
			       profile_type_info(from->type)->word);
	return 0;
}

/* ---- places ---------------------------------------------------------------------------------- */

static int add_module(struct receive *r, uint8_t kind, const char *path, const uint8_t *build_id,
		      uint8_t build_id_len)
{
	struct reading_module module = { .kind = kind, .build_id_len = build_id_len };
	int rc;

	module.id = (uint32_t)r->reading.modules.count + 1;
	module.key = hash_combine(r->key, module.id);
	if (build_id_len)
		memcpy(module.build_id, build_id, build_id_len);
	module.path = strdup(path);
	rc = module.path ? reading_modules_vec_push(&r->reading.modules, module) : -ENOMEM;
	if (rc < 0)
		free(module.path);
	return rc;
}

/* Module 1 has the places without a file, module 2 the kernel's, the others are the mappings. */
static int add_modules(struct receive *r)
{
	const struct received_tables *tables = r->from->tables;
	int rc = add_module(r, FEED_MODULE_ELF, "", NULL, 0);

	if (rc == 0)
		rc = add_module(r, FEED_MODULE_KERNEL, "kernel", NULL, 0);
	for (size_t i = 0; rc == 0 && i < tables->mappings.count; i++) {
		const struct received_mapping *mapping = &tables->mappings.data[i];

		rc = add_module(r, FEED_MODULE_ELF, mapping->path, mapping->build_id,
				mapping->build_id_len);
	}
	return rc;
}

/* The word of a place. Its offset is its address where no other place has that address; places of
 * code without an address, and functions that share one, have a number instead. */
static int place_word(struct receive *r, uint32_t at, uint64_t *ret)
{
	const struct received_place *place = &r->from->tables->places.data[at];
	const uint32_t module = place->kind == PROFILE_FRAME_KERNEL ? 2
				: place->mapping		    ? place->mapping + 2
								    : 1;
	uint64_t word, other;
	int rc;

	if (r->words[at]) {
		*ret = r->words[at];
		return 0;
	}
	word = prof_frame_module(module, place->address, 0);
	if (!place->address || place->address >= OWN_OFFSET ||
	    (u64map_get(&r->offset_at, word, &other) && place->line_count))
		word = prof_frame_module(module, OWN_OFFSET + at, 0);
	rc = u64map_put(&r->offset_at, word, at + 1);
	if (rc == 0)
		*ret = r->words[at] = word;
	return rc;
}

/* ---- samples --------------------------------------------------------------------------------- */

static int add_text(struct receive *r, const char *text, uint32_t *ret)
{
	const size_t len = strlen(text);
	const uint64_t hash = hash_bytes(text, len, 0);
	uint64_t known;
	int rc;

	if (!len)
		known = 0;
	else if (!u64map_get(&r->text_at, hash, &known)) {
		rc = reading_texts_vec_push(&r->reading.texts,
					    (struct reading_text){ r->reading.text.len, (uint32_t)len });
		if (rc < 0)
			return rc;
		buf_add(&r->reading.text, text, len);
		known = r->reading.texts.count;
		rc = u64map_put(&r->text_at, hash, known);
		if (rc < 0)
			return rc;
	}
	*ret = (uint32_t)known;
	return r->reading.text.error;
}

static int add_stack(struct receive *r, const struct received_sample *sample, uint32_t *ret)
{
	const uint32_t *frames = r->from->tables->frames.data + sample->first_frame;
	const uint64_t hash = hash_bytes(frames, sample->frame_count * sizeof(*frames), sample->is_cut);
	struct reading_stack stack = { .first = r->reading.frames.count };
	uint64_t known, word;
	int rc = 0;

	*ret = 0;
	if (!sample->frame_count)
		return 0;
	if (u64map_get(&r->stack_at, hash, &known)) {
		*ret = (uint32_t)known;
		return 0;
	}
	for (uint32_t i = 0; rc == 0 && i < sample->frame_count; i++) {
		rc = place_word(r, frames[i], &word);
		if (rc == 0)
			rc = reading_frames_vec_push(&r->reading.frames, word);
	}
	if (rc == 0 && sample->is_cut)
		rc = reading_frames_vec_push(&r->reading.frames,
					     (uint64_t)PROF_FRAME_TRUNCATED << PROF_FRAME_KIND_SHIFT);
	stack.count = (uint16_t)(r->reading.frames.count - stack.first);
	if (rc == 0)
		rc = reading_stacks_vec_push(&r->reading.stacks, stack);
	*ret = (uint32_t)r->reading.stacks.count;
	return rc < 0 ? rc : u64map_put(&r->stack_at, hash, *ret);
}

static int add_labels(struct receive *r, const struct received_sample *sample, uint32_t *ret)
{
	const struct received_label *labels = r->from->tables->labels.data + sample->first_label;
	struct reading_pair pairs[RECEIVED_LABELS_MAX];
	struct reading_labels set = { .count = sample->label_count };
	uint64_t hash = 0, known;
	int rc = 0;

	*ret = 0;
	if (!sample->label_count)
		return 0;
	for (uint32_t i = 0; rc == 0 && i < sample->label_count; i++) {
		rc = add_text(r, labels[i].name, &pairs[i].name);
		if (rc == 0)
			rc = add_text(r, labels[i].value, &pairs[i].value);
		if (rc == 0)
			hash = hash_combine(hash, (uint64_t)pairs[i].name << 32 | pairs[i].value);
	}
	if (rc == 0 && u64map_get(&r->labels_at, hash, &known)) {
		*ret = (uint32_t)known;
		return 0;
	}
	set.first = r->reading.label_pairs.count;
	for (uint32_t i = 0; rc == 0 && i < sample->label_count; i++)
		rc = reading_pairs_vec_push(&r->reading.label_pairs, pairs[i]);
	if (rc == 0)
		rc = reading_label_sets_vec_push(&r->reading.label_sets, set);
	*ret = (uint32_t)r->reading.label_sets.count;
	return rc < 0 ? rc : u64map_put(&r->labels_at, hash, *ret);
}

static void add_quality(struct receive *r, const struct received_sample *sample)
{
	const struct received_tables *tables = r->from->tables;
	const double weight = (double)sample->values[0];

	for (uint32_t i = 0; i < sample->frame_count; i++) {
		const struct received_place *place =
			&tables->places.data[tables->frames.data[sample->first_frame + i]];

		r->frames += weight * (place->line_count ? place->line_count : 1);
		r->unnamed += place->line_count ? 0 : weight;
	}
	r->cut += sample->is_cut ? weight : 0;
}

static int add_sample(struct receive *r, const struct received_sample *sample)
{
	const unsigned main_value = profile_type_info(r->from->type)->value_index;
	struct reading_item item = { .tid = sample->tid,
				     .values = { sample->values[0], sample->values[1] } };
	int rc = add_stack(r, sample, &item.stack);

	if (rc == 0)
		rc = add_labels(r, sample, &item.labels);
	if (rc == 0)
		rc = add_text(r, sample->thread, &item.name);
	if (rc == 0 && (__builtin_add_overflow(r->count, sample->values[0], &r->count) ||
			__builtin_add_overflow(r->value, sample->values[main_value], &r->value)))
		rc = -EOVERFLOW;
	add_quality(r, sample);
	return rc < 0 ? rc : reading_items_vec_push(&r->reading.items, item);
}

/* ---- names ----------------------------------------------------------------------------------- */

static int add_name(struct receive *r, struct name_chunk *names, uint32_t at)
{
	const struct received_tables *tables = r->from->tables;
	const struct received_place *place = &tables->places.data[at];
	const uint64_t word = r->words[at];
	struct name_frame frames[RECEIVED_INLINE_MAX];
	struct chunk_name name = { .offset = prof_frame_offset(word),
				   .frame_count = place->line_count,
				   .frames = frames };

	name.key = r->reading.modules.data[prof_frame_module_id(word) - 1].key;
	for (uint32_t i = 0; i < place->line_count; i++) {
		const struct received_line *line = &tables->lines.data[place->first_line + i];

		frames[i] = (struct name_frame){ .function = line->function,
						 .package = "",
						 .file = line->file,
						 .line = line->line,
						 .start_line = line->start_line,
						 .kind = place->kind,
						 .symbol = line->symbol };
	}
	return name_chunk_add(names, &name);
}

static int end_names(struct receive *r, const struct name_chunk *names)
{
	struct buf out = { .max = STORE_CHUNK_MAX };
	int rc;

	name_chunk_encode(names, &out);
	rc = out.error ? -E2BIG : bufs_vec_push(&r->names, out);
	if (rc < 0)
		buf_deinit(&out);
	return rc;
}

static int encode_names(struct receive *r)
{
	const size_t count = r->from->tables->places.count;
	uint32_t at = 0;
	int rc = 0;

	while (rc == 0 && at < count) {
		cleanup(name_chunk) struct name_chunk *names = name_chunk_create();

		rc = names ? 0 : -ENOMEM;
		for (; rc == 0 && at < count && name_chunk_count(names) < NAMES_PER_CHUNK; at++)
			if (r->words[at] && r->from->tables->places.data[at].line_count)
				rc = add_name(r, names, at);
		if (rc == 0 && name_chunk_count(names))
			rc = end_names(r, names);
	}
	return rc;
}

/* ---- the session ----------------------------------------------------------------------------- */

static int copy_labels(struct session_info *info, const struct received *from)
{
	struct session_label *own;

	info->labels = calloc(from->session_label_count + 1, sizeof(*info->labels));
	if (!info->labels)
		return -ENOMEM;
	memcpy(info->labels, from->session_labels,
	       from->session_label_count * sizeof(*info->labels));
	own = &info->labels[from->session_label_count];
	(void)snprintf(own->name, sizeof(own->name), "%s", RECEIVED_LABEL);
	(void)snprintf(own->value, sizeof(own->value), "%s", from->format);
	info->label_count = from->session_label_count + 1;
	return 0;
}

static bool is_of_unlockers(const struct received *from)
{
	const struct received_tables *tables = from->tables;

	for (size_t i = 0; from->type == PROFILE_MUTEX && i < from->samples.count; i++) {
		const struct received_sample *sample = &from->samples.data[i];

		if (sample->frame_count &&
		    tables->places.data[tables->frames.data[sample->first_frame]].kind ==
			    PROFILE_FRAME_GO)
			return true;
	}
	return false;
}

static void describe(const struct sessions *s, const char *tenant, const struct receive *r,
		     struct session_info *info)
{
	const struct received *from = r->from;

	info->type = from->type;
	info->status = SESSION_COMPLETED;
	info->created_at_ns = info->started_at_ns = from->start_ns;
	info->completed_at_ns = from->start_ns + from->duration_ns;
	info->duration_ns = from->duration_ns;
	info->requested_duration_s = (uint32_t)((from->duration_ns + NS_PER_S / 2) / NS_PER_S);
	info->rate_hz = from->period_ns ? (uint32_t)(NS_PER_S / from->period_ns) : 0;
	info->retention_days = s->options.retention_days;
	info->sample_count = (uint64_t)r->count;
	info->total_value = r->value;
	info->quality = quality_empty();
	info->quality.samples = r->count;
	info->quality.guessed_frame_pct = 0;
	info->quality.unknown_frame_pct = r->frames > 0 ? 100 * r->unnamed / r->frames : 0;
	info->quality.truncated_pct = r->count > 0 ? 100 * r->cut / (double)r->count : 0;
	for (uint32_t i = 0; i < from->note_count; i++)
		quality_note(&info->quality, "%s", from->notes[i]);
	if (is_of_unlockers(from)) {
		info->source = PROFILE_SOURCE_UNLOCKERS;
		quality_note(&info->quality,
			     "stackRole: unlocker - Go's mutex profile holds the stack that unlocked, "
			     "not the ones that waited");
	}
	(void)snprintf(info->tenant, sizeof(info->tenant), "%s", tenant);
	(void)snprintf(info->service, sizeof(info->service), "%s", from->service);
	(void)snprintf(info->selector, sizeof(info->selector), "service:%s", from->service);
	(void)snprintf(info->host, sizeof(info->host), "%s", s->host.name);
}

static int add_process(const struct received *from, int64_t value, struct session_info *info)
{
	if (!from->pid)
		return 0;
	info->processes = calloc(1, sizeof(*info->processes));
	if (!info->processes)
		return -ENOMEM;
	info->process_count = 1;
	info->processes[0].pid = from->pid;
	info->processes[0].value = value;
	(void)snprintf(info->processes[0].exe, sizeof(info->processes[0].exe), "%s", from->exe);
	return 0;
}

static void encode_process(const struct received *from, struct buf *out)
{
	const char *comm = from->exe[0] ? text_file_name(from->exe) : from->service;

	buf_add_varint(out, 1);
	chunk_encode_process(out, &(struct chunk_process){ .tgid = from->pid,
							   .comm = chunk_text_of(comm),
							   .exe = chunk_text_of(from->exe),
							   .cmdline = chunk_text_of(""),
							   .service = chunk_text_of(from->service),
							   .unit = chunk_text_of(""),
							   .container = chunk_text_of("") });
}

/* ---- storing --------------------------------------------------------------------------------- */

static int store_chunks(struct sessions *s, const char *id, const struct receive *r,
			struct recorder_group *groups, struct err *err)
{
	struct store_chunk chunks[CHUNKS_MAX];
	size_t count = 0;
	uint32_t seq = 0;

	for (struct recorder_group *group = groups; group; group = group->next)
		for (unsigned i = 0; i < group->chunk_count; i++) {
			if (count + r->names.count >= CHUNKS_MAX)
				return -E2BIG;
			if (group->kinds[i] == STORE_CHUNK_READINGS)
				reading_chunk_place(&group->data[i], seq++, 0, !group->next);
			chunks[count++] = (struct store_chunk){ group->kinds[i], group->data[i].data,
								group->data[i].len };
		}
	for (size_t i = 0; i < r->names.count; i++)
		chunks[count++] = (struct store_chunk){ STORE_CHUNK_NAMES, r->names.data[i].data,
							r->names.data[i].len };
	return store_session_append(s->store, id, chunks, count, 0, 0, err);
}

static int encode(struct receive *r, struct recorder_group **ret)
{
	const struct reading_encoding encoding = { .phase = READING_END,
						   .round = ROUND,
						   .stack_base = reading_stack_base(ROUND, 0) };
	const struct received *from = r->from;
	int rc = getrandom(&r->key, sizeof(r->key), 0) < 0 ? -errno : 0;

	r->reading.type = from->type;
	r->words = calloc(from->tables->places.count + 1, sizeof(*r->words));
	if (rc == 0)
		rc = r->words ? add_modules(r) : -ENOMEM;
	for (size_t i = 0; rc == 0 && i < from->samples.count; i++)
		rc = add_sample(r, &from->samples.data[i]);
	if (rc == 0)
		rc = encode_names(r);
	if (rc == 0)
		rc = reading_groups_encode(&r->reading, &encoding, true, ret);
	if (rc == 0)
		encode_process(from, &(*ret)->data[0]);
	return rc;
}

static int explain(int rc, struct err *err)
{
	if (rc == -E2BIG || rc == -EOVERFLOW)
		return err_set(err, E2BIG, "LimitReached", NULL, "the profile is too large to be stored");
	if (rc == -ENOMEM && !err->code)
		return err_set(err, ENOMEM, "AgentBusy", NULL, "no memory for the profile");
	return rc;
}

/* Data without a record is what a crash left of an earlier try. */
static int store_session(struct sessions *s, const struct receive *r,
			 struct recorder_group *groups, struct session_info *info, struct err *err)
{
	uint64_t identity, position;
	int rc = store_session_position(s->store, info->id, &identity, &position, err);

	if (rc != -ENOENT)
		rc = rc < 0 ? rc : store_session_remove(s->store, info->id, err);
	else
		*err = (struct err){ 0 };
	if (rc == 0 || rc == -ENOENT)
		rc = store_chunks(s, info->id, r, groups, err);
	if (rc == 0 && !store_is_shared(s->store))
		info->raw_data_bytes = store_session_bytes(s->store, info->id);
	return rc < 0 ? rc : session_record_put(s->store, info, NULL, err);
}

static int receive(struct sessions *s, const char *tenant, const struct received *from,
		   const char *id, struct err *err)
{
	struct receive r = { .from = from };
	struct recorder_group *groups = NULL;
	struct session_info info = { 0 };
	int rc = encode(&r, &groups);

	if (rc == 0)
		rc = copy_labels(&info, from);
	if (rc == 0)
		rc = add_process(from, r.value, &info);
	if (rc == 0) {
		describe(s, tenant, &r, &info);
		(void)snprintf(info.id, sizeof(info.id), "%s", id);
		rc = store_session(s, &r, groups, &info, err);
	}
	session_info_deinit(&info);
	recorder_groups_free(groups);
	receive_deinit(&r);
	return explain(rc, err);
}

int sessions_receive(struct sessions *s, const char *tenant, const struct received *received,
		     char ret_id[SESSION_ID_SIZE], struct err *err)
{
	cleanup_free char *body = NULL;
	char id[SESSION_ID_SIZE] = "sess-";
	size_t len;
	int rc = check_name(received->service, err);

	if (rc == 0)
		rc = check_time(s, received, err);
	if (rc < 0)
		return rc;
	ulid_make_from(received->start_ns, received->identity, id + strlen("sess-"));
	(void)pthread_mutex_lock(&s->file_lock);
	rc = store_get(s->store, SESSION_RECORD_KIND, tenant, id, &body, &len, err);
	if (rc == -ENOENT) {
		*err = (struct err){ 0 };
		rc = receive(s, tenant, received, id, err);
	}
	(void)pthread_mutex_unlock(&s->file_lock);
	if (rc < 0)
		return rc;
	(void)snprintf(ret_id, SESSION_ID_SIZE, "%s", id);
	return 0;
}
