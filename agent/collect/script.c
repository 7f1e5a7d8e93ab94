// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/script.h"

#include <errno.h>
#include <string.h>

#include "agent/base/bytes.h"
#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/log.h"
#include "agent/collect/announce.h"

#define CHECK_WAIT_NS	  (5 * NS_PER_MS) /* the first wait for a runtime that has just begun */
#define CHECK_WAIT_MAX_NS (10 * NS_PER_S)
#define CHECK_REFUSALS	  5u /* of a process that runs while it is read: one may be chance */
#define REQUESTS_MAX	  8u /* processes that the reader is asked about at once */

/* ---- runtimes ----------------------------------------------------------------------------------
 */

static void move(uint64_t *address, uint64_t bias)
{
	if (*address)
		*address += bias;
}

/* Moves the addresses that the file says to where the process has mapped it. */
static void place_runtime(struct script_runtime *runtime, uint64_t bias)
{
	for (size_t i = 0; i < SCRIPT_RANGES_MAX; i++) {
		if (!runtime->ranges[i].end)
			continue;
		runtime->ranges[i].start += bias;
		runtime->ranges[i].end += bias;
	}
	if (runtime->kind == SCRIPT_HOTSPOT) {
		move(&runtime->hotspot.structs, bias);
		move(&runtime->hotspot.types, bias);
		for (size_t i = 0; i < SCRIPT_HOTSPOT_NAMES; i++)
			move(&runtime->hotspot.nmethod_names[i], bias);
		return;
	}
	if (runtime->kind == SCRIPT_V8)
		move(&runtime->v8.bytecode_sizes, bias);
	if (runtime->kind != SCRIPT_CPYTHON)
		return;
	move(&runtime->python.runtime, bias);
	move(&runtime->python.tls_got, bias);
	move(&runtime->python.code_type, bias);
}

void script_mapped(struct collector *c, struct proc *proc, const struct mapping *mapping)
{
	const struct module *module =
		mapping->module ? module_table_canonical(c->modules, mapping->module) : NULL;
	uint64_t start;

	if (proc->script || !module || !module->script)
		return;
	start = module->script->ranges[0].start + mapping->bias;
	if (start < mapping->start_va || start >= mapping->end_va)
		return;
	proc->script = script_frames_create(NULL);
	if (!proc->script)
		return;
	proc->script->runtime = *module->script;
	proc->script->interpreter = module->id;
	proc->script->fits = module->script_fits;
	place_runtime(&proc->script->runtime, mapping->bias);
	proc->script->due = true;
	c->script_due = true;
}

void script_find(struct collector *c, struct proc *proc)
{
	for (size_t i = 0; !proc->script && i < mapping_set_count(proc->mappings); i++)
		script_mapped(c, proc, mapping_set_at(proc->mappings, i));
}

bool script_is_awaited(const struct collector *c, const struct proc *proc)
{
	const struct script_frames *frames = proc->script;

	return c->reader_fd >= 0 && frames && frames->runtime.kind != SCRIPT_NONE &&
	       frames->state < SCRIPT_READY && !frames->wait_ns;
}

/* False: the reader takes no more now. */
static bool ask_check(struct collector *c, struct proc *proc)
{
	struct control_script_check check = {
		.head = { .kind = CONTROL_SCRIPT_CHECK, .request = proc->id },
		.tgid = proc->tgid,
		.start_boottime_ns = proc->start_boottime_ns,
		.runtime = proc->script->runtime,
	};

	if (channel_send(c->reader_fd, &check, sizeof(check), NULL, 0) < 0)
		return false;
	proc->script->state = SCRIPT_ASKED;
	c->script_requests++;
	return true;
}

static void publish_runtime(struct collector *c, struct proc *proc)
{
	if (c->bpf && bpf_agent_set_runtime(c->bpf, proc->tgid, &proc->script->runtime) < 0)
		log_debug("no room for the runtime of process %u in the BPF map", proc->tgid);
}

/* A program of the same file that has just begun has its threads' states at the same places: BPF
 * takes them until its own runtime was looked at. */
