// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/modules/module_files.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "agent/base/bytes.h"
#include "agent/base/io.h"
#include "agent/collect/proc/mounts.h"
#include "agent/collect/proc/proc_maps.h"

#define OPEN_FLAGS     (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
#define LOOK_FLAGS     (O_PATH | O_CLOEXEC) /* opens nothing: no device and no FIFO notices it */
#define NOTES_MAX      65536u
#define DEBUG_PATH_MAX 16384u /* two paths of PATH_MAX and more */
#define DEBUG_ROOT     "/usr/lib/debug"
#define MAPS_LINES_MAX 65536u

/* ---- vDSO --------------------------------------------------------------------------------------
 */

struct vdso_extent {
	uint64_t start, end;
};

static int find_extent(void *ctx, const struct proc_map *map)
{
	struct vdso_extent *extent = ctx;

	if (map->start_va == extent->start)
		extent->end = map->end_va;
	return 0;
}

/* This process's vDSO is every 64-bit process's: one image of the kernel. */
static int open_vdso(void)
{
	struct vdso_extent extent = { .start = getauxval(AT_SYSINFO_EHDR) };
	cleanup_close int fd = -1;
	int rc;

	if (!extent.start)
		return -ENODATA;
	rc = proc_maps_read((uint32_t)getpid(), MAPS_LINES_MAX, find_extent, &extent);
	if (rc < 0)
		return rc;
	if (!extent.end)
		return -ENODATA;
	fd = io_memfd("profd-vdso", 0);
	if (fd < 0)
		return fd;
	rc = io_write_all(fd, (const void *)(uintptr_t)extent.start,
			  (size_t)(extent.end - extent.start));
	return rc < 0 ? rc : take_fd(&fd);
}

/* ---- mapped files ------------------------------------------------------------------------------
 */

uint64_t module_files_generation(int fd, const struct module_file *file)
{
	int generation = 0;

	if (!file->dev_major || ioctl(fd, FS_IOC_GETVERSION, &generation) < 0)
		return 0;
	return (uint32_t)generation;
}

/* @file NULL, or without an inode as in a recording: any. */
static int accept_file(int fd, const struct module_file *file)
{
	uint64_t generation;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (file && file->inode && st.st_ino != file->inode))
		return -ENOENT;
	generation = file && file->generation ? module_files_generation(fd, file) : 0;
	return generation && generation != file->generation ? -ENOENT : 0;
}

/* It was mapped where @file was, by a process that may have executed another program since. */
static int accept_mapped(int fd, const struct module_file *file)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) && !module_file_is_other(file, &st) ? 0 : -ENOENT;
}

/* Opens for reading what @path_fd, opened with LOOK_FLAGS, stands for. A target chooses the name:
 * what is no regular file is never opened, since opening alone changes some devices. */
