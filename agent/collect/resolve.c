// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/resolve.h"

#include "agent/base/hash.h"
#include "agent/collect/announce.h"
#include "agent/collect/modules/module_files.h"
#include "agent/collect/publish.h"
#include "agent/collect/script.h"

struct resolving {
	struct collector *c;
	struct proc *proc;
	uint64_t time_ns;
	uint64_t script; /* word A of the script frame whose word B is next, 0 = none */
};

/* The first stack through @module: it gets names, from the file as the sampled process has it
 * mapped, which is there to be opened even if its path leads elsewhere by now. */
static void name_module(struct collector *c, const struct proc *proc, struct module *module)
{
	struct module *mapped = module;

	for (size_t i = 0; i < mapping_set_count(proc->mappings); i++) {
		const struct mapping *mapping = mapping_set_at(proc->mappings, i);

		if (module_table_canonical(c->modules, mapping->module) != module)
			continue;
		mapped = module_table_get(c->modules, mapping->module);
		mapped->origin = module_files_origin(proc, mapping);
		break;
	}
	module->names_later = false;
	mapped->names_later = true;
	if (module_index_name(c->index, mapped))
		return;
	module->gone = true;
	(void)!announce_module(c, module);
}

/* The module a frame is attributed to. Its table is asked for again if it had to give way. */
static struct module *use_module(const struct resolving *r, uint32_t id)
{
	struct collector *c = r->c;
	struct module *module = module_table_canonical(c->modules, id);

	if (!module)
		return NULL;
	module->used_ns = r->time_ns;
	if (module->id != id)
		module_table_get(c->modules, id)->aliased = true;
	if (module->names_later)
		name_module(c, r->proc, module);
	if (module->table_evicted && module->state == MODULE_READY) {
		module->table_evicted = false;
		module->state = MODULE_SEEN;
		module_index_ask(c->index, module, false);
	}
	return module;
}

static uint64_t resolve_kernel(const struct collector *c, uint64_t frame)
{
	uint64_t flags = frame & (PROF_FRAME_RETURN | PROF_FRAME_GUESSED);
	uint64_t va = frame & PROF_FRAME_ADDRESS_MASK;

	if (!c->kernel_text || va < c->kernel_text || va - c->kernel_text > PROF_FRAME_OFFSET_MASK)
		return frame;
	return prof_frame_module(c->kernel_module, va - c->kernel_text, flags);
}

static uint64_t resolve_address(struct resolving *r, uint64_t frame)
{
	uint64_t flags = frame & (PROF_FRAME_RETURN | PROF_FRAME_GUESSED);
	uint64_t va = frame & PROF_FRAME_ADDRESS_MASK;
	const struct mapping *mapping;
	struct module *module;
	uint32_t jit;

	/* A call at the end of a mapping returns behind it. */
	mapping = mapping_set_find(r->proc->mappings, va - !!(flags & PROF_FRAME_RETURN),
				   r->time_ns);
	if (!mapping)
		return frame;
	module = mapping->module ? use_module(r, mapping->module) : NULL;
	if (module && !module_is_jit(module)) {
		if (va - mapping->bias > PROF_FRAME_OFFSET_MASK)
			return frame;
		return prof_frame_module(module->id, va - mapping->bias, flags);
	}
	jit = publish_jit_module(r->c, r->proc);
	return jit ? prof_frame_module(jit, va & PROF_FRAME_OFFSET_MASK, flags) : frame;
}

/* Is the frame one of WebAssembly or of a regular expression, and does V8 write a file of names?
 * The walk knows only what kind of code this is. */
static bool is_named_by_map(struct resolving *r, uint64_t a)
{
	uint32_t frame = (uint32_t)(a >> SCRIPT_HOTSPOT_FRAME_SHIFT) & 15;
	const struct module *jit;

	if (script_word_runtime(a) != SCRIPT_V8 ||
	    (frame != SCRIPT_V8_WASM && frame != SCRIPT_V8_REGEXP))
		return false;
	jit = module_table_get(r->c->modules, publish_jit_module(r->c, r->proc));
	return jit && jit->flags & INDEXED_SYMBOLS;
}

static uint64_t resolve_script(struct resolving *r, uint64_t b)
{
	uint64_t a = r->script, flags = b & SCRIPT_V8_RETURN ? PROF_FRAME_RETURN : 0;

	r->script = 0;
	if (a && is_named_by_map(r, a))
		return resolve_address(r, prof_frame_address(PROF_FRAME_ADDRESS,
							     a & SCRIPT_HOTSPOT_POINTER_MASK, flags));
	return a ? script_frame_word(r->c, r->proc, a, b) : 0;
}

