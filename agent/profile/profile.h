/* SPDX-License-Identifier: Apache-2.0 */
/* The profile model: what a session, a window or a merge is when it is rendered, compared or
 * summed. Symbolized, aggregated, immutable once built; readers share it by reference count.
 *
 *   strings     interned text, id 0 = ""
 *   mappings    files with build-id; id 0 = none
 *   functions   (name, package, file): the identity used for comparisons
 *   frames      one source-level frame: function, line, mapping, file offset, kind
 *   nodes       the prefix tree of stacks, root first: node 0 is the root and has no frame, a
 * parent's index is always smaller than its child's, so one pass in either direction folds the tree
 *   attrs       who and how: process, thread, state, wait kind, lock, labels
 *   samples     (node, attrs) -> values; each pair once
 *   events      optional, time-ordered: (time, node, attrs, value) for timelines and heat maps
 *
 * Values: as many as the type has, in pprof order; the last-but-for-io is
 * the value that totals and percentages use: profile_value_index(). No I/O here. */
#ifndef PROFD_PROFILE_PROFILE_H
#define PROFD_PROFILE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/profile/profile_type.h"

/* ---- contents -------------------------------------------------------------------------------- */

enum profile_frame_kind {
	PROFILE_FRAME_NATIVE,
	PROFILE_FRAME_KERNEL,
	PROFILE_FRAME_GO,
	PROFILE_FRAME_JIT,
	PROFILE_FRAME_INTERPRETED,
	PROFILE_FRAME_UNKNOWN, /* text is `[unknown] module+0xoffset`, of where its function starts
				  if that is known */
	PROFILE_FRAME_MARKER,  /* [truncated], [on cpu, not sampled], … */
};

#define PROFILE_TRUNCATED                                                                          \
	"[truncated]" /* name of the marker that is the outermost frame of a cut stack */

/* Name of the marker that stands for a stack, or for its user part, that never arrived. */
#define PROFILE_LOST "[unknown]"

/* Name of code compiled at run time that no map names. */
#define PROFILE_JIT "[jit]"

/* Name of the marker of preempted time in which a thread had a CPU, and interrupts or a hypervisor
 * had that. */
#define PROFILE_STOLEN "[stolen]"

enum profile_frame_flag {
	PROFILE_FRAME_INLINED = 1, /* inlined into its parent frame */
	PROFILE_FRAME_GUESSED = 2,
	PROFILE_FRAME_NAMELESS = 4, /* unknown, but one text for its whole function */
	PROFILE_FRAME_APPROXIMATE = 8, /* the compiler did not record the place: the line, and what is
					* inlined there, are those of the next place that it did */
};

/* How the code of a script frame came to be. */
enum profile_tier {
	PROFILE_TIER_NONE, /* no script frame, or not known */
	PROFILE_TIER_INTERPRETED,
	PROFILE_TIER_BASELINE, /* compiled fast: HotSpot's C1, V8's Sparkplug */
	PROFILE_TIER_OPTIMIZED, /* HotSpot's C2, V8's Maglev and Turbofan */
	PROFILE_TIERS,
};

/* Labels of samples: the word for the tier of the innermost script frame; what a thread of a
 * runtime's own does. */
#define PROFILE_LABEL_TIER    "tier"
#define PROFILE_LABEL_RUNTIME "runtime"

struct profile_mapping {
	uint32_t path; /* string id */
	uint8_t build_id_len;
	uint8_t build_id[32];
	uint64_t key; /* stable identity of the module */
	bool unread; /* its file was gone, or could not be read, when it was met */
	bool is_unanswered; /* some of its names are not known yet: their absence says nothing of the
			     * file */
};

struct profile_function {
	uint32_t name; /* string id: demangled, or the unknown text */
	uint32_t
		package; /* string id: Go package, C++ namespace-less module base name; may be "" */
	uint32_t file;	 /* string id; "" if unknown */
	uint32_t line;	 /* first line of the function, 0 if unknown */
	uint32_t symbol; /* string id: linkage name that @name was demangled from; "" = the same */
};

struct profile_frame {
	uint32_t function;
	uint32_t mapping;
	uint64_t offset; /* file offset; kernel: from _text; 0 for markers */
	uint32_t line;	 /* 0 if unknown */
	uint8_t kind;	 /* enum profile_frame_kind */
	uint8_t flags;
	uint8_t tier;	 /* enum profile_tier */
};

