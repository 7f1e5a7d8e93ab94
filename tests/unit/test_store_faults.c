// SPDX-License-Identifier: Apache-2.0
/* Every storage call fails in turn, by itself, with all that follow, or with all that read after
 * it, once with "no space left" (which no reading call does), once with "input/output error", also
 * while the store is opened again: what was acknowledged is there afterwards, whole, and the store
 * works as soon as the disk does. SQLite's calls fail in a VFS around its own, the others by the
 * linker's --wrap (Makefile). */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/store/store.h"

#define DAY   20778u
#define STEPS 12u

/* ---- faults ------------------------------------------------------------------------------------
 */

static unsigned calls;	  /* so far in this run */
static unsigned fail_at; /* number of the call that fails, 0 = none */
static enum { ONE, ALL_AFTER, READS_AFTER } extent;
static bool armed;	  /* else calls neither fail nor count */
static int fault;	  /* ENOSPC or EIO */

static bool fails(bool reads)
{
	if (!armed)
		return false;
	calls++;
	return fail_at && calls >= fail_at && (calls == fail_at || extent != ONE) &&
	       (reads || extent != READS_AFTER);
}

static int sqlite_fault(int kind)
{
	errno = fault;
	return fault == ENOSPC ? SQLITE_FULL : SQLITE_IOERR | kind << 8;
}

#define WRAPPED(result, name, parameters, arguments)                                               \
	result __real_##name parameters;                                                           \
	result __wrap_##name parameters;                                                           \
	result __wrap_##name parameters                                                            \
	{                                                                                          \
		if (fails(false)) {                                                                     \
			errno = fault;                                                             \
			return -1;                                                                 \
		}                                                                                  \
		return __real_##name arguments;                                                    \
	}

ssize_t __real_pread(int fd, void *data, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t len, off_t at)
{
	if (fault == EIO && fails(true)) {
		errno = fault;
		return -1;
	}
	return __real_pread(fd, data, len, at);
}

WRAPPED(ssize_t, pwrite, (int fd, const void *data, size_t len, off_t at), (fd, data, len, at))
WRAPPED(int, fdatasync, (int fd), (fd))
WRAPPED(int, fsync, (int fd), (fd))
WRAPPED(int, ftruncate, (int fd, off_t len), (fd, len))

int __real_openat(int dir, const char *path, int flags, mode_t mode);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	if (flags & O_CREAT) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	if (flags & (O_WRONLY | O_RDWR) && fails(false)) {
		errno = fault;
		return -1;
	}
	return __real_openat(dir, path, flags, mode);
}

/* ---- the VFS --------------------------------------------------------------------------------- */

struct faulty_file {
	sqlite3_file base;
	sqlite3_file *real; /* behind this struct */
};

static sqlite3_vfs *real_vfs;

static sqlite3_file *real_of(sqlite3_file *file)
{
	return ((struct faulty_file *)file)->real;
}

static int f_close(sqlite3_file *file)
{
	return real_of(file)->pMethods->xClose(real_of(file));
}
/* A full disk can be read. */
static int f_read(sqlite3_file *file, void *data, int len, sqlite3_int64 at)
{
	if (fault == EIO && fails(true))
		return sqlite_fault(1);
	return real_of(file)->pMethods->xRead(real_of(file), data, len, at);
}
static int f_write(sqlite3_file *file, const void *data, int len, sqlite3_int64 at)
{
	if (fails(false))
		return sqlite_fault(3);
	return real_of(file)->pMethods->xWrite(real_of(file), data, len, at);
}
static int f_truncate(sqlite3_file *file, sqlite3_int64 len)
{
	if (fails(false))
		return sqlite_fault(6);
	return real_of(file)->pMethods->xTruncate(real_of(file), len);
}
static int f_sync(sqlite3_file *file, int flags)
{
	if (fails(false))
		return sqlite_fault(4);
	return real_of(file)->pMethods->xSync(real_of(file), flags);
}
static int f_size(sqlite3_file *file, sqlite3_int64 *ret)
{
	return real_of(file)->pMethods->xFileSize(real_of(file), ret);
}
static int f_lock(sqlite3_file *file, int level)
{
	return real_of(file)->pMethods->xLock(real_of(file), level);
}
static int f_unlock(sqlite3_file *file, int level)
{
	return real_of(file)->pMethods->xUnlock(real_of(file), level);
}
static int f_reserved(sqlite3_file *file, int *ret)
{
	return real_of(file)->pMethods->xCheckReservedLock(real_of(file), ret);
}
static int f_control(sqlite3_file *file, int op, void *arg)
{
	return real_of(file)->pMethods->xFileControl(real_of(file), op, arg);
}
static int f_sector(sqlite3_file *file)
{
	return real_of(file)->pMethods->xSectorSize(real_of(file));
}
static int f_device(sqlite3_file *file)
{
	return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}
