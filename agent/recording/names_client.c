// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/names_client.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "agent/base/bytes.h"
#include "agent/base/channel_slot.h"
#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/log.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/profile/quality.h"

#define UNTIL_NEVER   UINT64_MAX
#define TEXT_BLOCK    (1u << 20)
#define BATCHES_AHEAD 4 /* requests on the way at once */

/* One place. Frames lie in the arena. */
struct place {
	uint64_t key, offset;
	const struct name_frame *frames;
	uint32_t count;	   /* 0 = unknown */
	uint32_t used;	   /* = struct names_client.round when asked for in this one */
	uint32_t answered; /* round of the answer */
	uint32_t turn;	   /* of its module at the answer */
	uint64_t until_ns; /* monotonic: ask again then */
	bool coming;	   /* the symbolizer reads the file now */
	bool changes;	   /* JIT code, kernel modules: what is at the address may be other code later */
};

VEC_DEFINE(places, struct place);
VEC_DEFINE(blocks, char *);
VEC_DEFINE(offsets, uint64_t);

/* Everything that is forgotten at once. */
struct memory {
	struct u64map at; /* hash of (key, offset) -> index of places */
	struct places_vec places;
	struct u64map strings; /* hash of a text -> its address */
	struct blocks_vec blocks;
	size_t block_used, bytes;
};

struct names_client {
	struct channel_slot slot;
	uint32_t round;
	enum names_state state; /* of what was asked for in this round, the least settled */
	uint64_t silent_until_ns; /* the symbolizer did not answer in time: do not ask before this */
	bool connected;		  /* at some time */
	bool unheard,
		nameless; /* in this round: it did not answer, and something has no name for that */
	struct memory known;	 /* from the symbolizer */
	struct memory kept;	 /* from the session being rendered */
	pthread_mutex_t told_lock;
	struct memory told;	 /* of script frames, by the feed; behind told_lock, but for texts */
	struct u64map turns;	 /* module -> the turn (below) */
	struct name_source source;
	struct channel_message message;
};

/* ---- memory ---------------------------------------------------------------------------------- */

static void memory_clear(struct memory *memory)
{
	for (size_t i = 0; i < memory->blocks.count; i++)
		free(memory->blocks.data[i]);
	memory->blocks.count = 0;
	memory->places.count = 0;
	memory->block_used = memory->bytes = 0;
	u64map_clear(&memory->at);
	u64map_clear(&memory->strings);
}

static void memory_deinit(struct memory *memory)
{
	memory_clear(memory);
	blocks_vec_deinit(&memory->blocks);
	places_vec_deinit(&memory->places);
	u64map_deinit(&memory->at);
	u64map_deinit(&memory->strings);
}

static void *memory_take(struct memory *memory, size_t len)
{
	char *at;

	len = (len + 7) & ~(size_t)7;
	if (len > TEXT_BLOCK)
		return NULL;
	if (!memory->blocks.count || memory->block_used + len > TEXT_BLOCK) {
		char *block = malloc(TEXT_BLOCK);

		if (!block || blocks_vec_push(&memory->blocks, block) < 0) {
			free(block);
			return NULL;
		}
		memory->block_used = 0;
		memory->bytes += TEXT_BLOCK;
	}
	at = memory->blocks.data[memory->blocks.count - 1] + memory->block_used;
	memory->block_used += len;
	return at;
}

static const char *memory_text(struct memory *memory, const char *text, size_t len)
{
	uint64_t hash = hash_bytes(text, len, 0), at;
	char *copy;

	if (u64map_get(&memory->strings, hash, &at)) {
		const char *known = (const char *)(uintptr_t)at;

		if (strncmp(known, text, len) == 0 && known[len] == '\0')
			return known;
	}
	copy = memory_take(memory, len + 1);
	if (!copy)
		return NULL;
	memcpy(copy, text, len);
	copy[len] = '\0';
	return u64map_put(&memory->strings, hash, (uintptr_t)copy) < 0 ? NULL : copy;
}

static uint64_t place_hash(uint64_t key, uint64_t offset)
{
	return hash_combine(key, offset);
}

