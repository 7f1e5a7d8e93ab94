/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles that programs take of themselves and send. Each profile of one type becomes a finished
 * session of its service. Whoever decodes a format fills these tables (api/receive). All indices
 * are checked by that decoder. */
#ifndef PROFD_SESSION_RECEIVE_H
#define PROFD_SESSION_RECEIVE_H

#include "agent/base/vec.h"
#include "agent/session/session.h"

#define RECEIVED_LABEL	       "profd.received" /* a received session's label: the format */
#define RECEIVED_DEPTH_MAX     511u	/* places of a stack; a deeper one is cut at its root */
#define RECEIVED_INLINE_MAX    64u	/* lines of a place */
#define RECEIVED_LABELS_MAX    32u	/* of a sample */
#define RECEIVED_PLACES_MAX    500000u
#define RECEIVED_SAMPLES_MAX   500000u	/* of one profile */
#define RECEIVED_MAPPINGS_MAX  4096u
#define RECEIVED_FRAMES_MAX    8000000u /* of all stacks of a message */
#define RECEIVED_ALL_LABELS_MAX 2000000u /* of all samples of a message */
#define RECEIVED_TEXT_MAX      8192u	/* bytes of a text; a longer one is refused */
#define RECEIVED_DURATION_MAX_S 86400u

struct received_mapping {
	const char *path;
	uint8_t build_id[32];
	uint8_t build_id_len;
};

/* A function at a place, the innermost first: the others are those that it is inlined into. */
struct received_line {
	const char *function, *symbol, *file; /* never NULL */
	uint32_t line, start_line;	      /* 0 = unknown */
};

struct received_place {
	uint64_t address; /* in the mapping's file, as far as the sender says; 0 = unknown */
	uint32_t mapping; /* index + 1; 0 = none */
	uint32_t line_count; /* 0 = no name */
	size_t first_line;
	uint8_t kind; /* enum profile_frame_kind */
};

struct received_label {
	const char *name, *value;
};

struct received_sample {
	size_t first_frame; /* in frames: places, innermost first */
	size_t first_label;
	uint32_t frame_count, label_count;
	uint32_t tid; /* 0 = unknown */
	bool is_cut;  /* frames at the root are missing */
	const char *thread; /* never NULL */
	int64_t values[2];  /* in the order of the profile's type; not negative */
};

VEC_DEFINE(received_mappings, struct received_mapping);
VEC_DEFINE(received_lines, struct received_line);
VEC_DEFINE(received_places, struct received_place);
VEC_DEFINE(received_frames, uint32_t);
VEC_DEFINE(received_labels, struct received_label);
VEC_DEFINE(received_samples, struct received_sample);

/* Tables that the profiles of one message share. Texts belong to the decoder. */
struct received_tables {
	struct received_mappings_vec mappings;
	struct received_lines_vec lines;
	struct received_places_vec places;
	struct received_frames_vec frames;
	struct received_labels_vec labels;
};

#define RECEIVED_NOTES_MAX 4

struct received {
	const struct received_tables *tables; /* borrowed */
	enum profile_type type;
	char service[SERVICE_NAME_SIZE];
	uint64_t start_ns, duration_ns; /* realtime */
	uint64_t period_ns;		/* of time between samples; 0 = unknown */
	uint32_t pid;			/* 0 = unknown */
	char exe[256];			/* "" = unknown */
	struct session_label session_labels[SESSION_LABELS_MAX - 1]; /* RECEIVED_LABEL is added */
	uint32_t session_label_count;
	const char *format;  /* value of RECEIVED_LABEL, literal */
	uint8_t identity[10]; /* of the content: what has the same is stored once */
	char notes[RECEIVED_NOTES_MAX][160]; /* for quality */
	uint32_t note_count;
	struct received_samples_vec samples; /* owned by the decoder */
};

/* Stores @received as a finished session of @tenant. What arrives again is stored once: *@ret_id
 * has the id of the session that is there. Words: InvalidParam (the service's name, the time),
 * LimitReached (too large to be stored), StoreUnavailable. Any thread; blocks for the store. */
int sessions_receive(struct sessions *s, const char *tenant, const struct received *received,
		     char ret_id[SESSION_ID_SIZE], struct err *err) must_use;

#endif
