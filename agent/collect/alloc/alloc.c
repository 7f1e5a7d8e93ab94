// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc/alloc_internal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/u64map.h"
#include "agent/collect/modules/module_index.h"
#include "agent/collect/proc/proc_facts.h"

#define BUDGET_SHARE	  0.01 /* of the target's CPU time */
#define HITS_MAX	  50000u /* per CPU and window: beyond, hits do nothing */
#define BIRTHS_MAX	  8192u /* of a period */
#define DELAY_THREADS_MAX 32u /* more are not asked one by one: some 5 us each */
#define FOLLOWED_MAX	  2048u /* from one window to the next: each is looked at, some 4 us */
#define AROUND_NS                                                                                  \
	(1 * NS_PER_S) /* as often each is also looked at with the chunks around it, some 5 us */
#define AFTER_BUSY_NS                                                                              \
	(100 * NS_PER_MS) /* says how much CPU time who has just woken up goes on using */
#define NEW_AGAIN_NS	  (50 * NS_PER_MS)
#define LOOK_AGAIN_NS	  (1 * NS_PER_MS) /* it takes a few */
#define PATIENCE_NS	  (1 * NS_PER_S) /* for files that hardly are the allocator */
#define NEW_LATE_NS	  (10 * NS_PER_S) /* who waits so long for files to be indexed is told why */
#define PAGE_BYTES	  4096u
#define HIT_NS_DEFAULT	  600.0
#define RETURNED_NS_DEFAULT 350.0

/* ---- small things ------------------------------------------------------------------------------
 */

bool alloc_is_possible(const struct alloc_watch *watch)
{
	return watch->host.bpf && features_has(watch->host.features, FEATURE_UPROBE_EVENTS) &&
	       (!watch->is_open || watch->probes);
}

static uint64_t cpu_ns(const struct target *target)
{
	struct timespec at;

	if (clock_gettime(target->clock, &at) < 0)
		return 0;
	return (uint64_t)at.tv_sec * NS_PER_S + (uint64_t)at.tv_nsec;
}

/* How long its threads have waited for CPUs, UINT64_MAX = not known. */
static uint64_t delay_ns(const struct target *target)
{
	uint64_t waited_ns;

	return proc_facts_run_delay(target->tgid, DELAY_THREADS_MAX, &waited_ns) == 0 ? waited_ns
										      : UINT64_MAX;
}

/* Page faults so far, 0 = not known. */
static uint64_t faults(const struct target *target)
{
	struct proc_facts facts;

	return proc_facts_read_stat(target->tgid, &facts) == 0 ? facts.faults : 0;
}

/* Uniform in [0, 1). */
static double draw(void)
{
	uint64_t bits = 0;

	if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) < 0)
		bits = clock_monotonic_ns() * 0x9e3779b97f4a7c15ull;
	return (double)(bits >> 11) * 0x1p-53;
}

static struct target *find_target(struct alloc_watch *watch, uint32_t proc)
{
	for (size_t i = 0; i < ARRAY_SIZE(watch->targets); i++)
		if (watch->targets[i].state != STATE_NONE && watch->targets[i].proc == proc)
			return &watch->targets[i];
	return NULL;
}

void alloc_tell(struct alloc_watch *watch, uint32_t proc, enum feed_alloc_what what,
		const char *reason)
{
	const struct feed_alloc record = { .time_ns = clock_monotonic_ns(), .proc = proc, .what = what };

	watch->host.record(watch->host.ctx, &record, reason);
}

/* ---- attaching and detaching ----------------------------------------------------------------- */

static void refuse(struct alloc_watch *watch, struct target *target, const char *reason)
{
	log_debug("process %u: its allocations are not observed: %s", target->tgid, reason);
	alloc_detach(watch, target);
	target->state = STATE_REFUSED;
	target->cut = false;
	alloc_look_stop(&target->look);
	alloc_tell(watch, target->proc, FEED_ALLOC_REFUSED, reason);
}

/* When its window opens. */
static uint64_t some_time_from(const struct target *target, uint64_t now_ns)
{
	const struct alloc_pace *pace = &target->pace;

	return now_ns + (uint64_t)(draw() * (double)(pace->next_period_ns - pace->next_window_ns));
}

