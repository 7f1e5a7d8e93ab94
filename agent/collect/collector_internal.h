/* SPDX-License-Identifier: Apache-2.0 */
/* The collector's state and what its files do for each other. One thread, one loop (collector.c); every
 * function here is called from it.
 *
 *   collector.c  the loop, timed work, start and end       control.c  messages of the other processes
 *   follow.c     events -> lives of processes              publish.c  mappings and tables -> BPF
 *   samples.c    stacks and samples -> feed                late.c     stacks that wait for unwind tables
 *   late_memory.c  and for their memory                   fast.c     processes with events of their own
 *   family.c     who descends from whom */
#ifndef PROFD_COLLECT_COLLECTOR_INTERNAL_H
#define PROFD_COLLECT_COLLECTOR_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/channel.h"
#include "agent/collect/alloc.h"
#include "agent/collect/bpf_agent.h"
#include "agent/collect/collector.h"
#include "agent/collect/feed_writer.h"
#include "agent/collect/governor.h"
#include "agent/collect/late_stacks.h"
#include "agent/collect/mmap_records.h"
#include "agent/collect/module_index.h"
#include "agent/collect/module_table.h"
#include "agent/collect/patient.h"
#include "agent/collect/proc_ports.h"
#include "agent/collect/proc_table.h"
#include "agent/collect/stack_table.h"
#include "agent/wire/control.h"
#include "bpf/outcome.h"

#define LATE_WAIT_NS (2 * NS_PER_S) /* a server waits 3 s for the next stack of a session that ends */
#define LATE_READ_NS (10 * NS_PER_S) /* of a child that goes on answering */

/* A user stack that was walked after its sample. */
struct late_frames {
	uint64_t id; /* under which it was promised */
	uint16_t count;
	uint8_t outcome;
	uint8_t reserved[5];
	uint64_t words[PROF_FRAMES_MAX + 1];
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
	struct patient *patient; /* looks at processes that may not let anybody */
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
	bool offcpu, io, kernel_locks, wakers; /* attached */
	struct feed_demand told;    /* what the feed was told is in force */
	struct alloc_watch *alloc;  /* NULL until somebody wants allocations */
	uint64_t families[FEED_FAMILIES_MAX]; /* followed, by the bit of struct proc.families; 0 = free */

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
	uint32_t server_generation;
	int epoll_fd;
	bool mmaps_polled;	    /* mapping records wake the loop */
	uint64_t mmap_wakeup_ns;    /* the last one */
	uint64_t hold_until_ns;	    /* sampling waits for unwind tables till then; 0 = it does not */
	bool loading;		    /* programs are being loaded for a first session of waits */
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
	return module_index_hung(c->index) + patient_left(c->patient);
}

/* Reads what the kernel has for us now, events and mappings (collector.c). */
void collector_drain(struct collector *c);

/* ---- follow.c -------------------------------------------------------------------------------- */

/* Adds every process of /proc that is not known and ends those that are gone. */
void follow_scan(struct collector *c);
/* Reads anew where each process listens. */
void follow_ports(struct collector *c);
/* Feeds every living process, those that began a moment ago too, and behind them the CPU time of each. */
void follow_cpu(struct collector *c);
/* Asks for the modules of @proc; urgently, and for their tables, of one that is sampled. */
void follow_ask(struct collector *c, const struct proc *proc, bool urgent);
/* Asks for all modules that nobody asked for, the most mapped first. */
void follow_ask_all(struct collector *c);
/* A first session begins: the unwind tables of all that runs are wanted. */
void follow_want_rows(struct collector *c);
/* Where to open the file of @mapping. */
struct module_origin follow_origin(const struct proc *proc, const struct mapping *mapping);
/* Moves mapping records out of the kernel, to be applied by follow_apply(). */
void follow_drain(struct collector *c);
/* @lost mapping records were not seen: all processes are read again when they are next needed. */
void follow_lost(struct collector *c, uint64_t lost);
/* Applies drained mapping records up to @time_ns. */
void follow_apply(struct collector *c, uint64_t time_ns);
/* Applies all mapping records up to @time_ns, those not drained yet too, so that they and BPF's events are
 * seen in the order of their times. */
void follow_until(struct collector *c, uint64_t time_ns);
void follow_task(struct collector *c, const struct prof_task_event *event);
/* The life that a sample belongs to, added if it was not known; NULL when the table is full. */
struct proc *follow_sampled(struct collector *c, uint32_t tgid, uint64_t start_boottime_ns,
			    uint64_t time_ns, const char *comm);
/* Reads facts and mappings from /proc and asks for the modules; what can be had of a process that is
 * gone stays as it was inherited and recorded. */
void follow_engage(struct collector *c, struct proc *proc);
/* Second looks at processes that are 1, 5 and 30 s old: what they set up after their start. */
void follow_look_again(struct collector *c, uint64_t now_ns);
/* Asks again for names of JIT code: runtimes write their maps when they like. */
void follow_jit(struct collector *c);
/* Ends a life: its mappings leave BPF, the feed is told. */
void follow_end(struct collector *c, struct proc *proc, uint64_t time_ns);

/* ---- publish.c ------------------------------------------------------------------------------- */

/* Kernel and vDSO modules. */
void publish_init(struct collector *c);
/* module_index_sink.indexed */
void publish_indexed(void *ctx, struct module *module, int table_fd, uint64_t table_bytes);
/* The module of a mapping as the kernel describes it; 0 = memory without a file. False: nothing that
 * could ever hold frames of interest. */
bool publish_module_of(struct collector *c, const struct module_file *file, const char *path,
		       uint32_t *ret_module);