static struct place *memory_find(struct memory *memory, uint64_t key, uint64_t offset)
{
	struct place *place;
	uint64_t at;

	if (!u64map_get(&memory->at, place_hash(key, offset), &at))
		return NULL;
	place = &memory->places.data[at];
	return place->key == key && place->offset == offset ? place : NULL;
}

enum known { KNOWN_NOT, KNOWN_NAMELESS, KNOWN_NAME };

static enum known known_of(const struct place *place)
{
	if (!place || !place->count)
		return KNOWN_NOT;
	return place->frames[0].function[0] ? KNOWN_NAME : KNOWN_NAMELESS;
}

static int memory_put(struct memory *memory, const struct place *place)
{
	struct place *old = memory_find(memory, place->key, place->offset);
	int rc;

	if (old) {
		/* A symbolizer that has forgotten the module does not unname it. */
		if (known_of(old) > known_of(place)) {
			old->until_ns = place->until_ns;
			old->turn = place->turn;
			old->coming = place->coming;
		} else {
			*old = *place;
		}
		return 0;
	}
	rc = places_vec_push(&memory->places, *place);
	if (rc < 0)
		return rc;
	rc = u64map_put(&memory->at, place_hash(place->key, place->offset), memory->places.count - 1);
	if (rc < 0)
		memory->places.count--;
	return rc;
}

/* ---- turns ------------------------------------------------------------------------------------
 * The names of a module get better all at once. Its turn is how often the state of its answers
 * became another, above eight bits of that state: what was answered in an earlier turn is asked for
 * again, so that no profile shows one half of a module by its debug information and the other
 * without. */

static uint32_t turn_of(const struct names_client *client, uint64_t key)
{
	uint64_t turn;

	return u64map_get(&client->turns, key, &turn) ? (uint32_t)turn : 0;
}

static int take_state(struct names_client *client, uint64_t key, uint32_t state)
{
	uint32_t turn = turn_of(client, key);

	if (turn && (turn & 0xff) == state)
		return 0;
	return u64map_put(&client->turns, key, ((turn >> 8) + 1) << 8 | (state & 0xff));
}

/* ---- life ------------------------------------------------------------------------------------ */
static int find_name(void *ctx, uint64_t module_key, uint64_t offset, struct name_frame *ret);
static void prefetch_names(void *ctx, uint64_t module_key, const uint64_t *offsets, size_t count);

int names_client_create(struct names_client **ret)
{
	struct names_client *client = calloc(1, sizeof(*client));

	if (!client)
		return -ENOMEM;
	channel_slot_init(&client->slot);
	(void)pthread_mutex_init(&client->told_lock, NULL);
	client->source = (struct name_source){ client, find_name, prefetch_names };
	*ret = client;
	return 0;
}

void names_client_destroy(struct names_client *client)
{
	if (!client)
		return;
	channel_slot_deinit(&client->slot);
	memory_deinit(&client->known);
	memory_deinit(&client->kept);
	memory_deinit(&client->told);
	(void)pthread_mutex_destroy(&client->told_lock);
	u64map_deinit(&client->turns);
	free(client);
}

void names_client_set_channel(struct names_client *client, int fd)
{
	channel_slot_set(&client->slot, fd);
}

bool names_client_is_connected(struct names_client *client)
{
	return channel_slot_wait(&client->slot, 0);
}

/* Texts of told names are borrowed between begin and end. */
static void forget_told(struct names_client *client)
{
	(void)pthread_mutex_lock(&client->told_lock);
	if (client->told.bytes > NAMES_TOLD_BYTES_MAX || client->told.places.count >= NAMES_PLACES_MAX)
		memory_clear(&client->told);
	(void)pthread_mutex_unlock(&client->told_lock);
}

const struct name_source *names_client_begin(struct names_client *client)
{
	if (client->known.places.count > NAMES_PLACES_MAX ||
	    client->known.bytes > NAMES_TEXT_BYTES_MAX) {
		memory_clear(&client->known);
		u64map_clear(&client->turns);
	}
	forget_told(client);
	client->round++;
	client->state = NAMES_FINAL;
	client->unheard = client->nameless = false;
	return &client->source;
}

