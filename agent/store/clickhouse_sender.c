// SPDX-License-Identifier: Apache-2.0
#include "agent/store/clickhouse_sender.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "agent/store/clickhouse_schema.h"
#include "agent/store/clickhouse_sql.h"

#define BACKOFF_MAX_S  60u
#define POKE_NS	       NS_PER_S	      /* a reader makes a failed try happen again after so long */
#define WAIT_NS	       (5 * NS_PER_S) /* of a reader */
#define CLOSE_NS       (2 * NS_PER_S)
#define IDLE_NS	       (60 * NS_PER_S)
#define BATCH_BYTES    (4u << 20)
#define WINDOW_BYTES   (16u << 20)
#define WINDOW_OPS     1024u
#define WINDOW_TARGETS 6u /* INSERTs: a reader waits for all of them */
#define TOKEN_SIZE     48 /* table, operation and hash of its rows, hexadecimal */
#define REFUSED_TRIES  3u
#define REFUSED_FILE   "refused"
#define REFUSED_MAX    (16 << 20) /* bytes kept of what was set aside */

/* ---- what the server said -------------------------------------------------------------------- */

/* true: the server refuses the bytes themselves, whatever its state
 * (dbms/src/Common/ErrorCodes.cpp). */
static bool is_refusal(int code)
{
	static const int codes[] = { 6 /* text */,
				     27 /* input */,
				     32 /* end */,
				     33 /* not all */,
				     36,
				     43 /* types */,
				     53,
				     62 /* syntax */,
				     69,
				     70,
				     117 /* data */,
				     128,
				     131 /* too large */,
				     271,
				     306 };

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
		if (code == codes[i])
			return true;
	return false;
}

static bool is_without_table(int code)
{
	return code == 60 || code == 81;
}

/* ---- waiting -----------------------------------------------------------------------------------
 */

/* Lock held; until @deadline_ns (monotonic) or a change. False: the time is over. */
static bool wait_change(struct journal *journal, uint64_t deadline_ns)
{
	struct timespec at = { (time_t)(deadline_ns / NS_PER_S), (long)(deadline_ns % NS_PER_S) };

	return pthread_cond_timedwait(&journal->changed, &journal->lock, &at) != ETIMEDOUT;
}

int clickhouse_sender_wait(struct clickhouse_sender *sender, struct err *err)
{
	struct journal *journal = sender->journal;
	uint64_t begin = clock_monotonic_ns(), target, tries;
	int rc = 0;

	(void)pthread_mutex_lock(&journal->lock);
	target = journal->written;
	tries = sender->tries;
	while (journal->done < target && rc == 0) {
		uint64_t now = clock_monotonic_ns();

		if (sender->failing && (sender->tries != tries || now - sender->failed_ns < POKE_NS)) {
			rc = -EIO;
			break;
		}
		if (sender->failing && !sender->poked) {
			sender->poked = true;
			(void)pthread_cond_broadcast(&journal->changed);
		}
		if (now >= begin + WAIT_NS || atomic_load(sender->stop))
			rc = -ETIME;
		else
			(void)wait_change(journal, begin + WAIT_NS);
	}
	if (rc == -EIO && err)
		*err = sender->why;
	(void)pthread_mutex_unlock(&journal->lock);
	if (rc == -ETIME)
		rc = err_set(err, EIO, "StoreUnavailable", NULL,
			     "ClickHouse at %s has not accepted all waiting data yet (%llu KiB): ask "
			     "again, or check why it is slow",
			     clickhouse_http_name(sender->http),
			     (unsigned long long)(journal_waiting(journal) >> 10));
	return rc;
}

static void note_failure(struct clickhouse_sender *sender, const struct err *why)
{
	struct journal *journal = sender->journal;
	bool first;

	(void)pthread_mutex_lock(&journal->lock);
	first = !sender->failing;
	sender->failing = true;
	sender->poked = false;
	sender->tries++;
	sender->failed_ns = clock_monotonic_ns();
	sender->why = *why;
	(void)pthread_cond_broadcast(&journal->changed);
	(void)pthread_mutex_unlock(&journal->lock);
	if (first && !atomic_load(sender->stop))
		log_warn("%s", why->text);
}

static void note_success(struct clickhouse_sender *sender)
{
	struct journal *journal = sender->journal;
	bool was;

	(void)pthread_mutex_lock(&journal->lock);
	was = sender->failing;
	sender->failing = false;
	(void)pthread_mutex_unlock(&journal->lock);
	if (was)
		log_info("ClickHouse at %s takes data again", clickhouse_http_name(sender->http));
}

/* With jitter, so that a fleet does not come back at one moment; a reader may end it. */
static void back_off(struct clickhouse_sender *sender, unsigned round)
{
	uint64_t span = (round < 6 ? 1u << round : BACKOFF_MAX_S) * NS_PER_S, now = clock_monotonic_ns();
	uint64_t until = now + span / 2 + hash_mix64(now) % (span / 2);
	struct journal *journal = sender->journal;

	(void)pthread_mutex_lock(&journal->lock);
	while (!sender->poked && !atomic_load(sender->stop) && wait_change(journal, until))
		;
	sender->poked = false;
	(void)pthread_mutex_unlock(&journal->lock);
}

