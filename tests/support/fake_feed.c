// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_feed.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/wire/control.h"
#include "bpf/outcome.h"
#include "bpf/profiler.h"

static void put(struct fake_feed *feed, uint32_t kind, const void *fixed, size_t fixed_len,
		const void *tail, size_t tail_len)
{
	struct iovec parts[2] = { { (void *)(uintptr_t)fixed, fixed_len },
				  { (void *)(uintptr_t)tail, tail_len } };
	int rc;

	(void)pthread_mutex_lock(&feed->lock);
	rc = ring_write(feed->ring, kind, parts, 2);
	(void)pthread_mutex_unlock(&feed->lock);
	assert(rc == 0 || feed->untold);
}

static void keep(struct fake_feed *feed, uint32_t kind, uint64_t id, const void *fixed,
		 size_t fixed_len, const void *tail, size_t tail_len)
{
	struct fake_kept *kept;

	(void)pthread_mutex_lock(&feed->lock);
	assert(feed->kept_count < FAKE_KEPT_MAX);
	kept = &feed->kept[feed->kept_count++];
	*kept = (struct fake_kept){ kind, id, fixed_len + tail_len,
				    malloc(fixed_len + tail_len + 1) };
	memcpy(kept->data, fixed, fixed_len);
	memcpy((char *)kept->data + fixed_len, tail, tail_len);
	(void)pthread_mutex_unlock(&feed->lock);
}

/* ---- the collector and the symbolizer -------------------------------------------------------- */

static void answer_demand(struct fake_feed *feed, const struct control_demand *demand)
{
	struct feed_demand record = { .time_ns = clock_monotonic_ns(),
				      .types = demand->types,
				      .off_threshold_ns = feed->off_threshold_ns };

	record.rate_hz = demand->rate_hz;
	record.fast_hz = demand->fast_hz;
	if (feed->rate_limit && record.rate_hz > feed->rate_limit)
		record.rate_hz = feed->rate_limit;
	if (feed->rate_limit && record.fast_hz > feed->rate_limit)
		record.fast_hz = feed->rate_limit;
	feed->rate_hz = record.rate_hz;
	feed->fast_hz = record.fast_hz;
	feed->types = demand->types;
	if (!feed->silent)
		put(feed, FEED_DEMAND, &record, sizeof(record), "", 0);
}

static void answer_want(struct fake_feed *feed, const struct control_want *want)
{
	struct feed_proc_cpu all = { .time_ns = clock_monotonic_ns() };

	if (want->what == WANT_LIVES) {
		put(feed, FEED_PROC_CPU, &all, sizeof(all), "", 0);
		return;
	}
	feed->wants++;
	(void)pthread_mutex_lock(&feed->lock);
	for (size_t i = 0; i < feed->kept_count; i++) {
		const struct fake_kept *kept = &feed->kept[i];
		bool wanted = want->what == WANT_ALL &&
			      (kept->kind == FEED_MODULE || kept->kind == FEED_PROC);

		for (uint32_t j = 0; j < want->count && !wanted; j++)
			wanted = want->ids[j] == kept->id &&
				 ((want->what == WANT_STACK && kept->kind == FEED_STACK) ||
				  (want->what == WANT_MODULE && kept->kind == FEED_MODULE) ||
				  (want->what == WANT_PROC && kept->kind == FEED_PROC));
		if (wanted)
			put(feed, kept->kind, kept->data, kept->len, "", 0);
	}
	(void)pthread_mutex_unlock(&feed->lock);
}

/* Their first processes say that they belong to them. */
static void answer_families(struct fake_feed *feed, const struct control_families *families)
{
	(void)pthread_mutex_lock(&feed->lock);
	feed->families = *families;
	for (size_t i = 0; i < feed->kept_count; i++) {
		const struct fake_kept *kept = &feed->kept[i];
		struct feed_proc record;

		if (kept->kind != FEED_PROC)
			continue;
		memcpy(&record, kept->data, sizeof(record));
		for (uint32_t j = 0; j < families->count; j++)
			if (families->items[j].tgid == record.tgid)
				put(feed, FEED_PROC, kept->data, kept->len, &families->items[j].family, sizeof(uint64_t));
	}
	(void)pthread_mutex_unlock(&feed->lock);
}

static void answer_sweep(struct fake_feed *feed)
{
	struct feed_sample live[FAKE_LIVE_MAX];
	size_t count;

	(void)pthread_mutex_lock(&feed->lock);
	count = feed->live_count;
	memcpy(live, feed->live, count * sizeof(*live));
	(void)pthread_mutex_unlock(&feed->lock);
	feed->sweeps++;
	for (size_t i = 0; i < count; i++) {
		live[i].source = feed->sweeps;
		fake_feed_any_sample(feed, &live[i]);
	}
	fake_feed_alloc(feed, &(struct feed_alloc){ .time_ns = clock_monotonic_ns(),
						    .what = FEED_ALLOC_SWEPT });
}