/* For mapping_set: changes of a published process go into BPF. */
struct publish_context {
	struct collector *c;
	struct proc *proc;
};
struct mapping_changes publish_changes(struct publish_context *context);
/* Puts the mappings of engaged processes into BPF as soon as their modules are settled, and renews those
 * of modules that changed. */
void publish_sweep(struct collector *c, uint64_t now_ns);
/* Nothing is awaited of the files that the wanted processes have mapped, or those that were found running and nobody has
 * decided on. */
bool publish_is_settled(const struct collector *c);
/* Writes what was decided about @proc into BPF. */
void publish_target(struct collector *c, struct proc *proc);
/* Takes everything of @proc out of BPF. */
void publish_withdraw(struct collector *c, struct proc *proc);
/* BPF finds @module by its file no more. */
void publish_withdraw_file(struct collector *c, struct module *module);
/* There is another file under the inode of @module: its next mapping is another module. */
void publish_forget_file(struct collector *c, struct module *module);
/* Asks for the names of a process's JIT code unless the symbolizer has them. */
void publish_ask_jit(struct collector *c, struct proc *proc);
/* The id of the module that stands for the JIT memory of @proc, made at its first use; 0 = none left. */
uint32_t publish_jit_module(struct collector *c, struct proc *proc);
/* Forgets modules that nothing needs, if there are too many; once a minute (module_sweep.c). */
void module_sweep(struct collector *c, uint64_t now_ns);
/* True if frames in this module are in memory that a program wrote at run time. */
bool publish_is_jit(const struct module *module);

/* ---- samples.c ------------------------------------------------------------------------------- */

/* struct bpf_sink */
void samples_stack(void *ctx, const struct prof_stack_event *event);
void samples_task(void *ctx, const struct prof_task_event *event);
void samples_sample(void *ctx, const struct prof_sample_event *event);
/* A sample whose value is final. */
void samples_feed(struct collector *c, const struct prof_sample_event *event);
/* stack_table_create: the kernel is to send the stack in full when it is seen again. */
void samples_evicted(void *ctx, uint64_t hash);
/* Makes sure that the feed has @proc as it is now. False: the ring is full. */
bool samples_feed_proc(struct collector *c, struct proc *proc);
/* Tells the feed that a life has ended, once, if it knows the life. */
void samples_feed_exit(struct collector *c, struct proc *proc);
bool samples_feed_module(struct collector *c, struct module *module);
/* Writes a stack the server has asked for again. */
void samples_feed_stack(struct collector *c, uint64_t id);
/* Sends again what did not fit. */
void samples_feed_rest(struct collector *c);
/* Everything about living processes and modules once more. */
void samples_feed_all(struct collector *c);

/* Writes a stack under an id that a sample already names. */
void samples_feed_promised(struct collector *c, struct proc *proc, uint64_t time_ns, uint64_t id,
			   const uint64_t *frames, uint16_t frame_count, uint8_t outcome);

/* ---- fast.c ---------------------------------------------------------------------------------- */

/* The rate of threads' own events of all processes with PROF_WANT_FAST; 0 ends them. Sets fast_refused, and no rate, when
 * they cannot be had. */
void fast_set_rate(struct collector *c, uint32_t rate_hz);
/* After a decision on @proc. */
void fast_follow(struct collector *c, struct proc *proc);
/* The life of @proc is over. */
void fast_end(struct collector *c, struct proc *proc);

/* ---- family.c -------------------------------------------------------------------------------- */

/* From now on these are followed, and no others. */
void family_follow(struct collector *c, const struct control_families *families);
/* @proc was born to @parent (NULL = not known), which was not seen at its fork. True: it belongs to more families now. */
bool family_join(struct collector *c, struct proc *proc, const struct proc *parent);

/* ---- late.c ---------------------------------------------------------------------------------- */

/* struct bpf_sink */
void late_event(void *ctx, const struct prof_late_event *event);
/* For a sample with PROF_SAMPLE_LATE. True: its stack follows under *@ret_id. False: *@ret_hash is that of
 * its stack. */
bool late_sample(struct collector *c, struct proc *proc, const struct prof_sample_event *event,
		 uint64_t *ret_id, uint64_t *ret_hash);
/* struct bpf_sink: the whole stack of a sample that lacked memory, under the id that was promised. */
void late_retried(void *ctx, const struct prof_retried_event *event);
/* Delivers what can be walked by now and what has waited long enough. */
void late_sweep(struct collector *c, uint64_t now_ns);
/* The stack of a thread that sleeps, @event with its memory; as far as it goes. */
int late_walk_asleep(struct collector *c, const struct late_stack *item,
		     const struct prof_late_event *event, struct late_frames *ret) must_use;
/* Delivers what the child has walked. */
void late_answer(struct collector *c, const struct late_frames *frames);

/* ---- late_memory.c --------------------------------------------------------------------------- */

/* Has the memory read that the stacks of sleeping threads lack, if there are any. */
void late_memory_start(struct collector *c, uint64_t now_ns);
/* Its answers; on @c->late_memory.fd. */
void late_memory_receive(struct collector *c);
void late_memory_stop(struct collector *c);

/* ---- control.c ------------------------------------------------------------------------------- */

/* Messages of the supervisor; the end of its channel stops the collector. */
void control_supervisor(struct collector *c);
void control_server(struct collector *c);
void control_send_status(struct collector *c);
/* Puts demand, governor and targets into force. */
void control_apply_demand(struct collector *c);
/* Feeds what was sampled and lost since the last time, and what it cost. CPU time of the collector and its
 * programs since their start. */
uint64_t collector_feed_costs(struct collector *c, uint64_t now_ns);

#endif