/* ---- sending -----------------------------------------------------------------------------------
 */

/* Waiting operations up to the next statement, as many as are sent before the journal forgets them.
 * They go as one INSERT for each table and partition: their order does not decide what counts,
 * since each row has the number of its operation. Records come last: what they speak of is there
 * before them. Minutes and hours keep their order: readers know by the largest number of a day
 * whether it has changed. */
struct window {
	struct journal_op ops[WINDOW_OPS];
	bool sent[WINDOW_OPS];
	unsigned count;
	uint64_t end; /* behind the last */
};

/* Counts @op's table and partition among the @count before it. False: there are enough of them, or
 * they are minutes behind hours. */
static bool note_target(const struct window *window, const struct journal_op *op, unsigned *count)
{
	bool known = false;

	for (unsigned i = 0; i < window->count; i++) {
		const struct journal_op *other = &window->ops[i];

		if (op->table == CLICKHOUSE_MINUTES && other->table == CLICKHOUSE_HOURS)
			return false;
		known |= other->table == op->table && other->partition == op->partition;
	}
	return known || ++*count <= WINDOW_TARGETS;
}

/* The next operations of @data from @at on; false: none. @single: only one. */
static bool next_window(const struct buf *data, size_t at, bool single, struct window *ret)
{
	struct journal_op op;
	size_t end, skipped, bytes = 0;
	unsigned targets = 0;

	ret->count = 0;
	memset(ret->sent, 0, sizeof(ret->sent));
	while (ret->count < (single ? 1 : WINDOW_OPS) &&
	       journal_next_frame(data->data, data->len, at, &op, &end, &skipped)) {
		if ((ret->count && (op.table == 0 || bytes + op.len > WINDOW_BYTES)) ||
		    !note_target(ret, &op, &targets))
			break;
		bytes += op.len;
		ret->ops[ret->count++] = op;
		ret->end = at = end;
		if (op.table == 0)
			break;
	}
	return ret->count > 0;
}

/* The first operation that is not sent, but records only when nothing else is left; -1: all are. */
static int next_unsent(const struct window *window)
{
	int record = -1;

	for (unsigned i = 0; i < window->count; i++) {
		if (window->sent[i])
			continue;
		if (window->ops[i].table != CLICKHOUSE_RECORDS)
			return (int)i;
		if (record < 0)
			record = (int)i;
	}
	return record;
}

/* Marks @first and those that go with it as sent and writes their rows into @rows, which stays
 * empty for one alone. */
static void take_batch(struct window *window, unsigned first, struct buf *rows)
{
	const struct journal_op *op = &window->ops[first];
	size_t bytes = op->len;
	unsigned count = 1;

	window->sent[first] = true;
	for (unsigned i = first + 1; op->table && i < window->count; i++) {
		const struct journal_op *other = &window->ops[i];

		if (window->sent[i] || other->table != op->table || other->partition != op->partition)
			continue;
		if (bytes + other->len > BATCH_BYTES)
			break;
		if (count++ == 1)
			buf_add(rows, op->data, op->len);
		buf_add(rows, other->data, other->len);
		bytes += other->len;
		window->sent[i] = true;
	}
}

static int send_batch(struct clickhouse_sender *sender, const struct journal_op *op,
		      const struct buf *rows, int *ret_code, struct err *err)
{
	struct clickhouse_request request = { .whatever = true };
	cleanup_buf struct buf text = { 0 };
	char token[TOKEN_SIZE];

	if (op->table == 0) {
		buf_add(&text, op->data, op->len);
		buf_add_char(&text, '\0');
		request.sql = text.data;
	} else {
		request.sql = clickhouse_insert(op->table);
		request.body = rows->len ? rows->data : op->data;
		request.body_len = rows->len ? rows->len : op->len;
		/* The same operations may go in other company when they are sent again. */
		(void)snprintf(token, sizeof(token), "%x-%llx-%016llx", op->table,
			       (unsigned long long)op->number,
			       (unsigned long long)hash_bytes(request.body, request.body_len, 0));
		request.token = token;
	}
	if (text.error || rows->error)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to send what waits");
	if (!request.sql) {
		*ret_code = 62;
		return err_set(err, EIO, "StoreUnavailable", NULL, "written by a newer profd");
	}
	return clickhouse_http_do(sender->http, &request, NULL, ret_code, err);
}

