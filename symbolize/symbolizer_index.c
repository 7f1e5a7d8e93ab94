// SPDX-License-Identifier: Apache-2.0
/* CONTROL_INDEX: what a file is and its unwind table, answered at once; its names are left to the
 * builder. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "agent/base/clock.h"
#include "agent/wire/module_key.h"
#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "symbolize/alloc_sites.h"
#include "symbolize/cfi_rows.h"
#include "symbolize/elf_runtime.h"
#include "symbolize/module_facts.h"
#include "symbolize/runtime_cpython.h"
#include "symbolize/runtime_hotspot.h"
#include "symbolize/runtime_v8.h"
#include "symbolize/sandbox.h"
#include "symbolize/symbolizer_internal.h"

#define SEND_WAIT_MS   1000
#define FP_TEXT_PCT    99 /* of what calls return to, from here on: a build with frame pointers */
#define TABLE_TAG_FP   1  /* tag of a cached table: INDEXED_FP */
#define KERNEL_WAIT_MAX_NS (320 * NS_PER_S)
#define CACHED_BYTES_MIN (8u << 10) /* a smaller table is built as fast as it is read */
#define ORIGINS_BETTER (SYMBOL_ORIGIN_DWARF | SYMBOL_ORIGIN_SYMTAB)

/* ---- unwind tables --------------------------------------------------------------------------- */

/* The cached file itself goes to the collector: it is read-only for all who have it. */
static int table_from_cache(struct symbolizer *s, struct control_indexed *answer)
{
	cleanup_close int fd = -1;
	struct stat st;
	void *image;
	uint8_t tag;
	int rc;

	if (!s->cache)
		return -ENOENT;
	fd = module_cache_open(s->cache, answer->key, MODULE_CACHE_TABLE, &tag);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -ENOENT;
	image = st.st_size ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
	rc = image == MAP_FAILED ? -EPROTO : cfi_image_validate(image, (size_t)st.st_size);
	if (!rc) {
		answer->row_count = ((const struct unwind_table_head *)image)->row_count;
		answer->table_bytes = (uint64_t)st.st_size;
		answer->flags |= INDEXED_ROWS | (tag & TABLE_TAG_FP ? INDEXED_FP : 0);
	}
	if (image != MAP_FAILED)
		(void)munmap(image, (size_t)st.st_size);
	if (rc < 0) {
		module_cache_drop(s->cache, answer->key, MODULE_CACHE_TABLE);
		return -ENOENT;
	}
	return take_fd(&fd);
}

/* A quarter of all: little else than entries says little. */
static bool table_is_fp(const struct cfi_table *table)
{
	return table->fp_text_bytes * 4 >= table->text_bytes && table->text_bytes && !table->breaks_fp &&
	       table->fp_text_bytes * 100 >= (table->text_bytes - table->entry_bytes) * FP_TEXT_PCT;
}

static int table_to_memfd(const struct cfi_table *table)
{
	cleanup_close int fd = io_memfd("unwind_table", 0);
	int rc;

	if (fd < 0)
		return fd;
	rc = io_write_all(fd, table->image, table->image_bytes);
	return rc < 0 ? rc : take_fd(&fd);
}

/* Fills @table (the caller's to release) and the answer; returns the memfd. */
static int table_from_file(const struct elf_file *file, struct control_indexed *answer,
			   struct cfi_table *table)
{
	int rc = cfi_table_build(file->elf, file->fd, table);
	int fd;

	if (rc < 0)
		return rc;
	fd = table_to_memfd(table);
	if (fd < 0)
		return fd;
	answer->row_count = table->row_count;
	answer->table_bytes = table->image_bytes;
	answer->flags |= INDEXED_ROWS | (table_is_fp(table) ? INDEXED_FP : 0);
	return fd;
}

/* ---- names to come --------------------------------------------------------------------------- */

/* Is what the file itself says more than the index that we have? A stripped and a full file share
 * one build-id; files that it names may be there by now. */
static bool index_is_poorer(uint8_t origins, const struct elf_file *file)
{
	if (origins & SYMBOL_ORIGIN_DWARF && !(origins & SYMBOL_ORIGIN_PARTIAL))
		return false;
	if (elf_file_has_dwarf(file))
		return true;
	return elf_file_has_symtab(file) && !(origins & ORIGINS_BETTER);
}