static void begin_period(struct target *target, uint64_t now_ns)
{
	target->begin_ns = now_ns;
	target->begin_cpu_ns = cpu_ns(target);
	target->begin_faults = faults(target);
	target->open_ns = target->close_ns = 0;
	target->dropped = 0;
	target->births.count = 0;
	target->fresh = false;
	target->next_ns = some_time_from(target, now_ns);
}

/* A period whose window could not be opened goes on until there is one that speaks for all of it.
 */
static void skip_window(struct target *target, uint64_t now_ns)
{
	target->cut = false;
	target->state = STATE_IDLE;
	target->next_ns = some_time_from(target, now_ns);
}

static void open_slot(struct alloc_watch *watch, struct target *target)
{
	const struct alloc_slot slot = { .mean_gap_bytes = target->pace.gap_bytes,
					 .hits_max = target->pace.full ? UINT64_MAX : HITS_MAX,
					 .hits_alarm = alloc_pace_hits_granted(&target->pace),
					 .window = ++target->window,
					 .certain_bytes = target->pace.full && target->track
								  ? ALLOC_LARGE_BYTES
								  : 0,
					 .track = !target->track ? ALLOC_TRACK_NONE
						  : target->light ? ALLOC_TRACK_SAMPLED
								  : ALLOC_TRACK_ALL };

	target->busy = false;
	target->certain = slot.certain_bytes;
	alloc_probes_set_slot(watch->probes, target->slot, &slot);
	target->open_ns = clock_monotonic_ns();
	target->open_cpu_ns = cpu_ns(target);
	target->open_delay_ns = delay_ns(target);
}

/* Hits are counted from here on: the probes take their time to go. */
static void close_slot(struct alloc_watch *watch, const struct target *target)
{
	alloc_probes_set_slot(watch->probes, target->slot, &(struct alloc_slot){ .mean_gap_bytes = 0 });
}

static void take_outside(struct alloc_watch *watch, struct target *target)
{
	struct alloc_counts counts;

	alloc_probes_counts(watch->probes, target->slot, &counts);
	target->hits_outside += counts.hits;
	close_slot(watch, target);
}

struct looking {
	struct alloc_watch *watch;
	struct target *target;
};

static void forget(void *ctx, uint64_t address)
{
	const struct looking *looking = ctx;

	alloc_probes_forget(looking->watch->probes, looking->target->slot, address);
}

static void on_free_already(void *ctx, uint64_t address)
{
	const struct looking *looking = ctx;

	(void)alloc_heap_gone(looking->target->heap, address, clock_monotonic_ns(), false);
	forget(ctx, address);
}

/* A place for one more child that may never end: those that were killed wait for a page as long as
 * they must. */
static pid_t *room_for_stuck(struct alloc_watch *watch)
{
	for (size_t i = 0; i < ARRAY_SIZE(watch->stuck); i++) {
		if (watch->stuck[i] && kill(watch->stuck[i], 0) < 0)
			watch->stuck[i] = 0;
		if (!watch->stuck[i])
			return &watch->stuck[i];
	}
	return NULL;
}

bool alloc_look_at(struct alloc_watch *watch, struct target *target, bool code)
{
	cleanup_free struct alloc_followed *followed = NULL;
	struct alloc_look_request request = {
		.place = &target->place,
		.file = code ? &target->file : NULL,
		.headers = &target->headers,
		.turn = target->window,
		.turns = target->fresh
				 ? UINT32_MAX
				 : (uint32_t)(AROUND_NS / (target->pace.next_period_ns + 1)) + 1,
		.large = target->has_large ? &target->large : NULL
	};
	int rc;

	alloc_blocks_move(watch, target);
	if (target->track)
		request.followed_count = alloc_heap_tracked(target->heap);
	if (request.followed_count)
		followed = malloc(request.followed_count * sizeof(*followed));
	if (request.followed_count && !followed)
		return false;
	request.followed = followed;
	if (followed)
		request.followed_count = alloc_heap_followed(target->heap, followed, request.followed_count);
	if (!room_for_stuck(watch)) {
		refuse(watch, target,
		       "too many readers hang in programs whose memory does not answer");
		return false;
	}
	rc = alloc_look_start(&target->look, &request, clock_monotonic_ns());
	if (rc < 0)
		log_debug("process %u: its memory is not read now: %s", target->tgid, strerror(-rc));
	return rc == 0;
}

