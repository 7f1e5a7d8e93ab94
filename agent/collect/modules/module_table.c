// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/modules/module_table.h"

#include <string.h>
#include <sys/sysmacros.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/text.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"

VEC_DEFINE(module, struct module *);
VEC_DEFINE(free_id, uint32_t);

struct module_table {
	struct module_vec modules; /* index = id - 1; NULL = removed, its id is free */
	struct free_id_vec free_ids; /* in the order they became free, from free_at on */
	size_t free_at;
	struct u64map by_file;	   /* hash of device and inode -> id */
	struct u64map by_key;	   /* key -> canonical id */
	uint64_t table_bytes;
	struct module *overflow;
};

struct module_table *module_table_create(void)
{
	struct module_table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	u64map_init(&table->by_file, PROF_MODULES_MAX);
	u64map_init(&table->by_key, PROF_MODULES_MAX);
	return table;
}

static void module_free(struct module *module)
{
	if (!module)
		return;
	free(module->path);
	free(module->alloc_sites);
	free(module->script);
	free(module);
}
CLEANUP_DEFINE(module, struct module *, module_free);

void module_table_destroy(struct module_table *table)
{
	if (!table)
		return;
	for (size_t i = 0; i < table->modules.count; i++)
		module_free(table->modules.data[i]);
	module_vec_deinit(&table->modules);
	free_id_vec_deinit(&table->free_ids);
	u64map_deinit(&table->by_file);
	u64map_deinit(&table->by_key);
	free(table);
}

struct module *module_table_get(const struct module_table *table, uint32_t id)
{
	return id >= 1 && id <= table->modules.count ? table->modules.data[id - 1] : NULL;
}

struct module *module_table_next(const struct module_table *table, size_t *at)
{
	while (*at < table->modules.count) {
		struct module *module = table->modules.data[(*at)++];

		if (module)
			return module;
	}
	return NULL;
}

static size_t free_count(const struct module_table *table)
{
	return table->free_ids.count - table->free_at;
}

uint32_t module_table_count(const struct module_table *table)
{
	return (uint32_t)(table->modules.count - free_count(table));
}

/* The id that has been free for longest, else a new one; 0 = no memory. */
static uint32_t take_id(struct module_table *table)
{
	uint32_t id;

	if (!free_count(table)) {
		if (module_vec_push(&table->modules, NULL) < 0)
			return 0;
		return (uint32_t)table->modules.count;
	}
	id = table->free_ids.data[table->free_at++];
	if (table->free_at * 2 > table->free_ids.count) {
		table->free_ids.count -= table->free_at;
		memmove(table->free_ids.data, table->free_ids.data + table->free_at,
			table->free_ids.count * sizeof(*table->free_ids.data));
		table->free_at = 0;
	}
	return id;
}

static struct module *add(struct module_table *table, enum feed_module_kind kind, const char *path)
{
	cleanup(module) struct module *module = calloc(1, sizeof(*module));

	if (!module)
		return NULL;
	module->path = strdup(path);
	if (!module->path)
		return NULL;
	module->id = take_id(table);
	if (!module->id)
		return NULL;
	module->canonical = module->id;
	module->kind = kind;
	table->modules.data[module->id - 1] = module;
	return take_ptr(module);
}

/* The last id stands for everything beyond. */
static struct module *overflow(struct module_table *table)
{
	if (!table->overflow) {
		table->overflow = add(table, FEED_MODULE_UNREADABLE, "[too many files]");
		if (table->overflow) {
			table->overflow->state = MODULE_FAILED;
			table->overflow->key = hash_bytes("overflow", 8, 0);
		}
	}
	return table->overflow;
}

struct module *module_table_add(struct module_table *table, enum feed_module_kind kind,
				const char *path)
{
	if (module_table_count(table) + 2 >= PROF_MODULES_MAX)
		return NULL;
	return add(table, kind, path);
}

static uint64_t file_hash(const struct module_file *file)
{
	return hash_combine(hash_combine(file->inode, file->dev_major), file->dev_minor);
}

static bool same_file(struct module *module, const struct module_file *file)
{
	if (module->file.inode != file->inode || module->file.dev_major != file->dev_major ||
	    module->file.dev_minor != file->dev_minor)
		return false;
	if (!module->file.generation)
		module->file.generation = file->generation;
	return !file->generation || module->file.generation == file->generation;
}

struct module *module_table_find(const struct module_table *table, const struct module_file *file)
{
	struct module *module;
	uint64_t id;

	if (!u64map_get(&table->by_file, file_hash(file), &id))
		return NULL;
	module = module_table_get(table, (uint32_t)id);
	return same_file(module, file) ? module : NULL;
}