struct profile_node {
	uint32_t parent;
	uint32_t frame; /* undefined for node 0 */
};

struct profile_label {
	uint32_t name; /* string ids */
	uint32_t value;
};

struct profile_attrs {
	uint32_t process;     /* index of processes */
	uint32_t tid;	      /* 0 = whole process */
	uint32_t thread_name; /* string id */
	uint32_t state; /* string id: blocked, runqueue, preempted; goroutines: Go's words; "" */
	uint32_t wait;	/* string id: futex, sleep, …; goroutines: wait reason; "" */
	uint32_t extra; /* string id: io kind, lock, created-by; "" */
	uint32_t label_first; /* labels[label_first … + label_count) */
	uint32_t label_count;
};

struct profile_process {
	uint32_t pid;
	uint32_t exe;		/* string id */
	uint32_t comm;		/* string id */
	uint32_t service;	/* string id */
	uint32_t container, image, pod, namespace; /* string ids; 0 = none, or not known */
	uint32_t host;		/* string id; 0 = the profile's host */
	uint64_t started_at_ns; /* realtime */
	int64_t value;		/* sum of the main value */
};

struct profile_sample {
	uint32_t node;
	uint32_t attrs;
	int64_t values[PROFILE_VALUES_MAX];
	double variance; /* of its value, as far as chance chose what was recorded; 0 = exact, or
			    not known */
};

struct profile_event {
	uint64_t time_ns; /* realtime */
	uint32_t node;
	uint32_t attrs;
	int64_t value; /* main value */
};

#define PROFILE_OUTCOMES_MAX 64

#define PROFILE_SKIPPED_MAX 16 /* listed; a note says how many more there are */

/* A process that belongs to what was asked for and is not in the profile. */
struct profile_skipped {
	uint32_t pid;
	char reason[156];
};

/* Label of what is in use: how many frees of its place were seen, the basis of an estimate. */
#define PROFILE_LABEL_DEATHS "freesSeen"

/* Likewise: the standard error of that estimate in percent. */
#define PROFILE_LABEL_ERROR "errorPct"

/* Likewise: addresses of the place that are in use after half a minute, where none of that age was
 * seen to end. */
#define PROFILE_LABEL_FOLLOWED "stillInUse"

/* Likewise: the same, of too few addresses to tell anything by themselves (heap_leaks.h). */
#define PROFILE_LABEL_FEW "stillInUseFew"

/* Likewise: "yes" where none of the place was seen to end, but some or all may have, unseen between
 * two windows. */
#define PROFILE_LABEL_UNSURE "mayHaveEnded"

/* State of what is in use and was not sampled: known to the byte. */
#define PROFILE_STATE_EXACT "exact"

#define PROFILE_GROWN_MAX 8u

/* Blocks of one size of which there were steadily more and more while the profile was taken. */
struct profile_grown {
	uint32_t block_bytes; /* what each can hold at most; 16 less are of the size below */
	uint64_t before;      /* in use at the beginning */
	uint64_t blocks;      /* more of them at the end */
};

/* How allocations of programs that are not Go were observed; mode "" = they were not. */
struct profile_probes {
	char mode[24];
	uint64_t windows, hits, sampled;
	uint64_t gap_bytes;  /* mean distance of two samples */
	double duty_pct;     /* of the time the probes were open */
	double cost_pct;     /* of the programs' CPU time; negative: not known */
	double dilation;     /* share of an open window in which the programs did their own work */
	double rel_err; /* of what all windows stand for together: the same for every place */
	uint64_t observed_since_ns; /* realtime */
	/* memory: what estimates were multiplied by to fit into what the heap holds, 0 = nothing;
	 * and how much of all, before that, may not be there for what the heap says: everything
	 * where it says nothing. */
	double fitted, gone_bytes;
	bool pooled;		    /* some programs divide up larger blocks by themselves */
	uint64_t faulted_bytes;	    /* touched for the first time: an upper bound of growth */
	/* In use in all, whenever allocated, by the allocator's own structures; 0 = not known. */
	uint64_t heap_bytes, heap_blocks;
	uint64_t heap_mapped_bytes; /* of them blocks with a mapping of their own */
	uint64_t resident_bytes; /* the processes' own memory at the end, swap included; 0 = not known */
	uint32_t grown_count;
	struct profile_grown grown[PROFILE_GROWN_MAX]; /* largest growth first; not of merged profiles */
};