/* Lets go of addresses that were freed since the last window. */
static void take_seen(struct alloc_watch *watch, struct target *target)
{
	const struct alloc_seen *seen = target->look.seen;
	struct looking looking = { watch, target };

	if (!target->headers.key)
		target->headers.key = seen->key;
	for (size_t i = 0; seen->headers_read && i < seen->header_count; i++) {
		const struct alloc_header *header = &seen->headers[i];

		if (header->is_free)
			on_free_already(&looking, header->address);
		else
			alloc_heap_looked(target->heap, header->address, header->content, clock_monotonic_ns());
	}
	/* Moves go first: a block that moved during the reading is no longer at the address that
	 * was read. */
	alloc_blocks_move(watch, target);
	alloc_large_take(&target->large, seen->blocks, seen->block_count, seen->begun_ns);
	if (target->has_large)
		alloc_blocks_refill(watch, target);
}

static void attach(struct alloc_watch *watch, struct target *target)
{
	const bool light = !target->track || (target->pace.next_light && !target->pace.full);
	const struct alloc_attachment attachment = {
		.path = target->place.path,
		.bias = target->place.bias,
		.tgid = target->tgid,
		.slot = target->slot,
		.sites = target->place.sites,
		.site_count = target->place.site_count,
		.relays = target->place.family == ALLOC_FAMILY_GLIBC ||
			  target->place.family == ALLOC_FAMILY_MUSL,
		.frees = !light,
		.returns = target->track,
	};
	uint64_t window_ns = target->pace.next_window_ns;
	char reason[96];

	if (target->cut && window_ns > ALLOC_WINDOW_MIN_NS)
		window_ns = ALLOC_WINDOW_MIN_NS;
	target->link_fd = alloc_probes_attach(watch->probes, &attachment);
	if (target->link_fd < 0) {
		(void)snprintf(reason, sizeof(reason), "its allocator cannot be probed: %s",
			       strerror(-target->link_fd));
		target->link_fd = -1;
		refuse(watch, target, reason);
		return;
	}
	target->light = light;
	take_outside(watch, target);
	open_slot(watch, target);
	target->state = STATE_OPEN;
	target->next_ns = target->open_ns + window_ns;
}

static void take_counts(struct alloc_watch *watch, struct target *target)
{
	alloc_probes_counts(watch->probes, target->slot, &target->counts);
	target->close_cpu_ns = cpu_ns(target);
	target->close_delay_ns = target->pace.full ? UINT64_MAX : delay_ns(target);
	target->close_ns = clock_monotonic_ns();
}

void alloc_detach(struct alloc_watch *watch, struct target *target)
{
	if (target->link_fd < 0)
		return;
	take_counts(watch, target);
	(void)close(target->link_fd);
	target->link_fd = -1;
	close_slot(watch, target);
	target->state = STATE_CLOSED;
	target->next_ns = target->cut ? target->close_ns : target->begin_ns + target->pace.next_period_ns;
}

/* ---- the end of a period --------------------------------------------------------------------- */

/* The counters of the programs miss the wait that a window begins or ends in. */
static uint64_t delay_in_window(const struct target *target)
{
	if (target->open_delay_ns == UINT64_MAX || target->close_delay_ns == UINT64_MAX)
		return target->counts.delay_ns;
	return target->close_delay_ns > target->open_delay_ns
		       ? target->close_delay_ns - target->open_delay_ns
		       : 0;
}

static struct alloc_period period_of(const struct target *target, uint64_t now_ns)
{
	uint64_t now_cpu_ns = cpu_ns(target);

	return (struct alloc_period){
		.period_ns = now_ns - target->begin_ns,
		.window_ns = target->close_ns - target->open_ns,
		.period_cpu_ns = now_cpu_ns > target->begin_cpu_ns ? now_cpu_ns - target->begin_cpu_ns : 0,
		.window_cpu_ns = target->close_cpu_ns > target->open_cpu_ns
					 ? target->close_cpu_ns - target->open_cpu_ns
					 : 0,
		.hits = target->counts.hits,
		.hits_outside = target->hits_outside,
		.returns = target->counts.returns,
		.sampled = target->counts.sampled,
		.squares = target->counts.squares,
		.allocations = target->counts.allocations,
		.closer = target->counts.closer,
		.delay_ns = delay_in_window(target),
		.walk_ns = target->counts.walk_ns,
		.lost = target->counts.lost + target->dropped,
		.light = target->light,
	};
}

