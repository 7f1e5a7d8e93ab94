// SPDX-License-Identifier: Apache-2.0
/* Commands backup and restore: a store as one file, and back. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "agent/base/buf.h"
#include "agent/base/io.h"
#include "agent/base/tar.h"
#include "agent/base/text.h"
#include "tools/profctl/command.h"
#include "tools/profctl/output.h"
#include "tools/profctl/output_file.h"

#define COPY_BYTES (256u << 10)
#define ASIDE	   "restore.tmp" /* until everything is there */

/* ---- backup ---------------------------------------------------------------------------------- */

static void show_progress(double done, double total)
{
	progress_bytes("backup", done, total);
}

int command_backup(const struct arguments *args)
{
	struct output_file file;
	struct stat st = { 0 };
	char size[64];
	int rc;

	if (output_file_open(&file, args->argv[0], 0600) < 0)
		return 1;
	rc = client_download(args->client, "/api/v1/backup", file.fd, show_progress);
	progress_clear();
	(void)fstat(file.fd, &st);
	if (output_file_end(&file, rc == 0) < 0 || rc < 0)
		return 1;
	if (args->format == OUTPUT_JSON) {
		cleanup(json) cJSON *answer = cJSON_CreateObject();

		(void)cJSON_AddStringToObject(answer, "file", args->argv[0]);
		(void)cJSON_AddNumberToObject(answer, "bytes", (double)st.st_size);
		output_json(answer);
		return 0;
	}
	output_value((double)st.st_size, "bytes", size, sizeof(size));
	(void)printf("%s: %s; profctl restore %s DIR makes a data directory of it\n", args->argv[0], size,
		     args->argv[0]);
	return 0;
}

/* ---- restore --------------------------------------------------------------------------------- */

struct restore {
	const char *file, *dir;
	int in, dir_fd, aside_fd;
	struct stat owner; /* of the data directory: the daemon's user */
};

static int complain(const char *what, int rc)
{
	(void)fprintf(stderr, "profctl: %s: %s\n", what, strerror(-rc));
	return -1;
}

/* Names that a backup holds, and nothing else: state.db, sessions/ID.log, history/DAY-rN.db. */
static bool is_ours(const char *name)
{
	const char *base = strchr(name, '/');
	size_t len = strlen(name);

	if (!strcmp(name, "state.db"))
		return true;
	if (!base || strchr(base + 1, '/') || base[1] == '.' ||
	    strspn(base + 1, "abcdefghijklmnopqrstuvwxyz0123456789-.") != strlen(base + 1))
		return false;
	if (text_begins(name, "sessions/"))
		return len > 13 && !strcmp(name + len - 4, ".log");
	return text_begins(name, "history/") && len > 11 && !strcmp(name + len - 3, ".db");
}