static void set_aside(struct clickhouse_sender *sender, const struct journal_op *op,
		      const struct err *why)
{
	struct journal *journal = sender->journal;
	cleanup_close int fd = openat(journal->dir_fd, REFUSED_FILE,
				      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	cleanup_buf struct buf frame = { 0 };
	static struct log_limit limit = { .burst = 3 };
	struct stat st;
	bool kept = false;

	journal_add_frame(&frame, op);
	if (!frame.error && fd >= 0 && fstat(fd, &st) == 0 && st.st_size + (off_t)frame.len <= REFUSED_MAX)
		kept = io_write_all(fd, frame.data, frame.len) == 0 && fdatasync(fd) == 0;
	(void)pthread_mutex_lock(&journal->lock);
	sender->refused++;
	(void)pthread_mutex_unlock(&journal->lock);
	if (log_allowed(&limit))
		log_error("an operation of %zu bytes is not taken by the store and %s: %s", op->len,
			  kept ? "is kept in clickhouse/" REFUSED_FILE : "is lost", why->text);
}

struct progress {
	unsigned round;	  /* tries in succession that failed */
	unsigned refused; /* of one operation */
	unsigned alone;	  /* so many operations go one by one, since one of them is refused */
};

/* Sends what is left of @window. False: the rest is for later. */
static bool send_window(struct clickhouse_sender *sender, struct window *window,
			struct progress *progress)
{
	int first, rc = 0;

	while (rc == 0 && (first = next_unsent(window)) >= 0) {
		cleanup_buf struct buf rows = { 0 };
		struct err why = { 0 };
		int code = 0;

		if (!sender->tables_made)
			rc = clickhouse_schema_make(sender->http, &code, &why);
		sender->tables_made |= rc == 0;
		if (rc == 0) {
			take_batch(window, (unsigned)first, &rows);
			rc = send_batch(sender, &window->ops[first], &rows, &code, &why);
		}
		if (rc < 0 && is_refusal(code) && sender->tables_made && window->count > 1) {
			progress->alone = window->count;
			return true;
		}
		if (rc < 0 && is_refusal(code) && sender->tables_made &&
		    ++progress->refused >= REFUSED_TRIES) {
			set_aside(sender, &window->ops[first], &why);
			rc = 0;
		}
		if (is_without_table(code))
			sender->tables_made = false;
		if (rc < 0) {
			note_failure(sender, &why);
			back_off(sender, progress->round);
			progress->round += progress->round < 6;
		}
	}
	return rc == 0;
}

static void send_waiting(struct clickhouse_sender *sender, struct progress *progress)
{
	cleanup_free struct window *window = malloc(sizeof(*window));
	cleanup_buf struct buf data = { 0 };
	uint64_t base = 0;
	size_t at = 0;
	int rc = window ? journal_load(sender->journal, &data, &base) : -ENOMEM;

	if (rc < 0) {
		struct err why = { 0 };

		(void)err_set(&why, EIO, "StoreUnavailable", NULL,
			      "%s cannot be read (%s): the waiting data is sent when it can",
			      sender->journal->path, strerror(-rc));
		note_failure(sender, &why);
		back_off(sender, 6);
		return;
	}
	window->count = 0;
	while (!atomic_load(sender->stop) && next_window(&data, at, progress->alone > 0, window)) {
		const unsigned alone = progress->alone;

		if (!send_window(sender, window, progress))
			break;
		if (!alone && progress->alone)
			continue; /* again, each by itself */
		note_success(sender);
		at = window->end;
		journal_done(sender->journal, base + at, window->ops[window->count - 1].number);
		*progress = (struct progress){ .alone = alone ? alone - 1 : 0 };
		window->count = 0;
	}
	/* A file that was done already; or no frame where one should be: damage that came after it
	 * was written. */
	if (window->count == 0 && (data.len == 0 || at < data.len) && !atomic_load(sender->stop))
		journal_done(sender->journal, base + data.len, 0);
}

static bool wait_for_work(struct clickhouse_sender *sender)
{
	uint64_t until = clock_monotonic_ns() + IDLE_NS;
	struct journal *journal = sender->journal;
	bool work;

	(void)pthread_mutex_lock(&journal->lock);
	for (;;) {
		work = journal->segments.count && (journal->segments.count > 1 ||
						   journal->at < journal->segments.data[0].size);
		if (work || atomic_load(sender->stop) || !wait_change(journal, until))
			break;
	}
	(void)pthread_mutex_unlock(&journal->lock);
	return work;
}

static void *run(void *arg)
{
	struct clickhouse_sender *sender = arg;
	struct progress progress = { 0 };

	while (!atomic_load(sender->stop)) {
		if (wait_for_work(sender)) {
			send_waiting(sender, &progress);
			continue;
		}
		journal_tidy(sender->journal);
		if (!atomic_load(sender->stop) && sender->idle)
			sender->idle(sender->idle_ctx);
	}
	return NULL;
}

int clickhouse_sender_start(struct clickhouse_sender *sender, struct err *err)
{
	int rc = pthread_create(&sender->thread, NULL, run, sender);

	if (rc)
		return err_set(err, rc, NULL, NULL, "no thread to send what is stored: %s", strerror(rc));
	sender->running = true;
	return 0;
}

void clickhouse_sender_stop(struct clickhouse_sender *sender)
{
	struct journal *journal = sender->journal;
	uint64_t until = clock_monotonic_ns() + CLOSE_NS;

	if (!sender->running)
		return;
	(void)pthread_mutex_lock(&journal->lock);
	while (journal->done < journal->written && !sender->failing && wait_change(journal, until))
		;
	atomic_store(sender->stop, true);
	(void)pthread_cond_broadcast(&journal->changed);
	(void)pthread_mutex_unlock(&journal->lock);
	(void)pthread_join(sender->thread, NULL);
	sender->running = false;
}