static int f_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **ret)
{
	if (extend && fails(false))
		return sqlite_fault(19);
	return real_of(file)->pMethods->xShmMap(real_of(file), page, size, extend, ret);
}
static int f_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
	return real_of(file)->pMethods->xShmLock(real_of(file), offset, n, flags);
}
static void f_shm_barrier(sqlite3_file *file)
{
	real_of(file)->pMethods->xShmBarrier(real_of(file));
}
static int f_shm_unmap(sqlite3_file *file, int remove)
{
	return real_of(file)->pMethods->xShmUnmap(real_of(file), remove);
}

static const sqlite3_io_methods methods = {
	.iVersion = 2,
	.xClose = f_close,
	.xRead = f_read,
	.xWrite = f_write,
	.xTruncate = f_truncate,
	.xSync = f_sync,
	.xFileSize = f_size,
	.xLock = f_lock,
	.xUnlock = f_unlock,
	.xCheckReservedLock = f_reserved,
	.xFileControl = f_control,
	.xSectorSize = f_sector,
	.xDeviceCharacteristics = f_device,
	.xShmMap = f_shm_map,
	.xShmLock = f_shm_lock,
	.xShmBarrier = f_shm_barrier,
	.xShmUnmap = f_shm_unmap,
};

static int vfs_open(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags,
		    int *ret_flags)
{
	struct faulty_file *faulty = (struct faulty_file *)file;
	int rc;

	faulty->base.pMethods = NULL;
	faulty->real = (sqlite3_file *)(faulty + 1);
	if (flags & SQLITE_OPEN_CREATE && fails(false)) {
		errno = fault;
		return SQLITE_CANTOPEN;
	}
	rc = real_vfs->xOpen(real_vfs, name, faulty->real, flags, ret_flags);
	if (faulty->real->pMethods)
		faulty->base.pMethods = &methods;
	return rc;
}

static void make_disk_faulty(void)
{
	static sqlite3_vfs faulty;

	real_vfs = sqlite3_vfs_find(NULL);
	faulty = *real_vfs;
	faulty.zName = "faulty";
	faulty.szOsFile = (int)sizeof(struct faulty_file) + real_vfs->szOsFile;
	faulty.xOpen = vfs_open;
	assert_int_equal(sqlite3_vfs_register(&faulty, 1), SQLITE_OK);
}

/* ---- the work -------------------------------------------------------------------------------- */

static const struct store_day day = { .day = DAY, .retention_days = 7 };

static struct store_window window_of(unsigned minute)
{
	static const char data[] = "a minute";

	return (struct store_window){ .service = "web", .type = "cpu", .owners = ",default:19,",
				      .from_ns = DAY * 86400ull * NS_PER_S + minute * 60 * NS_PER_S,
				      .whole = true, .samples = minute + 1, .value = minute,
				      .data = data, .len = sizeof(data) };
}

static unsigned appended; /* chunks of a session that were acknowledged */

/* One step of the work; 0 = acknowledged. */
static int step(struct store *store, unsigned number)
{
	char text[16];
	struct store_chunk chunk = { STORE_CHUNK_STACKS, text, sizeof(text) };
	struct store_record record = { .kind = "baseline", .tenant = "default", .id = text,
				       .service = "web", .type = "cpu", .status = "completed",
				       .created_ns = number + 1, .body = text };
	struct store_window window = window_of(number);
	const struct store_minute minute = { .samples = window.samples, .value = window.value,
					     .profiled_ms = 60000 };
	struct err err = { 0 };
	int rc;

	memset(text, 0, sizeof(text));
	(void)snprintf(text, sizeof(text), "n-%u", number);
	record.body_len = strlen(text);
	switch (number % 4) {
	case 0:
		rc = store_put(store, &record, &err);
		break;
	case 1:
		rc = store_session_append(store, text, &chunk, 1, 1, number, &err);
		appended += rc == 0 && number == 1;
		break;
	case 2:
		rc = store_history_append(store, &day, &chunk, 1, &window, 1, 1, number, &err);
		break;
	default: /* the hour of that number */
		window.from_ns = DAY * 86400ull * NS_PER_S + number * 3600 * NS_PER_S;
		window.minutes = &minute;
		window.minute_count = 1;
		rc = store_history_roll(store, &day, window.from_ns, 0, &chunk, NULL, &window, 1, &err);
		break;
	}
	assert_true(rc == 0 || err.text[0]);
	return rc;
}

static int count_one(void *ctx, const struct store_window *window)
{
	bool *found = ctx;
	uint64_t number = (window->from_ns - DAY * 86400ull * NS_PER_S) / NS_PER_S /
			  (window->minute_count ? 3600 : 60);

	assert_true(number < STEPS && window->samples == number + 1);
	found[number] = true;
	return 0;
}

static int count_chunk(void *ctx, const struct store_chunk *chunk)
{
	++*(unsigned *)ctx;
	return 0;
}