static void feed_births(struct alloc_watch *watch, struct target *target, double weight)
{
	for (size_t i = 0; i < target->births.count; i++) {
		struct prof_sample_event event = target->births.data[i];
		double objects = weight / alloc_inclusion(event.value, event.value2);

		event.value = (uint64_t)((double)event.value * objects + 0.5);
		event.value2 = (uint64_t)(objects * 1024 + 0.5);
		event.time_ns = target->begin_ns;
		event.object = target->window;
		event.source = 0;
		event.state = FEED_ALLOC_BIRTH;
		event.detail = 0;
		event.holder = 0;
		watch->host.sample(watch->host.ctx, &event);
	}
}

static void feed_period(struct alloc_watch *watch, const struct target *target,
			const struct alloc_period *seen)
{
	const uint64_t now_faults = faults(target);
	const struct feed_alloc record = {
		.time_ns = target->begin_ns,
		.since_ns = target->since_ns,
		.period_ns = seen->period_ns,
		.window_ns = seen->window_ns < seen->period_ns ? seen->window_ns : seen->period_ns,
		.cpu_ns = seen->period_cpu_ns,
		.cost_ns = (uint64_t)alloc_pace_cost_ns(&target->pace, seen),
		.window_cpu_ns = seen->window_cpu_ns,
		.hits = seen->hits,
		.sampled = seen->sampled,
		.lost = seen->lost,
		.gap_bytes = target->pace.gap_bytes,
		.faulted_bytes = now_faults > target->begin_faults
					 ? (now_faults - target->begin_faults) * PAGE_BYTES
					 : 0,
		.proc = target->proc,
		.what = FEED_ALLOC_PERIOD,
		.full = seen->window_ns >= seen->period_ns,
		.dilation = (uint8_t)(alloc_pace_dilation(&target->pace, target->light) * 100 + 0.5),
		.family = (uint8_t)target->place.family,
	};

	watch->host.record(watch->host.ctx, &record, "");
}

/* Samples that found no room are lost; the other samples bear their weight. */
static double accepted(const struct alloc_period *seen)
{
	if (!seen->sampled || seen->lost >= seen->sampled)
		return 1;
	return (double)seen->sampled / (double)(seen->sampled - seen->lost);
}

/* Everything of the window has been read. */
static void end_period(struct alloc_watch *watch, struct target *target, uint64_t now_ns)
{
	const bool stays = target->link_fd >= 0;
	struct alloc_period seen;
	struct alloc_window window;
	double weight;

	target->cut = false;
	if (stays) {
		take_counts(watch, target);
		now_ns = target->close_ns;
	} else {
		take_outside(watch, target);
	}
	seen = period_of(target, now_ns);
	/* Attached before the period began: it has seen all of it. */
	if (stays && target->open_ns <= target->begin_ns)
		seen.window_ns = seen.period_ns;
	weight = alloc_pace_weight(&target->pace, &seen);
	feed_births(watch, target, weight * accepted(&seen));
	/* A process with its number was met there: its own end had been lost, and it is observed no
	 * more. */
	if (target->state == STATE_NONE)
		return;
	window = (struct alloc_window){ .begin_ns = target->begin_ns,
					.end_ns = now_ns,
					.open_ns = target->open_ns,
					.close_ns = target->close_ns,
					.weight = weight * accepted(&seen),
					.dilation = alloc_pace_dilation(&target->pace, target->light),
					.blind = target->light };
	alloc_heap_close(target->heap, &window);
	alloc_heap_thin(target->heap, FOLLOWED_MAX, forget, &(struct looking){ watch, target });
	feed_period(watch, target, &seen);
	log_debug("allocations of %u: period %.1f ms cpu %.2f, %s window %.2f ms cpu %.2f, hits "
		  "%llu allocations %llu sampled "
		  "%llu, outside %llu, cost %.2f ms, delay %.2f ms, threads %.2f, dilation %.3f, "
		  "weight %.1f",
		  target->tgid, (double)seen.period_ns / 1e6, (double)seen.period_cpu_ns / 1e6,
		  seen.light ? "light" : "whole", (double)seen.window_ns / 1e6,
		  (double)seen.window_cpu_ns / 1e6, (unsigned long long)seen.hits,
		  (unsigned long long)seen.allocations, (unsigned long long)seen.sampled,
		  (unsigned long long)seen.hits_outside,
		  alloc_pace_cost_ns(&target->pace, &seen) / 1e6, (double)seen.delay_ns / 1e6,
		  seen.squares ? (double)seen.allocations * (double)seen.allocations /
					 (double)seen.squares
			       : 0,
		  alloc_pace_dilation(&target->pace, seen.light), weight);
	alloc_pace_judge(&target->pace, &seen);
	alloc_blocks_hand_over(target, &seen);
	target->hits_outside = 0;
	begin_period(target, now_ns);
	if (target->has_large)
		alloc_blocks_refill(watch, target);
	if (!stays) {
		target->state = STATE_IDLE;
	} else if (target->pace.full && !(target->track && target->light)) {
		open_slot(watch, target);
		target->begin_ns = target->open_ns;
		target->begin_faults = faults(target);
		target->begin_cpu_ns = target->open_cpu_ns;
		target->next_ns = target->begin_ns + target->pace.next_period_ns;
	} else {
		alloc_detach(watch, target);
		target->open_ns = target->close_ns = 0;
		target->counts = (struct alloc_counts){ 0 };
		begin_period(target, clock_monotonic_ns());
		target->state = STATE_IDLE;
	}
}