void names_client_end(struct names_client *client)
{
	memory_clear(&client->kept);
}

enum names_state names_client_state(const struct names_client *client)
{
	return client->state;
}

void names_client_note(const struct names_client *client, struct profile_quality *quality)
{
	quality->names_pending = client->state == NAMES_COMING || client->nameless;
	if (client->state == NAMES_COMING)
		quality_note(
			quality,
			"some names are still being read from debug information: ask again in ten seconds");
	if (client->nameless)
		quality_note(quality, "the symbolizer does not answer: some functions have no "
				      "names for that: ask again in ten seconds");
}

/* ---- answers --------------------------------------------------------------------------------- */
/* Go's compiler writes names with dots, from .go files and its own assembler's .s files. */
static uint8_t kind_of(const char *function, const char *file)
{
	size_t len = strlen(file);

	if ((len > 3 && strcmp(file + len - 3, ".go") == 0) ||
	    (len > 2 && strcmp(file + len - 2, ".s") == 0 && strchr(function, '.')))
		return PROFILE_FRAME_GO;
	return PROFILE_FRAME_NATIVE;
}

static const char *take_text(struct names_client *client, struct bytes *in)
{
	uint16_t len = bytes_u16(in);
	const char *text = bytes_take(in, len);

	return text ? memory_text(&client->known, text, len) : NULL;
}

/* Texts are interned: equal ones are one. */
static bool same_frames(const struct name_frame *a, const struct name_frame *b, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (a[i].function != b[i].function || a[i].file != b[i].file ||
		    a[i].symbol != b[i].symbol || a[i].line != b[i].line ||
		    a[i].start_line != b[i].start_line || a[i].is_wrapper != b[i].is_wrapper)
			return false;
	return true;
}

/* Frames of one place into the arena. -EPROTO, -ENOMEM. */
static int take_frames(struct names_client *client, struct bytes *in, uint32_t state,
		       struct place *place)
{
	struct name_frame frames[NAMES_INLINE_MAX], *copies;
	const struct place *old;
	uint16_t count = bytes_u16(in);

	if (in->failed || count > NAMES_INLINE_MAX)
		return -EPROTO;
	place->count = count;
	place->until_ns = count && state == NAMES_FINAL ? UNTIL_NEVER
			  : state == NAMES_COMING	 ? clock_monotonic_ns() + NAMES_COMING_NS
							 : clock_monotonic_ns() + NAMES_AGAIN_NS;
	place->coming = state == NAMES_COMING;
	place->changes = state == NAMES_CHANGE;
	place->answered = client->round;
	place->turn = turn_of(client, place->key);
	if (!count)
		return 0;
	for (uint16_t i = 0; i < count; i++) {
		frames[i] = (struct name_frame){ .package = "", .line = bytes_u32(in) };
		frames[i].start_line = bytes_u32(in);
		frames[i].is_wrapper = frames[i].start_line & NAMED_WRAPPER;
		place->changes = place->changes || frames[i].start_line & NAMED_CHANGES;
		frames[i].start_line &= ~(NAMED_WRAPPER | NAMED_CHANGES);
		frames[i].function = take_text(client, in);
		frames[i].file = take_text(client, in);
		frames[i].symbol = take_text(client, in);
		if (in->failed)
			return -EPROTO;
		if (!frames[i].function || !frames[i].file || !frames[i].symbol)
			return -ENOMEM;
		frames[i].kind = kind_of(frames[i].function, frames[i].file);
	}
	if (place->changes && place->until_ns == UNTIL_NEVER)
		place->until_ns = clock_monotonic_ns() + NAMES_AGAIN_NS;
	/* Mostly nothing has changed: what is asked for again and again takes no more memory. */
	old = memory_find(&client->known, place->key, place->offset);
	if (old && old->count == count && same_frames(old->frames, frames, count)) {
		place->frames = old->frames;
		return 0;
	}
	copies = memory_take(&client->known, count * sizeof(*copies));
	if (!copies)
		return -ENOMEM;
	memcpy(copies, frames, count * sizeof(*copies));
	place->frames = copies;
	return 0;
}

