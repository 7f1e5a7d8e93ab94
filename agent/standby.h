/* SPDX-License-Identifier: Apache-2.0 */
/* A shared store that cannot work must not keep this host from being profiled. The server opens it
 * here. If the shared store does not answer, the store of this host alone stands in
 * (store_open_standby()), and a thread tries the shared one until it works. */
#ifndef PROFD_STANDBY_H
#define PROFD_STANDBY_H

#include <stdbool.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/session/sessions_run.h"
#include "agent/store/store.h"

struct standby_options {	    /* texts are borrowed and outlive what they are given to */
	const char *data_dir, *url; /* of a shared store */
	const char *host;	    /* as of store_open() */
	bool collects;		    /* this server takes samples */
};

/* Opens the shared store, and moves there what stood in for it. If the shared store cannot work
 * (-EIO, -EPROTO), opens the standby store instead and leaves the reason and remedy in @ret_why.
 * Any other failure (address, lock, disk) is returned with its sentence. Blocks for seconds. */
int standby_open(const struct standby_options *options, struct store **ret, struct err *ret_why,
		 struct err *err) must_use;

struct standby;

/* Starts the thread over @store, which standby_open() gave. With the shared store it refreshes
 * every five minutes what the standby store has to know. With the standby store it tries the shared
 * one after 1 to 30 s, and tells @sessions (borrowed) why the shared one does not work. When it
 * works standby_fd() becomes readable: the server then ends, and begins anew on the shared
 * store. */
int standby_watch(const struct standby_options *options, struct store *store,
		  struct sessions *sessions, struct standby **ret, struct err *err) must_use;
/* Owned by @standby. */
int standby_fd(const struct standby *standby);
/* Waits for a try under way: seconds. */
void standby_stop(struct standby *standby);

#endif