static void add_string(uint8_t *out, size_t *at, const char *text)
{
	uint16_t len = (uint16_t)strlen(text);

	memcpy(out + *at, &len, sizeof(len));
	memcpy(out + *at + sizeof(len), text, len);
	*at += sizeof(len) + len;
}

static void add_frame(uint8_t *out, size_t *at, const char *prefix, uint64_t offset)
{
	uint32_t lines[2] = { (uint32_t)offset, 1 };
	char name[64];

	memcpy(out + *at, lines, sizeof(lines));
	*at += sizeof(lines);
	(void)snprintf(name, sizeof(name), "%s%lx", prefix, (unsigned long)offset);
	add_string(out, at, name);
	add_string(out, at, "fake.c");
	(void)snprintf(name, sizeof(name), "_Z%lx", (unsigned long)offset);
	add_string(out, at, name);
}

/* Two answers, to exercise `more`; offset 0xdead is unknown, as is every offset of module 0xdead.
 */
static void answer_names(struct fake_feed *feed, const struct control_names *names)
{
	static uint8_t out[CHANNEL_MESSAGE_MAX];
	uint32_t half = names->count / 2;

	feed->names++;
	for (uint32_t first = 0; first < names->count || first == 0;) {
		uint32_t last = first == 0 && half ? half : names->count;
		struct control_named head = {
			.head = { .kind = CONTROL_NAMED, .request = names->head.request },
			.status = names->key == 0xdead ? -ENOENT : 0,
			.first = first,
			.count = last - first,
			.more = last < names->count,
		};
		size_t at = sizeof(head);

		memcpy(out, &head, sizeof(head));
		for (uint32_t i = first; i < last && head.status == 0; i++) {
			uint64_t offset = names->offsets[i];
			uint16_t count = offset == 0xdead ? 0 : 1 + (offset & 1);

			memcpy(out + at, &count, sizeof(count));
			at += sizeof(count);
			if (count == 2)
				add_frame(out, &at, "inlined_", offset);
			if (count)
				add_frame(out, &at, "f_", offset);
		}
		(void)!channel_send_wait(feed->symbolizer_fd, out, at, NULL, 0, 1000);
		first = last;
		if (head.status < 0 || first >= names->count)
			break;
	}
}

static void answer_flush(struct fake_feed *feed)
{
	struct feed_outcomes head = { .time_ns = clock_monotonic_ns(), .count = 1 };
	struct feed_outcome entry = { .outcome = OUTCOME_feed_full, .increment = feed->untold };
	struct iovec parts[2] = { { &head, sizeof(head) }, { &entry, sizeof(entry) } };
	int rc;

	if (!feed->untold)
		return;
	(void)pthread_mutex_lock(&feed->lock);
	rc = ring_write(feed->ring, FEED_OUTCOMES, parts, 2);
	(void)pthread_mutex_unlock(&feed->lock);
	if (rc < 0)
		return;
	feed->untold = 0;
	fake_feed_clock(feed, 0, 0);
}

static void serve(struct fake_feed *feed, struct channel_message *message)
{
	const struct channel_head *head = (const void *)message->data;

	while (feed->collector_fd >= 0 && channel_receive(feed->collector_fd, message) == 1) {
		if (head->kind == CONTROL_DEMAND)
			answer_demand(feed, (const void *)message->data);
		else if (head->kind == CONTROL_WANT && message->len == sizeof(struct control_want))
			answer_want(feed, (const void *)message->data);
		else if (head->kind == CONTROL_SWEEP)
			answer_sweep(feed);
		else if (head->kind == CONTROL_FLUSH)
			answer_flush(feed);
		else if (head->kind == CONTROL_FAMILIES && message->len == sizeof(feed->families))
			answer_families(feed, (const void *)message->data);
	}
	while (feed->symbolizer_fd >= 0 && channel_receive(feed->symbolizer_fd, message) == 1)
		if (head->kind == CONTROL_NAMES && !feed->mute_names)
			answer_names(feed, (const void *)message->data);
}

