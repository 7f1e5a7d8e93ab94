// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/row_tables.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <libelf.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/privileges.h"
#include "agent/reader/watch.h"
#include "agent/wire/feed.h"
#include "symbolize/cfi_rows.h"
#include "symbolize/elf_runtime.h"
#include "symbolize/runtime_cpython.h"
#include "symbolize/sandbox.h"

#define COMPILE_CPU_S	20
#define COMPILE_WALL_S	60 /* the deadline of a request, and more */
#define COMPILE_MEMORY	(1ull << 30)
#define IMAGE_BYTES_MAX (64u << 20)
#define FILE_FD		3 /* in the child */
#define IMAGE_FD	4

/* ---- compiling in a child -------------------------------------------------------------------- */

/* The child leaves these facts, then the image. */
static int write_answer(const struct script_runtime *script, const struct cfi_table *table)
{
	int rc = io_write_all(IMAGE_FD, script, sizeof(*script));

	return rc < 0 ? rc : io_write_all(IMAGE_FD, table->image, table->image_bytes);
}

/* Never returns. @fd and @memfd are above IMAGE_FD. */
static void compile_child(int fd, int memfd)
{
	const struct sandbox_limits limits = { .cpu_s = COMPILE_CPU_S, .wall_s = COMPILE_WALL_S };
	const struct rlimit memory = { COMPILE_MEMORY, COMPILE_MEMORY };
	struct script_runtime script = { .kind = SCRIPT_NONE };
	struct elf_file *file;
	struct cfi_table table;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(fd, FILE_FD) < 0 || dup2(memfd, IMAGE_FD) < 0 ||
	    syscall(SYS_close_range, IMAGE_FD + 1, ~0u, 0) < 0 || privileges_keep(0) < 0 ||
	    setrlimit(RLIMIT_AS, &memory) < 0 || sandbox_enter_builder(&limits) < 0)
		_exit(1);
	(void)elf_version(EV_CURRENT);
	if (elf_file_map_take(FILE_FD, &file) < 0 || cfi_table_build(file->elf, FILE_FD, &table) < 0 ||
	    table.image_bytes > IMAGE_BYTES_MAX)
		_exit(1);
	if (elf_runtime_of(file) == FEED_PROC_PYTHON && runtime_cpython_load(file, &script) < 0)
		script.kind = SCRIPT_NONE;
	_exit(write_answer(&script, &table) < 0);
}

/* 0 if the child ended well; it is gone in any case. */
static int wait_child(pid_t pid, uint64_t deadline_ns)
{
	cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd poll_fd = { .fd = pidfd, .events = POLLIN };
	uint64_t now = clock_monotonic_ns();
	int status, n = 0;

	if (pidfd >= 0 && deadline_ns > now)
		n = poll(&poll_fd, 1, (int)((deadline_ns - now) / NS_PER_MS) + 1);
	if (n <= 0)
		(void)kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -ECHILD;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ENODATA;
}

/* Reads and checks what the child wrote. A descriptor that the child could still write to is not
 * mapped. */
static int take_answer(int memfd, struct row_table *ret)
{
	cleanup_free char *image = NULL;
	struct script_runtime script;
	size_t bytes;
	int rc = io_read_fd(memfd, IMAGE_BYTES_MAX + sizeof(script), &image, &bytes);

	if (rc == 0 && bytes < sizeof(script))
		rc = -ENODATA;
	if (rc < 0)
		return rc;
	memcpy(&script, image, sizeof(script));
	bytes -= sizeof(script);
	memmove(image, image + sizeof(script), bytes);
	rc = cfi_image_validate(image, bytes);
	if (rc < 0)
		return rc;
	ret->image = take_ptr(image);
	ret->bytes = bytes;
	ret->script = script;
	return 0;
}

