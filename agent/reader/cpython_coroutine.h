/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of coroutines of a CPython process: which awaits which, and where each stands. A suspended
 * coroutine, generator or asynchronous generator keeps its frame, and on top of the frame's values
 * what it awaits (_PyGen_yf() in CPython's Objects/genobject.c). A coroutine that runs has called
 * what its thread's chain of frames holds. */
#ifndef PROFD_READER_CPYTHON_COROUTINE_H
#define PROFD_READER_CPYTHON_COROUTINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/cpython_objects.h"
#include "agent/runtimes/cpython_tasks.h"
#include "agent/wire/control.h"

#define CPYTHON_CHAIN_MAX 256u

struct cpython_chain {
	struct control_script_place places[CPYTHON_CHAIN_MAX]; /* innermost first */
	size_t count;
	bool is_cut;		/* there is more than CPYTHON_CHAIN_MAX */
	uint64_t running_frame; /* address of the frame of the coroutine that runs; 0 = none does */
};

/* Reads the chain from the coroutine at @va on. A coroutine that runs ends the chain: it has no
 * place, and what it calls is read by cpython_coroutine_running(). -EINVAL: @va is no coroutine;
 * errors of cpython_objects_read(). @ret is unspecified then. */
int cpython_coroutine_chain(struct cpython_objects *o, const struct cpython_tasks *layout,
			    uint64_t va, struct cpython_chain *ret) must_use;
/* Puts before @chain the frames of the thread whose innermost frame is @head_va, up to the frame
 * chain->running_frame. -ENOENT: that frame is not in the thread's chain. */
int cpython_coroutine_running(struct cpython_objects *o, uint64_t head_va,
			      struct cpython_chain *chain) must_use;

#endif
