/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the OTLP decoder: the dictionary of a request, and its resource. */
#ifndef PROFD_API_RECEIVE_OTLP_INTERNAL_H
#define PROFD_API_RECEIVE_OTLP_INTERNAL_H

#include "api/receive/message.h"

struct otlp_function {
	const char *name, *symbol, *file;
	uint32_t start_line;
};
struct otlp_attribute {
	const char *key, *value; /* value "" = of a kind that is no text */
	uint64_t number;
};
struct otlp_stack {
	size_t first_frame;
	uint32_t frame_count;
	bool is_cut;
};
struct otlp_link {
	const char *trace, *span; /* hexadecimal, "" = none */
};
VEC_DEFINE(otlp_strings, const char *);
VEC_DEFINE(otlp_functions, struct otlp_function);
VEC_DEFINE(otlp_attributes, struct otlp_attribute);
VEC_DEFINE(otlp_stacks, struct otlp_stack);
VEC_DEFINE(otlp_links, struct otlp_link);

struct otlp {
	struct message *message;
	struct err *err;
	struct proto_in in, dictionary;
	struct otlp_strings_vec strings;
	struct otlp_functions_vec functions;
	struct otlp_attributes_vec attributes;
	struct otlp_stacks_vec stacks;
	struct otlp_links_vec links;
	struct received resource; /* what all profiles of the resource begin as */
	char named[3][128];	  /* Kubernetes's names of the resource: namespace, workload, container */
	uint32_t left_out;	  /* labels */
};

void otlp_dictionary_deinit(struct otlp *o);
/* Reads o->dictionary into the tables. */
int otlp_dictionary_read(struct otlp *o) must_use;

/* ---- helpers of both files ------------------------------------------------------------------- */

int otlp_too_many(struct otlp *o, const char *what);
/* Calls @take for each field of the message @value. */
typedef int otlp_field_fn(void *ctx, const struct proto_value *value);
int otlp_each_field(struct otlp *o, const struct proto_value *value, const char *what,
		    otlp_field_fn *take, void *ctx) must_use;
int otlp_string(struct otlp *o, uint64_t index, const char *what, const char **ret) must_use;
/* A key with its value as text: "" where the value is none. */
struct otlp_pair {
	const char *key, *text;
	uint64_t number; /* of a whole number */
};
int otlp_read_pair(struct otlp *o, const struct proto_value *value, struct otlp_pair *ret) must_use;

#endif