static int compile(int file_fd, uint64_t deadline_ns, struct row_table *ret)
{
	/* Above the numbers that the child gives them, so that neither overwrites the other. */
	cleanup_close int fd = fcntl(file_fd, F_DUPFD_CLOEXEC, IMAGE_FD + 1);
	cleanup_close int first = io_memfd("profd-rows", 0);
	cleanup_close int memfd = first < 0 ? -1 : fcntl(first, F_DUPFD_CLOEXEC, IMAGE_FD + 1);
	pid_t pid;
	int rc;

	if (fd < 0 || memfd < 0)
		return -EMFILE;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		compile_child(fd, memfd);
	rc = wait_child(pid, deadline_ns);
	return rc < 0 ? rc : take_answer(memfd, ret);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The file at @path below @dir_fd if it is a regular one with the inode that is mapped. O_PATH
 * opens nothing, so that no device or pipe feels it. @same_device: also on the device that maps
 * names, which is another than st_dev's on overlay and btrfs. */
static int open_same_file(int dir_fd, const char *path, const struct target_module *m,
			  bool same_device)
{
	cleanup_close int path_fd = openat(dir_fd, path, O_PATH | O_CLOEXEC);
	char self[32];
	struct stat st;
	int fd;

	if (path_fd < 0)
		return -errno;
	if (fstat(path_fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_ino != m->inode)
		return -ESTALE;
	if (same_device && (major(st.st_dev) != m->dev_major || minor(st.st_dev) != m->dev_minor))
		return -ESTALE;
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", path_fd);
	fd = open(self, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

/* The file of a module, whatever the target put at its path: the executable, the path inside the
 * target's root, or, when it has left that root behind (chroot after start), the path here. */
static int open_module(const struct target *target, const struct target_maps *maps, uint32_t module)
{
	const struct target_module *m = &maps->modules[module];
	char path[PATH_MAX + 8];
	int fd = open_same_file(target->proc_fd, "exe", m, false);

	if (fd >= 0)
		return fd;
	if (snprintf(path, sizeof(path), "root%s", target_maps_path(maps, module)) >=
	    (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open_same_file(target->proc_fd, path, m, false);
	return fd >= 0 ? fd : open_same_file(AT_FDCWD, path + strlen("root"), m, true);
}

/* This process's own vDSO is every 64-bit process's: one image of the kernel, with its section
 * headers last. */
static int open_vdso(void)
{
	const Elf64_Ehdr *image = (const void *)(uintptr_t)getauxval(AT_SYSINFO_EHDR);
	cleanup_close int fd = -1;
	int rc;

	if (!image)
		return -ENODATA;
	fd = io_memfd("profd-vdso", 0);
	if (fd < 0)
		return fd;
	rc = io_write_all(fd, image, image->e_shoff + (size_t)image->e_shnum * image->e_shentsize);
	return rc < 0 ? rc : take_fd(&fd);
}

/* ---- keeping --------------------------------------------------------------------------------- */

static void drop(struct row_tables *tables, struct row_table *table)
{
	tables->bytes -= table->bytes;
	free(table->image);
	*table = (struct row_table){ 0 };
}

/* The table not asked for longest that may go: a free slot comes first. NULL if all are in use. */
static struct row_table *oldest(struct row_tables *tables, bool with_bytes)
{
	struct row_table *found = NULL;

	for (unsigned i = 0; i < ROW_TABLES_MAX; i++) {
		struct row_table *t = &tables->items[i];

		if (t->used <= tables->answer_clock && (t->bytes || !with_bytes) &&
		    (!found || t->used < found->used))
			found = t;
	}
	return found;
}

static struct row_table *find_table(struct row_tables *tables, const struct row_file *file)
{
	for (unsigned i = 0; i < ROW_TABLES_MAX; i++)
		if (!memcmp(&tables->items[i].file, file, sizeof(*file)))
			return &tables->items[i];
	return NULL;
}

static int identify(int fd, struct row_file *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = (struct row_file){ .device = st.st_dev,
				  .inode = st.st_ino,
				  .size = (uint64_t)st.st_size,
				  .changed_s = st.st_ctim.tv_sec,
				  .changed_ns = st.st_ctim.tv_nsec };
	return 0;
}

/* The table of @file, which is open as @fd, compiled if it is new. NULL: none and no room to
 * remember that. */
static struct row_table *table_of(struct row_tables *tables, int fd, const struct row_file *file,
				  uint64_t deadline_ns)
{
	struct row_table *table;

	table = find_table(tables, file);
	if (!table) {
		table = oldest(tables, false);
		if (!table)
			return NULL;
		drop(tables, table);
		watch_pause();
		(void)compile(fd, deadline_ns, table); /* else it has no image */
		table->file = *file;
		tables->bytes += table->bytes;
	}
	table->used = ++tables->clock;
	while (tables->bytes > ROW_TABLES_BYTES_MAX && oldest(tables, true))
		drop(tables, oldest(tables, true));
	return table;
}

int row_tables_begin(struct row_tables *tables, const struct target_maps *maps)
{
	int16_t *slots = calloc(maps->module_count + 1, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	free(tables->slots);
	tables->slots = slots;
	tables->slot_count = maps->module_count;
	tables->answer_clock = tables->clock;
	return 0;
}

const struct row_table *row_tables_get(struct row_tables *tables, const struct target *target,
				       const struct target_maps *maps, uint32_t module,
				       uint64_t deadline_ns)
{
	static const struct row_file vdso = { .device = UINT64_MAX, .inode = 1 };
	struct row_table *table = NULL;
	cleanup_close int fd = -1;
	struct row_file file;

	if (module >= tables->slot_count)
		return NULL;
	if (!tables->slots[module]) {
		if (maps->modules[module].vdso) {
			fd = open_vdso();
			file = vdso;
		} else {
			fd = open_module(target, maps, module);
		}
		if (fd >= 0 && (maps->modules[module].vdso || identify(fd, &file) == 0))
			table = table_of(tables, fd, &file, deadline_ns);
		tables->slots[module] =
			table && table->image ? (int16_t)(1 + (table - tables->items)) : -1;
	}
	return tables->slots[module] > 0 ? &tables->items[tables->slots[module] - 1] : NULL;
}

void row_tables_deinit(struct row_tables *tables)
{
	for (unsigned i = 0; i < ROW_TABLES_MAX; i++)
		drop(tables, &tables->items[i]);
	free(tables->slots);
	tables->slots = NULL;
}