static int put_unknown(struct names_client *client, uint64_t key, uint64_t offset)
{
	struct place place = { .key = key,
			       .offset = offset,
			       .until_ns = clock_monotonic_ns() + NAMES_AGAIN_NS,
			       .turn = turn_of(client, key) };

	return memory_put(&client->known, &place);
}

struct batch {
	uint64_t key;
	const uint64_t *offsets;
	uint32_t count;
	uint32_t answered;
	uint32_t request;
};

/* 1 = the batch is complete, 0 = more to come. */
static int take_answer(struct names_client *client, struct batch *batch)
{
	struct bytes in = bytes_of(client->message.data, client->message.len);
	const struct control_named *head = bytes_take(&in, sizeof(*head));
	int rc = 0;

	if (!head || head->first != batch->answered || head->count > batch->count - head->first)
		return -EPROTO;
	if (head->status < 0) {
		while (rc == 0 && batch->answered < batch->count)
			rc = put_unknown(client, batch->key, batch->offsets[batch->answered++]);
		return rc < 0 ? rc : 1;
	}
	rc = take_state(client, batch->key, head->state);
	for (uint32_t i = 0; rc == 0 && i < head->count; i++) {
		struct place place = { .key = batch->key,
				       .offset = batch->offsets[batch->answered] };

		rc = take_frames(client, &in, head->state, &place);
		if (rc == 0)
			rc = memory_put(&client->known, &place);
		batch->answered += rc == 0;
	}
	if (rc < 0)
		return rc;
	if (head->more)
		return head->count ? 0 : -EPROTO;
	return batch->answered == batch->count ? 1 : -EPROTO;
}

/* ---- asking ---------------------------------------------------------------------------------- */
static int send_batch(struct names_client *client, struct batch *batch)
{
	struct control_names names = { .head = { .kind = CONTROL_NAMES } };
	size_t len = offsetof(struct control_names, offsets) + batch->count * sizeof(uint64_t);

	batch->request = names.head.request = channel_slot_number(&client->slot);
	names.key = batch->key;
	names.count = batch->count;
	memcpy(names.offsets, batch->offsets, batch->count * sizeof(uint64_t));
	return channel_send_wait(client->slot.fd, &names, len, NULL, 0,
				 (int)(NAMES_WAIT_NS / NS_PER_MS));
}

static int await_batch(struct names_client *client, struct batch *batch)
{
	for (;;) {
		const struct channel_head *head = (const void *)client->message.data;
		int rc = channel_slot_receive(&client->slot, clock_monotonic_ns() + NAMES_WAIT_NS,
					      &client->message);

		if (rc < 0)
			return rc;
		/* An answer to a request that was given up on comes late and is passed over. */
		if (head->kind != CONTROL_NAMED || head->request != batch->request)
			continue;
		rc = take_answer(client, batch);
		if (rc != 0)
			return rc < 0 ? rc : 0;
	}
}

static void give_up(struct names_client *client, int rc)
{
	static struct log_limit limit = { .burst = 3 };

	if (log_allowed(&limit))
		log_warn(
			"names: the symbolizer did not answer (%s): frames stay unknown for %llu s",
			strerror(-rc), NAMES_AGAIN_NS / NS_PER_S);
	client->silent_until_ns = clock_monotonic_ns() + NAMES_AGAIN_NS;
	client->unheard = true;
	if (rc == -EPIPE || rc == -EPROTO)
		channel_slot_lose(&client->slot);
}

/* Asks for what is not known; several requests are on the way at once, answers come in their order.
 */