static void publish_for_file(struct collector *c, const struct script_frames *frames)
{
	struct module *module =
		frames->interpreter ? module_table_get(c->modules, frames->interpreter) : NULL;
	struct script_runtime runtime;

	if (!c->bpf || !module || !module->script || frames->runtime.kind != SCRIPT_CPYTHON)
		return;
	runtime = *module->script;
	runtime.python.tls_at = frames->runtime.python.tls_at;
	runtime.python.tss_at = frames->runtime.python.tss_at;
	module->script_fits = bpf_agent_set_file_runtime(c->bpf, module->id, &runtime) == 0;
	if (!module->script_fits)
		log_debug("no room for the runtime of %s in the BPF map", module->path);
}

static void on_checked(struct collector *c)
{
	const struct control_script_checked *answer = (const void *)c->message.data;
	struct script_frames *frames;
	struct proc *proc;

	if (c->message.len != sizeof(*answer))
		return;
	proc = proc_table_by_id(c->procs, answer->head.request);
	if (!proc || proc->ended_ns || !proc->script || proc->script->state != SCRIPT_ASKED)
		return;
	frames = proc->script;
	if (answer->status == 0 && answer->runtime.kind < SCRIPT_KIND_MAX) {
		frames->runtime = answer->runtime;
		frames->state = SCRIPT_READY;
		publish_for_file(c, frames);
		publish_runtime(c, proc);
	} else if (answer->status == -EAGAIN || answer->status == -ETIMEDOUT ||
		   (answer->status == -EOPNOTSUPP && frames->runtime.kind == SCRIPT_CPYTHON &&
		    ++frames->refusals < CHECK_REFUSALS)) {
		frames->state = SCRIPT_UNKNOWN;
		frames->wait_ns = frames->wait_ns ? 2 * frames->wait_ns : CHECK_WAIT_NS;
		if (frames->wait_ns > CHECK_WAIT_MAX_NS)
			frames->wait_ns = CHECK_WAIT_MAX_NS;
		frames->ask_ns = clock_monotonic_ns() + frames->wait_ns;
	} else {
		log_info("the script frames of process %u cannot be read: %s", proc->tgid,
			 strerror(-answer->status));
		frames->state = SCRIPT_REFUSED;
		frames->runtime.kind = SCRIPT_NONE;
		publish_runtime(c, proc); /* its stacks say that their script frames are missing */
	}
	frames->due = true;
}

void script_end(struct collector *c, struct proc *proc)
{
	if (c->bpf && proc->script && proc->script->state >= SCRIPT_READY)
		bpf_agent_drop_runtime(c->bpf, proc->tgid);
	if (proc->script)
		c->script_due = proc->script->due = true;
}

void script_forked(struct collector *c, struct proc *proc)
{
	/* The kernel copied what was in its map at the fork. */
	if (proc->script && proc->script->state >= SCRIPT_READY)
		publish_runtime(c, proc);
}

/* ---- frames ------------------------------------------------------------------------------------
 */

static const char *module_name(uint32_t kind)
{
	static const char *const names[SCRIPT_KIND_MAX] = {
		[SCRIPT_CPYTHON] = "[python]",
		[SCRIPT_HOTSPOT] = "[java]",
		[SCRIPT_V8] = "[js]",
	};

	return kind < SCRIPT_KIND_MAX && names[kind] ? names[kind] : "[script]";
}

uint64_t script_frame_word(struct collector *c, struct proc *proc, uint64_t a, uint64_t b)
{
	struct script_frames *frames = proc->script;
	struct module *module;
	uint64_t key;

	if (!frames) /* the runtime was its parent's, and the fork was not seen */
		frames = proc->script = script_frames_create(NULL);
	if (!frames)
		return 0;
	if (!frames->module) {
		module = module_table_add(c->modules, FEED_MODULE_SCRIPT,
					  module_name(script_word_runtime(a)));
		if (!module)
			return 0;
		key = hash_combine(hash_combine(c->epoch, proc->tgid), proc->start_boottime_ns);
		key = hash_combine(hash_combine(key, proc->exec_generation), FEED_MODULE_SCRIPT);
		module_table_set_key(c->modules, module, key);
		module->state = MODULE_READY;
		module->changed = false;
		frames->module = module->id;
		(void)!announce_module(c, module);
	}
	c->script_due = true;
	return prof_frame_module(frames->module, script_frames_number(frames, a, b), 0);
}

