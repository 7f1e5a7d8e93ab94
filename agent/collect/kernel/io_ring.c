// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/kernel/io_ring.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "agent/collect/kernel/bpf_internal.h"
#include "profiler.skel.h"

/* The function type of the kernel's tracepoint @name; NULL: it has none. */
static const struct btf_type *tracepoint(const struct btf *btf, const char *name)
{
	const struct btf_type *type;
	char found_as[64];
	int id;

	(void)snprintf(found_as, sizeof(found_as), "btf_trace_%s", name);
	id = btf__find_by_name_kind(btf, found_as, BTF_KIND_TYPEDEF);
	type = id > 0 ? btf__type_by_id(btf, btf__type_by_id(btf, (uint32_t)id)->type) : NULL;
	type = type && btf_is_ptr(type) ? btf__type_by_id(btf, type->type) : NULL;
	return type && btf_is_func_proto(type) ? type : NULL;
}

/* Is argument @number of tracepoint @name a pointer to struct @to? */
static bool tells(const struct btf *btf, const char *name, unsigned number, const char *to)
{
	const struct btf_type *type = tracepoint(btf, name);

	/* the first of the function's is the tracepoint's own */
	if (!type || number + 1u >= btf_vlen(type))
		return false;
	type = btf__type_by_id(btf, btf_params(type)[number + 1u].type);
	type = type && btf_is_ptr(type) ? btf__type_by_id(btf, type->type) : NULL;
	return type && btf_is_struct(type) && strcmp(btf__name_by_offset(btf, type->name_off), to) == 0;
}

/* Kernels may be built without io_uring. Where the tracepoints that tell of requests before they
 * are issued have other arguments (before requests could post many completions), those of many are
 * told as unknown. */
static int choose(struct profiler_bpf *skel, const struct btf *btf)
{
	const char *submit = tells(btf, "io_uring_submit_req", 0, "io_kiocb")
				     ? "io_uring_submit_req"
				     : "io_uring_submit_sqe";
	bool known = tells(btf, submit, 0, "io_kiocb") && tells(btf, "io_uring_task_add", 0, "io_kiocb") &&
		     tracepoint(btf, "io_uring_cqe_overflow");
	int rc = bpf_program__set_autoload(skel->progs.io_ring_done,
					   tracepoint(btf, "io_uring_complete") != NULL);

	skel->rodata->have_ring_shots = known;
	skel->rodata->ring_tells_cqe = tells(btf, "io_uring_complete", 2, "io_uring_cqe");
	if (!rc)
		rc = bpf_program__set_autoload(skel->progs.io_ring_full, known);
	if (!rc)
		rc = bpf_program__set_autoload(skel->progs.io_ring_wake, known);
	if (!rc)
		rc = bpf_program__set_autoload(skel->progs.io_ring_submit, known);
	return rc || !known ? rc : bpf_program__set_attach_target(skel->progs.io_ring_submit, 0, submit);
}

int io_ring_choose(struct profiler_bpf *skel, bool wanted)
{
	struct bpf_program *const programs[] = { skel->progs.io_ring_done, skel->progs.io_ring_full,
						 skel->progs.io_ring_wake, skel->progs.io_ring_submit };
	struct btf *btf = wanted ? btf__load_vmlinux_btf() : NULL;
	int rc = 0;

	if (btf)
		rc = choose(skel, btf);
	for (size_t i = 0; !btf && i < ARRAY_SIZE(programs) && !rc; i++)
		rc = bpf_program__set_autoload(programs[i], false);
	btf__free(btf);
	return rc;
}

int io_ring_attach(struct profiler_bpf *skel, bool on)
{
	const struct {
		struct bpf_program *program;
		struct bpf_link **link;
	} programs[] = {
		{ skel->progs.io_ring_submit, &skel->links.io_ring_submit },
		{ skel->progs.io_ring_wake, &skel->links.io_ring_wake },
		{ skel->progs.io_ring_full, &skel->links.io_ring_full },
		{ skel->progs.io_ring_done, &skel->links.io_ring_done },
	};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(programs) && rc == 0; i++)
		if (bpf_program__autoload(programs[i].program))
			rc = bpf_set_link(programs[i].program, programs[i].link, on);
	return rc;
}