static void ask(struct names_client *client, uint64_t key, const struct offsets_vec *offsets)
{
	struct batch batches[BATCHES_AHEAD];
	size_t sent = 0, done = 0, next = 0;
	int rc = 0;

	if (channel_slot_adopt(&client->slot)) {
		client->silent_until_ns = 0;
		client->connected = true;
	}
	if (client->slot.fd < 0 || clock_monotonic_ns() < client->silent_until_ns) {
		client->unheard |= client->connected;
		return;
	}
	while (rc == 0 && (next < offsets->count || done < sent)) {
		if (next < offsets->count && sent - done < BATCHES_AHEAD) {
			struct batch *batch = &batches[sent % BATCHES_AHEAD];
			size_t left = offsets->count - next;

			*batch = (struct batch){ .key = key, .offsets = offsets->data + next };
			batch->count =
				left < CONTROL_NAMES_MAX ? (uint32_t)left : CONTROL_NAMES_MAX;
			rc = send_batch(client, batch);
			next += batch->count;
			sent++;
		} else {
			rc = await_batch(client, &batches[done++ % BATCHES_AHEAD]);
		}
	}
	if (rc < 0)
		give_up(client, rc);
}

/* Names of JIT code and kernel modules hold for one profile: the next session may have run other
 * code at the same place. */
static bool is_fresh(const struct names_client *client, const struct place *place, uint64_t now_ns)
{
	return place && place->until_ns > now_ns &&
	       (place->until_ns == UNTIL_NEVER || place->turn == turn_of(client, place->key)) &&
	       (!place->changes || place->answered == client->round);
}

/* ---- script frames --------------------------------------------------------------------------- */

static int put_told(struct memory *told, const struct feed_script *script,
		    const struct feed_function *functions, unsigned count)
{
	struct place place = { .key = script->key,
			       .offset = script->offset,
			       .count = count,
			       .until_ns = UNTIL_NEVER };
	struct name_frame *frames;

	if (told->bytes > NAMES_TOLD_BYTES_MAX || told->places.count >= NAMES_PLACES_MAX)
		return -ENOSPC;
	frames = memory_take(told, count * sizeof(*frames));
	if (!frames)
		return -ENOMEM;
	for (unsigned i = 0; i < count; i++) {
		const struct feed_function *from = &functions[i];

		frames[i] = (struct name_frame){
			.function = memory_text(told, from->function.text, from->function.len),
			.package = "",
			.file = memory_text(told, from->file.text, from->file.len),
			.line = from->line,
			.start_line = from->first_line,
			.kind = PROFILE_FRAME_INTERPRETED,
			.tier = from->tier,
			.is_approximate = from->is_approximate,
		};
		if (!frames[i].function || !frames[i].file)
			return -ENOMEM;
	}
	place.frames = frames;
	return memory_put(told, &place);
}

void names_client_tell(struct names_client *client, const struct feed_script *script,
		       const struct feed_function *functions, unsigned count)
{
	(void)pthread_mutex_lock(&client->told_lock);
	/* A name without room comes again with its next session. */
	if (!memory_find(&client->told, script->key, script->offset))
		(void)put_told(&client->told, script, functions, count);
	(void)pthread_mutex_unlock(&client->told_lock);
}

/* The number of frames in @ret; 0 = nobody told a name. */
static uint32_t find_told(struct names_client *client, uint64_t key, uint64_t offset,
			  const struct name_frame **ret)
{
	struct place *place;
	uint32_t count = 0;

	(void)pthread_mutex_lock(&client->told_lock);
	place = memory_find(&client->told, key, offset);
	if (place) {
		place->used = client->round;
		*ret = place->frames;
		count = place->count;
	}
	(void)pthread_mutex_unlock(&client->told_lock);
	return count;
}

static void ask_for_stale(struct names_client *client, uint64_t key, const uint64_t *offsets,
			  size_t count)
{
	const struct name_frame *told;
	struct offsets_vec stale = { 0 };
	uint64_t now_ns = clock_monotonic_ns();

	for (size_t i = 0; i < count; i++) {
		const struct place *place = memory_find(&client->known, key, offsets[i]);

		if (!is_fresh(client, place, now_ns) && !find_told(client, key, offsets[i], &told) &&
		    offsets_vec_push(&stale, offsets[i]) < 0)
			break;
	}
	if (stale.count)
		ask(client, key, &stale);
	offsets_vec_deinit(&stale);
}