/* How far the samples can be trusted. A negative number: not known for this type. */
struct profile_quality {
	int64_t samples;
	int64_t lost;
	double truncated_pct;
	double unknown_frame_pct;
	double guessed_frame_pct;
	double effective_rate; /* per second and busy CPU */
	double overhead_pct;
	double type_overhead_pct; /* of it: the BPF programs that the type is taken by */
	uint64_t outcomes[PROFILE_OUTCOMES_MAX]; /* by outcome id: cut or damaged stacks of this
						    profile */
	uint32_t skipped_count;
	struct profile_skipped skipped[PROFILE_SKIPPED_MAX];
	uint32_t note_count;
	char notes[8][160];
	bool names_pending; /* names that this profile lacks are still being read */
	struct profile_probes probes;
};

/* Profiles of one type that cannot be added up or compared. */
enum profile_source {
	PROFILE_SOURCE_USUAL,
	PROFILE_SOURCE_STATES,	  /* block, mutex: sampled from goroutine states; the first value is how
				     often a wait was seen, not how many there were */
	PROFILE_SOURCE_UNLOCKERS, /* mutex: Go's own, by the stack that unlocked */
	PROFILE_SOURCE_MAX,
};

struct profile_meta {
	enum profile_type type;
	enum profile_source source;
	char service[256];
	char host[65];
	uint64_t start_ns; /* realtime */
	uint64_t duration_ns;
	uint32_t sample_rate; /* per second, as asked */
	uint32_t cpu_count;
	uint64_t grain_ns; /* events are sums of stretches of so long and bear the time of their
			      begin; 0 = each its own */
};

/* All arrays are owned by the profile. String id -> text: profile_string(). */
struct profile {
	struct profile_meta meta;
	struct profile_quality quality;
	struct profile_mapping *mappings;
	struct profile_function *functions;
	struct profile_frame *frames;
	struct profile_node *nodes;
	struct profile_label *labels;
	struct profile_attrs *attrs;
	struct profile_process *processes;
	struct profile_sample *samples;
	struct profile_event *events; /* ascending time */
	uint32_t mapping_count, function_count, frame_count, node_count, label_count, attrs_count,
		process_count, sample_count, event_count;
	uint64_t *string_offsets; /* into string_bytes */
	char *string_bytes;
	uint32_t string_count;
	int64_t totals[PROFILE_VALUES_MAX];
	unsigned refs; /* atomic */
};

static inline const char *profile_string(const struct profile *p, uint32_t id)
{
	return p->string_bytes + p->string_offsets[id];
}

static inline unsigned profile_value_index(const struct profile *p)
{
	return profile_type_info(p->meta.type)->value_index;
}

/* Whether events are spans of time that are recorded at their end, as waits are; their value is
 * their length. */
static inline bool profile_has_lengths(const struct profile *p)
{
	return !p->meta.grain_ns && profile_type_info(p->meta.type)->spans;
}

struct profile *profile_ref(struct profile *p);	  /* thread-safe; returns @p */
struct profile *profile_unref(struct profile *p); /* thread-safe; returns NULL */
static inline void profile_drop(struct profile *p)
{
	(void)profile_unref(p);
}
CLEANUP_DEFINE(profile, struct profile *, profile_drop);

/* ---- building -------------------------------------------------------------------------------- */

struct profile_builder;

/* NULL when out of memory. @max_nodes bounds the tree: stacks beyond it end in a [truncated] node
 * and are counted. */
struct profile_builder *profile_builder_create(const struct profile_meta *meta, uint32_t max_nodes);
void profile_builder_destroy(struct profile_builder *b);
CLEANUP_DEFINE(profile_builder, struct profile_builder *, profile_builder_destroy);

/* Each interns and returns the id; errors are sticky and reported by profile_builder_finish().
 * Not thread-safe. Ids must come from the same builder (-EINVAL), texts hold no NUL (-EINVAL); the
 * line and the symbol of a function are not part of its identity. attrs.process may be 0 while
 * there are no processes. */
