/* SPDX-License-Identifier: Apache-2.0 */
/* A profile in the format the client asked for, with the options that all such calls share. */
#ifndef PROFD_API_FLAMEGRAPH_H
#define PROFD_API_FLAMEGRAPH_H

#include "api/render/render.h"
#include "api/http/router.h"

#define HASH_LETTERS 4 /* base64url letters of one frame in ?root= */

/* Parameters that choose a view of a profile and not which one. */
/* Words of the parameter `frames`, and what they mean. */
#define FLAMEGRAPH_FRAMES_WORDS "names details raw rawDetails"
#define FLAMEGRAPH_FRAMES_ABOUT \
	"details: file, module, build-id, kind of each frame too (json, csv); raw: with the " \
	"interpreter's own frames between Python functions; rawDetails: both"

#define FLAMEGRAPH_VIEW_PARAMS \
	{ .name = "format", .type = QUERY_TEXT, .min = 1, .max = 32, .about = "output format" }, \
	{ .name = "value", .type = QUERY_TEXT, .min = 1, .max = 32, \
	  .about = "which of the type's values is shown, such as samples or bytes" }, \
	{ .name = "groupBy", .type = QUERY_TEXT, .min = 1, .max = 64, \
	  .about = "attribute that becomes the root frame" }, \
	{ .name = "where", .type = QUERY_TEXT, .min = 3, .max = 1024, .flags = QUERY_REPEATED, \
	  .about = "attribute:value that samples must have" }, \
	{ .name = "from", .type = QUERY_TIME, .about = "start inside the session" }, \
	{ .name = "to", .type = QUERY_TIME, .about = "end inside the session" }, \
	{ .name = "maxNodes", .type = QUERY_UINT, .min = 1, .max = RENDER_NODES_MAX, \
	  .about = "most nodes of a tree; the largest are kept" }, \
	{ .name = "root", .type = QUERY_TEXT, .min = HASH_LETTERS, .max = 64 * HASH_LETTERS, \
	  .about = "path of frame hashes of the sub-tree to show" }, \
	{ .name = "frames", .type = QUERY_WORD, .words = FLAMEGRAPH_FRAMES_WORDS, \
	  .about = FLAMEGRAPH_FRAMES_ABOUT }, \
	{ .name = "function", .type = QUERY_TEXT, .min = 1, .max = 2048, \
	  .about = "format lines: of functions of this name only" }, \
	{ .name = "download", .type = QUERY_BOOL, .about = "offer the answer as a file" }, \
	{ .name = "tenant", .type = QUERY_TEXT, .min = 1, .max = 64, .about = "of a signed link" }, \
	{ .name = "exp", .type = QUERY_UINT, .min = 1, .max = UINT32_MAX, .about = "of a signed link" }, \
	{ .name = "sig", .type = QUERY_TEXT, .min = 1, .max = 128, .about = "of a signed link" }

/* Query parameters of a call that answers with a rendered profile. */
extern const struct query_spec flamegraph_params[];

/* When the data of a profile was taken, realtime. */
struct flamegraph_span {
	uint64_t from_ns, to_ns;
};

/* Does `frames` ask for details, or for the frames that agent/profile/profile_fold.h leaves out? */
bool flamegraph_wants_details(const struct query *query);
bool flamegraph_wants_raw(const struct query *query);
/* The profile of a session or baseline with the frames that the query asks for. As
 * sessions_profile(), error included. */
int flamegraph_profile(const struct http_call *call, const char *id, struct profile **ret,
		       struct err *err) must_use;

/* Index of the value that ?value= names, the type's own without it; those before @first are not the
 * profile's. 400. */
int flamegraph_value(const struct query *query, enum profile_type type, unsigned first,
		     unsigned *ret, struct err *err) must_use;
/* Chooses the format, applies where, groupBy, from and to, renders into the answer. @name is the
 * stem of a downloaded file's name, @span what from and to must lie in. */
int flamegraph_answer(struct http_call *call, struct profile *p, const struct flamegraph_span *span,
		      const char *name) must_use;
/* Writes @p (borrowed) as the answer's body, without holding a large one in memory; @level of gzip,
 * 0 = as it is. Errors of the renderer and of http_answer_end(). */
int flamegraph_write(struct http_call *call, const struct profile *p,
		     const struct render_options *options, render_fn *render, int level) must_use;
/* Renders @p (borrowed) in a fixed format, as a file. */
int flamegraph_file(struct http_call *call, const struct profile *p, const char *format,
		    const char *name) must_use;

/* GET …/{profileId}/flamegraph */
http_handler_fn handle_flamegraph;

#endif
