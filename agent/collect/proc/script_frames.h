/* SPDX-License-Identifier: Apache-2.0 */
/* The script frames of one process instance: the runtime that it has, and the frames seen of it,
 * numbered. A frame's number is its offset in the module of the process's script frames, so that
 * stacks, stores and profiles treat it as any other frame. Pure bookkeeping; asking the reader is
 * agent/collect/script.c. Not thread-safe. */
#ifndef PROFD_COLLECT_SCRIPT_FRAMES_H
#define PROFD_COLLECT_SCRIPT_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "bpf/script.h"

/* Frames of one process instance. Further ones share number 0, which has no name. */
#define SCRIPT_FRAMES_MAX 65536u
/* Bytes of names of all process instances together. Further frames have none. */
#define SCRIPT_NAME_BYTES_MAX (64u << 20)

enum script_frames_state {
	SCRIPT_UNKNOWN, /* the reader is to be asked, not before ask_ns */
	SCRIPT_ASKED,
	SCRIPT_READY,	/* runtime is complete, and in BPF's map */
	SCRIPT_REFUSED, /* the layout does not fit: there will be no script frames */
};

struct script_frame {
	uint64_t a, b;	 /* as in bpf/script.h */
	uint8_t *functions; /* owned: as in CONTROL_SCRIPT_NAMED, without their number; NULL = none */
	uint32_t bytes;	    /* of them */
	bool fed;	    /* the feed has its name, or it has none */
};

VEC_DEFINE(script_frame, struct script_frame);

struct script_frames {
	unsigned refs;
	uint32_t module; /* of the module table, 0 = none yet */
	enum script_frames_state state;
	uint64_t ask_ns, wait_ns; /* CLOCK_MONOTONIC; the wait before the next question */
	unsigned refusals;	  /* answers that it is not what its file says */
	struct script_runtime runtime; /* with addresses of this process */
	uint32_t interpreter;	       /* module that it is the runtime of, 0 = unknown */
	bool fits; /* the runtime fitted another process of the same file */
	struct script_frames *origin; /* of the process that forked this one, NULL = none */
	size_t origin_count;	      /* its frames at the fork: their names hold here, too */
	struct u64map numbers;	      /* hash of (a, b) -> number */
	struct u64map functions;      /* hash of (a, cookie) -> a number that has a name */
	struct script_frame_vec frames; /* by number */
	size_t asked;  /* numbers below were asked for or have a name */
	size_t flight; /* numbers from asked on that the reader is asked for now; 0 = none */
	bool due;      /* names are to be asked for or fed */
};

/* @origin: that of the parent at a fork, or NULL. NULL without memory. */
struct script_frames *script_frames_create(struct script_frames *origin);
struct script_frames *script_frames_ref(struct script_frames *frames);
void script_frames_unref(struct script_frames *frames);
CLEANUP_DEFINE(script_frames, struct script_frames *, script_frames_unref);

/* The number of the frame (@a, @b), given at its first sight; 0 when there is no room. */
uint32_t script_frames_number(struct script_frames *frames, uint64_t a, uint64_t b);
/* Names frame @number, once: the functions of an entry of CONTROL_SCRIPT_NAMED, at least one, which
 * the caller has checked. False: no room, or there is no such frame. */
bool script_frames_name(struct script_frames *frames, size_t number, const void *functions,
			size_t bytes);
/* The process has ended: Python frames that nobody named get the name and file of another frame of
 * their function, without a line. */
void script_frames_adopt(struct script_frames *frames);
/* The feed is to have all names again. */
void script_frames_feed_again(struct script_frames *frames);

#endif
