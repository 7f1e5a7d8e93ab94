// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/lock_site.h"

#include <string.h>

#include "agent/base/text.h"
#include "agent/profile/builder_internal.h"

static const char *file_of(const struct profile *p, const struct profile_frame *frame)
{
	const char *path = profile_string(p, p->mappings[frame->mapping].path);

	return text_file_name(path);
}

bool lock_site_is_part(const struct profile *p, const struct profile_frame *frame)
{
	/* Base names of files, and functions that compilers inline or link statically. */
	static const char *const files[] = { "libc.so",	  "libc-",	  "libpthread", "ld-linux",
					     "ld-musl",	  "libstdc++.so", "libc++.so",	"libgcc_s",
					     "libgomp.so" };
	static const char *const functions[] = {
		"pthread_", "__pthread_", "___pthread_", "__gthread",  "__lll_",     "lll_",
		"futex_",   "__futex_",	  "__GI___",	 "std::",	 "core::",    "parking_lot",
		"lock_api", "syscall",	  "sem_wait",	 "sem_timedwait", "runtime.",
		"sync.(*",  "sync.runtime_", "internal/sync.", "__timedwait" /* musl */
	};
	const char *name = profile_string(p, p->functions[frame->function].name);

	if (frame->kind == PROFILE_FRAME_KERNEL || frame->kind == PROFILE_FRAME_MARKER)
		return true;
	if (name[0] == '<' && !strstr(name, " as ")) /* <std::sync::Condvar>::wait */
		name++;
	else if (text_begins(name, "void ") || text_begins(name, "bool ")) /* of C++'s templates */
		name += 5;
	return text_begins_any(file_of(p, frame), files, ARRAY_SIZE(files)) ||
	       text_begins_any(name, functions, ARRAY_SIZE(functions));
}

/* Rust puts a method's type into angle brackets or not, by the way names are mangled. */
static bool mentions(const char *name, const char *part)
{
	for (; *name; name++) {
		const char *at = name, *wanted = part;

		while (*wanted && (*at == *wanted || *at == '<' || *at == '>'))
			wanted += *at++ == *wanted;
		if (!*wanted)
			return true;
	}
	return false;
}

static bool mentions_any(const char *name, const char *const *parts, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (mentions(name, parts[i]))
			return true;
	return false;
}

/* Whether @name is a function of the kernel's locks, or of what watches them. */
static bool is_of_kernel_lock(const char *name)
{
	static const char *const functions[] = { "bpf_",    "__bpf_",  "__traceiter_", "trace_",
						 "__traceiter", "rwsem_", "__mutex_", "mutex_",
						 "ww_mutex_", "__ww_mutex", "down_", "__down_",
						 "percpu_down", "__percpu_down", "percpu_rwsem_",
						 "rt_mutex", "__rt_mutex", "rtmutex_" };

	return text_begins_any(name, functions, ARRAY_SIZE(functions)) || text_begins(name, "0x") ||
	       name[0] == '[';
}

uint32_t lock_site_kernel(const struct profile_builder *b, uint32_t node)
{
	const struct profile *p = b->p;

	for (; node && node < p->node_count; node = p->nodes[node].parent) {
		const struct profile_frame *frame = &p->frames[p->nodes[node].frame];
		uint32_t name = p->functions[frame->function].name;

		if (!is_of_kernel_lock(profile_string(p, name)))
			return name;
	}
	return 0;
}

uint32_t lock_site_interrupt(const struct profile_builder *b, uint32_t node, uint32_t above)
{
	static const char *const functions[] = { "asm_sysvec_", "asm_common_interrupt" };
	const struct profile *p = b->p;
	uint32_t found = 0;

	for (; node && node != above && node < p->node_count; node = p->nodes[node].parent) {
		const struct profile_frame *frame = &p->frames[p->nodes[node].frame];

		if (text_begins_any(profile_string(p, p->functions[frame->function].name), functions,
				    ARRAY_SIZE(functions)))
			found = node;
	}
	return found;
}

uint32_t lock_site(const struct profile_builder *b, uint32_t node)
{
	const struct profile *p = b->p;

	for (; node && node < p->node_count; node = p->nodes[node].parent) {
		const struct profile_frame *frame = &p->frames[p->nodes[node].frame];

		if (!lock_site_is_part(p, frame))
			return p->functions[frame->function].name;
	}
	return 0;
}

/* The innermost one that is known decides: who wakes from a condition waits for its mutex next, in
 * the same call. */
bool lock_site_is_other(const struct profile_builder *b, uint32_t node)
{
	/* Rust's names are those of its library's sys/…/futex.rs since 1.62, which moved from
	 * module to module; mpsc parks. */
	static const char *const locks[] = { "::lock_contended",  "::read_contended",
					     "::write_contended", "pthread_mutex_",
					     "pthread_rwlock_",	  "lll_lock" };
	static const char *const others[] = {
		"Parker::park",	 "thread::park",	"Thread::park",	 "Condvar::wait",
		"sync::mpsc::",	 "sync::mpmc::",	"Barrier::wait", "__platform_wait",
		"__atomic_wait", "pthread_barrier_wait"
	};
	/* of musl: glibc's expect another value than its mutexes, and their waits for the mutex
	 * often have no name */
	static const char *const conditions[] = { "pthread_cond_wait", "pthread_cond_timedwait" };
	static const char *const glibc[] = { "libc.so.6", "libc-2.", "libpthread-2." };
	const struct profile *p = b->p;

	for (; node && node < p->node_count; node = p->nodes[node].parent) {
		const struct profile_frame *frame = &p->frames[p->nodes[node].frame];
		const char *name = profile_string(p, p->functions[frame->function].name);

		if (!lock_site_is_part(p, frame) || mentions_any(name, locks, ARRAY_SIZE(locks)))
			return false;
		if (mentions_any(name, others, ARRAY_SIZE(others)) ||
		    (mentions_any(name, conditions, ARRAY_SIZE(conditions)) &&
		     !text_begins_any(file_of(p, frame), glibc, ARRAY_SIZE(glibc))))
			return true;
	}
	return false;
}
