// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/io.h"
#include "symbolize/module_cache.h"
#include "tests/support/elf_fixture.h"

#define T MODULE_CACHE_TABLE
#define S MODULE_CACHE_SYMBOLS
#define F MODULE_CACHE_FACTS

/* A new empty folder. */
static int folder(const char *name)
{
	int fd;

	assert_true(fixture_run("rm -rf %s && mkdir %s", name, name));
	fd = open(fixture_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fchdir(fd), 0);
	(void)close(fd);
	fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static struct module_cache *create(int dir_fd, uint64_t budget)
{
	struct module_cache *cache = NULL;

	assert_int_equal(module_cache_create(dir_fd, budget, &cache), 0);
	return cache;
}

static void assert_holds(struct module_cache *cache, uint64_t key, enum module_cache_kind kind,
			 uint8_t tag, const char *text)
{
	char found[64] = "";
	uint8_t found_tag = 255;
	cleanup_close int fd = module_cache_open(cache, key, kind, &found_tag);

	assert_true(fd >= 0);
	assert_int_equal(found_tag, tag);
	assert_int_equal(io_pread_all(fd, found, strlen(text), 0), 0);
	assert_string_equal(found, text);
}

static int64_t folder_bytes(int dir_fd)
{
	DIR *dir = fdopendir(openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	const struct dirent *entry;
	int64_t bytes = 0;
	struct stat st;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		if (fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
			bytes += st.st_size;
	(void)closedir(dir);
	return bytes;
}

static void test_put_and_open(void **state)
{
	cleanup_close int dir_fd = folder("put");
	struct module_cache *cache = create(dir_fd, 1 << 20);
	uint8_t tag = 77;

	assert_int_equal(module_cache_open(cache, 1, T, &tag), -ENOENT);
	assert_false(module_cache_has(cache, 1, T, &tag));
	assert_int_equal(tag, 77);
	assert_int_equal(module_cache_put(cache, 1, T, 0, "rows", 4), 0);
	assert_int_equal(module_cache_put(cache, 1, S, 2, "names", 5), 0);
	assert_int_equal(module_cache_put(cache, UINT64_MAX, S, 255, "last", 4), 0);
	assert_int_equal(module_cache_put(cache, 1, F, 0, "facts", 5), 0);
	assert_holds(cache, 1, T, 0, "rows");
	assert_holds(cache, 1, S, 2, "names");
	assert_holds(cache, 1, F, 0, "facts");
	assert_holds(cache, UINT64_MAX, S, 255, "last");
	/* Another tag replaces the former one, the same tag too. */
	assert_int_equal(module_cache_put(cache, 1, S, 3, "better", 6), 0);
	assert_int_equal(module_cache_put(cache, 1, T, 0, "newer", 5), 0);
	module_cache_destroy(cache);

	cache = create(dir_fd, 1 << 20);
	assert_holds(cache, 1, T, 0, "newer");
	assert_holds(cache, 1, S, 3, "better");
	assert_holds(cache, 1, F, 0, "facts");
	assert_int_equal(folder_bytes(dir_fd), 5 + 6 + 4 + 5);
	module_cache_drop(cache, 1, T);
	assert_int_equal(module_cache_open(cache, 1, T, &tag), -ENOENT);
	module_cache_destroy(cache);
}

static void age(int dir_fd, uint64_t key, long hours)
{
	char name[32];
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };

	(void)snprintf(name, sizeof(name), "%016llx.t00", (unsigned long long)key);
	times[1].tv_sec = time(NULL) - hours * 3600;
	assert_int_equal(utimensat(dir_fd, name, times, 0), 0);
}

/* Least recently used goes first, also by what an earlier life used. */
static void test_eviction(void **state)
{
	static char block[10000];
	static char large[72000];
	cleanup_close int dir_fd = folder("evict");
	struct module_cache *cache = create(dir_fd, 100000);
	uint8_t tag;

	for (uint64_t key = 0; key < 7; key++) /* 7 * 14096 = 98672 */
		assert_int_equal(module_cache_put(cache, key, T, 0, block, sizeof(block)), 0);
	module_cache_destroy(cache);
	for (uint64_t key = 0; key < 7; key++)
		age(dir_fd, key, 100 + (long)key); /* 6 is the oldest now */

	cache = create(dir_fd, 100000);
	(void)close(module_cache_open(cache, 6, T, &tag)); /* and now the youngest */
	assert_int_equal(module_cache_put(cache, 100, T, 0, block, sizeof(block)), 0);
	assert_true(folder_bytes(dir_fd) <= 100000);
	assert_false(module_cache_has(cache, 5, T, &tag));
	assert_true(module_cache_has(cache, 4, T, &tag));
	assert_true(module_cache_has(cache, 6, T, &tag));
	assert_int_equal(module_cache_put(cache, 101, T, 0, block, sizeof(block)), 0);
	assert_false(module_cache_has(cache, 4, T, &tag));
	/* A file that would push out everything else is not stored. A file that pushes out much is
	 * stored: a program of 700 MB needs that much. */
	assert_int_equal(module_cache_put(cache, 102, T, 0, large, 72000), -EFBIG);
	assert_true(module_cache_has(cache, 6, T, &tag));
	assert_int_equal(module_cache_put(cache, 103, T, 0, large, 70000), 0);
	assert_true(folder_bytes(dir_fd) <= 100000);
	assert_true(module_cache_has(cache, 103, T, &tag));
	assert_true(module_cache_has(cache, 101, T, &tag));
	module_cache_destroy(cache);

	cache = create(dir_fd, 30000); /* a smaller budget is kept from the start */
	assert_true(folder_bytes(dir_fd) <= 30000);
	assert_true(module_cache_has(cache, 101, T, &tag));
	module_cache_destroy(cache);
}

/* An entry that is no plain file is removed and never followed. Files with other names are not ours
 * and stay. */
static void test_strange_folder(void **state)
{
	cleanup_close int dir_fd = folder("strange");
	struct module_cache *cache;
	struct stat st;
	uint8_t tag;

	assert_true(fixture_run("cd strange && touch README x.t00 0123456789ABCDEF.t00 new.tmp "
				"0123456789abcdef.x00 && ln -s /etc/passwd 0123456789abcdef.t00"));
	cache = create(dir_fd, 1 << 20);
	assert_int_equal(folder_bytes(dir_fd), 0);
	assert_false(module_cache_has(cache, 0x0123456789abcdef, T, &tag));
	assert_true(fstatat(dir_fd, "new.tmp", &st, 0) < 0);
	assert_int_equal(fstatat(dir_fd, "README", &st, 0), 0);
	assert_int_equal(fstatat(dir_fd, "0123456789ABCDEF.t00", &st, 0), 0);
	assert_true(fstatat(dir_fd, "0123456789abcdef.t00", &st, AT_SYMLINK_NOFOLLOW) < 0);
	/* A file that was removed behind our back is forgotten. */
	assert_int_equal(module_cache_put(cache, 5, T, 0, "x", 1), 0);
	assert_int_equal(unlinkat(dir_fd, "0000000000000005.t00", 0), 0);
	assert_int_equal(module_cache_open(cache, 5, T, &tag), -ENOENT);
	assert_int_equal(folder_bytes(dir_fd), 0);
	module_cache_destroy(cache);
}

/* Two tags of one key, as a crash leaves them: the younger stays. */
static void test_twins(void **state)
{
	cleanup_close int dir_fd = folder("twins");
	struct module_cache *cache;
	uint8_t tag;

	assert_true(fixture_run(
		"cd twins && echo old >00000000000000aa.s02 && echo new >00000000000000aa.s03 && "
		"touch -d '1 hour ago' 00000000000000aa.s02"));
	cache = create(dir_fd, 1 << 20);
	assert_true(module_cache_has(cache, 0xaa, S, &tag));
	assert_int_equal(tag, 3);
	assert_int_equal(folder_bytes(dir_fd), 4);
	module_cache_destroy(cache);
}

static bool tell(const char *path, const char *text)
{
	cleanup_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && io_write_all(fd, text, strlen(text)) == 0;
}

/* A file system of 4 MiB that only this process sees; false: it may not have one. */
static bool own_disk(const char *name)
{
	const uid_t uid = getuid();
	char uids[32], gids[32];

	(void)snprintf(uids, sizeof(uids), "0 %u 1", uid);
	(void)snprintf(gids, sizeof(gids), "0 %u 1", getgid());
	if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) < 0)
		return false;
	if (uid && !(tell("/proc/self/setgroups", "deny") && tell("/proc/self/uid_map", uids) &&
		     tell("/proc/self/gid_map", gids)))
		return false;
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("none", name, "tmpfs", 0, "size=4m") == 0;
}