/* Files that nobody but root can write, and without debug information, are read by one child
 * together. What it is made to say by a hostile file could be names of the others, so such a file
 * has a child of its own. */
static bool may_share_builder(const struct elf_file *file)
{
	struct stat st;

	return !elf_file_has_dwarf(file) && fstat(file->fd, &st) == 0 && !st.st_uid &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/* Remembers the module and, if its names are not known as well as @file knows them, keeps the file
 * open for the builder, unless they are wanted later, if ever: most files of a host are never
 * looked at. */
static void expect_names(struct symbolizer *s, const struct control_index *request,
			 const struct control_indexed *answer, const struct elf_file *file)
{
	cleanup_close int fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
	struct name_module *module;
	uint8_t origins = 0;
	bool known;

	if (name_modules_add(&s->modules, answer->key, &module) < 0)
		return;
	module->index_request = answer->head.request;
	known = module->origins ||
		(s->cache && module_cache_has(s->cache, answer->key, MODULE_CACHE_SYMBOLS, &origins));
	if (!module->origins)
		module->origins = origins;
	/* Parts that this process found missing are looked for again by themselves. */
	origins = module->missing ? (uint8_t)(module->origins & ~SYMBOL_ORIGIN_PARTIAL) : module->origins;
	known = known && !index_is_poorer(origins, file);
	if (request->names_later && !known && module->state == NAME_MODULE_IDLE) {
		module->later = true;
		return;
	}
	symbolizer_has_file(s, module);
	module->identity = file->identity;
	module->voucher = request->voucher;
	module->size_bytes = file->size_bytes;
	module->shares = module->voucher == MODULE_VOUCHER_ROOT && may_share_builder(file);
	if (!module->skeleton)
		(void)!elf_file_skeleton(file, &module->skeleton, &module->skeleton_len);
	if (!elf_file_has_dwarf(file))
		module_facts_keep(s->cache, answer->key,
				  &(struct module_facts){ .identity = module->identity,
							  .voucher = module->voucher,
							  .size_bytes = module->size_bytes,
							  .skeleton = module->skeleton,
							  .skeleton_len = module->skeleton_len });
	if (known || module->state != NAME_MODULE_IDLE)
		return;
	if (fd < 0 || s->modules.open >= NAME_MODULES_OPEN_MAX)
		return;
	module->fd = take_fd(&fd);
	s->modules.open++;
	name_modules_set_state(&s->modules, module,
			       !elf_file_has_dwarf(file) && symbolizer_want_debug(s, module)
				       ? NAME_MODULE_WAITING
				       : NAME_MODULE_QUEUED);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void describe(const struct elf_file *file, struct control_indexed *answer)
{
	enum alloc_family family;

	answer->alloc_count = (uint8_t)alloc_sites_load(file->elf, answer->alloc_sites, &family);
	answer->alloc_family = (uint8_t)family;
	answer->build_id_len = file->identity.build_id_len;
	memcpy(answer->build_id, file->identity.build_id, sizeof(answer->build_id));
	answer->runtime = elf_runtime_of(file);
	if (answer->runtime & FEED_PROC_GO)
		answer->flags |= INDEXED_GO;
	if (answer->runtime & FEED_PROC_PYTHON) {
		int rc = runtime_cpython_load(file, &answer->script);

		if (rc < 0)
			log_debug("no frames of this Python: %s", strerror(-rc));
	}
	if (answer->runtime & FEED_PROC_JVM) {
		int rc = runtime_hotspot_load(file, &answer->script);

		if (rc < 0)
			log_debug("no frames of this Java virtual machine: %s", strerror(-rc));
	}
	if (answer->runtime & FEED_PROC_NODE) {
		int rc = runtime_v8_load(file, &answer->script);

		if (rc < 0)
			log_debug("no frames of this V8: %s", strerror(-rc));
		else if (answer->script.v8.refused == SCRIPT_V8_COMPRESSED)
			answer->runtime |= FEED_PROC_V8_COMPRESSED;
		else if (answer->script.v8.refused)
			answer->runtime |= FEED_PROC_V8_UNDESCRIBED;
	}
	if (elf_file_has_symtab(file))
		answer->flags |= INDEXED_SYMBOLS;
	if (elf_file_has_dwarf(file))
		answer->flags |= INDEXED_DEBUG;
}

static void send_indexed(struct symbolizer *s, const struct control_indexed *answer, int table_fd)
{
	int rc = channel_send_wait(s->collector_fd, answer, sizeof(*answer), &table_fd, table_fd >= 0,
				   SEND_WAIT_MS);

	if (rc == -EPIPE)
		symbolizer_lose_collector(s);
	else if (rc < 0)
		log_debug("the collector did not take an answer: %s", strerror(-rc));
}

static void index_elf(struct symbolizer *s, const struct control_index *request,
		      struct control_indexed *answer, int fd_take)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	cleanup_close int table_fd = -1;
	struct cfi_table table = { .image = NULL };
	int rc = elf_file_open_take(fd_take, &file);

	if (rc < 0)
		(void)close(fd_take);
	else
		rc = elf_file_key(file, request->voucher, &answer->key);
	answer->status = rc;
	if (rc < 0) {
		send_indexed(s, answer, -1);
		return;
	}
	describe(file, answer);
	if (request->want_rows) {
		table_fd = table_from_cache(s, answer);
		if (table_fd < 0)
			table_fd = table_from_file(file, answer, &table);
	}
	/* A file without rows, or with more than fit, still has names: only ours to say in the flags. */
	send_indexed(s, answer, table_fd);
	if (table.image && s->cache && table.image_bytes >= CACHED_BYTES_MIN)
		(void)!module_cache_put(s->cache, answer->key, MODULE_CACHE_TABLE,
					answer->flags & INDEXED_FP ? TABLE_TAG_FP : 0, table.image,
					table.image_bytes);
	cfi_table_deinit(&table);
	expect_names(s, request, answer, file);
}

static bool same_image(const struct symbol_index *a, const struct symbol_index *b)
{
	size_t a_bytes, b_bytes;
	const void *a_image = symbol_index_image(a, &a_bytes), *b_image = symbol_index_image(b, &b_bytes);

	return a_bytes == b_bytes && memcmp(a_image, b_image, a_bytes) == 0;
}

/* Names of the kernel, of what it has loaded at this moment, and of what @former (or NULL) knew.
 * @key: 0 = what they hash to. 1 = there are new ones. */
static int read_kernel(struct symbolizer *s, int fd, const struct symbol_index *former,
		       uint64_t *key)
{
	struct symbol_index *index = NULL;
	struct name_module *module;
	const void *image;
	uint64_t text_va;
	size_t bytes;
	int rc = symbol_index_build_kallsyms(fd, former, &index, &text_va);

	if (rc < 0)
		return rc;
	if (former && same_image(index, former)) {
		symbol_index_destroy(index);
		return 0;
	}
	image = symbol_index_image(index, &bytes);
	if (!*key)
		*key = hash_bytes(image, bytes, CONTROL_INDEX);
	rc = name_modules_add(&s->modules, *key, &module);
	if (!rc) {
		module->origins = (uint8_t)symbol_index_origins(index);
		rc = symbol_store_put_take(s->store, *key, index);
	}
	if (rc < 0)
		symbol_index_destroy(index);
	return rc < 0 ? rc : 1;
}

/* Does one of @offsets have no name, or that of a module or BPF program, whose place another may
 * have by now? */
static bool is_doubtful(const struct symbol_index *index, const uint64_t *offsets, size_t count)
{
	struct symbol_frame frames[SYMBOL_INLINE_MAX];

	for (size_t i = 0; i < count; i++) {
		size_t len = symbol_index_find(index, offsets[i], frames) ? strlen(frames[0].function) : 0;

		if (!len || frames[0].function[len - 1] == ']')
			return true;
	}
	return false;
}

/* Before anybody has asked, and then less and less often where nothing changes. */
static bool is_due(const struct symbolizer *s, const struct symbol_index *index,
		   const uint64_t *offsets, size_t count)
{
	return !s->kernel.read_ns || !index ||
	       (clock_monotonic_ns() - s->kernel.read_ns >= s->kernel.wait_ns &&
		is_doubtful(index, offsets, count));
}

void symbolizer_read_kernel(struct symbolizer *s, uint64_t key, const uint64_t *offsets,
			    size_t count)
{
	const struct symbol_index *former;
	int rc;

	if (s->kernel.fd < 0 || s->kernel.key != key)
		return;
	former = symbol_store_get(s->store, key);
	if (!is_due(s, former, offsets, count))
		return;
	sandbox_guard_begin(SYMBOLIZER_INDEX_WALL_S);
	/* The cache may hold modules of another boot, at other addresses. */
	rc = read_kernel(s, s->kernel.fd, s->kernel.read_ns ? former : NULL, &key);
	sandbox_guard_end();
	s->kernel.read_ns = clock_monotonic_ns();
	s->kernel.wait_ns = rc > 0 ? s->debug_again_ns : s->kernel.wait_ns * 2;
	if (s->kernel.wait_ns > KERNEL_WAIT_MAX_NS)
		s->kernel.wait_ns = KERNEL_WAIT_MAX_NS;
	if (rc >= 0)
		return;
	log_debug("the kernel's names cannot be read: %s", strerror(-rc));
	cleanup_close_fn(&s->kernel.fd);
	s->kernel.fd = -1;
}

/* The kernel writes the text for us, 40 ms of work: when somebody asks for the first name, and for
 * one that it does not have. Names change with every boot and module: those in the cache do not
 * count. Without a build-id they are the identity. */
static void index_kernel(struct symbolizer *s, const struct control_index *request,
			 struct control_indexed *answer, int fd_take)
{
	cleanup_close int fd = fd_take;

	answer->flags = INDEXED_SYMBOLS;
	answer->build_id_len = request->build_id_len;
	memcpy(answer->build_id, request->build_id, sizeof(answer->build_id));
	if (request->build_id_len) {
		answer->key = module_key_of_build_id(request->build_id, request->build_id_len);
	} else {
		answer->status = read_kernel(s, fd, NULL, &answer->key);
		answer->status = answer->status < 0 ? answer->status : 0;
	}
	if (!answer->status) {
		cleanup_close_fn(&s->kernel.fd);
		s->kernel.fd = take_fd(&fd);
		s->kernel.key = answer->key;
		s->kernel.read_ns = request->build_id_len ? 0 : clock_monotonic_ns();
		s->kernel.wait_ns = s->debug_again_ns;
	}
	send_indexed(s, answer, -1);
}

/* A runtime's map file grows: the descriptor is kept, and read on when names are asked for. */
static void index_jit(struct symbolizer *s, const struct control_index *request,
		      struct control_indexed *answer, int fd_take)
{
	if (request->build_id_len != sizeof(answer->key)) {
		(void)close(fd_take);
		answer->status = -EINVAL;
	} else {
		memcpy(&answer->key, request->build_id, sizeof(answer->key));
		answer->status = jit_maps_add_take(&s->jit, answer->key, fd_take);
		answer->flags = answer->status ? 0 : INDEXED_SYMBOLS;
	}
	send_indexed(s, answer, -1);
}

void symbolizer_on_index(struct symbolizer *s)
{
	const struct control_index *request = (const void *)s->message.data;
	struct control_indexed answer = { .head = { .kind = CONTROL_INDEXED } };
	int fd;

	if (s->message.len != sizeof(*request) || s->message.fd_count != 1 ||
	    request->build_id_len > FEED_BUILD_ID_MAX)
		return;
	answer.head.request = request->head.request;
	fd = take_fd(&s->message.fds[0]);
	sandbox_guard_begin(SYMBOLIZER_INDEX_WALL_S);
	if (request->kind == FEED_MODULE_KERNEL) {
		index_kernel(s, request, &answer, fd);
	} else if (request->kind == FEED_MODULE_ELF || request->kind == FEED_MODULE_VDSO) {
		index_elf(s, request, &answer, fd);
	} else if (request->kind == FEED_MODULE_JIT) {
		index_jit(s, request, &answer, fd);
	} else {
		(void)close(fd);
		answer.status = -EINVAL;
		send_indexed(s, &answer, -1);
	}
	sandbox_guard_end();
}
