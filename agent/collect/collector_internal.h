/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the collector. One thread runs one loop (collector.c) and calls every file of this
 * folder; README.md says which file may call which. */
#ifndef PROFD_COLLECT_COLLECTOR_INTERNAL_H
#define PROFD_COLLECT_COLLECTOR_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/channel.h"
#include "agent/collect/alloc/alloc.h"
#include "agent/collect/kernel/bpf_agent.h"
#include "agent/collect/collector.h"
#include "agent/collect/feed/feed_writer.h"
#include "agent/collect/governor.h"
#include "agent/collect/stacks/late_stacks.h"
#include "agent/collect/kernel/mmap_records.h"
#include "agent/collect/modules/module_index.h"
#include "agent/collect/modules/module_table.h"
#include "agent/collect/proc/isolation.h"
#include "agent/collect/proc/proc_ports.h"
#include "agent/collect/proc/proc_table.h"
#include "agent/collect/stacks/stack_table.h"
#include "agent/wire/control.h"
#include "bpf/outcome.h"

#define LATE_WAIT_NS                                                                               \
	(2 * NS_PER_S) /* a server waits 3 s for the next stack of a session that ends */
#define LATE_READ_NS (10 * NS_PER_S) /* of a child that goes on answering */

/* A user stack that was walked after its sample. */
struct late_frames {
	uint64_t id; /* under which it was promised */
	uint16_t count;
	uint8_t outcome;
	uint8_t reserved[5];
	uint64_t words[PROF_WORDS_MAX + 1];
};

/* The child that reads the memory of threads that sleep. */
struct late_memory {
	bool is_busy; /* there is one */
	int pidfd;
	int fd; /* what it answers */
	uint64_t until_ns, at_most_ns; /* when it is given up, later with each answer */
	size_t used; /* bytes of frames */
	struct late_frames frames;
};

struct collector {
	const struct collector_options *options;
	char failure[480]; /* why this host cannot be profiled, "" = it can */

	/* kernel */
	struct bpf_agent *bpf;	     /* NULL when there is a failure */
	struct mmap_records *mmaps;  /* likewise */
	struct mmap_batch batch;     /* records drained and not applied from batch_at on */
	size_t batch_at;
	uint64_t drained_ns;	     /* all records before this are in the batch or applied */

	/* knowledge */
	struct isolation *isolation; /* looks at processes that may not let anybody */
	struct proc_table *procs;
	struct module_table *modules;
	struct module_index *index;
	struct stack_table *stacks;
	struct late_stacks late;
	struct late_memory late_memory;
	uint64_t late_seen;	    /* knowledge when they were last looked at */
	struct proc_ports *ports;
	uint64_t ports_ns;	    /* when the listening sockets were last read */
	uint64_t all_ports_ns;	    /* those of all processes, because somebody asked; 0 = never */
	uint64_t knowledge;	    /* grows whenever an address or a key may resolve better than before */
	uint32_t kernel_module, vdso_module; /* 0 = not to be had */
	uint64_t kernel_text;	    /* address of _text without its leading ones, 0 = not known */
	uint32_t supervisor_tgid;
	char own_exe[4096];
	unsigned hung_told;	    /* collector_hung(), as the server knows it */
	bool sweep_due;		    /* a module changed: processes that map it are looked at */
	uint64_t modules_swept_ns;  /* when modules were last looked at for what still needs them */
	uint64_t files_swept_ns;    /* when files that nobody maps last left BPF's map */
	uint64_t publish_at_ns;	    /* and when the next process is old enough to be published */
	bool names_due;		    /* a record changed, or did not fit into the feed, and is to be sent */
	bool rescan_due;	    /* events were lost: /proc is compared with the table */

	/* demand */
	struct control_demand demand;
	struct governor governor;
	uint32_t rate_hz, fast_hz;  /* in force, like these */
	bool fast_refused;	    /* fast_hz of the demand is the host's rate instead */
	uint64_t off_threshold_ns;
	bool offcpu, io, faults, kernel_locks, wakers; /* attached */
	struct feed_demand told;    /* what the feed was told is in force */
	struct alloc_watch *alloc;  /* NULL until somebody wants allocations */
	uint64_t families[FEED_FAMILIES_MAX]; /* followed, by the bit of struct proc.families; 0 = free */

	/* runtimes */
	bool script_due;	  /* of some process something is to be asked or fed now */
	uint64_t script_at_ns;	  /* when the reader is to be asked again; UINT64_MAX = never */
	unsigned script_requests; /* that the reader has not answered */

	/* feed */
	struct ring *ring;
	struct feed_writer feed;
	struct feed_file *record;   /* NULL = none */
	uint64_t epoch;
	uint64_t own_outcomes[PROF_OUTCOMES_MAX];  /* counted here, not in BPF */
	uint64_t last_outcomes[PROF_OUTCOMES_MAX]; /* totals already fed */

	/* channels */
	int control_fd; /* borrowed */
	int server_fd;	/* -1 = none */
	int reader_fd;	/* -1 = none */
	uint32_t server_generation;
	int epoll_fd;
	bool mmaps_polled;	    /* mapping records wake the loop */
	uint64_t mmap_wakeup_ns;    /* the last one */
	uint64_t demanded_ns;	    /* when the first session of those that run was asked for */
	uint64_t hold_until_ns;	    /* sampling waits for unwind tables till then; 0 = it does not */
	bool loading;		    /* programs are being loaded for a first session of waits or allocations */
	bool starting;		    /* the first scan of /proc is under way */
	bool listed;		    /* the server has been told of every process */
	bool stopping;
	struct channel_message message;
};

/* True while any session wants something. */
static inline bool collector_active(const struct collector *c)
{
	return c->demand.types != 0;
}

/* Children and threads that hang for good where a file or a process does not answer. */
static inline unsigned collector_hung(const struct collector *c)
{
	return module_index_hung(c->index) + isolation_left(c->isolation);
}

#endif