/* ---- events ------------------------------------------------------------------------------------
 */

void alloc_event(struct alloc_watch *watch, const struct prof_sample_event *event)
{
	struct target *target = event->holder < ALLOC_SLOTS_MAX ? &watch->targets[event->holder] : NULL;
	struct alloc_birth birth = { .stack = event->user_stack_hash,
				     .time_ns = event->time_ns,
				     .bytes = event->value,
				     .gap_bytes = event->value2,
				     .address = event->object };

	/* One that was refused before its allocator was found has no heap; its number may have been
	 * observed before. */
	if (!target || !target->heap || target->state < STATE_IDLE || target->tgid != event->tgid)
		return;
	if (event->detail == ALLOC_BUSY) {
		target->busy |= event->source == target->window;
		return;
	}
	if (event->detail == ALLOC_MAPPED) {
		const struct alloc_large_block block = { .at_va = event->object,
							 .ip = event->value,
							 .stack = event->user_stack_hash,
							 .time_ns = event->time_ns };

		if (alloc_large_saw(&target->large, &block) < 0)
			log_debug("process %u: too many large blocks", target->tgid);
		return;
	}
	if (event->detail != ALLOC_BIRTH) {
		if (alloc_large_ended(&target->large, event->object))
			return;
		(void)alloc_heap_gone(target->heap, event->object, event->time_ns,
				      event->detail == ALLOC_DEATH);
		return;
	}
	if (target->births.count >= BIRTHS_MAX || events_vec_push(&target->births, *event) < 0) {
		target->dropped++;
		return;
	}
	/* Known otherwise, and exactly. */
	if (target->has_large && alloc_large_is(birth.address, birth.bytes))
		return;
	if (target->certain && alloc_blocks_certain(target, &birth))
		return;
	if (target->track && alloc_heap_birth(target->heap, &birth) < 0)
		log_debug("process %u: too many places allocate", target->tgid);
}

/* ---- who is observed ---------------------------------------------------------------------------
 */

struct alloc_watch *alloc_create(const struct alloc_host *host)
{
	struct alloc_watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return NULL;
	watch->host = *host;
	for (size_t i = 0; i < ARRAY_SIZE(watch->targets); i++)
		watch->targets[i].link_fd = -1;
	return watch;
}

static void load_probes(struct alloc_watch *watch)
{
	struct err err = { 0 };
	double hit_ns = HIT_NS_DEFAULT, returned_ns = RETURNED_NS_DEFAULT;
	int rc;

	if (alloc_probes_create(watch->host.bpf, &watch->probes, &err) < 0) {
		(void)snprintf(watch->failure, sizeof(watch->failure), "%.199s", err.text);
		log_warn("%s", err.text);
		return;
	}
	rc = alloc_probes_measure(watch->probes, &hit_ns, &returned_ns);
	if (rc < 0)
		log_warn("the cost of probes could not be measured (%s): %.0f ns are assumed",
			 strerror(-rc), hit_ns);
	watch->costs =
		(struct alloc_costs){ .hit = hit_ns, .returned = returned_ns };
	log_info("allocation probes cost %.0f ns a hit here, %.0f with the return", hit_ns,
		 hit_ns + returned_ns);
}

