// SPDX-License-Identifier: Apache-2.0
#include "api/push/push_spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"

#define SUFFIX	  ".message"
#define STATE	  "seen" /* first line: since; then one `name created` a line, times in ns */
#define STATE_MAX (16u << 20)

struct mark {
	char name[PUSH_NAME_SIZE];
	uint64_t created_ns;
};

VEC_DEFINE(marks, struct mark);

struct push_spool {
	int dir;
	uint64_t max_bytes, bytes, dropped;
	uint64_t since_ns;
	struct marks_vec marks;
	struct u64map seen; /* hash of the name -> 1 */
	bool changed;	    /* since the last commit */
};

static uint64_t key_of(const char *name)
{
	return hash_bytes(name, strlen(name), 11);
}

static bool is_name(const char *name)
{
	size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return len > 0 && len < PUSH_NAME_SIZE && !name[len];
}

static int add_mark(struct push_spool *spool, const char *name, uint64_t created_ns)
{
	struct mark mark = { .created_ns = created_ns };
	int rc;

	if (!is_name(name))
		return -EINVAL;
	if (push_spool_seen(spool, name))
		return 0;
	if (spool->marks.count >= PUSH_DONE_MAX)
		return -ENOSPC;
	(void)snprintf(mark.name, sizeof(mark.name), "%s", name);
	spool->changed = true;
	rc = marks_vec_push(&spool->marks, mark);
	return rc < 0 ? rc : u64map_put(&spool->seen, key_of(name), 1);
}

/* ---- state ----------------------------------------------------------------------------------- */

static int read_state(struct push_spool *spool)
{
	cleanup_free char *text = NULL;
	char *rest = NULL;
	int rc = io_read_file(spool->dir, STATE, STATE_MAX, &text, NULL);

	if (rc == -ENOENT) {
		spool->changed = true;
		return push_spool_commit(spool, clock_realtime_ns(), 0);
	}
	if (rc < 0)
		return rc;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char name[PUSH_NAME_SIZE];
		uint64_t ns;

		if (sscanf(line, "since %" SCNu64, &ns) == 1)
			spool->since_ns = ns;
		else if (sscanf(line, "%63s %" SCNu64, name, &ns) == 2)
			rc = add_mark(spool, name, ns);
		if (rc < 0 && rc != -EINVAL)
			return rc;
	}
	return 0;
}

int push_spool_commit(struct push_spool *spool, uint64_t since_ns, uint64_t forget_before_ns)
{
	cleanup_buf struct buf text = { .max = STATE_MAX };
	size_t kept = 0;
	int rc;

	if (!spool->changed && since_ns == spool->since_ns)
		return 0;

	for (size_t i = 0; i < spool->marks.count; i++) {
		const struct mark *mark = &spool->marks.data[i];

		if (mark->created_ns < forget_before_ns) {
			(void)u64map_remove(&spool->seen, key_of(mark->name));
			continue;
		}
		spool->marks.data[kept++] = *mark;
	}
	spool->marks.count = kept;
	buf_printf(&text, "since %" PRIu64 "\n", since_ns);
	for (size_t i = 0; i < kept; i++)
		buf_printf(&text, "%s %" PRIu64 "\n", spool->marks.data[i].name,
			   spool->marks.data[i].created_ns);
	rc = text.error ? text.error
			: io_write_file_atomic(spool->dir, STATE, text.data, text.len, 0600);
	if (rc < 0)
		return rc;
	spool->since_ns = since_ns;
	spool->changed = false;
	return 0;
}

uint64_t push_spool_since_ns(const struct push_spool *spool)
{
	return spool->since_ns;
}

bool push_spool_seen(const struct push_spool *spool, const char *name)
{
	uint64_t one;

	return u64map_get(&spool->seen, key_of(name), &one);
}