static void prefetch_names(void *ctx, uint64_t module_key, const uint64_t *offsets, size_t count)
{
	uint32_t turn = turn_of(ctx, module_key);

	ask_for_stale(ctx, module_key, offsets, count);
	/* The names came while they were asked for. */
	if (turn_of(ctx, module_key) != turn)
		ask_for_stale(ctx, module_key, offsets, count);
}

static int find_name(void *ctx, uint64_t module_key, uint64_t offset, struct name_frame *ret)
{
	struct names_client *client = ctx;
	const struct name_frame *told = NULL;
	uint32_t count = find_told(client, module_key, offset, &told);
	struct place *place;

	if (count) {
		memcpy(ret, told, count * sizeof(*ret));
		return (int)count;
	}
	place = memory_find(&client->known, module_key, offset);
	if (!is_fresh(client, place, clock_monotonic_ns())) {
		prefetch_names(client, module_key, &offset, 1);
		place = memory_find(&client->known, module_key, offset);
	}
	if (known_of(place) != KNOWN_NAME || place->changes) {
		struct place *kept = memory_find(&client->kept, module_key, offset);

		if (kept)
			place = kept;
	}
	if (place && place->coming)
		client->state = NAMES_COMING;
	if (client->state == NAMES_FINAL && (!place || place->until_ns != UNTIL_NEVER))
		client->state = NAMES_MAY_IMPROVE;
	if (!place || !place->count) {
		client->nameless |= client->unheard;
		return client->unheard || (place && place->coming) ? -EAGAIN : 0;
	}
	place->used = client->round;
	memcpy(ret, place->frames, place->count * sizeof(*ret));
	return (int)place->count;
}

/* ---- names of a session ---------------------------------------------------------------------- */

int names_keep(struct names_client *client, uint64_t key, uint64_t offset,
	       const struct name_frame *frames, unsigned count)
{
	struct place place = { .key = key, .offset = offset, .count = count, .until_ns = UNTIL_NEVER };
	struct name_frame *copies;

	if (!count || count > NAMES_INLINE_MAX)
		return 0;
	if (client->kept.places.count >= NAMES_PLACES_MAX ||
	    client->kept.bytes > NAMES_TEXT_BYTES_MAX)
		return 0;
	copies = memory_take(&client->kept, count * sizeof(*copies));
	if (!copies)
		return -ENOMEM;
	for (unsigned i = 0; i < count; i++) {
		copies[i] = frames[i];
		copies[i].function =
			memory_text(&client->kept, frames[i].function, strlen(frames[i].function));
		copies[i].package =
			memory_text(&client->kept, frames[i].package, strlen(frames[i].package));
		copies[i].file = memory_text(&client->kept, frames[i].file, strlen(frames[i].file));
		copies[i].symbol = frames[i].symbol ? memory_text(&client->kept, frames[i].symbol,
								  strlen(frames[i].symbol))
						    : "";
		if (!copies[i].function || !copies[i].package || !copies[i].file || !copies[i].symbol)
			return -ENOMEM;
	}
	place.frames = copies;
	if (known_of(&place) != KNOWN_NAME)
		place.until_ns = 0; /* a name may be found */
	return memory_put(&client->kept, &place);
}

static int visit_used(const struct memory *memory, uint32_t round, names_visit_fn *visit, void *ctx)
{
	for (size_t i = 0; i < memory->places.count; i++) {
		const struct place *place = &memory->places.data[i];
		int rc;

		if (place->used != round || !place->count)
			continue;
		rc = visit(ctx, place->key, place->offset, place->frames, place->count);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int names_client_used(struct names_client *client, names_visit_fn *visit, void *ctx)
{
	int rc = visit_used(&client->known, client->round, visit, ctx);

	if (rc == 0)
		rc = visit_used(&client->kept, client->round, visit, ctx);
	if (rc < 0)
		return rc;
	(void)pthread_mutex_lock(&client->told_lock);
	rc = visit_used(&client->told, client->round, visit, ctx);
	(void)pthread_mutex_unlock(&client->told_lock);
	return rc;
}