/* Loads the programs; called when somebody first asks for allocations. The verifier may take longer
 * than sessions wait for an answer of the collector. */
static void open_watch(struct alloc_watch *watch)
{
	watch->host.loading(watch->host.ctx, true);
	load_probes(watch);
	watch->is_open = true; /* or not possible, alloc_is_possible() */
	watch->host.loading(watch->host.ctx, false);
}

/* Why what stays in use of a process is not followed, "" = it is. Addresses come from return
 * probes. */
static const char *live_refusal(struct alloc_watch *watch, uint32_t tgid)
{
	const bool filtered = alloc_check_is_filtered(tgid);

	if (filtered && !watch->is_open)
		open_watch(watch);
	if (!watch->probes)
		return "";
	if (filtered && !alloc_probes_pass_filters(watch->probes))
		return "a seccomp filter guards it, and this kernel's return probes would make the "
		       "filter end it: "
		       "alloc works, memory takes Linux 6.14";
	return "";
}

static void drop(struct alloc_watch *watch, struct target *target)
{
	struct alloc_followed followed[256];

	alloc_detach(watch, target);
	alloc_look_stop(&target->look);
	for (size_t count = 1; target->heap && count;) {
		count = alloc_heap_followed(target->heap, followed, ARRAY_SIZE(followed));
		for (size_t i = 0; i < count; i++) {
			(void)alloc_heap_gone(target->heap, followed[i].address, UINT64_MAX, false);
			alloc_probes_forget(watch->probes, target->slot, followed[i].address);
		}
	}
	alloc_probes_leave_large(watch->probes, target->tgid);
	alloc_large_deinit(&target->large);
	alloc_heap_destroy(target->heap);
	events_vec_deinit(&target->births);
	*target = (struct target){ .link_fd = -1 };
}

/* Finds its allocator; files that nobody has asked about yet are asked for. */
static int find_place(struct alloc_watch *watch, struct proc *proc, bool wait_for_files,
		      struct alloc_place *ret, struct err *err)
{
	int rc;

	if (!proc->engaged)
		watch->host.engage(watch->host.ctx, proc);
	rc = alloc_check_find(proc, watch->host.modules, wait_for_files, ret, err);
	for (size_t i = 0; rc == -EAGAIN && i < mapping_set_count(proc->mappings); i++) {
		struct module *module =
			module_table_get(watch->host.modules, mapping_set_at(proc->mappings, i)->module);

		if (module)
			module_index_ask(watch->host.index, module, true);
	}
	return rc;
}

/* Its allocator is sound: observation begins. */
static void observe(struct alloc_watch *watch, struct target *target, uint64_t now_ns)
{
	const char *reason = live_refusal(watch, target->tgid);

	alloc_pace_init(&target->pace, &watch->costs, BUDGET_SHARE);
	target->since_ns = now_ns;
	target->state = STATE_IDLE;
	target->track &= !reason[0];
	alloc_blocks_follow(watch, target);
	close_slot(watch, target);
	alloc_tell(watch, target->proc, FEED_ALLOC_READY, reason);
	begin_period(target, now_ns);
}

/* Finds its allocator, and has it looked at. */
static void settle(struct alloc_watch *watch, struct target *target, uint64_t now_ns)
{
	struct proc *proc = proc_table_by_id(watch->host.procs, target->proc);
	struct err err = { 0 };
	int rc;

	if (!proc || proc->ended_ns)
		return;
	target->next_ns = now_ns + NEW_AGAIN_NS;
	if (alloc_probes_are_in(watch->probes, target->tgid))
		return; /* of an observation that has just ended */
	rc = find_place(watch, proc, now_ns < target->since_ns + PATIENCE_NS, &target->place, &err);
	if (rc == -EAGAIN) {
		if (!target->told_late && now_ns > target->since_ns + NEW_LATE_NS) {
			target->told_late = true;
			alloc_tell(watch, target->proc, FEED_ALLOC_REFUSED,
				   "its files are not known yet; it is observed when they are");
		}
		if (target->told_late)
			target->next_ns = now_ns + NS_PER_S;
		return;
	}
	if (rc == 0 && clock_getcpuclockid((pid_t)target->tgid, &target->clock) != 0)
		rc = err_set(&err, ESRCH, NULL, NULL, "the process is gone");
	if (rc == 0)
		target->file = module_table_get(watch->host.modules, target->place.module)->file;
	if (rc == 0 && !target->heap) {
		target->headers = (struct alloc_headers){
			.tgid = target->tgid, .glibc = target->place.family == ALLOC_FAMILY_GLIBC
		};
		target->heap = alloc_heap_create();
	}
	if (rc == 0 && !target->heap)
		rc = err_set(&err, ENOMEM, NULL, NULL, "out of memory");
	if (rc < 0)
		refuse(watch, target, err.text);
	else if (alloc_look_at(watch, target, true))
		target->state = STATE_SETTLING;
}

