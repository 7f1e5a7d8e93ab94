// SPDX-License-Identifier: Apache-2.0
#include "agent/store/sqlite_backup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/tar.h"
#include "agent/store/sqlite_db.h"

#define ASIDE "backup.tmp" /* folder of links and copies while a backup is made */

struct backup {
	const struct sqlite_backup_source *source;
	int aside_fd, out_fd;
	struct err *err;
};

static int failed(struct backup *b, int rc, const char *what)
{
	if (rc == -ENOSPC)
		return err_set(b->err, ENOSPC, "StoreUnavailable", NULL,
			       "no room for the copy: it needs as much space below data_dir as the store, "
			       "until it is sent");
	return rc < 0 && !b->err->code ? err_set(b->err, -rc, "StoreUnavailable", NULL,
						 "backup: %s: %s", what, strerror(-rc))
				       : rc;
}

static void empty_folder(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		cleanup_close_fn(&fd);
		return;
	}
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			(void)unlinkat(dir_fd, entry->d_name, 0);
	(void)closedir(dir);
}

void sqlite_backup_clean(int dir_fd)
{
	cleanup_close int fd =
		openat(dir_fd, ASIDE, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return;
	empty_folder(fd);
	(void)unlinkat(dir_fd, ASIDE, AT_REMOVEDIR);
}

/* The folder's existence is the lock: one backup at a time. */
static int open_aside(struct backup *b)
{
	int dir_fd = b->source->dir_fd;

	if (mkdirat(dir_fd, ASIDE, 0700) < 0)
		return errno == EEXIST ? err_set(b->err, EBUSY, "AgentBusy", NULL,
						 "another backup is being made")
				       : failed(b, -errno, ASIDE);
	b->aside_fd = openat(dir_fd, ASIDE, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (b->aside_fd < 0)
		return failed(b, -errno, ASIDE);
	b->out_fd = openat(dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (b->out_fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
		/* A file system without such files: the name goes at once. */
		b->out_fd = openat(b->aside_fd, "archive", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		(void)unlinkat(b->aside_fd, "archive", 0);
	}
	return b->out_fd < 0 ? failed(b, -errno, "archive") : 0;
}

/* Links keep the data of sessions that are deleted meanwhile. Links that are there already stay. */
static int link_sessions(struct backup *b)
{
	int fd = openat(b->source->sessions_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		cleanup_close_fn(&fd);
		return failed(b, -EIO, "sessions");
	}
	while (rc == 0 && (entry = readdir(dir))) {
		size_t len = strlen(entry->d_name);

		if (len < 5 || strcmp(entry->d_name + len - 4, ".log") != 0)
			continue;
		if (linkat(b->source->sessions_fd, entry->d_name, b->aside_fd, entry->d_name, 0) < 0 &&
		    errno != EEXIST && errno != ENOENT)
			rc = -errno;
	}
	(void)closedir(dir);
	return failed(b, rc, "sessions");
}

/* @name below @dir_fd into the archive as @as. A file that is gone is passed over. */
static int append(struct backup *b, int dir_fd, const char *name, const char *folder)
{
	cleanup_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct tar_entry entry = { 0 };
	struct stat st;
	int rc;

	if (fd < 0)
		return errno == ENOENT ? 0 : failed(b, -errno, name);
	if (fstat(fd, &st) < 0)
		return failed(b, -errno, name);
	if (snprintf(entry.name, sizeof(entry.name), "%s%s", folder, name) >= (int)sizeof(entry.name))
		return failed(b, -ENAMETOOLONG, name);
	entry.bytes = (uint64_t)st.st_size;
	entry.modified_s = (uint64_t)st.st_mtim.tv_sec;
	/* It takes room on the disk, but nothing of the budget. */
	rc = space_check(b->source->space, SPACE_NO_BUDGET, entry.bytes, false);
	if (rc == 0)
		rc = tar_append(b->out_fd, &entry, fd);
	return failed(b, rc, name);
}

/* A database that is being written, by SQLite's own copying in one step: one point in time. */
static int copy_database(struct backup *b, const char *path, const char *name)
{
	char to[PATH_MAX];
	sqlite3 *from_db = NULL, *to_db = NULL;
	sqlite3_backup *copy;
	int rc;

	if (snprintf(to, sizeof(to), "%s/" ASIDE "/%s", b->source->path, name) >= (int)sizeof(to))
		return failed(b, -ENAMETOOLONG, name);
	rc = sqlite_db_open_reader(path, &from_db, b->err);
	if (rc < 0)
		return rc;
	rc = sqlite_db_error(
		to_db,
		sqlite3_open_v2(to, &to_db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL), to,
		b->err);
	if (rc == 0) {
		/* Without a journal: the copy is thrown away when it fails. */
		rc = sqlite_db_exec(to_db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF", b->err);
	}
	copy = rc == 0 ? sqlite3_backup_init(to_db, "main", from_db, "main") : NULL;
	if (copy) {
		(void)sqlite3_backup_step(copy, -1);
		rc = sqlite_db_error(to_db, sqlite3_backup_finish(copy), "copying a database", b->err);
	} else if (rc == 0) {
		rc = sqlite_db_error(to_db, sqlite3_errcode(to_db), "copying a database", b->err);
	}
	sqlite_db_close(to_db);
	sqlite_db_close(from_db);
	return rc;
}

static int add_database(struct backup *b, const char *path, const char *name, const char *folder)
{
	int rc = copy_database(b, path, name);

	if (rc == 0)
		rc = append(b, b->aside_fd, name, folder);
	(void)unlinkat(b->aside_fd, name, 0);
	return rc;
}

static int add_state(struct backup *b)
{
	char path[PATH_MAX];

	if (snprintf(path, sizeof(path), "%s/state.db", b->source->path) >= (int)sizeof(path))
		return failed(b, -ENAMETOOLONG, "state.db");
	return add_database(b, path, "state.db", "");
}

static int add_sessions(struct backup *b)
{
	int fd = openat(b->aside_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		cleanup_close_fn(&fd);
		return failed(b, -EIO, ASIDE);
	}
	while (rc == 0 && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			rc = append(b, b->aside_fd, entry->d_name, "sessions/");
	(void)closedir(dir);
	return rc;
}

static int add_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct backup *b = ctx;
	char path[PATH_MAX];
	const char *name;
	int rc = sqlite_history_path(b->source->history, day, path);

	if (rc < 0)
		return failed(b, rc, "history");
	name = strrchr(path, '/') + 1;
	if (access(path, F_OK) < 0)
		return 0; /* its time was over */
	return add_database(b, path, name, "history/");
}

static int make(struct backup *b)
{
	int rc = link_sessions(b);

	if (rc == 0)
		rc = add_state(b);
	if (rc == 0)
		rc = link_sessions(b); /* those that began between the two */
	if (rc == 0)
		rc = add_sessions(b);
	if (rc == 0)
		rc = sqlite_history_days(b->source->history, add_day, b, b->err);
	return rc == 0 ? failed(b, tar_finish(b->out_fd), "archive") : rc;
}

int sqlite_backup(const struct sqlite_backup_source *source, int *ret_fd, uint64_t *ret_bytes,
		  struct err *err)
{
	struct err own = { 0 };
	struct backup b = { .source = source, .aside_fd = -1, .out_fd = -1, .err = err ? err : &own };
	cleanup_close int out = -1;
	int rc = open_aside(&b);
	off_t bytes;

	if (rc == -EBUSY)
		return rc;
	if (rc == 0)
		rc = make(&b);
	out = b.out_fd;
	if (b.aside_fd >= 0) {
		empty_folder(b.aside_fd);
		(void)close(b.aside_fd);
	}
	(void)unlinkat(source->dir_fd, ASIDE, AT_REMOVEDIR);
	if (rc < 0)
		return rc;
	bytes = lseek(out, 0, SEEK_CUR);
	if (bytes < 0)
		return failed(&b, -errno, "archive");
	*ret_bytes = (uint64_t)bytes;
	*ret_fd = take_fd(&out);
	return 0;
}
