// SPDX-License-Identifier: Apache-2.0
/* Unwind tables into the kernel. The image comes from the symbolizer, which reads hostile files, so
 * it is copied first and checked in the copy, which nobody else can write; reading by pread() also
 * cannot be hurt by a memfd that is cut meanwhile, as a mapping of it could. */
#include "agent/collect/kernel/bpf_internal.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "agent/base/io.h"
#include "agent/base/log.h"
#include "bpf/unwind_table.h"
#include "profiler.skel.h"
#include "symbolize/cfi_rows.h"

/* Head, directory, rules and rows at their limits. */
#define IMAGE_BYTES_MAX                                                                            \
	((UNWIND_DIR_AT + UNWIND_PAGES_MAX / 2 + UNWIND_RULES_MAX + UNWIND_ROWS_MAX / 4) *         \
	 (uint64_t)UNWIND_ELEMENT_BYTES)

static int fill(int map_fd, int memfd, size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
	int rc;

	if (memory == MAP_FAILED)
		return -errno;
	rc = io_pread_all(memfd, memory, bytes, 0);
	if (!rc)
		rc = cfi_image_validate(memory, bytes);
	(void)munmap(memory, bytes);
	return rc == -ENODATA ? -EPROTO : rc;
}

static void close_fd(struct bpf_agent *agent, uint32_t module)
{
	uint64_t fd;

	if (!u64map_get(&agent->table_fds, module, &fd))
		return;
	(void)close((int)fd);
	(void)u64map_remove(&agent->table_fds, module);
}

void bpf_tables_close(struct bpf_agent *agent)
{
	uint64_t module, fd;
	size_t at = 0;

	while (u64map_next(&agent->table_fds, &at, &module, &fd))
		(void)close((int)fd);
	u64map_deinit(&agent->table_fds);
}

/* Half of what this process may open; the rest is for events and files on their way. */
static unsigned fds_max(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return 0;
	return limit.rlim_cur / 2 < PROF_MODULES_MAX ? (unsigned)(limit.rlim_cur / 2) :
						       PROF_MODULES_MAX;
}

/* Without a descriptor of its own a table cannot be read here any more: late stacks through it keep
 * what was guessed. */
static void keep_fd(struct bpf_agent *agent, uint32_t module, int fd)
{
	int kept;

	close_fd(agent, module);
	if (!agent->table_fds_max)
		agent->table_fds_max = fds_max();
	if (agent->table_fds.count >= agent->table_fds_max)
		return;
	kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (kept >= 0 && u64map_put(&agent->table_fds, module, (uint64_t)kept) < 0)
		(void)close(kept);
}

const void *bpf_agent_table_map(const struct bpf_agent *agent, uint32_t module, size_t *ret_bytes)
{
	struct bpf_map_info info = { 0 };
	uint32_t size = sizeof(info);
	uint64_t fd;
	size_t bytes;
	void *image;

	if (!u64map_get(&agent->table_fds, module, &fd) ||
	    bpf_obj_get_info_by_fd((int)fd, &info, &size) < 0)
		return NULL;
	bytes = (size_t)info.max_entries * UNWIND_ELEMENT_BYTES;
	image = mmap(NULL, bytes, PROT_READ, MAP_SHARED, (int)fd, 0);
	if (image == MAP_FAILED)
		return NULL;
	*ret_bytes = bytes;
	return image;
}

void bpf_agent_table_unmap(const void *image, size_t bytes)
{
	(void)munmap((void *)(uintptr_t)image, bytes);
}

int bpf_agent_keep_tables_only(const struct bpf_agent *agent, int fd)
{
	cleanup_free int *fds = malloc((agent->table_fds.count + 1) * sizeof(*fds));
	uint64_t module, table_fd;
	size_t at = 0, count = 0;

	if (!fds)
		return -ENOMEM;
	fds[count++] = fd;
	while (u64map_next(&agent->table_fds, &at, &module, &table_fd))
		fds[count++] = (int)table_fd;
	io_close_all_but(fds, count);
	return 0;
}

/* Counts the table out again. */
static void forget(struct bpf_agent *agent, uint32_t module)
{
	uint64_t charged;

	close_fd(agent, module);
	if (!u64map_get(&agent->tables, module, &charged))
		return;
	(void)u64map_remove(&agent->tables, module);
	agent->table_bytes -= charged;
}