uint32_t profile_builder_string(struct profile_builder *b, const char *text, size_t len);
/* Borrowed until the next string is interned. */
const char *profile_builder_text(const struct profile_builder *b, uint32_t string);
uint32_t profile_builder_mapping(struct profile_builder *b, const struct profile_mapping *m);
/* Sets is_unanswered of the mapping @id, a result of the call above. */
void profile_builder_mapping_unanswered(struct profile_builder *b, uint32_t id);
uint32_t profile_builder_function(struct profile_builder *b, const struct profile_function *f);
uint32_t profile_builder_frame(struct profile_builder *b, const struct profile_frame *f);
/* The child of @parent with @frame, made if absent; @parent 0 is the root. */
uint32_t profile_builder_node(struct profile_builder *b, uint32_t parent, uint32_t frame);
/* The tier of the innermost script frame of @node's stack, PROFILE_TIER_NONE if it has none. */
enum profile_tier profile_builder_tier(const struct profile_builder *b, uint32_t node);
uint32_t profile_builder_process(struct profile_builder *b, const struct profile_process *process);
uint32_t profile_builder_attrs(struct profile_builder *b, const struct profile_attrs *attrs,
			       const struct profile_label *labels);
void profile_builder_sample(struct profile_builder *b, uint32_t node, uint32_t attrs,
			    const int64_t *values);
/* The same of a value with a variance (struct profile_sample). */
void profile_builder_estimate(struct profile_builder *b, uint32_t node, uint32_t attrs,
			      const int64_t *values, double variance);
void profile_builder_event(struct profile_builder *b, const struct profile_event *event);
/* Sums, sorts and hands over the profile (one reference, the caller's). The builder is spent.
 * -ENOMEM, -E2BIG, or what an earlier call met. @quality is copied; its percentages of frames are
 * computed here from the samples, process values and totals likewise. Samples come out ordered by
 * node. */
int profile_builder_finish(struct profile_builder *b, const struct profile_quality *quality,
			   struct profile **ret) must_use;

/* ---- operations: each makes a new profile or table from borrowed ones; pure, thread-safe ----- */

/* Sum of several profiles of one type: durations are the time that at least one covers, service and
 * host become "*" where they differ, qualities are joined. Of a level (memory, goroutine) it is the
 * mean of the profiles of each host and service, and of those the sum. -EINVAL when types differ or
 * there is none. */
int profile_merge(struct profile *const *parts, size_t count, struct profile **ret) must_use;

struct profile_filter {
	uint64_t from_ns, to_ns;    /* realtime, 0 = open; needs events */
	const char *where_names[8]; /* names of attributes (attribute.h) */
	const char *where_values[8];
	unsigned where_count;
	const char *group_by; /* attribute that becomes the root frame, NULL = none */
	/* Keeps the samples of the attributes @attrs (index) for which it returns true; NULL = all. A
	 * negative errno ends the selection with that error. */
	int (*wants)(void *ctx, const struct profile *p, uint32_t attrs);
	void *wants_ctx;
	/* Names of functions from the root on: only stacks that begin with them; 0 = all. */
	const char *const *path;
	size_t path_count;
};
/* Values are matched exactly, all `where` pairs must hold; names are attribute.h's and `build-id`
 * (stacks that touch a file with it). -EINVAL unknown attribute name; -ENODATA from/to without
 * events, or inside what an event sums up. */
int profile_select(const struct profile *p, const struct profile_filter *filter,
		   struct profile **ret) must_use;

/* Index of the first value that is the type's: how often a state was seen is not how many waits
 * there were. */
static inline unsigned profile_first_value(enum profile_source source)
{
	return source == PROFILE_SOURCE_STATES ? 1 : 0;
}

struct profile_function_row {
	uint32_t function;
	uint32_t line;	    /* of rows by line: the line that ran or called, 0 = not known */
	uint8_t kind;	    /* enum profile_frame_kind of its frames */
	int64_t self;
	int64_t cumulative; /* once per stack, however often it recurs */
	uint64_t count;	    /* samples (events) in which it was the innermost frame */
};

/* All functions with a value, that of @value_index, largest self first, then cumulative, then name.
 * @ret is the caller's (free). -ENOMEM. */
int profile_top_functions(const struct profile *p, unsigned value_index,
			  struct profile_function_row **ret, size_t *ret_count) must_use;

/* Likewise a row for each line of the functions of this name; NULL = of all functions. A line is
 * counted once per stack. */
int profile_top_lines(const struct profile *p, unsigned value_index, const char *name,
		      struct profile_function_row **ret, size_t *ret_count) must_use;

/* One frame of each function, for what differs between its frames (module, kind); of several one
 * with a module. The caller's (free); NULL without memory. */
uint32_t *profile_function_frames(const struct profile *p) must_use;

/* Self and cumulative main value per node (arrays of node_count, caller's). */
int profile_node_values(const struct profile *p, int64_t **ret_self, int64_t **ret_total) must_use;

#endif