static int open_seen(int path_fd)
{
	char path[40];
	struct stat st;
	int fd;

	if (fstat(path_fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);
	fd = open(path, OPEN_FLAGS);
	return fd < 0 ? -errno : fd;
}

/* Opens the file that @path_fd_take (-errno, or from a link in /proc/@tgid) leads to now. */
static int open_linked(int path_fd_take, uint32_t tgid, const struct module_file *file,
		       bool may_hang, int (*accept)(int fd, const struct module_file *file))
{
	cleanup_close int path_fd = path_fd_take, fd = -1;
	int rc;

	if (path_fd < 0)
		return path_fd;
	if (!may_hang && !mounts_file_is_local(tgid, path_fd))
		return -EXDEV;
	fd = open_seen(path_fd);
	if (fd < 0)
		return fd;
	rc = accept(fd, file);
	return rc < 0 ? rc : take_fd(&fd);
}

/* A directory from which to look names up. */
struct root {
	int fd;
	bool may_hang;
	bool is_left; /* a path went on to another mount, where nobody followed */
	bool debug_only; /* the host's, for a process that may have another: see open_debug_file() */
	unsigned uid;	 /* of the process, UID_UNKNOWN */
};

#define UID_UNKNOWN UINT_MAX

static void cleanup_root_fn(struct root *root)
{
	cleanup_close_fn(&root->fd);
}

/* Opens @path with @root as the root directory; absolute links stay inside. */
static int open_in_root(struct root *root, const char *path, const struct module_file *file,
			uint64_t resolve)
{
	struct open_how how = { .flags = LOOK_FLAGS,
				.resolve = RESOLVE_IN_ROOT | resolve | (root->may_hang ? 0 : RESOLVE_NO_XDEV) };
	cleanup_close int path_fd = (int)syscall(SYS_openat2, root->fd, path, &how, sizeof(how));
	cleanup_close int fd = -1;
	int rc;

	if (path_fd < 0) {
		rc = -errno;
		root->is_left |= rc == -EXDEV && !root->may_hang;
		return rc;
	}
	fd = open_seen(path_fd);
	if (fd < 0)
		return fd;
	rc = accept_file(fd, file);
	return rc < 0 ? rc : take_fd(&fd);
}

/* Root directory of @tgid, 0 = the host's. -EXDEV: to look there may hang. */
static int open_root(uint32_t tgid, bool may_hang, struct root *ret)
{
	cleanup_close int fd = -1;
	char path[40] = "/";

	if (tgid)
		(void)snprintf(path, sizeof(path), "/proc/%u/root", tgid);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (!may_hang && !mounts_file_is_local(tgid, fd))
		return -EXDEV;
	*ret = (struct root){ .fd = take_fd(&fd), .may_hang = may_hang, .uid = UID_UNKNOWN };
	return 0;
}

static int open_link(const char *link)
{
	int fd = open(link, O_PATH | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

struct link_call {
	char path[96];
	int fd;
};

static int call_link(void *data)
{
	struct link_call *call = data;

	call->fd = open_link(call->path);
	return call->fd;
}

static void drop_link(void *data)
{
	cleanup_close_fn(&((struct link_call *)data)->fd);
}

static int open_map_file(const struct module *module, bool may_hang, struct isolation *isolation)
{
	const struct module_origin *origin = &module->origin;
	struct link_call call = { .fd = -1 };

	(void)snprintf(call.path, sizeof(call.path), "/proc/%u/map_files/%llx-%llx", origin->tgid,
		       (unsigned long long)origin->start_va, (unsigned long long)origin->end_va);
	return open_linked(
		isolation_call(isolation, origin->tgid, call_link, drop_link, &call, sizeof(call)),
		origin->tgid, &module->file, may_hang, accept_mapped);
}

static int open_mapped(const struct module *module, bool may_hang, struct isolation *isolation)
{
	const struct module_origin *origin = &module->origin;
	uint32_t roots[3] = { origin->tgid, origin->parent_tgid, 0 };
	char exe[40];
	int fd, rc = -ENOENT;

	if (origin->tgid) {
		fd = open_map_file(module, may_hang, isolation);
		if (fd >= 0 || fd == -EMFILE || fd == -ENFILE || fd == -EXDEV)
			return fd;
		rc = fd == -ETIMEDOUT ? -ENOENT : fd; /* the next that maps it may let us */
		(void)snprintf(exe, sizeof(exe), "/proc/%u/exe", origin->tgid);
		fd = open_linked(open_link(exe), origin->tgid, &module->file, may_hang, accept_file);
		if (fd >= 0)
			return fd;
	}
	for (size_t i = 0; module->path[0] == '/' && i < ARRAY_SIZE(roots); i++) {
		cleanup(root) struct root root = { .fd = -1 };

		if (!roots[i] && i < 2)
			continue;
		fd = open_root(roots[i], may_hang, &root);
		if (fd == 0)
			fd = open_in_root(&root, module->path, &module->file, 0);
		if (fd >= 0 || fd == -EXDEV)
			return fd;
	}
	return rc;
}

/* ---- JIT maps ----------------------------------------------------------------------------------
 */

/* The process's number in its own namespace, and who it runs as. */
static int own_number(uint32_t tgid, unsigned *ret_number, unsigned *ret_uid)
{
	char path[40], text[4096], *line, *last;
	unsigned real, effective;

	(void)snprintf(path, sizeof(path), "/proc/%u/status", tgid);
	if (io_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return -ESRCH;
	line = strstr(text, "\nUid:\t");
	if (!line || sscanf(line, "\nUid:\t%u\t%u", &real, &effective) != 2)
		return -EPROTO;
	line = strstr(text, "\nNSpid:\t");
	if (!line)
		return -EPROTO;
	line += strlen("\nNSpid:\t");
	line[strcspn(line, "\n")] = '\0';
	last = strrchr(line, '\t');
	*ret_uid = effective;
	return sscanf(last ? last + 1 : line, "%u", ret_number) == 1 ? 0 : -EPROTO;
}

/* /tmp/perf-PID.map as the process sees it. /tmp is everybody's: the file must be the process's
 * own, and no link (tools/perf asks for the same). */
static int open_perf_map(uint32_t tgid, bool may_hang)
{
	cleanup(root) struct root root = { .fd = -1 };
	cleanup_close int fd = -1;
	unsigned number, uid;
	struct stat st;
	char path[40];
	int rc = open_root(tgid, may_hang, &root);

	rc = rc < 0 ? rc : own_number(tgid, &number, &uid);
	if (rc < 0)
		return rc;
	(void)snprintf(path, sizeof(path), "/tmp/perf-%u.map", number);
	fd = open_in_root(&root, path, NULL, RESOLVE_NO_SYMLINKS);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return st.st_uid != uid && st.st_uid != 0 ? -EPERM : take_fd(&fd);
}

int module_files_open(const struct module *module, bool may_hang, struct isolation *isolation)
{
	int fd;

	switch (module->kind) {
	case FEED_MODULE_KERNEL:
		fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	case FEED_MODULE_VDSO:
		return open_vdso();
	case FEED_MODULE_JIT:
		return module->origin.end_va ? open_map_file(module, may_hang, isolation) :
					       open_perf_map(module->origin.tgid, may_hang);
	default:
		return open_mapped(module, may_hang, isolation);
	}
}

/* ---- debug files -------------------------------------------------------------------------------
 */

/* /usr/lib/debug/.build-id/xx/ and the rest of the id with @suffix; "" without an id. */
static void build_id_path(const struct debug_request *wanted, const char *suffix,
			  char ret[DEBUG_PATH_MAX])
{
	size_t at;

	ret[0] = '\0';
	if (wanted->build_id_len < 2 || wanted->build_id_len > FEED_BUILD_ID_MAX)
		return;
	at = (size_t)snprintf(ret, DEBUG_PATH_MAX, DEBUG_ROOT "/.build-id/%02x/", wanted->build_id[0]);
	for (size_t i = 1; i < wanted->build_id_len; i++)
		at += (size_t)snprintf(ret + at, DEBUG_PATH_MAX - at, "%02x", wanted->build_id[i]);
	(void)snprintf(ret + at, DEBUG_PATH_MAX - at, "%s", suffix);
}

/* @path without empty parts, "." and "..", as text. */
static void flatten(const char *path, char ret[DEBUG_PATH_MAX])
{
	size_t len = 0;

	while (*path) {
		size_t part = strcspn(path, "/");

		if (part == 2 && path[0] == '.' && path[1] == '.') {
			while (len && ret[--len] != '/')
				;
		} else if (part && !(part == 1 && path[0] == '.') &&
			   len + part + 2 <= DEBUG_PATH_MAX) {
			ret[len++] = '/';
			memcpy(ret + len, path, part);
			len += part;
		}
		path += part + (path[part] == '/');
	}
	ret[len] = '\0';
}

/* Opens a debug file by a name that a target wrote. The name must not make this process, which may
 * read everything, read what the target could not: all may read the file, or it belongs to the
 * target's user. In the host's root, which the target may never have seen, nothing counts but what
 * lies below the directory of debug files. */
static int open_debug_file(struct root *root, const char *path)
{
	cleanup_close int fd = -1;
	char flat[DEBUG_PATH_MAX];
	struct stat st;

	if (root->debug_only) {
		flatten(path, flat);
		if (strncmp(flat, DEBUG_ROOT "/", sizeof(DEBUG_ROOT)) != 0)
			return -ENOENT;
		path = flat;
	}
	fd = open_in_root(root, path, NULL, 0);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return st.st_mode & S_IROTH || st.st_uid == root->uid ? take_fd(&fd) : -EACCES;
}

static int try_build_id(struct root *root, const struct debug_request *wanted, const char *suffix)
{
	char path[DEBUG_PATH_MAX];

	build_id_path(wanted, suffix, path);
	return path[0] ? open_debug_file(root, path) : -ENOENT;
}

/* Opens @before + the module's folder + @between + @name. */
static int try_beside(struct root *root, const struct debug_request *wanted, const char *before,
		      const char *between, const char *name)
{
	const char *slash = strrchr(wanted->path, '/');
	char path[DEBUG_PATH_MAX];
	int len;

	if (!name[0] || wanted->path[0] != '/' || !slash)
		return -ENOENT;
	len = snprintf(path, sizeof(path), "%s%.*s%s%s", before, (int)(slash - wanted->path), wanted->path,
		       between, name);
	/* A file that links to itself is no debug file. */
	if (len < 0 || (size_t)len >= sizeof(path) || strcmp(path, wanted->path) == 0)
		return -ENOENT;
	return open_debug_file(root, path);
}

static int try_link(struct root *root, const struct debug_request *wanted)
{
	int fd = try_build_id(root, wanted, ".debug");

	if (fd >= 0 || strchr(wanted->name, '/'))
		return fd;
	fd = try_beside(root, wanted, "", "/", wanted->name);
	if (fd < 0)
		fd = try_beside(root, wanted, "", "/.debug/", wanted->name);
	if (fd < 0)
		fd = try_beside(root, wanted, DEBUG_ROOT, "/", wanted->name);
	return fd;
}

/* The name is relative to the file that has it: the module, or a debug file in either of its
 * places. */
static int try_alt(struct root *root, const struct debug_request *wanted)
{
	char path[DEBUG_PATH_MAX];
	int fd = try_build_id(root, wanted, ".debug");

	if (fd >= 0)
		return fd;
	if (wanted->name[0] == '/')
		return open_debug_file(root, wanted->name);
	fd = try_beside(root, wanted, "", "/", wanted->name);
	if (fd < 0)
		fd = try_beside(root, wanted, DEBUG_ROOT, "/", wanted->name);
	if (fd >= 0 || !wanted->name[0])
		return fd;
	/* Debian's: ../../.dwz/… from any of these folders. */
	(void)snprintf(path, sizeof(path), DEBUG_ROOT "/.build-id/00/%s", wanted->name);
	return open_debug_file(root, path);
}

static int try_package(struct root *root, const struct debug_request *wanted)
{
	char path[DEBUG_PATH_MAX];
	int fd = -ENOENT;

	if (wanted->path[0] == '/' &&
	    (size_t)snprintf(path, sizeof(path), "%s.dwp", wanted->path) < sizeof(path))
		fd = open_debug_file(root, path);
	return fd >= 0 ? fd : try_build_id(root, wanted, ".dwp");
}

/* The suffix: a program that names something else has its other half nowhere, and no file of others
 * is read in its name. */
static int try_split(struct root *root, const struct debug_request *wanted)
{
	size_t len = strlen(wanted->name);
	const char *slash = strrchr(wanted->name, '/');
	int fd;

	if (len < sizeof(".dwo") || strcmp(wanted->name + len - 4, ".dwo") != 0)
		return -ENOENT;
	fd = wanted->name[0] == '/' ? open_debug_file(root, wanted->name)
				  : try_beside(root, wanted, "", "/", wanted->name);
	return fd >= 0 || !slash ? fd : try_beside(root, wanted, "", "/", slash + 1);
}

static int try_kind(struct root *root, const struct debug_request *wanted)
{
	switch (wanted->kind) {
	case DEBUG_FILE:
		return try_link(root, wanted);
	case DEBUG_ALT:
		return try_alt(root, wanted);
	case DEBUG_PACKAGE:
		return try_package(root, wanted);
	case DEBUG_SPLIT:
		return try_split(root, wanted);
	}
	return -EINVAL;
}

struct debug_request module_files_debug_request(const struct control_debug_want *want,
				    const struct module *module)
{
	bool is_known = module && !module->slow;

	return (struct debug_request){ .kind = want->kind,
				    .build_id = want->build_id,
				    .build_id_len = want->build_id_len,
				    .name = want->name,
				    .path = is_known ? module->path : "",
				    .tgid = is_known ? module->origin.tgid : 0,
				    .parent_tgid = is_known ? module->origin.parent_tgid : 0 };
}

int module_files_open_debug(const struct debug_request *wanted, bool may_hang)
{
	uint32_t roots[3] = { wanted->tgid, wanted->parent_tgid, 0 };
	unsigned number, uid = UID_UNKNOWN;
	int rc = -ENOENT;

	if (wanted->tgid && own_number(wanted->tgid, &number, &uid) < 0)
		uid = UID_UNKNOWN;

	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		cleanup(root) struct root root = { .fd = -1 };
		int fd = roots[i] || i == 2 ? open_root(roots[i], may_hang, &root) : -ENOENT;

		root.debug_only = !roots[i];
		root.uid = uid;
		if (fd == 0)
			fd = try_kind(&root, wanted);
		else if (fd == -EXDEV)
			root.is_left = true;
		if (fd >= 0)
			return fd;
		if (root.is_left)
			rc = -EXDEV;
	}
	return rc;
}

/* ---- kernel ------------------------------------------------------------------------------------
 */

uint8_t module_files_find_build_id(const void *notes, size_t len, uint8_t *ret_build_id)
{
	struct bytes b = bytes_of(notes, len);

	while (bytes_left(&b) > 0) {
		uint32_t name_len = bytes_u32(&b), id_len = bytes_u32(&b), type = bytes_u32(&b);
		const char *name = bytes_take(&b, (name_len + 3ull) & ~3ull);
		const void *id = bytes_take(&b, (id_len + 3ull) & ~3ull);

		if (b.failed)
			return 0;
		if (type == NT_GNU_BUILD_ID && name_len == 4 && memcmp(name, "GNU", 4) == 0 &&
		    id_len > 0 && id_len <= FEED_BUILD_ID_MAX) {
			memcpy(ret_build_id, id, id_len);
			return (uint8_t)id_len;
		}
	}
	return 0;
}

/* Symbols come by address, after the per-CPU ones; _text is among the first few thousand. Where the
 * kernel lists only code that goes on running (arm64) it is not there: _stext then. */
static int find_text(FILE *file, uint64_t *ret_va)
{
	unsigned long long va = 0, stext_va = 0;
	bool found = false, stext_found = false;
	char line[512];

	while (!found && fgets(line, sizeof(line), file)) {
		char type, name[64], module[2];
		int fields = sscanf(line, "%llx %c %63s %1s", &va, &type, name, module);

		found = fields == 3 && !strcmp(name, "_text");
		if (fields == 3 && !stext_found && !strcmp(name, "_stext")) {
			stext_va = va;
			stext_found = true;
		}
	}
	if (!found && !stext_found)
		return -ENODATA;
	if (!found)
		va = stext_va;
	if (va == 0)
		return -EPERM;
	*ret_va = va;
	return 0;
}

int module_files_read_kernel(uint64_t *ret_text_va, uint8_t *ret_build_id, uint8_t *ret_len)
{
	cleanup_fclose FILE *file = fopen("/proc/kallsyms", "re");
	cleanup_free char *notes = NULL;
	size_t len = 0;
	int rc;

	if (!file)
		return -errno;
	rc = find_text(file, ret_text_va);
	if (rc < 0)
		return rc;
	*ret_len = 0;
	if (io_read_file(AT_FDCWD, "/sys/kernel/notes", NOTES_MAX, &notes, &len) == 0)
		*ret_len = module_files_find_build_id(notes, len, ret_build_id);
	return 0;
}
