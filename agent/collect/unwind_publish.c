// SPDX-License-Identifier: Apache-2.0
/* Unwind tables into the kernel. The image comes from the symbolizer, which reads hostile files, so
 * it is copied first and checked in the copy, which nobody else can write; reading by pread() also
 * cannot be hurt by a memfd that is cut meanwhile, as a mapping of it could. */
#include "agent/collect/bpf_internal.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <sys/mman.h>

#include "agent/base/io.h"
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

int bpf_agent_table_publish(struct bpf_agent *agent, uint32_t module, int memfd, uint64_t bytes,
			    uint64_t *ret_charged_bytes)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	cleanup_close int fd = -1;
	uint64_t charged;
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
	bpf_agent_table_drop(agent, module);
	charged = bpf_map_charged_bytes(fd);
	rc = u64map_put(&agent->tables, module, charged);
	if (rc < 0)
		return rc;
	rc = bpf_map_update_elem(bpf_map__fd(agent->skel->maps.tables), &module, &fd, BPF_ANY);
	if (rc < 0) {
		(void)u64map_remove(&agent->tables, module);
		return rc;
	}
	agent->table_bytes += charged;
	*ret_charged_bytes = charged;
	return 0;
}

void bpf_agent_table_drop(struct bpf_agent *agent, uint32_t module)
{
	uint64_t charged;

	if (!u64map_get(&agent->tables, module, &charged))
		return;
	(void)bpf_map_delete_elem(bpf_map__fd(agent->skel->maps.tables), &module);
	(void)u64map_remove(&agent->tables, module);
	agent->table_bytes -= charged;
}