int push_spool_mark(struct push_spool *spool, const char *name, uint64_t created_ns)
{
	return add_mark(spool, name, created_ns);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* "NAME.message" -> NAME. */
static bool message_name(const char *file, char name[PUSH_NAME_SIZE])
{
	size_t len = strlen(file), suffix = strlen(SUFFIX);

	if (len <= suffix || len - suffix >= PUSH_NAME_SIZE ||
	    strcmp(file + len - suffix, SUFFIX) != 0)
		return false;
	memcpy(name, file, len - suffix);
	name[len - suffix] = '\0';
	return is_name(name);
}

static void file_name(const char *name, char file[PUSH_NAME_SIZE + sizeof(SUFFIX)])
{
	(void)snprintf(file, PUSH_NAME_SIZE + sizeof(SUFFIX), "%.63s" SUFFIX, name);
}

/* Calls for each message: the smallest name, and the sum of the sizes. Names sort by time. */
static int scan(struct push_spool *spool, char first[PUSH_NAME_SIZE], uint64_t *ret_bytes)
{
	int fd = openat(spool->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *entry;
	uint64_t bytes = 0;

	if (!dir) {
		if (fd >= 0)
			(void)close(fd);
		return -errno;
	}
	first[0] = '\0';
	while ((entry = readdir(dir))) {
		char name[PUSH_NAME_SIZE];
		struct stat st;

		if (!message_name(entry->d_name, name))
			continue;
		if (fstatat(spool->dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			bytes += (uint64_t)st.st_size;
		if (!first[0] || strcmp(name, first) < 0)
			memcpy(first, name, sizeof(name));
	}
	(void)closedir(dir);
	if (ret_bytes)
		*ret_bytes = bytes;
	return first[0] ? 0 : -ENOENT;
}

int push_spool_open(const char *path, uint64_t max_bytes, struct push_spool **ret, struct err *err)
{
	cleanup(push_spool) struct push_spool *spool = calloc(1, sizeof(*spool));
	char first[PUSH_NAME_SIZE];
	int rc;

	if (!spool)
		return -ENOMEM;
	spool->max_bytes = max_bytes;
	spool->dir = -1;
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_set(err, errno, NULL, "export", "cannot make %s: %s", path,
			       strerror(errno));
	spool->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (spool->dir < 0)
		return err_set(err, errno, NULL, "export", "cannot open %s: %s", path,
			       strerror(errno));
	rc = read_state(spool);
	if (rc == 0)
		rc = scan(spool, first, &spool->bytes);
	if (rc < 0 && rc != -ENOENT)
		return err_set(err, -rc, NULL, "export", "cannot read %s: %s", path, strerror(-rc));
	*ret = take_ptr(spool);
	return 0;
}

void push_spool_close(struct push_spool *spool)
{
	if (!spool)
		return;
	if (spool->dir >= 0)
		(void)close(spool->dir);
	marks_vec_deinit(&spool->marks);
	u64map_deinit(&spool->seen);
	free(spool);
}

static uint64_t size_of(const struct push_spool *spool, const char *name)
{
	char file[PUSH_NAME_SIZE + sizeof(SUFFIX)];
	struct stat st;

	file_name(name, file);
	return fstatat(spool->dir, file, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size : 0;
}

static void make_room(struct push_spool *spool, size_t len)
{
	char oldest[PUSH_NAME_SIZE];

	while (spool->bytes + len > spool->max_bytes && scan(spool, oldest, NULL) == 0) {
		push_spool_remove(spool, oldest);
		spool->dropped++;
	}
}

int push_spool_put(struct push_spool *spool, const char *name, const void *data, size_t len)
{
	char file[PUSH_NAME_SIZE + sizeof(SUFFIX)];
	int rc;

	if (!is_name(name))
		return -EINVAL;
	if (len > PUSH_MESSAGE_MAX || len > spool->max_bytes)
		return -EFBIG;
	/* One that a crash left here is written again. */
	push_spool_remove(spool, name);
	make_room(spool, len);
	file_name(name, file);
	rc = io_write_file_atomic(spool->dir, file, data, len, 0600);
	if (rc == 0)
		spool->bytes += len;
	return rc;
}

int push_spool_first(struct push_spool *spool, char name[PUSH_NAME_SIZE])
{
	return scan(spool, name, NULL);
}

int push_spool_read(struct push_spool *spool, const char *name, char **ret, size_t *ret_len)
{
	char file[PUSH_NAME_SIZE + sizeof(SUFFIX)];

	file_name(name, file);
	return io_read_file(spool->dir, file, PUSH_MESSAGE_MAX, ret, ret_len);
}

void push_spool_remove(struct push_spool *spool, const char *name)
{
	char file[PUSH_NAME_SIZE + sizeof(SUFFIX)];
	uint64_t bytes = size_of(spool, name);

	file_name(name, file);
	if (unlinkat(spool->dir, file, 0) == 0)
		spool->bytes -= bytes < spool->bytes ? bytes : spool->bytes;
}

uint64_t push_spool_bytes(const struct push_spool *spool)
{
	return spool->bytes;
}

uint64_t push_spool_dropped(const struct push_spool *spool)
{
	return spool->dropped;
}