struct module *module_table_file(struct module_table *table, const struct module_file *file,
				 const char *path)
{
	struct module *module = module_table_find(table, file);

	if (module)
		return module;
	module = module_table_add(table, FEED_MODULE_ELF, path);
	if (!module)
		return overflow(table);
	module->file = *file;
	/* Without memory for the key the file is taken for a new one next time. */
	(void)!u64map_put(&table->by_file, file_hash(file), module->id);
	return module;
}

bool module_table_is_current(const struct module_table *table, const struct module *module)
{
	uint64_t id;

	return u64map_get(&table->by_file, file_hash(&module->file), &id) && id == module->id;
}

/* Nobody can set it, while installed files have the modification times that their packages say. */
static uint64_t inode_changed_ns(const struct stat *st)
{
	return (uint64_t)st->st_ctim.tv_sec * NS_PER_S + (uint64_t)st->st_ctim.tv_nsec;
}

void module_opened(struct module *module, const struct stat *st)
{
	module->size_bytes = (uint64_t)st->st_size;
	module->inode_changed_ns = inode_changed_ns(st);
	module->opened_dev = st->st_dev;
	module->opened_ino = st->st_ino;
}

static bool is_on_device(const struct module_file *file, const struct stat *st)
{
	return st->st_dev == makedev(file->dev_major, file->dev_minor);
}

bool module_file_is_other(const struct module_file *file, const struct stat *st)
{
	return file->inode && is_on_device(file, st) && st->st_ino != file->inode;
}

bool module_may_be_of(const struct module *module, const struct stat *st)
{
	return (st->st_dev == module->opened_dev && st->st_ino == module->opened_ino) ||
	       (is_on_device(&module->file, st) && st->st_ino == module->file.inode);
}

bool module_is_of(const struct module *module, const struct stat *st)
{
	return !module->missed && module->size_bytes == (uint64_t)st->st_size &&
	       module->inode_changed_ns == inode_changed_ns(st);
}

void module_want_rows(struct module *module)
{
	if (!module->rows_later)
		return;
	module->rows_later = false;
	module->changed = true; /* it is awaited */
	if (module->state == MODULE_READY)
		module->state = MODULE_SEEN;
}

bool module_is_awaited(const struct module *module)
{
	return module->state == MODULE_ASKED && !module->rows_later && !module->table_bytes;
}

void module_table_forget_file(struct module_table *table, struct module *module)
{
	uint64_t hash = file_hash(&module->file), id;

	if (u64map_get(&table->by_file, hash, &id) && id == module->id)
		(void)u64map_remove(&table->by_file, hash);
}

static void forget_key(struct module_table *table, const struct module *module)
{
	uint64_t id;

	if (module->key && u64map_get(&table->by_key, module->key, &id) && id == module->id)
		(void)u64map_remove(&table->by_key, module->key);
}

void module_table_set_key(struct module_table *table, struct module *module, uint64_t key)
{
	uint32_t before = module->canonical;
	uint64_t id;

	forget_key(table, module); /* if it is another's by now */
	module->key = key;
	module->canonical = module->id;
	if (u64map_get(&table->by_key, key, &id))
		module->canonical = (uint32_t)id;
	else
		(void)!u64map_put(&table->by_key, key, module->id);
	module->changed |= module->canonical != before;
}

int module_table_remove(struct module_table *table, struct module *module)
{
	int rc = free_id_vec_push(&table->free_ids, module->id);

	if (rc < 0)
		return rc;
	module_table_charge(table, module, 0);
	module_table_forget_file(table, module);
	forget_key(table, module);
	table->modules.data[module->id - 1] = NULL;
	module_free(module);
	return 0;
}

struct module *module_table_canonical(const struct module_table *table, uint32_t id)
{
	struct module *module = module_table_get(table, id);

	return module ? module_table_get(table, module->canonical) : NULL;
}

uint64_t module_table_bytes(const struct module_table *table)
{
	return table->table_bytes;
}

void module_table_charge(struct module_table *table, struct module *module, uint64_t bytes)
{
	table->table_bytes += bytes - module->table_bytes;
	module->table_bytes = bytes;
}

struct module *module_table_least_used(const struct module_table *table)
{
	struct module *least = NULL;

	for (size_t i = 0; i < table->modules.count; i++) {
		struct module *module = table->modules.data[i];

		if (module && module->table_bytes && (!least || module->used_ns < least->used_ns))
			least = module;
	}
	return least;
}

bool module_is_jit(const struct module *module)
{
	return module->kind == FEED_MODULE_UNREADABLE &&
	       (text_begins(module->path, "/memfd:") || text_begins(module->path, "/dev/zero") ||
		text_begins(module->path, "/SYSV"));
}