void alloc_follow(struct alloc_watch *watch, struct proc *proc)
{
	const bool wanted = proc->wanted & (PROF_WANT_ALLOC | PROF_WANT_LIVE);
	struct target *target = find_target(watch, proc->id), *free_slot = NULL;

	if (!wanted || !watch->host.bpf) {
		if (target)
			drop(watch, target);
		return;
	}
	if (!watch->is_open)
		open_watch(watch);
	if (!watch->probes)
		return;
	if (target) {
		target->track |= (proc->wanted & PROF_WANT_LIVE) && !live_refusal(watch, proc->tgid)[0];
		alloc_blocks_follow(watch, target);
		return;
	}
	for (size_t i = 0; i + 1 < ARRAY_SIZE(watch->targets) && !free_slot; i++)
		if (watch->targets[i].state == STATE_NONE)
			free_slot = &watch->targets[i];
	if (!free_slot) {
		alloc_tell(watch, proc->id, FEED_ALLOC_REFUSED,
		     "too many processes are observed at once: profile fewer");
		return;
	}
	*free_slot = (struct target){ .state = STATE_NEW,
				      .slot = (uint32_t)(free_slot - watch->targets),
				      .proc = proc->id,
				      .tgid = proc->tgid,
				      .since_ns = clock_monotonic_ns(),
				      .track = proc->wanted & PROF_WANT_LIVE,
				      .link_fd = -1 };
	watch->host.ask_files(watch->host.ctx, proc); /* its stacks cannot be walked on later */
	settle(watch, free_slot, free_slot->since_ns);
}

void alloc_end(struct alloc_watch *watch, const struct proc *proc)
{
	struct target *target = find_target(watch, proc->id);

	if (target)
		drop(watch, target);
}

void alloc_ask(struct alloc_watch *watch, struct proc *proc)
{
	struct target *target = find_target(watch, proc->id);
	struct alloc_place place;
	const struct module *module;
	struct err err = { 0 };
	int rc;

	if (target && target->state >= STATE_IDLE && target->state != STATE_REFUSED) {
		alloc_tell(watch, proc->id, FEED_ALLOC_READY, live_refusal(watch, proc->tgid));
		return;
	}
	if (!alloc_is_possible(watch)) {
		alloc_tell(watch, proc->id, FEED_ALLOC_REFUSED,
		     watch->is_open ? watch->failure : watch->host.features->reason[FEATURE_UPROBE_EVENTS]);
		return;
	}
	rc = find_place(watch, proc, false, &place, &err);
	if (rc == -EAGAIN)
		return; /* whoever wants to know asks again */
	module = rc == 0 ? module_table_get(watch->host.modules, place.module) : NULL;
	if (rc == 0)
		rc = alloc_check_mapping(&place, &module->file, &err);
	alloc_tell(watch, proc->id, rc == 0 ? FEED_ALLOC_READY : FEED_ALLOC_REFUSED,
	     rc == 0 ? live_refusal(watch, proc->tgid) : err.text);
	/* The obstacle is gone: other sessions that want the process are still there. */
	if (rc == 0 && target && target->state == STATE_REFUSED) {
		target->state = STATE_NEW;
		target->since_ns = target->next_ns = clock_monotonic_ns();
	}
}