static bool is_there(struct store *store, unsigned number)
{
	struct store_window_query all = { .with_data = true };
	cleanup_free char *body = NULL;
	bool found[STEPS] = { 0 };
	unsigned chunks = 0, damaged = 0;
	char id[16];
	size_t len;
	struct err err = { 0 };

	(void)snprintf(id, sizeof(id), "n-%u", number);
	switch (number % 4) {
	case 0:
		return store_get(store, "baseline", "default", id, &body, &len, &err) == 0 &&
		       len == strlen(id) && memcmp(body, id, len) == 0;
	case 1:
		return store_session_read(store, id, count_chunk, &chunks, &damaged, &err) == 0 &&
		       damaged == 0 && chunks >= (number == 1 ? appended : 1) &&
		       /* The store removes a refused chunk, if the disk lets it. */
		       (extent == ALL_AFTER || chunks <= (number == 1 ? appended : 1));
	default:
		return store_history_windows(store, &day, &all, count_one, found, &damaged, &err) == 0 &&
		       damaged == 0 && found[number];
	}
}

/* Refused while a call fails, not after. */
static struct store *open_again(const char *dir, unsigned at)
{
	struct store *store = NULL;
	struct err err = { 0 };
	int rc;

	armed = true;
	rc = store_open(dir, NULL, "", &store, &err);
	armed = false;
	if (rc < 0) {
		assert_true(calls >= at && err.text[0]);
		rc = store_open(dir, NULL, "", &store, &err);
	}
	if (rc < 0)
		fail_msg("call %u: %s", at, err.text);
	return store;
}

/* All steps with the @at-th call failing; the number of calls that there were. */
static unsigned run(const char *dir, unsigned at)
{
	bool acknowledged[STEPS] = { 0 };
	struct store *store;

	calls = appended = 0;
	fail_at = at;
	store = open_again(dir, at);
	armed = true;
	for (unsigned i = 0; i < STEPS; i++)
		acknowledged[i] = step(store, i) == 0;
	armed = false;
	/* Reads go on, and so do writes, without anything being opened again by us. */
	for (unsigned i = 0; i < STEPS; i++) {
		if (!acknowledged[i] && step(store, i) < 0)
			fail_msg("call %u: step %u still fails when the disk works again", at, i);
		if (!is_there(store, i))
			fail_msg("call %u: step %u is acknowledged and cannot be read", at, i);
	}
	store_close(store);
	store = open_again(dir, at);
	/* The file of a session, and a day's, that are there already. */
	armed = true;
	(void)step(store, 1);
	(void)step(store, 2);
	armed = false;
	for (unsigned i = 0; i < STEPS; i++)
		if (!is_there(store, i))
			fail_msg("call %u: step %u is lost", at, i);
	store_close(store);
	return calls;
}

static void remove_dir(const char *dir)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	assert_int_equal(system(command), 0);
}

static void every_call(int which)
{
	unsigned count = 0;

	fault = which;
	for (unsigned at = 0; at <= count; at++) {
		/* In memory where that can be: hundreds of stores are opened. */
		char shm[] = "/dev/shm/profd-faults-XXXXXX", tmp[] = "/tmp/profd-faults-XXXXXX";
		char *dir = access("/dev/shm", W_OK) == 0 ? shm : tmp;
		unsigned seen;

		assert_non_null(mkdtemp(dir));
		seen = run(dir, at);
		if (at == 0)
			count = seen;
		remove_dir(dir);
	}
	print_message("%u calls\n", count);
	assert_true(count > 40);
}

static void test_no_space(void **state)
{
	for (extent = ONE; extent <= ALL_AFTER; extent++)
		every_call(ENOSPC);
}

/* A read error is reported neither as damage nor as the end of the session. */
static void test_reading_a_session(void **state)
{
	char dir[] = "/tmp/profd-faults-XXXXXX";
	struct store *store = NULL;
	struct err err = { 0 };
	unsigned failed = 0, count = 1;

	assert_non_null(mkdtemp(dir));
	assert_int_equal(store_open(dir, NULL, "", &store, &err), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(step(store, 1), 0);
	fault = EIO;
	extent = ONE;
	for (unsigned at = 0; at <= count; at++) {
		unsigned chunks = 0, damaged = 0;
		int rc;

		calls = 0;
		fail_at = at;
		armed = true;
		rc = store_session_read(store, "n-1", count_chunk, &chunks, &damaged, &err);
		armed = false;
		if (at == 0)
			count = calls;
		if (rc == 0 && (chunks != 3 || damaged))
			fail_msg("read %u of %u: %u chunks of 3, %u damaged", at, count, chunks, damaged);
		failed += rc < 0;
	}
	assert_true(count > 6 && failed > 3);
	store_close(store);
	remove_dir(dir);
}

static void test_input_output_error(void **state)
{
	for (extent = ONE; extent <= READS_AFTER; extent++)
		every_call(EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_space),
		cmocka_unit_test(test_input_output_error),
		cmocka_unit_test(test_reading_a_session),
	};

	make_disk_faulty();
	return cmocka_run_group_tests_name("store_faults", tests, NULL, NULL);
}
