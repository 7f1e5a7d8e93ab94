// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/lock_site.h"

#include <string.h>

#include "agent/profile/builder_internal.h"

static bool begins_with_any(const char *text, const char *const *beginnings, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strncmp(text, beginnings[i], strlen(beginnings[i])) == 0)
			return true;
	return false;
}

static bool is_of_lock(const struct profile *p, const struct profile_frame *frame)
{
	/* Base names of files, and functions that compilers inline or link statically. */
	static const char *const files[] = { "libc.so",	  "libc-",	  "libpthread", "ld-linux",
					     "ld-musl",	  "libstdc++.so", "libc++.so",	"libgcc_s",
					     "libgomp.so" };
	static const char *const functions[] = {
		"pthread_", "__pthread_", "___pthread_", "__gthread",  "__lll_",     "lll_",
		"futex_",   "__futex_",	  "__GI___",	 "std::",	 "core::",    "parking_lot",
		"lock_api", "syscall",	  "sem_wait",	 "sem_timedwait", "runtime.",
		"sync.(*",  "sync.runtime_", "internal/sync."
	};
	const struct profile_function *function = &p->functions[frame->function];
	const char *path = profile_string(p, p->mappings[frame->mapping].path);
	const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;

	if (frame->kind == PROFILE_FRAME_KERNEL || frame->kind == PROFILE_FRAME_MARKER)
		return true;
	return begins_with_any(base, files, ARRAY_SIZE(files)) ||
	       begins_with_any(profile_string(p, function->name), functions, ARRAY_SIZE(functions));
}

/* Of the kernel's locks, and of what watches them. */
static bool is_of_kernel_lock(const char *name)
{
	static const char *const functions[] = { "bpf_",    "__bpf_",  "__traceiter_", "trace_",
						 "__traceiter", "rwsem_", "__mutex_", "mutex_",
						 "ww_mutex_", "__ww_mutex", "down_", "__down_",
						 "percpu_down", "__percpu_down", "percpu_rwsem_",
						 "rt_mutex", "__rt_mutex", "rtmutex_" };

	return begins_with_any(name, functions, ARRAY_SIZE(functions)) || strncmp(name, "0x", 2) == 0 ||
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

		if (begins_with_any(profile_string(p, p->functions[frame->function].name), functions,
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

		if (!is_of_lock(p, frame))
			return p->functions[frame->function].name;
	}
	return 0;
}