void alloc_destroy(struct alloc_watch *watch)
{
	if (!watch)
		return;
	for (size_t i = 0; watch->probes && i < ARRAY_SIZE(watch->targets); i++)
		if (watch->targets[i].state != STATE_NONE)
			drop(watch, &watch->targets[i]);
	alloc_probes_destroy(watch->probes);
	free(watch);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Takes the result of a look at its memory, if it is there, and decides what comes next. */
static void take_look(struct alloc_watch *watch, struct target *target, uint64_t now_ns)
{
	const pid_t pid = target->look.pid;
	pid_t *room = room_for_stuck(watch);
	const int rc = alloc_look_poll(&target->look, now_ns);
	struct err err = { 0 };

	if (rc == -EAGAIN)
		return;
	if (rc == -ETIMEDOUT) {
		if (room)
			*room = pid;
		refuse(watch, target,
		       "its memory cannot be read: somebody keeps its pages back (userfaultfd, FUSE)");
		return;
	}
	if (rc == 0) {
		err = target->look.seen->err;
		take_seen(watch, target);
	}
	alloc_look_stop(&target->look);
	if (err.code && err.code != ESRCH) /* the end of one that is gone will be told */
		refuse(watch, target, err.text);
	else if (target->state == STATE_SETTLING && (rc < 0 || err.code))
		target->state = STATE_NEW;
	else if (target->state == STATE_SETTLING)
		observe(watch, target, now_ns);
	else if (target->state == STATE_LOOKING && (rc < 0 || err.code))
		skip_window(target, now_ns);
	else if (target->state == STATE_LOOKING)
		attach(watch, target);
}

static void step(struct alloc_watch *watch, struct target *target, uint64_t now_ns)
{
	if (target->look.seen)
		take_look(watch, target, now_ns);
	if (target->fresh && target->state == STATE_CLOSED && !target->look.seen) {
		(void)alloc_look_at(watch, target, false);
		target->fresh = false;
	}
	/* It went from a thousand to a million allocations a second. */
	if (target->state == STATE_OPEN && target->busy) {
		log_debug(
			"process %u: its allocations cost more than was foreseen: the window ends",
			target->tgid);
		alloc_detach(watch, target);
		target->pace.full = false;
		target->next_ns = now_ns + AFTER_BUSY_NS;
		return;
	}
	if (now_ns < target->next_ns)
		return;
	switch (target->state) {
	case STATE_NEW:
		settle(watch, target, now_ns);
		break;
	case STATE_IDLE:
		/* Not while a sweep waits for the ends of all periods. */
		if (!watch->sweep_until_ns && !target->look.seen)
			target->state = STATE_LOOKING;
		break;
	case STATE_LOOKING:
		/* The probes of the last window take their time to go. */
		if (alloc_probes_are_in(watch->probes, target->tgid))
			target->next_ns = now_ns + LOOK_AGAIN_NS;
		else if (!target->look.seen && !alloc_look_at(watch, target, true) &&
			 target->state == STATE_LOOKING)
			skip_window(target, now_ns);
		break;
	case STATE_OPEN:
		/* The window in which it was found to be cheap goes on as the first full period. */
		if (target->pace.full)
			end_period(watch, target, now_ns);
		else
			alloc_detach(watch, target);
		target->fresh = target->state == STATE_CLOSED && target->track && !target->light;
		/* Probes that stay open are followed by no look of their own. */
		if (target->state == STATE_OPEN && alloc_blocks_are_unread(target) && !target->look.seen)
			(void)alloc_look_at(watch, target, false);
		break;
	case STATE_CLOSED:
		end_period(watch, target, now_ns);
		break;
	default:
		break;
	}
}

void alloc_tick(struct alloc_watch *watch, uint64_t now_ns)
{
	if (!watch->probes)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(watch->targets); i++) {
		struct target *target = &watch->targets[i];

		if (target->state != STATE_NONE && target->state != STATE_REFUSED)
			step(watch, target, now_ns);
	}
	if (watch->sweep_until_ns)
		alloc_sweep_go_on(watch);
}

int alloc_wait_ms(const struct alloc_watch *watch, int max_ms)
{
	uint64_t now_ns = clock_monotonic_ns(), least_ns = (uint64_t)max_ms * NS_PER_MS;

	for (size_t i = 0; i < ARRAY_SIZE(watch->targets); i++) {
		const struct target *target = &watch->targets[i];
		uint64_t left_ns = target->next_ns > now_ns ? target->next_ns - now_ns : 0;

		if (target->look.seen || target->fresh)
			left_ns = LOOK_AGAIN_NS;
		if (target->state != STATE_NONE && target->state != STATE_REFUSED && left_ns < least_ns)
			least_ns = left_ns;
	}
	/* Not a moment less: who wakes up too early has to wait on a CPU, which may be the program's. */
	return (int)((least_ns + NS_PER_MS - 1) / NS_PER_MS);
}