static void *serve_main(void *ctx)
{
	struct fake_feed *feed = ctx;
	struct channel_message *message = calloc(1, sizeof(*message));

	while (!feed->stop) {
		struct pollfd fds[2] = { { .fd = feed->collector_fd, .events = POLLIN },
					 { .fd = feed->symbolizer_fd, .events = POLLIN } };

		(void)poll(fds, 2, 20);
		serve(feed, message);
	}
	free(message);
	return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */
void fake_feed_open(struct fake_feed *feed, size_t ring_bytes)
{
	pthread_mutexattr_t attr;
	int rc;

	memset(feed, 0, sizeof(*feed));
	feed->collector_fd = feed->symbolizer_fd = -1;
	(void)pthread_mutexattr_init(&attr);
	(void)pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	(void)pthread_mutex_init(&feed->lock, &attr);
	(void)pthread_mutexattr_destroy(&attr);
	feed->ring_fd = ring_create(ring_bytes);
	assert(feed->ring_fd >= 0);
	rc = ring_attach(feed->ring_fd, &feed->ring);
	assert(rc == 0);
}

void fake_feed_disconnect(struct fake_feed *feed)
{
	if (feed->collector_fd < 0)
		return;
	feed->stop = true;
	(void)pthread_join(feed->thread, NULL);
	(void)close(feed->collector_fd);
	(void)close(feed->symbolizer_fd);
	feed->collector_fd = feed->symbolizer_fd = -1;
}

void fake_feed_connect(struct fake_feed *feed, struct sessions *sessions)
{
	struct control_status status = { .head = { .kind = CONTROL_STATUS },
					 .listed = 1,
					 .features_found = ~0u,
					 .types = PROF_WANT_CPU | PROF_WANT_OFFCPU | PROF_WANT_IO |
						  PROF_WANT_LOCKS | PROF_WANT_FAULTS |
						  (feed->probes ? PROF_WANT_ALLOC | PROF_WANT_LIVE : 0) };
	int collector[2], symbolizer[2], rc;

	fake_feed_disconnect(feed);
	rc = channel_pair(collector);
	assert(rc == 0);
	rc = channel_pair(symbolizer);
	assert(rc == 0);
	feed->collector_fd = collector[0];
	feed->symbolizer_fd = symbolizer[0];
	feed->stop = false;
	rc = channel_send(feed->collector_fd, &status, sizeof(status), NULL, 0);
	assert(rc == 0);
	rc = pthread_create(&feed->thread, NULL, serve_main, feed);
	assert(rc == 0);
	sessions_set_collector(sessions, collector[1], 1);
	sessions_set_symbolizer(sessions, symbolizer[1], 1);
}

void fake_feed_forget(struct fake_feed *feed)
{
	(void)pthread_mutex_lock(&feed->lock);
	for (size_t i = 0; i < feed->kept_count; i++)
		free(feed->kept[i].data);
	feed->kept_count = 0;
	(void)pthread_mutex_unlock(&feed->lock);
}

void fake_feed_close(struct fake_feed *feed)
{
	fake_feed_disconnect(feed);
	fake_feed_forget(feed);
	ring_destroy(feed->ring);
	(void)close(feed->ring_fd);
	(void)pthread_mutex_destroy(&feed->lock);
}

/* ---- records --------------------------------------------------------------------------------- */
void fake_feed_epoch(struct fake_feed *feed, uint64_t epoch)
{
	struct feed_epoch record = {
		.clock = clock_now(), .epoch = epoch, .cpu_count = 2, .byte_order = 0x01020304
	};

	put(feed, FEED_EPOCH, &record, sizeof(record), "", 0);
}

void fake_feed_clock(struct fake_feed *feed, uint64_t cpu_ns, uint64_t bpf_ns)
{
	struct feed_clock record = { clock_now(), cpu_ns, bpf_ns, 1 << 20 };

	put(feed, FEED_CLOCK, &record, sizeof(record), "", 0);
}

void fake_feed_set_clock(struct fake_feed *feed, int64_t step_ns)
{
	struct feed_clock record = { clock_now(), 0, 0, 1 << 20 };

	record.clock.realtime_ns += (uint64_t)step_ns;
	put(feed, FEED_CLOCK, &record, sizeof(record), "", 0);
}

void fake_feed_costs(struct fake_feed *feed, unsigned program, uint64_t run_ns)
{
	struct feed_costs record = { .time_ns = clock_monotonic_ns() };

	record.run_ns[program] = run_ns;
	put(feed, FEED_COSTS, &record, sizeof(record), "", 0);
}

void fake_feed_module(struct fake_feed *feed, uint32_t module, uint64_t key, const char *path)
{
	struct feed_module record = {
		.key = key, .module = module, .kind = FEED_MODULE_ELF, .build_id_len = 20
	};
	uint8_t tail[512];
	size_t at = 0;

	memset(record.build_id, (int)module, 20);
	feed_encode_string(tail, sizeof(tail), &at, path, strlen(path));
	put(feed, FEED_MODULE, &record, sizeof(record), tail, at);
	keep(feed, FEED_MODULE, module, &record, sizeof(record), tail, at);
}

void fake_feed_proc(struct fake_feed *feed, const struct fake_proc *proc)
{
	const char *texts[] = { proc->comm,	   proc->exe,	"", proc->cgroup,
				proc->environment, proc->ports, proc->program };
	struct feed_proc record = { .start_boottime_ns = proc->tgid * 1000ull,
				    .seen_monotonic_ns = clock_monotonic_ns(),
				    .proc = proc->proc,
				    .tgid = proc->tgid,
				    .parent_tgid = 1,
				    .exec_generation = proc->generation,
				    .flags = proc->flags };
	uint8_t tail[2048];
	size_t at = 0;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		feed_encode_string(tail, sizeof(tail), &at, texts[i] ? texts[i] : "",
				   texts[i] ? strlen(texts[i]) : 0);
	if (proc->family) {
		memcpy(tail + at, &proc->family, sizeof(proc->family));
		at += sizeof(proc->family);
	}
	put(feed, FEED_PROC, &record, sizeof(record), tail, at);
	keep(feed, FEED_PROC, proc->proc, &record, sizeof(record), tail, at);
}

void fake_feed_exit(struct fake_feed *feed, uint32_t proc)
{
	struct feed_proc_exit record = { .time_ns = clock_monotonic_ns(), .proc = proc };

	put(feed, FEED_PROC_EXIT, &record, sizeof(record), "", 0);
}

void fake_feed_stack(struct fake_feed *feed, uint64_t stack, const uint64_t *frames, uint16_t count,
		     uint8_t outcome)
{
	struct feed_stack record = { .stack = stack, .frame_count = count, .outcome = outcome };

	put(feed, FEED_STACK, &record, sizeof(record), frames, count * sizeof(*frames));
	keep(feed, FEED_STACK, stack, &record, sizeof(record), frames, count * sizeof(*frames));
}

void fake_feed_keep_stack(struct fake_feed *feed, uint64_t stack, const uint64_t *frames,
			  uint16_t count)
{
	struct feed_stack record = { .stack = stack, .frame_count = count };

	keep(feed, FEED_STACK, stack, &record, sizeof(record), frames, count * sizeof(*frames));
}

void fake_feed_sample(struct fake_feed *feed, uint32_t proc, uint32_t tid, uint64_t stack,
		      uint64_t time_ns, uint64_t value_ns)
{
	struct feed_sample record = { .time_ns = time_ns,
				      .user_stack = stack,
				      .value = value_ns,
				      .proc = proc,
				      .tid = tid,
				      .type = PROF_SAMPLE_CPU,
				      .comm = "worker" };

	put(feed, FEED_SAMPLE, &record, sizeof(record), "", 0);
}

void fake_feed_wait(struct fake_feed *feed, uint32_t proc, uint32_t tid, uint64_t stack,
		    uint64_t end_ns, uint64_t off_ns, uint8_t state)
{
	struct feed_sample record = { .time_ns = end_ns,
				      .kernel_stack = stack,
				      .value = off_ns,
				      .value2 = 1024,
				      .proc = proc,
				      .tid = tid,
				      .state = state,
				      .type = PROF_SAMPLE_OFFCPU,
				      .comm = "worker" };

	fake_feed_any_sample(feed, &record);
}

void fake_feed_any_sample(struct fake_feed *feed, const struct feed_sample *sample)
{
	put(feed, FEED_SAMPLE, sample, sizeof(*sample), "", 0);
}

void fake_feed_alloc(struct fake_feed *feed, const struct feed_alloc *alloc)
{
	const uint16_t reason = 0;

	put(feed, FEED_ALLOC, alloc, sizeof(*alloc), &reason, sizeof(reason));
}

void fake_feed_live(struct fake_feed *feed, const struct feed_sample *sample)
{
	(void)pthread_mutex_lock(&feed->lock);
	assert(feed->live_count < FAKE_LIVE_MAX);
	feed->live[feed->live_count++] = *sample;
	(void)pthread_mutex_unlock(&feed->lock);
}

void fake_feed_fill(struct fake_feed *feed)
{
	uint64_t nothing = 0;
	struct iovec part = { &nothing, sizeof(nothing) };

	(void)pthread_mutex_lock(&feed->lock);
	while (ring_write(feed->ring, UINT32_MAX - 1, &part, 1) == 0)
		;
	(void)pthread_mutex_unlock(&feed->lock);
}

void fake_feed_outcome(struct fake_feed *feed, uint32_t outcome, uint64_t count)
{
	struct feed_outcomes head = { .time_ns = clock_monotonic_ns(), .count = 1 };
	struct feed_outcome entry = { .outcome = outcome, .increment = count };

	put(feed, FEED_OUTCOMES, &head, sizeof(head), &entry, sizeof(entry));
}
