// SPDX-License-Identifier: Apache-2.0
#include "agent/store/clickhouse_journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "agent/store/crc32c.h"

#define FILE_HEAD	"PROFCHJ1"
#define FILE_HEAD_BYTES 8u
#define FRAME_MAGIC	0x4f4c4250u /* "PBLO" */
#define FRAME_ALIGN	8u
#define SUFFIX		".journal"
#define NAME_SIZE	32
#define NUMBER_FILE	"number"
#define KEPT_BYTES                                                                                 \
	(64u << 10) /* a file that is done is only emptied when it is larger, or after a while:    \
		       that takes a sync */
#define KEPT_NS		(60 * NS_PER_S)
#define LOAD_MAX	(1u << 30)

struct frame_head {
	uint32_t magic;
	uint32_t table;
	uint32_t len;
	uint32_t data_crc;
	uint64_t number;
	uint64_t partition;
	uint32_t head_crc; /* of the 32 bytes before */
	uint32_t zeros;
};
_Static_assert(sizeof(struct frame_head) == 40, "file layout");

/* ---- frames ------------------------------------------------------------------------------------
 */

static uint64_t frame_bytes(const struct frame_head *head)
{
	return (sizeof(*head) + (uint64_t)head->len + FRAME_ALIGN - 1) & ~(uint64_t)(FRAME_ALIGN - 1);
}

static uint32_t head_crc(const struct frame_head *head)
{
	return crc32c(0, head, offsetof(struct frame_head, head_crc));
}

static bool read_frame(const uint8_t *data, size_t len, struct frame_head *ret)
{
	if (len < sizeof(*ret))
		return false;
	memcpy(ret, data, sizeof(*ret));
	return ret->magic == FRAME_MAGIC && ret->head_crc == head_crc(ret) && frame_bytes(ret) <= len &&
	       crc32c(0, data + sizeof(*ret), ret->len) == ret->data_crc;
}

int journal_next_frame(const void *data, size_t len, size_t at, struct journal_op *ret,
		       size_t *ret_end, size_t *ret_skipped)
{
	const uint8_t *bytes = data;
	struct frame_head head;

	for (size_t i = at; i < len && len - i >= sizeof(head); i += FRAME_ALIGN) {
		if (!read_frame(bytes + i, len - i, &head))
			continue;
		*ret = (struct journal_op){ head.table, head.number, head.partition,
					    bytes + i + sizeof(head), head.len };
		*ret_end = i + frame_bytes(&head);
		*ret_skipped = i - at;
		return 1;
	}
	*ret_end = at;
	*ret_skipped = 0;
	return 0;
}

void journal_add_frame(struct buf *out, const struct journal_op *op)
{
	static const uint8_t zeros[FRAME_ALIGN];
	struct frame_head head = { .magic = FRAME_MAGIC,
				   .table = op->table,
				   .len = (uint32_t)op->len,
				   .data_crc = crc32c(0, op->data, op->len),
				   .number = op->number,
				   .partition = op->partition };

	head.head_crc = head_crc(&head);
	buf_add(out, &head, sizeof(head));
	buf_add(out, op->data, op->len);
	buf_add(out, zeros, frame_bytes(&head) - sizeof(head) - op->len);
}

/* ---- files -------------------------------------------------------------------------------------
 */

static void file_name(uint64_t name, char out[NAME_SIZE])
{
	(void)snprintf(out, NAME_SIZE, "%016" PRIx64 SUFFIX, name);
}

static bool parse_name(const char *file, uint64_t *ret)
{
	char again[NAME_SIZE];

	if (sscanf(file, "%16" SCNx64, ret) != 1)
		return false;
	file_name(*ret, again);
	return strcmp(file, again) == 0;
}

static struct journal_segment *last_segment(struct journal *journal)
{
	return journal->segments.count ? &journal->segments.data[journal->segments.count - 1] : NULL;
}

static int fail(struct journal *journal, int code, struct err *err)
{
	if (code == ENOSPC || code == EDQUOT)
		return err_set(
			err, ENOSPC, "StoreUnavailable", NULL,
			"the disk is full: free space on the file system of data_dir, where data waits for ClickHouse");
	return err_set(err, code, "StoreUnavailable", NULL, "%s: %s", journal->path, strerror(code));
}

/* The numbers of a journal that has no file any more go on. */
static void keep_number(struct journal *journal)
{
	char text[32];
	int len = snprintf(text, sizeof(text), "%" PRIu64 "\n", journal->given);

	if (io_write_file_atomic(journal->dir_fd, NUMBER_FILE, text, (size_t)len, 0600) < 0)
		log_warn("%s/" NUMBER_FILE " cannot be written", journal->path);
}