/* Every update of an array of maps waits for an RCU grace period, 5 to 20 ms; a batch waits once
 * (where the kernel has it, since v5.16). */
void bpf_tables_commit(struct bpf_agent *agent)
{
	LIBBPF_OPTS(bpf_map_batch_opts, opts);
	int outer = bpf_map__fd(agent->skel->maps.tables);
	uint32_t count = agent->pending_count;

	if (!count)
		return;
	if (bpf_map_update_batch(outer, agent->pending_modules, agent->pending_fds, &count,
				 &opts) < 0)
		for (uint32_t i = 0; i < agent->pending_count; i++)
			if (bpf_map_update_elem(outer, &agent->pending_modules[i],
						&agent->pending_fds[i], BPF_ANY) < 0) {
				log_warn("unwind table could not be published: module=%u error=%s",
					 agent->pending_modules[i], strerror(errno));
				forget(agent, agent->pending_modules[i]);
				if (agent->lost_count < TABLES_PENDING_MAX)
					agent->lost_modules[agent->lost_count++] = agent->pending_modules[i];
			}
	for (uint32_t i = 0; i < agent->pending_count; i++)
		(void)close(agent->pending_fds[i]);
	agent->pending_count = 0;
}

bool bpf_agent_table_lost(struct bpf_agent *agent, uint32_t *ret_module)
{
	if (!agent->lost_count)
		return false;
	*ret_module = agent->lost_modules[--agent->lost_count];
	return true;
}

int bpf_agent_table_publish(struct bpf_agent *agent, uint32_t module, int memfd, uint64_t bytes,
			    uint64_t *ret_charged_bytes)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	cleanup_close int fd = -1;
	uint64_t charged, former = 0;
	int rc;

	if (module >= PROF_MODULES_MAX)
		return -ENOSPC;
	if (!bytes || bytes > IMAGE_BYTES_MAX || bytes % UNWIND_ELEMENT_BYTES)
		return -EPROTO;
	fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "unwind_table", sizeof(uint32_t),
			    UNWIND_ELEMENT_BYTES, (uint32_t)(bytes / UNWIND_ELEMENT_BYTES), &opts);
	if (fd < 0)
		return fd;
	rc = fill(fd, memfd, bytes);
	if (rc < 0)
		return rc;
	if (agent->pending_count == TABLES_PENDING_MAX)
		bpf_tables_commit(agent);
	charged = bpf_map_charged_bytes(fd);
	(void)u64map_get(&agent->tables, module, &former);
	rc = u64map_put(&agent->tables, module, charged);
	if (rc < 0)
		return rc;
	agent->table_bytes += charged - former;
	keep_fd(agent, module, fd);
	agent->pending_modules[agent->pending_count] = module;
	agent->pending_fds[agent->pending_count++] = take_fd(&fd);
	*ret_charged_bytes = charged;
	return 0;
}

/* Arrays of maps know no batch that deletes: all get one empty table instead. */
static int replace_by_empty(int outer, const uint32_t *modules, uint32_t count)
{
	LIBBPF_OPTS(bpf_map_create_opts, create, .map_flags = BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	LIBBPF_OPTS(bpf_map_batch_opts, opts);
	cleanup_close int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "unwind_table", sizeof(uint32_t),
					      UNWIND_ELEMENT_BYTES, UNWIND_DIR_AT, &create);
	cleanup_free int *fds = malloc(count * sizeof(*fds));

	if (fd < 0 || !fds)
		return fd < 0 ? fd : -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		fds[i] = fd;
	return bpf_map_update_batch(outer, modules, fds, &count, &opts);
}

void bpf_agent_tables_drop(struct bpf_agent *agent, const uint32_t *modules, uint32_t count)
{
	int outer = bpf_map__fd(agent->skel->maps.tables);

	bpf_tables_commit(agent);
	if (replace_by_empty(outer, modules, count) < 0)
		for (uint32_t i = 0; i < count; i++)
			(void)bpf_map_delete_elem(outer, &modules[i]);
	for (uint32_t i = 0; i < count; i++)
		forget(agent, modules[i]);
}

void bpf_agent_table_drop(struct bpf_agent *agent, uint32_t module)
{
	uint64_t charged;

	if (!u64map_get(&agent->tables, module, &charged))
		return;
	bpf_tables_commit(agent);
	(void)bpf_map_delete_elem(bpf_map__fd(agent->skel->maps.tables), &module);
	forget(agent, module);
}
