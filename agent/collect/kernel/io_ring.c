// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/kernel/io_ring.h"

#include <errno.h>

#include "agent/collect/kernel/bpf_internal.h"
#include "profiler.skel.h"

/* Kernels may be built without io_uring. Where the tracepoints that tell of requests before they
 * are issued have other arguments (before requests could post many completions), those of many are
 * told as unknown. */
int io_ring_choose(struct profiler_bpf *skel, const struct io_ring_facts *facts, bool wanted)
{
	const bool known = wanted && facts->tells_requests;
	struct bpf_program *const of_many[] = { skel->progs.io_ring_full, skel->progs.io_ring_wake,
						skel->progs.io_ring_submit };
	int rc = bpf_program__set_autoload(skel->progs.io_ring_done, wanted);

	skel->rodata->have_ring_shots = known;
	skel->rodata->ring_tells_cqe = facts->tells_cqe;
	for (size_t i = 0; i < ARRAY_SIZE(of_many) && !rc; i++)
		rc = bpf_program__set_autoload(of_many[i], known);
	if (rc || !known)
		return rc;
	return bpf_program__set_attach_target(skel->progs.io_ring_submit, 0,
					      facts->submits_req ? "io_uring_submit_req" :
								   "io_uring_submit_sqe");
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