/* A frame of a file in memory that turned out to hold generated code: BPF took it for a file like
 * others. */
static uint64_t resolve_generated(struct resolving *r, uint64_t frame)
{
	uint64_t flags = frame & (PROF_FRAME_RETURN | PROF_FRAME_GUESSED);

	for (size_t i = 0; i < mapping_set_count(r->proc->mappings); i++) {
		const struct mapping *mapping = mapping_set_at(r->proc->mappings, i);
		uint64_t va = mapping->bias + prof_frame_offset(frame);

		if (mapping->module == prof_frame_module_id(frame) && va >= mapping->start_va &&
		    va < mapping->end_va)
			return resolve_address(r, prof_frame_address(PROF_FRAME_ADDRESS, va, flags));
	}
	return frame;
}

static uint64_t resolve_frame(void *ctx, uint64_t frame)
{
	struct resolving *r = ctx;
	struct module *module;

	switch (prof_frame_kind(frame)) {
	case PROF_FRAME_SCRIPT:
		r->script = frame;
		return 0;
	case PROF_FRAME_SCRIPT_AT:
		return resolve_script(r, frame);
	case PROF_FRAME_KERNEL:
		return resolve_kernel(r->c, frame);
	case PROF_FRAME_ADDRESS:
		return resolve_address(r, frame);
	case PROF_FRAME_MODULE:
		module = use_module(r, prof_frame_module_id(frame));
		if (!module)
			return frame;
		if (module_is_jit(module))
			return resolve_generated(r, frame);
		return prof_frame_module(module->id, prof_frame_offset(frame),
					 frame & (PROF_FRAME_RETURN | PROF_FRAME_GUESSED));
	default:
		return frame;
	}
}

static bool resolve_key(void *ctx, uint32_t id, uint64_t *ret)
{
	const struct resolving *r = ctx;
	const struct module *module = module_table_get(r->c->modules, id);

	if (!module || !module->key)
		return false;
	*ret = module->key;
	return true;
}

void resolve_stack(struct collector *c, struct stack *stack, struct proc *proc, uint64_t time_ns)
{
	struct resolving resolving = { .c = c, .proc = proc, .time_ns = time_ns };
	struct stack_resolver resolver = {
		.ctx = &resolving,
		.frame = resolve_frame,
		.key = resolve_key,
		.version = c->knowledge,
		.salt = hash_combine(c->epoch, proc->id),
	};

	(void)stack_table_normalize(c->stacks, stack, &resolver);
}

static bool is_loop(const struct collector *c, uint64_t frame)
{
	uint64_t pc = prof_frame_offset(frame) - !!(frame & PROF_FRAME_RETURN);
	const struct module *module;

	if (prof_frame_kind(frame) != PROF_FRAME_MODULE)
		return false;
	module = module_table_canonical(c->modules, prof_frame_module_id(frame));
	return module && module->script && module->script->kind == SCRIPT_CPYTHON &&
	       script_is_in_ranges(module->script->ranges, pc);
}

/* The kernel reads script frames at the sample; what is walked later has none. */
static bool lacks_script(const struct collector *c, const uint64_t *frames, uint16_t frame_count)
{
	for (uint16_t i = frame_count; i-- > 0;)
		if (is_loop(c, frames[i]))
			return i + 1 == frame_count || prof_frame_kind(frames[i + 1]) != PROF_FRAME_SCRIPT;
	return false;
}

void resolve_promised(struct collector *c, struct proc *proc, uint64_t time_ns, uint64_t id,
			   const uint64_t *frames, uint16_t frame_count, uint8_t outcome)
{
	struct resolving resolving = { .c = c, .proc = proc, .time_ns = time_ns };
	uint64_t words[STACK_WORDS_MAX];
	struct stack *stack;

	if (frame_count > STACK_WORDS_MAX)
		return;
	for (uint16_t i = 0; i < frame_count; i++)
		words[i] = resolve_frame(&resolving, frames[i]);
	if (outcome == OUTCOME_complete && lacks_script(c, frames, frame_count))
		outcome = OUTCOME_script_state;
	stack = stack_table_put_as(c->stacks, id, words, frame_count, outcome);
	if (stack)
		announce_stack(c, id); /* what does not fit is asked for again */
	else
		c->own_outcomes[OUTCOME_stack_missing]++;
}
