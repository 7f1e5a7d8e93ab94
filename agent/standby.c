// SPDX-License-Identifier: Apache-2.0
#include "agent/standby.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/base/buf.h"
#include "agent/base/log.h"

#define FIRST_TRY_MS 1000 /* twice as long each time */
#define LAST_TRY_MS  30000
#define MIRROR_MS    300000
#define OPEN_FOLDERS 16

struct standby {
	struct standby_options options;
	struct store *store; /* borrowed, likewise sessions */
	struct sessions *sessions;
	pthread_t thread;
	bool runs;
	int stop_fd, works_fd;
};

/* ---- opening --------------------------------------------------------------------------------- */

static bool may_work_later(int rc)
{
	return rc == -EIO || rc == -EPROTO;
}

/* The shared store, if it answers. */
static int open_shared(const struct standby_options *o, struct store **ret, struct err *err)
{
	cleanup(store) struct store *store = NULL;
	int rc = store_open(o->data_dir, o->url, o->host, &store, err);

	if (rc == 0)
		rc = store_try(store, err);
	if (rc == 0)
		*ret = take_ptr(store);
	return rc;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
	(void)!remove(path);
	return 0;
}

static char *path_of(const struct standby_options *o, const char *name)
{
	struct buf path = { 0 };

	buf_printf(&path, "%s/%s", o->data_dir, name);
	return buf_take(&path, NULL);
}

/* The folder gets another name first: what is half removed is never opened again. */
static void remove_standby(const struct standby_options *o)
{
	cleanup_free char *path = path_of(o, "standby"), *moved = path_of(o, "standby.moved");

	if (!path || !moved)
		return;
	(void)nftw(moved, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
	if (rename(path, moved) == 0)
		(void)nftw(moved, remove_one, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
}

static bool has_standby(const struct standby_options *o)
{
	cleanup_free char *path = path_of(o, "standby/state.db");

	return path && access(path, F_OK) == 0;
}

/* Moves the data recorded meanwhile to the shared store. Then the standby store begins anew, with
 * the data that this host needs to go on alone. */
static int come_back(const struct standby_options *o, struct store *shared, struct err *err)
{
	struct store *standby = NULL;
	bool had = has_standby(o);
	int rc = had ? store_open_standby(o->data_dir, &standby, err) : 0;

	if (rc == 0 && had)
		rc = sessions_leave_standby(standby, shared, o->collects, err);
	store_close(standby);
	if (rc == 0)
		remove_standby(o);
	return rc;
}

static int mirror(const struct standby_options *o, struct store *shared, struct err *err)
{
	cleanup(store) struct store *standby = NULL;
	int rc = store_open_standby(o->data_dir, &standby, err);

	return rc < 0 ? rc : sessions_mirror(shared, standby, err);
}

int standby_open(const struct standby_options *options, struct store **ret, struct err *ret_why,
		 struct err *err)
{
	cleanup(store) struct store *shared = NULL;
	struct err why = { 0 };
	int rc = open_shared(options, &shared, &why);

	if (rc == 0)
		rc = come_back(options, shared, &why);
	if (rc == 0)
		rc = mirror(options, shared, &why);
	if (rc == 0) {
		*ret = take_ptr(shared);
		return 0;
	}
	if (!may_work_later(rc)) {
		if (err)
			*err = why;
		return rc;
	}
	*ret_why = why;
	return store_open_standby(options->data_dir, ret, err);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* True: to stop. */
static bool wait_ms(const struct standby *s, int ms)
{
	struct pollfd stop = { .fd = s->stop_fd, .events = POLLIN };

	return poll(&stop, 1, ms) > 0;
}

static void refresh(const struct standby *s)
{
	static struct log_limit limit = { .burst = 1 };
	struct err err = { 0 };
	int rc = mirror(&s->options, s->store, &err);

	if (rc < 0 && !may_work_later(rc) && log_allowed(&limit))
		log_warn("what this host needs while its store is away cannot be kept: %s",
			 err.text);
}

/* True: the shared store works. It is closed again: the next life of the server opens it. */
static bool try_shared(const struct standby *s)
{
	cleanup(store) struct store *shared = NULL;
	struct err err = { 0 };

	if (open_shared(&s->options, &shared, &err) == 0)
		return true;
	sessions_set_standby(s->sessions, err.text);
	return false;
}

static void *watch_main(void *ctx)
{
	const struct standby *s = ctx;
	int wait = store_is_standby(s->store) ? FIRST_TRY_MS : MIRROR_MS;

	while (!wait_ms(s, wait)) {
		if (!store_is_standby(s->store)) {
			refresh(s);
			continue;
		}
		if (try_shared(s)) {
			(void)eventfd_write(s->works_fd, 1);
			return NULL;
		}
		wait = 2 * wait < LAST_TRY_MS ? 2 * wait : LAST_TRY_MS;
	}
	return NULL;
}

int standby_watch(const struct standby_options *options, struct store *store,
		  struct sessions *sessions, struct standby **ret, struct err *err)
{
	struct standby *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to watch the store");
	*s = (struct standby){ .options = *options,
			       .store = store,
			       .sessions = sessions,
			       .stop_fd = eventfd(0, EFD_CLOEXEC),
			       .works_fd = eventfd(0, EFD_CLOEXEC) };
	rc = s->stop_fd < 0 || s->works_fd < 0 ? errno
					       : pthread_create(&s->thread, NULL, watch_main, s);
	if (rc != 0) {
		standby_stop(s);
		return err_set(err, rc, NULL, NULL, "no thread to watch the store: %s",
			       strerror(rc));
	}
	s->runs = true;
	*ret = s;
	return 0;
}

int standby_fd(const struct standby *standby)
{
	return standby->works_fd;
}

void standby_stop(struct standby *standby)
{
	if (!standby)
		return;
	if (standby->stop_fd >= 0)
		(void)eventfd_write(standby->stop_fd, 1);
	if (standby->runs)
		(void)pthread_join(standby->thread, NULL);
	cleanup_close_fn(&standby->stop_fd);
	cleanup_close_fn(&standby->works_fd);
	free(standby);
}
