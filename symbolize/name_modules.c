// SPDX-License-Identifier: Apache-2.0
#include "symbolize/name_modules.h"

#include <errno.h>
#include <sys/stat.h>

#include "agent/base/hash.h"

void name_modules_init(struct name_modules *m)
{
	*m = (struct name_modules){ 0 };
	u64map_init(&m->by_key, NAME_MODULES_MAX);
}

static void close_files(struct name_modules *m, struct name_module *module)
{
	if (module->fd >= 0) {
		(void)close(module->fd);
		m->open--;
	}
	if (module->debug_fd >= 0)
		(void)close(module->debug_fd);
	module->fd = module->debug_fd = -1;
	module->debug_bytes = 0;
}

void name_modules_deinit(struct name_modules *m)
{
	for (size_t i = 0; i < m->modules.count; i++) {
		close_files(m, &m->modules.data[i]);
		free(m->modules.data[i].skeleton);
		free(m->modules.data[i].missing);
	}
	name_module_vec_deinit(&m->modules);
	u64map_deinit(&m->by_key);
}

struct name_module *name_modules_find(const struct name_modules *m, uint64_t key)
{
	uint64_t slot;

	return u64map_get(&m->by_key, key, &slot) ? &m->modules.data[slot] : NULL;
}

struct name_module *name_modules_at(const struct name_modules *m, size_t slot)
{
	return slot < m->modules.count ? &m->modules.data[slot] : NULL;
}

size_t name_modules_slot(const struct name_modules *m, const struct name_module *module)
{
	return (size_t)(module - m->modules.data);
}

/* A slot for a new module: a fresh one, else the next idle one in turn. */
static struct name_module *free_slot(struct name_modules *m)
{
	if (m->modules.count < NAME_MODULES_MAX) {
		if (name_module_vec_push(&m->modules, (struct name_module){ .fd = -1, .debug_fd = -1 }) < 0)
			return NULL;
		return &m->modules.data[m->modules.count - 1];
	}
	for (size_t i = 0; i < m->modules.count; i++) {
		struct name_module *module = &m->modules.data[m->reuse_at];

		m->reuse_at = (m->reuse_at + 1) % m->modules.count;
		if (module->state != NAME_MODULE_IDLE)
			continue;
		u64map_remove(&m->by_key, module->key);
		free(module->skeleton);
		free(module->missing);
		return module;
	}
	return NULL;
}

int name_modules_add(struct name_modules *m, uint64_t key, struct name_module **ret)
{
	struct name_module *module = name_modules_find(m, key);
	int rc;

	if (!module) {
		module = free_slot(m);
		if (!module)
			return m->modules.count < NAME_MODULES_MAX ? -ENOMEM : -ENOSPC;
		*module = (struct name_module){ .key = key, .fd = -1, .debug_fd = -1 };
		rc = u64map_put(&m->by_key, key, name_modules_slot(m, module));
		if (rc < 0)
			return rc;
	}
	*ret = module;
	return 0;
}

static unsigned *count_of(struct name_modules *m, uint8_t state)
{
	return state == NAME_MODULE_WAITING  ? &m->waiting
	       : state == NAME_MODULE_QUEUED ? &m->queued
					     : NULL;
}

void name_modules_set_state(struct name_modules *m, struct name_module *module,
			    enum name_module_state state)
{
	unsigned *count = count_of(m, module->state);

	if (count)
		(*count)--;
	count = count_of(m, state);
	if (count)
		(*count)++;
	module->state = (uint8_t)state;
	if (state != NAME_MODULE_IDLE)
		return;
	module->urgent = module->asked_missing = module->asked_package = false;
	close_files(m, module);
}

uint64_t name_modules_debug_identity(int fd)
{
	uint64_t hash = 0;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return 0;
	hash = hash_combine(st.st_dev, st.st_ino);
	hash = hash_combine(hash, (uint64_t)st.st_size);
	hash = hash_combine(hash, (uint64_t)st.st_ctim.tv_sec);
	return hash_combine(hash, (uint64_t)st.st_ctim.tv_nsec) | 1;
}

void name_modules_set_debug_take(struct name_module *module, int fd, bool fetched)
{
	struct stat st;

	module->debug_fd = fd;
	module->debug_fetched = fetched;
	module->debug_bytes = fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static uint64_t files_bytes(const struct name_module *module)
{
	return module->size_bytes + module->debug_bytes;
}

struct name_module *name_modules_next(const struct name_modules *m, uint64_t bytes_max)
{
	struct name_module *best = NULL;

	for (size_t i = 0; m->queued && i < m->modules.count; i++) {
		struct name_module *module = &m->modules.data[i];

		if (module->state != NAME_MODULE_QUEUED || (best && best->urgent && !module->urgent) ||
		    (bytes_max != UINT64_MAX && (module->large || files_bytes(module) > bytes_max)))
			continue;
		if (!best || (module->urgent && !best->urgent) || files_bytes(module) < files_bytes(best))
			best = module;
	}
	return best;
}

void name_modules_stop_waiting(struct name_modules *m, uint64_t before_ns)
{
	for (size_t i = 0; m->waiting && i < m->modules.count; i++) {
		struct name_module *module = &m->modules.data[i];

		if (module->state == NAME_MODULE_WAITING && module->debug_asked_ns < before_ns)
			name_modules_set_state(m, module,
					       module->fd >= 0 ? NAME_MODULE_QUEUED : NAME_MODULE_IDLE);
	}
}

void name_modules_forget_requests(struct name_modules *m)
{
	for (size_t i = 0; i < m->modules.count; i++)
		m->modules.data[i].index_request = 0;
}

void name_modules_forget_fetches(struct name_modules *m)
{
	for (size_t i = 0; i < m->modules.count; i++)
		m->modules.data[i].fetching = false;
}