static uint64_t free_bytes(int dir_fd)
{
	struct statvfs fs;

	assert_int_equal(fstatvfs(dir_fd, &fs), 0);
	return (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* The budget is no right to the last byte: others write to the disk, too, and what they wrote does
 * not come back. */
static void test_leaves_room(void **state)
{
	static char block[20000];
	cleanup_close int under_fd = folder("disk");
	cleanup_close int dir_fd = -1, other_fd = -1;
	struct module_cache *cache;
	uint8_t tag;

	if (!own_disk("disk")) {
		print_message("skip: no file system of its own\n");
		skip();
	}
	dir_fd = open("disk", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dir_fd >= 0);
	cache = create(dir_fd, 64 << 20);
	for (uint64_t key = 0; key < 300; key++)
		assert_int_equal(module_cache_put(cache, key, T, 0, block, sizeof(block)), 0);
	assert_in_range(free_bytes(dir_fd), 3 << 20, 4 << 20);
	assert_in_range(folder_bytes(dir_fd), 600000, 1 << 20);
	/* Somebody takes the rest: what was kept goes with the next image, until there is room again. */
	other_fd = openat(dir_fd, "other", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(other_fd, block, sizeof(block)) > 0)
		;
	assert_int_equal(free_bytes(dir_fd), 0);
	assert_int_equal(module_cache_put(cache, 300, T, 0, block, sizeof(block)), 0);
	assert_in_range(free_bytes(dir_fd), 500000, 1 << 20);
	assert_true(module_cache_has(cache, 299, T, &tag));
	assert_int_equal(ftruncate(other_fd, 0), 0);
	for (uint64_t key = 301; key < 340; key++)
		assert_int_equal(module_cache_put(cache, key, T, 0, block, sizeof(block)), 0);
	assert_true(module_cache_has(cache, 301, T, &tag));
	module_cache_destroy(cache);
	assert_int_equal(umount2("disk", MNT_DETACH), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_and_open),
		cmocka_unit_test(test_eviction),
		cmocka_unit_test(test_strange_folder),
		cmocka_unit_test(test_twins),
		cmocka_unit_test(test_leaves_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