/* ---- names -------------------------------------------------------------------------------------
 */

/* False: the reader takes no more now. */
static bool ask_names(struct collector *c, struct proc *proc)
{
	struct script_frames *frames = proc->script;
	struct control_script_names ask = {
		.head = { .kind = CONTROL_SCRIPT_NAMES, .request = proc->id },
		.tgid = proc->tgid,
		.start_boottime_ns = proc->start_boottime_ns,
		.runtime = frames->runtime,
	};
	size_t count = frames->frames.count - frames->asked;

	if (count > CONTROL_SCRIPT_PLACES_MAX)
		count = CONTROL_SCRIPT_PLACES_MAX;
	for (size_t i = 0; i < count; i++) {
		const struct script_frame *frame = &frames->frames.data[frames->asked + i];

		ask.places[i] = (struct control_script_place){ frame->a, frame->b };
	}
	ask.count = (uint32_t)count;
	if (channel_send(c->reader_fd, &ask,
			 offsetof(struct control_script_names, places) + count * sizeof(ask.places[0]),
			 NULL, 0) < 0)
		return false;
	frames->flight = count;
	c->script_requests++;
	return true;
}

static void end_names(struct script_frames *frames)
{
	frames->asked += frames->flight;
	frames->flight = 0;
	frames->due = true;
}

/* One text of a name; false: it is none. */
static bool take_text(struct bytes *in)
{
	uint16_t len = bytes_u16(in);
	const char *text = bytes_take(in, len);

	return text && len <= SCRIPT_NAME_MAX && !memchr(text, 0, len);
}

/* One entry of the payload; false: it is none. */
static bool take_name(struct script_frames *frames, size_t number, struct bytes *in)
{
	uint16_t count = bytes_u16(in);
	const uint8_t *begin = in->at;

	if (in->failed || count > SCRIPT_FUNCTIONS_MAX)
		return false;
	for (uint16_t i = 0; i < count; i++)
		if (!bytes_take(in, 2 * sizeof(uint32_t)) || !take_text(in) || !take_text(in))
			return false;
	(void)script_frames_name(frames, number, begin, (size_t)(in->at - begin));
	return true;
}

/* True: that was the last answer to the request. */
static bool on_named(struct collector *c)
{
	const struct control_script_named *answer = (const void *)c->message.data;
	struct script_frames *frames;
	struct proc *proc;
	struct bytes in;

	if (c->message.len < sizeof(*answer))
		return false;
	in = bytes_of(c->message.data + sizeof(*answer), c->message.len - sizeof(*answer));
	proc = proc_table_by_id(c->procs, answer->head.request);
	frames = proc ? proc->script : NULL;
	if (!frames || !frames->flight)
		return !answer->more;
	for (uint32_t i = 0; answer->status == 0 && i < answer->count; i++) {
		if (answer->first >= frames->flight || i >= frames->flight - answer->first ||
		    !take_name(frames, frames->asked + answer->first + i, &in))
			break;
	}
	if (answer->more)
		return false;
	end_names(frames);
	return true;
}

/* False: the feed is full. */
static bool feed_names(struct collector *c, struct script_frames *frames)
{
	const struct module *module = module_table_get(c->modules, frames->module);

	for (size_t i = 1; module && i < frames->frames.count; i++) {
		struct script_frame *frame = &frames->frames.data[i];

		if (frame->fed || !frame->functions)
			continue;
		if (feed_write_script(&c->feed, module->key, i, frame) < 0)
			return false;
		frame->fed = true;
	}
	return true;
}