static int copy_out(struct restore *r, const struct tar_entry *entry)
{
	cleanup_free char *chunk = malloc(COPY_BYTES);
	cleanup_close int out =
		openat(r->aside_fd, entry->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	uint64_t left = entry->bytes;
	char padding[TAR_BLOCK];
	int rc = out < 0 ? -errno : chunk ? 0 : -ENOMEM;

	while (rc == 0 && left) {
		size_t part = left < COPY_BYTES ? left : COPY_BYTES;

		rc = io_read_exact(r->in, chunk, part);
		if (rc == 0)
			rc = io_write_all(out, chunk, part);
		left -= part;
	}
	if (rc == 0)
		rc = io_read_exact(r->in, padding, tar_padding(entry->bytes));
	if (rc == 0 && geteuid() == 0 && fchown(out, r->owner.st_uid, r->owner.st_gid) < 0)
		rc = -errno;
	if (rc == 0 && fsync(out) < 0)
		rc = -errno;
	return rc < 0 ? complain(rc == -ENODATA ? "the backup is cut short" : entry->name, rc) : 0;
}

static int unpack(struct restore *r, unsigned *ret_files)
{
	bool has_state = false;
	unsigned files = 0;

	for (;;) {
		struct tar_entry entry;
		char block[TAR_BLOCK];
		int rc = io_read_exact(r->in, block, sizeof(block));

		if (rc == 0)
			rc = tar_decode(block, &entry);
		if (rc == -ENODATA || (rc == 0 && !has_state))
			return complain("the backup is cut short", -ENODATA);
		if (rc == 0) {
			*ret_files = files;
			return 0;
		}
		if (rc < 0 || !is_ours(entry.name)) {
			(void)fprintf(stderr, "profctl: %s is not a backup of profd\n", r->file);
			return -1;
		}
		if (copy_out(r, &entry) < 0)
			return -1;
		has_state |= !strcmp(entry.name, "state.db");
		files++;
	}
}

static int make_folder(struct restore *r, const char *name)
{
	if (mkdirat(r->aside_fd, name, 0700) < 0 ||
	    (geteuid() == 0 && fchownat(r->aside_fd, name, r->owner.st_uid, r->owner.st_gid, 0) < 0))
		return complain(name, -errno);
	return 0;
}

static const char *const parts[] = { "sessions", "history", "state.db" };

static int is_other(const struct dirent *entry)
{
	static const char *const names[] = { ".", "..", "lost+found" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(entry->d_name, names[i]) == 0)
			return 0;
	return 1;
}

/* A directory that no daemon had may be anybody's: there is to be nothing in it. */
static int check_empty(const struct restore *r)
{
	struct dirent **others = NULL;
	int count;

	if (faccessat(r->dir_fd, "lock", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	count = scandirat(r->dir_fd, ".", &others, is_other, alphasort);
	if (count > 0)
		(void)fprintf(
			stderr,
			"profctl: %s is no data directory and not empty (%s): give an empty one\n",
			r->dir, others[0]->d_name);
	for (int i = 0; i < count; i++)
		free(others[i]);
	free(others);
	return count < 0 ? complain(r->dir, -errno) : count > 0 ? -1 : 0;
}

/* A data directory without a store, or an empty one, that no daemon uses. */
static int open_target(struct restore *r, int *ret_lock)
{
	if (mkdir(r->dir, 0750) < 0 && errno != EEXIST)
		return complain(r->dir, -errno);
	r->dir_fd = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->dir_fd < 0 || fstat(r->dir_fd, &r->owner) < 0)
		return complain(r->dir, -errno);
	if (check_empty(r) < 0)
		return -1;
	*ret_lock = openat(r->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0640);
	if (*ret_lock >= 0 && geteuid() == 0 && fchown(*ret_lock, r->owner.st_uid, r->owner.st_gid) < 0)
		return complain("lock", -errno);
	if (*ret_lock < 0 || flock(*ret_lock, LOCK_EX | LOCK_NB) < 0) {
		(void)fprintf(stderr, "profctl: %s is in use: stop profd first, or give another directory\n",
			      r->dir);
		return -1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (faccessat(r->dir_fd, parts[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
			(void)fprintf(stderr,
				      "profctl: %s holds a store already (%s): move it away, or give "
				      "another directory\n",
				      r->dir, parts[i]);
			return -1;
		}
	return 0;
}

static int restore(struct restore *r, unsigned *ret_files)
{
	int rc;

	if (mkdirat(r->dir_fd, ASIDE, 0700) < 0) {
		(void)fprintf(stderr, "profctl: %s/" ASIDE ": %s: delete what an earlier restore left\n", r->dir,
			      strerror(errno));
		return -1;
	}
	r->aside_fd = openat(r->dir_fd, ASIDE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r->aside_fd < 0)
		return complain(ASIDE, -errno);
	rc = make_folder(r, "sessions");
	if (rc == 0)
		rc = make_folder(r, "history");
	if (rc == 0)
		rc = unpack(r, ret_files);
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(parts); i++)
		if (renameat(r->aside_fd, parts[i], r->dir_fd, parts[i]) < 0)
			rc = complain(parts[i], -errno);
	if (rc == 0 && (unlinkat(r->dir_fd, ASIDE, AT_REMOVEDIR) < 0 || fsync(r->dir_fd) < 0))
		rc = complain(r->dir, -errno);
	return rc;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *place)
{
	return remove(path);
}

static void remove_aside(const struct restore *r)
{
	cleanup_buf struct buf path = { 0 };

	buf_printf(&path, "%s/" ASIDE, r->dir);
	if (!path.error)
		(void)nftw(path.data, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int command_restore(const struct arguments *args)
{
	struct restore r = { .file = args->argv[0], .dir = args->argv[1], .dir_fd = -1, .aside_fd = -1 };
	cleanup_close int in = open(r.file, O_RDONLY | O_CLOEXEC), lock = -1;
	unsigned files = 0;
	int rc;

	if (in < 0)
		return complain(r.file, -errno) < 0;
	r.in = in;
	rc = open_target(&r, &lock);
	if (rc == 0) {
		rc = restore(&r, &files);
		if (rc < 0)
			remove_aside(&r);
	}
	cleanup_close_fn(&r.aside_fd);
	cleanup_close_fn(&r.dir_fd);
	if (rc < 0)
		return 1;
	if (args->format == OUTPUT_JSON) {
		cleanup(json) cJSON *answer = cJSON_CreateObject();

		(void)cJSON_AddStringToObject(answer, "dataDir", r.dir);
		(void)cJSON_AddNumberToObject(answer, "files", files);
		output_json(answer);
		return 0;
	}
	(void)printf("%u files restored: start profd with --data-dir %s\n", files, r.dir);
	return 0;
}
