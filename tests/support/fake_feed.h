/* SPDX-License-Identifier: Apache-2.0 */
/* The other ends of the session layer. A test writes records into a real ring. A collector answers
 * CONTROL_DEMAND with FEED_DEMAND, CONTROL_WANT with its records, and CONTROL_SWEEP with the blocks
 * in use that the test has set. A symbolizer gives made-up names: "f_<offset in hex>", and
 * "inlined_…" inside it where the offset is odd. Both answer on a thread of their own. */
#ifndef TESTS_SUPPORT_FAKE_FEED_H
#define TESTS_SUPPORT_FAKE_FEED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/base/ring.h"
#include "agent/session/sessions_run.h"
#include "agent/wire/control.h"
#include "agent/wire/feed.h"

#define FAKE_KEPT_MAX 4096
#define FAKE_LIVE_MAX 16

struct fake_kept { /* a record that can be asked for again */
	uint32_t kind;
	uint64_t id;
	size_t len;
	void *data;
};

struct fake_feed {
	int ring_fd;
	struct ring *ring;
	pthread_mutex_t lock; /* ring, kept */
	pthread_t thread;
	_Atomic bool stop;
	int collector_fd, symbolizer_fd; /* our ends, -1 = none */
	_Atomic uint32_t rate_hz, fast_hz; /* last demand */
	_Atomic uint32_t types;
	uint32_t rate_limit;		 /* 0 = none; the most that FEED_DEMAND admits */
	uint64_t off_threshold_ns;	 /* of FEED_DEMAND, whatever was asked for */
	bool silent;			 /* answers no demand */
	bool probes;			 /* allocations can be observed: of the next connection */
	bool mute_names;		 /* answers no names */
	_Atomic unsigned wants, names;	 /* requests seen */
	struct fake_kept kept[FAKE_KEPT_MAX];
	size_t kept_count;
	struct control_families families; /* the last ones */
	struct feed_sample live[FAKE_LIVE_MAX];
	size_t live_count;
	_Atomic uint64_t untold; /* samples that the ring had no room for: told at CONTROL_FLUSH, as
				    soon as it has some */
	uint32_t sweeps; /* so far: the source of what is in use */
};

void fake_feed_open(struct fake_feed *feed, size_t ring_bytes);
void fake_feed_close(struct fake_feed *feed);
/* Gives @sessions channels to this collector and symbolizer (new ones each time). */
void fake_feed_connect(struct fake_feed *feed, struct sessions *sessions);
void fake_feed_disconnect(struct fake_feed *feed);
/* Nothing can be asked for again any more. */
void fake_feed_forget(struct fake_feed *feed);

/* Each returns after the record is in the ring. @keep records can be asked for again. */
void fake_feed_epoch(struct fake_feed *feed, uint64_t epoch);
void fake_feed_clock(struct fake_feed *feed, uint64_t cpu_ns, uint64_t bpf_ns);
/* As after somebody set the host's clock so far from where it is. */
void fake_feed_set_clock(struct fake_feed *feed, int64_t step_ns);
/* Run time so far of one kind of BPF program; to be sent before a clock. */
void fake_feed_costs(struct fake_feed *feed, unsigned program, uint64_t run_ns);
void fake_feed_module(struct fake_feed *feed, uint32_t module, uint64_t key, const char *path);
struct fake_proc {
	uint32_t proc, tgid;
	const char *comm, *exe, *cgroup, *environment, *ports, *program;
	uint32_t flags, generation;
	uint64_t family; /* 0 = of none */
};
void fake_feed_proc(struct fake_feed *feed, const struct fake_proc *proc);
void fake_feed_exit(struct fake_feed *feed, uint32_t proc);
/* @frames: leaf first, {module, offset} words of bpf/profiler.h. */
void fake_feed_stack(struct fake_feed *feed, uint64_t stack, const uint64_t *frames, uint16_t count,
		     uint8_t outcome);
/* Puts a stack into what can be asked for, but not into the ring. */
void fake_feed_keep_stack(struct fake_feed *feed, uint64_t stack, const uint64_t *frames,
			  uint16_t count);
void fake_feed_sample(struct fake_feed *feed, uint32_t proc, uint32_t tid, uint64_t stack,
		      uint64_t time_ns, uint64_t value_ns);
/* @state: enum prof_off_state << 4 | enum prof_wait. */
void fake_feed_wait(struct fake_feed *feed, uint32_t proc, uint32_t tid, uint64_t stack,
		    uint64_t end_ns, uint64_t off_ns, uint8_t state);
/* Any other. */
void fake_feed_any_sample(struct fake_feed *feed, const struct feed_sample *sample);
/* About the allocations of a process. */
void fake_feed_alloc(struct fake_feed *feed, const struct feed_alloc *alloc);
/* Adds a block in use, which the following sweeps report. */
void fake_feed_live(struct fake_feed *feed, const struct feed_sample *sample);
/* Fills the ring with what means nothing. */
void fake_feed_fill(struct fake_feed *feed);
void fake_feed_outcome(struct fake_feed *feed, uint32_t outcome, uint64_t count);

#endif
