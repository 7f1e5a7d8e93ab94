/* SPDX-License-Identifier: Apache-2.0 */
/* Names from the symbolizer process, as a struct name_source: asked in batches, remembered within a
 * bound.
 *
 * The symbolizer may be absent, slow, or answer that it does not know yet. Then a name is unknown
 * and is asked for again after NAMES_AGAIN_NS (NAMES_COMING_NS while its file is being read). No
 * caller waits longer than 2 s for it. So are names of modules whose debug information may still
 * appear, and of JIT code and kernel modules, whose address may belong to other code by now. A name
 * that was kept with the session wins over a present one. What it does not know any more (a module
 * that left) is answered from the names kept with a session: names_keep().
 *
 * Thread rule: one user at a time (the session layer's build lock), who keeps returned texts only
 * until names_client_end(). names_client_set_channel() may be called from any thread. */
#ifndef PROFD_RECORDING_NAMES_CLIENT_H
#define PROFD_RECORDING_NAMES_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/profile/names.h"
#include "agent/profile/profile.h"
#include "agent/wire/control.h"

#define NAMES_PLACES_MAX      500000u	     /* remembered (module, offset) pairs */
#define NAMES_TEXT_BYTES_MAX  (64u << 20)    /* of their texts */
#define NAMES_TOLD_BYTES_MAX  (64u << 20)    /* of names of script frames */
#define NAMES_AGAIN_NS                                                                             \
	9000000000ull /* what may improve is asked for again after this: 10 s after debug          \
		       * information has appeared it is used */
#define NAMES_COMING_NS	      1000000000ull  /* the same of a file that the symbolizer is reading */
#define NAMES_WAIT_NS	      2000000000ull  /* longest silence of the symbolizer while asked */

struct names_client;

int names_client_create(struct names_client **ret) must_use;
void names_client_destroy(struct names_client *client);
CLEANUP_DEFINE(names_client, struct names_client *, names_client_destroy);

/* A new symbolizer; ownership of @fd passes on. -1 = there is none. */
void names_client_set_channel(struct names_client *client, int fd);
bool names_client_is_connected(struct names_client *client);

/* The source, borrowed from the client. Between begin and end nothing is evicted. */
const struct name_source *names_client_begin(struct names_client *client);
void names_client_end(struct names_client *client);

/* The functions of a script frame, as a FEED_SCRIPT tells them, innermost first (@count, at least 1
 * and at most FEED_FUNCTIONS_MAX); nobody asks the symbolizer for them. May be
 * called from any thread. Told names are bounded by NAMES_TOLD_BYTES_MAX: beyond it all are
 * forgotten at the next begin, and those that come again have names. */
void names_client_tell(struct names_client *client, const struct feed_script *script,
		       const struct feed_function *functions, unsigned count);
/* Names kept with the session that is being rendered: used until end when the symbolizer knows
 * nothing. Texts are copied. */
int names_keep(struct names_client *client, uint64_t key, uint64_t offset,
	       const struct name_frame *frames, unsigned count) must_use;
/* Visits the known names of the places asked for since begin, each once. */
typedef int names_visit_fn(void *ctx, uint64_t key, uint64_t offset,
			   const struct name_frame *frames, unsigned count);
int names_client_used(struct names_client *client, names_visit_fn *visit, void *ctx) must_use;
/* The least settled state of what was asked for since begin: NAMES_FINAL, NAMES_MAY_IMPROVE (also
 * what is unknown, and of JIT code) or NAMES_COMING. */
enum names_state names_client_state(const struct names_client *client);
/* Sets names_pending of @quality, with a note, in NAMES_COMING or where the symbolizer did not
 * answer. */
void names_client_note(const struct names_client *client, struct profile_quality *quality);

#endif