static void read_number(struct journal *journal)
{
	char text[32];
	ssize_t len = io_read_small(journal->dir_fd, NUMBER_FILE, text, sizeof(text));

	if (len > 0)
		journal_raise(journal, strtoull(text, NULL, 10));
}

/* Lock for writing held. */
static int new_segment(struct journal *journal)
{
	struct journal_segment segment = { 1, FILE_HEAD_BYTES };
	cleanup_close int fd = -1;
	char name[NAME_SIZE];
	int rc;

	(void)pthread_mutex_lock(&journal->lock);
	if (journal->segments.count)
		segment.name = last_segment(journal)->name + 1;
	(void)pthread_mutex_unlock(&journal->lock);
	file_name(segment.name, name);
	fd = openat(journal->dir_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	rc = io_write_all(fd, FILE_HEAD, FILE_HEAD_BYTES);
	if (rc == 0 && fdatasync(fd) < 0)
		rc = -errno;
	if (rc == 0 && fsync(journal->dir_fd) < 0)
		rc = -errno;
	(void)pthread_mutex_lock(&journal->lock);
	if (rc == 0)
		rc = segments_vec_push(&journal->segments, segment);
	if (rc == 0 && journal->segments.count == 1)
		journal->at = FILE_HEAD_BYTES;
	if (rc == 0)
		journal->bytes += FILE_HEAD_BYTES;
	(void)pthread_mutex_unlock(&journal->lock);
	if (rc < 0) {
		(void)unlinkat(journal->dir_fd, name, 0);
		return rc;
	}
	cleanup_close_fn(&journal->fd);
	journal->fd = take_fd(&fd);
	return 0;
}

/* ---- opening -----------------------------------------------------------------------------------
 */

static int by_name(const void *a, const void *b)
{
	const struct journal_segment *x = a, *y = b;

	return x->name < y->name ? -1 : x->name > y->name;
}

static int collect(struct journal *journal)
{
	int fd = openat(journal->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct journal_segment segment = { 0 };
	const struct dirent *entry;

	if (!dir) {
		if (fd >= 0)
			(void)close(fd);
		return -EIO;
	}
	while (rc == 0 && (entry = readdir(dir)))
		if (parse_name(entry->d_name, &segment.name))
			rc = segments_vec_push(&journal->segments, segment);
	(void)closedir(dir);
	if (journal->segments.count)
		qsort(journal->segments.data, journal->segments.count, sizeof(segment), by_name);
	return rc;
}

/* Up to where there are whole frames. */
static size_t scan(struct journal *journal, const char *data, size_t len)
{
	size_t at = FILE_HEAD_BYTES, end, skipped;
	struct journal_op op;

	while (journal_next_frame(data, len, at, &op, &end, &skipped)) {
		journal->damaged += skipped != 0;
		journal->given = op.number > journal->given ? op.number : journal->given;
		journal->written = op.number;
		at = end;
	}
	return at;
}

static int repair(struct journal *journal, struct journal_segment *segment)
{
	cleanup_close int fd = -1;
	cleanup_free char *data = NULL;
	char name[NAME_SIZE];
	size_t len = 0;
	int rc;

	file_name(segment->name, name);
	fd = openat(journal->dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	rc = io_read_fd(fd, LOAD_MAX, &data, &len);
	if (rc < 0)
		return rc;
	if (len < FILE_HEAD_BYTES || memcmp(data, FILE_HEAD, FILE_HEAD_BYTES) != 0) {
		/* A creation that was cut short; what is longer and no journal is left where it is. */
		segment->size = 0;
		return len <= FILE_HEAD_BYTES ? unlinkat(journal->dir_fd, name, 0) : 0;
	}
	segment->size = scan(journal, data, len);
	journal->damaged += segment->size < len && segment != last_segment(journal);
	if (segment->size < len && (ftruncate(fd, (off_t)segment->size) < 0 || fdatasync(fd) < 0))
		return -errno;
	return 0;
}

static int open_last(struct journal *journal)
{
	const struct journal_segment *last = last_segment(journal);
	char name[NAME_SIZE];

	if (!last)
		return 0;
	file_name(last->name, name);
	journal->fd = openat(journal->dir_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return journal->fd < 0 ? -errno : 0;
}

static int load_segments(struct journal *journal)
{
	struct segments_vec *segments = &journal->segments;
	size_t kept = 0;
	int rc = collect(journal);

	for (size_t i = 0; rc == 0 && i < segments->count; i++) {
		rc = repair(journal, &segments->data[i]);
		if (rc == 0 && segments->data[i].size) {
			journal->bytes += segments->data[i].size;
			segments->data[kept++] = segments->data[i];
		}
	}
	if (rc < 0)
		return rc;
	segments->count = kept;
	journal->at = FILE_HEAD_BYTES;
	if (journal->damaged)
		log_error("%s: %" PRIu64
			  " places cannot be read, their data is lost; the rest is sent",
			  journal->path, journal->damaged);
	return open_last(journal);
}

int journal_open(int dir_fd, const char *path, struct journal **ret, struct err *err)
{
	cleanup(journal) struct journal *journal = calloc(1, sizeof(*journal));
	pthread_condattr_t monotonic;
	int rc;

	if (!journal)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	journal->dir_fd = journal->fd = -1;
	journal->max_bytes = JOURNAL_MAX_BYTES;
	journal->emptied_ns = clock_monotonic_ns();
	(void)pthread_mutex_init(&journal->write_lock, NULL);
	(void)pthread_mutex_init(&journal->lock, NULL);
	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&journal->changed, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
	if (asprintf(&journal->path, "%s/clickhouse", path) < 0) {
		journal->path = NULL;
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	}
	if (mkdirat(dir_fd, "clickhouse", 0700) < 0 && errno != EEXIST)
		return fail(journal, errno, err);
	journal->dir_fd = openat(dir_fd, "clickhouse", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (journal->dir_fd < 0)
		return fail(journal, errno, err);
	read_number(journal);
	rc = load_segments(journal);
	if (rc < 0)
		return fail(journal, -rc, err);
	*ret = take_ptr(journal);
	return 0;
}

static void unlink_segment(struct journal *journal, uint64_t number)
{
	char name[NAME_SIZE];

	file_name(number, name);
	if (unlinkat(journal->dir_fd, name, 0) < 0 && errno != ENOENT)
		log_warn("%s/%s: %s", journal->path, name, strerror(errno));
}

void journal_close(struct journal *journal)
{
	if (!journal)
		return;
	/* Sent again it would do no harm, but take time. */
	if (journal->dir_fd >= 0 && journal->segments.count == 1 &&
	    journal->at == journal->segments.data[0].size) {
		keep_number(journal);
		unlink_segment(journal, journal->segments.data[0].name);
	}
	cleanup_close_fn(&journal->fd);
	cleanup_close_fn(&journal->dir_fd);
	segments_vec_deinit(&journal->segments);
	(void)pthread_cond_destroy(&journal->changed);
	(void)pthread_mutex_destroy(&journal->lock);
	(void)pthread_mutex_destroy(&journal->write_lock);
	free(journal->path);
	free(journal);
}

/* ---- writing -----------------------------------------------------------------------------------
 */

void journal_raise(struct journal *journal, uint64_t number)
{
	(void)pthread_mutex_lock(&journal->write_lock);
	if (number > journal->given)
		journal->given = number;
	(void)pthread_mutex_unlock(&journal->write_lock);
}

uint64_t journal_begin(struct journal *journal)
{
	uint64_t now = clock_realtime_ns() & ~1ull;

	(void)pthread_mutex_lock(&journal->write_lock);
	return now > journal->given ? now : (journal->given | 1) + 1;
}

void journal_give_up(struct journal *journal)
{
	(void)pthread_mutex_unlock(&journal->write_lock);
}

static int check_room(struct journal *journal, size_t len, bool urgent, struct err *err)
{
	uint64_t max = journal->max_bytes + (urgent ? JOURNAL_URGENT_BYTES : 0), bytes;

	(void)pthread_mutex_lock(&journal->lock);
	bytes = journal->bytes;
	(void)pthread_mutex_unlock(&journal->lock);
	return bytes + len <= max ? 0
				  : err_set(err, ENOSPC, "StoreUnavailable", NULL,
					    "%llu MiB wait for ClickHouse, no more is kept: check why it accepts no data",
					    (unsigned long long)(bytes >> 20));
}

/* 0: there is none. Whoever sends moves the list. */
static uint64_t last_size(struct journal *journal)
{
	const struct journal_segment *last;
	uint64_t size;

	(void)pthread_mutex_lock(&journal->lock);
	last = last_segment(journal);
	size = last ? last->size : 0;
	(void)pthread_mutex_unlock(&journal->lock);
	return size;
}

static int append(struct journal *journal, const struct buf *frame, uint64_t number)
{
	uint64_t end = last_size(journal);
	int rc = 0;

	if (end == 0 || end >= JOURNAL_SEGMENT_BYTES) {
		rc = new_segment(journal);
		end = FILE_HEAD_BYTES;
	}
	if (rc < 0)
		return rc;
	rc = io_pwrite_all(journal->fd, frame->data, frame->len, end);
	if (rc == 0 && fdatasync(journal->fd) < 0)
		rc = -errno;
	if (rc < 0) {
		(void)!ftruncate(journal->fd, (off_t)end);
		return rc;
	}
	(void)pthread_mutex_lock(&journal->lock);
	last_segment(journal)->size = end + frame->len;
	journal->bytes += frame->len;
	journal->given = journal->written = number;
	(void)pthread_cond_broadcast(&journal->changed);
	(void)pthread_mutex_unlock(&journal->lock);
	return 0;
}

int journal_write(struct journal *journal, const struct journal_op *op, bool urgent,
		  struct err *err)
{
	cleanup_buf struct buf frame = { 0 };
	int rc = check_room(journal, op->len, urgent, err);

	if (rc == 0) {
		journal_add_frame(&frame, op);
		rc = frame.error ? frame.error : append(journal, &frame, op->number);
		if (rc < 0)
			(void)fail(journal, -rc, err);
	}
	(void)pthread_mutex_unlock(&journal->write_lock);
	return rc == -EDQUOT ? -ENOSPC : rc;
}

/* ---- sending -----------------------------------------------------------------------------------
 */

int journal_load(struct journal *journal, struct buf *ret, uint64_t *ret_at)
{
	cleanup_free char *data = NULL;
	cleanup_close int fd = -1;
	struct journal_segment first = { 0 };
	char name[NAME_SIZE];
	uint64_t at = 0;
	int rc;

	(void)pthread_mutex_lock(&journal->lock);
	if (journal->segments.count) {
		first = journal->segments.data[0];
		at = journal->at;
	}
	(void)pthread_mutex_unlock(&journal->lock);
	*ret_at = at;
	if (first.size == at)
		return 0;
	file_name(first.name, name);
	fd = openat(journal->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	data = malloc(first.size - at);
	rc = data ? io_pread_all(fd, data, first.size - at, at) : -ENOMEM;
	if (rc == 0) {
		buf_add(ret, data, first.size - at);
		rc = ret->error;
	}
	return rc;
}

/* The last file, all of it done: emptied, so that the next operation need not make one. */
static void empty_last(struct journal *journal)
{
	uint64_t now = clock_monotonic_ns(),
		 kept = now - journal->emptied_ns < KEPT_NS ? KEPT_BYTES : FILE_HEAD_BYTES;
	struct journal_segment *last;

	if (pthread_mutex_trylock(&journal->write_lock) != 0)
		return;
	last = last_segment(journal);
	if (journal->segments.count == 1 && journal->at == last->size && last->size > kept) {
		journal->emptied_ns = now;
		keep_number(journal);
		if (ftruncate(journal->fd, FILE_HEAD_BYTES) == 0) {
			(void)pthread_mutex_lock(&journal->lock);
			journal->bytes -= last->size - FILE_HEAD_BYTES;
			journal->at = last->size = FILE_HEAD_BYTES;
			(void)pthread_mutex_unlock(&journal->lock);
		}
	}
	(void)pthread_mutex_unlock(&journal->write_lock);
}

void journal_done(struct journal *journal, uint64_t at, uint64_t number)
{
	struct segments_vec *segments = &journal->segments;
	uint64_t gone = 0;

	(void)pthread_mutex_lock(&journal->lock);
	journal->at = at;
	if (number > journal->done)
		journal->done = number;
	if (segments->count > 1 && at >= segments->data[0].size) {
		gone = segments->data[0].name;
		journal->bytes -= segments->data[0].size;
		memmove(segments->data, segments->data + 1, (segments->count - 1) * sizeof(*segments->data));
		segments->count--;
		journal->at = FILE_HEAD_BYTES;
	}
	if (segments->count == 1 && journal->at == segments->data[0].size)
		journal->done = journal->written;
	(void)pthread_cond_broadcast(&journal->changed);
	(void)pthread_mutex_unlock(&journal->lock);
	if (gone)
		unlink_segment(journal, gone);
	else
		empty_last(journal);
}

void journal_tidy(struct journal *journal)
{
	empty_last(journal);
}

uint64_t journal_written(struct journal *journal)
{
	uint64_t number;

	(void)pthread_mutex_lock(&journal->lock);
	number = journal->written;
	(void)pthread_mutex_unlock(&journal->lock);
	return number;
}

uint64_t journal_waiting(struct journal *journal)
{
	uint64_t bytes;

	(void)pthread_mutex_lock(&journal->lock);
	bytes = journal->segments.count ? journal->bytes - journal->at -
						  (journal->segments.count - 1) * FILE_HEAD_BYTES
					: 0;
	(void)pthread_mutex_unlock(&journal->lock);
	return bytes;
}