void script_feed_again(struct collector *c)
{
	struct proc *proc;
	size_t at = 0;

	while ((proc = proc_table_next_kept(c->procs, &at)))
		if (proc->script)
			script_frames_feed_again(proc->script);
	c->script_due = true;
}

/* ---- the reader --------------------------------------------------------------------------------
 */

/* True: something of it stays due, if only when it is time or the reader has answered others. */
static bool pump(struct collector *c, struct proc *proc, uint64_t now_ns)
{
	struct script_frames *frames = proc->script;
	bool is_unknown = frames->state == SCRIPT_UNKNOWN && frames->runtime.kind != SCRIPT_NONE;
	bool waits = false, is_refused = false, may_ask = c->script_requests < REQUESTS_MAX;

	if (proc->ended_ns && !frames->flight)
		script_frames_adopt(frames);
	if (!feed_names(c, frames)) {
		c->script_due = true;
		return true;
	}
	if (proc->ended_ns || c->reader_fd < 0)
		return false;
	if (is_unknown && now_ns < frames->ask_ns) {
		c->script_at_ns = c->script_at_ns < frames->ask_ns ? c->script_at_ns : frames->ask_ns;
		waits = true;
	} else if (is_unknown) {
		waits = !may_ask;
		is_refused = may_ask && !ask_check(c, proc);
	}
	while (frames->asked < frames->frames.count && frames->frames.data[frames->asked].functions)
		frames->asked++; /* inherited */
	if ((frames->state == SCRIPT_READY || (frames->fits && frames->state != SCRIPT_REFUSED)) &&
	    !frames->flight && frames->asked < frames->frames.count) {
		waits |= !may_ask;
		is_refused |= may_ask && !ask_names(c, proc);
	}
	c->script_due |= is_refused;
	return waits || is_refused;
}

void script_pump(struct collector *c, uint64_t now_ns)
{
	struct proc *proc;
	size_t at = 0;

	if (!c->script_due && now_ns < c->script_at_ns)
		return;
	c->script_due = false;
	c->script_at_ns = UINT64_MAX;
	while ((proc = proc_table_next_kept(c->procs, &at)))
		if (proc->script && proc->script->due)
			proc->script->due = pump(c, proc, now_ns);
}

int script_wait_ms(const struct collector *c, int max)
{
	uint64_t now_ns = clock_monotonic_ns(), wait_ms;

	if (c->script_at_ns <= now_ns)
		return 1;
	wait_ms = (c->script_at_ns - now_ns) / NS_PER_MS + 1;
	return wait_ms < (uint64_t)max ? (int)wait_ms : max;
}

static void close_reader(struct collector *c)
{
	struct proc *proc;
	size_t at = 0;

	if (c->reader_fd >= 0)
		(void)close(c->reader_fd);
	c->reader_fd = -1;
	c->script_requests = 0;
	/* Questions that the former reader did not answer are asked again. */
	while ((proc = proc_table_next_kept(c->procs, &at))) {
		if (!proc->script)
			continue;
		if (proc->script->state == SCRIPT_ASKED)
			proc->script->state = SCRIPT_UNKNOWN;
		proc->script->flight = 0;
		proc->script->due = true;
	}
	c->script_due = true;
}

void script_set_reader(struct collector *c, int fd)
{
	close_reader(c);
	c->reader_fd = fd;
}

void script_receive(struct collector *c)
{
	while (c->reader_fd >= 0) {
		const struct channel_head *head = (const void *)c->message.data;
		int rc = channel_receive(c->reader_fd, &c->message);
		bool is_answered = false; /* others may ask */

		if (rc == 0)
			break;
		if (rc == -EPROTO)
			continue;
		if (rc < 0) {
			close_reader(c);
			break;
		}
		if (head->kind == CONTROL_SCRIPT_CHECKED) {
			on_checked(c);
			is_answered = true;
		} else if (head->kind == CONTROL_SCRIPT_NAMED) {
			is_answered = on_named(c);
		}
		c->script_requests -= is_answered && c->script_requests;
		c->script_due |= is_answered;
		channel_message_close(&c->message);
	}
	script_pump(c, clock_monotonic_ns());
}
