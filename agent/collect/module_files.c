// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/module_files.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
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
#include "agent/collect/mounts.h"
#include "agent/collect/proc_maps.h"

#define OPEN_FLAGS     (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
#define NOTES_MAX      65536u
#define DEBUG_PATH_MAX 16384u /* two paths of PATH_MAX and more */
#define DEBUG_ROOT     "/usr/lib/debug"
#define MAPS_LINES_MAX 65536u

/* ---- vDSO -------------------------------------------------------------------------------------- */

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

/* ---- mapped files ------------------------------------------------------------------------------ */

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

/* What @path_fd_take, -errno or from a link in /proc/@tgid, leads to now. */
static int open_linked(int path_fd_take, uint32_t tgid, const struct module_file *file, bool may_hang,
		       int (*accept)(int fd, const struct module_file *file))
{
	cleanup_close int path_fd = path_fd_take, fd = -1;
	char path[40];
	int rc;

	if (path_fd < 0)
		return path_fd;
	if (!may_hang && !mounts_file_is_local(tgid, path_fd))
		return -EXDEV;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);
	fd = open(path, OPEN_FLAGS);
	if (fd < 0)
		return -errno;
	rc = accept(fd, file);
	return rc < 0 ? rc : take_fd(&fd);
}

/* A directory from which to look names up. */
struct root {
	int fd;
	bool may_hang;
	bool is_left; /* a path went on to another mount, where nobody followed */
};

static void cleanup_root_fn(struct root *root)
{
	cleanup_close_fn(&root->fd);
}

/* Opens @path with @root as the root directory; absolute links stay inside. */
static int open_in_root(struct root *root, const char *path, const struct module_file *file, uint64_t resolve)
{
	struct open_how how = { .flags = OPEN_FLAGS,
				.resolve = RESOLVE_IN_ROOT | resolve | (root->may_hang ? 0 : RESOLVE_NO_XDEV) };
	cleanup_close int fd = (int)syscall(SYS_openat2, root->fd, path, &how, sizeof(how));
	int rc;

	if (fd < 0) {
		rc = -errno;
		root->is_left |= rc == -EXDEV && !root->may_hang;
		return rc;
	}
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
	*ret = (struct root){ .fd = take_fd(&fd), .may_hang = may_hang };
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

static int open_map_file(const struct module *module, bool may_hang, struct patient *patient)
{
	const struct module_origin *origin = &module->origin;
	struct link_call call = { .fd = -1 };

	(void)snprintf(call.path, sizeof(call.path), "/proc/%u/map_files/%llx-%llx", origin->tgid,
		       (unsigned long long)origin->start_va, (unsigned long long)origin->end_va);
	return open_linked(patient_call(patient, origin->tgid, call_link, drop_link, &call, sizeof(call)), origin->tgid,
			   &module->file, may_hang, accept_mapped);
}

static int open_mapped(const struct module *module, bool may_hang, struct patient *patient)
{
	const struct module_origin *origin = &module->origin;
	uint32_t roots[3] = { origin->tgid, origin->parent_tgid, 0 };
	char exe[40];
	int fd, rc = -ENOENT;

	if (origin->tgid) {
		fd = open_map_file(module, may_hang, patient);
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

/* ---- JIT maps ---------------------------------------------------------------------------------- */

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

/* /tmp/perf-PID.map as the process sees it. /tmp is everybody's: the file must be the process's own, and no
 * link (tools/perf asks for the same). */
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

int module_files_open(const struct module *module, bool may_hang, struct patient *patient)
{
	int fd;

	switch (module->kind) {
	case FEED_MODULE_KERNEL:
		fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
		return fd < 0 ? -errno : fd;
	case FEED_MODULE_VDSO:
		return open_vdso();
	case FEED_MODULE_JIT:
		return module->origin.end_va ? open_map_file(module, may_hang, patient) :
					       open_perf_map(module->origin.tgid, may_hang);
	default:
		return open_mapped(module, may_hang, patient);
	}
}

/* ---- debug files ------------------------------------------------------------------------------- */

/* /usr/lib/debug/.build-id/xx/ and the rest of the id with @suffix; "" without an id. */
static void build_id_path(const struct debug_wish *wish, const char *suffix, char ret[DEBUG_PATH_MAX])
{
	size_t at;

	ret[0] = '\0';
	if (wish->build_id_len < 2 || wish->build_id_len > FEED_BUILD_ID_MAX)
		return;
	at = (size_t)snprintf(ret, DEBUG_PATH_MAX, DEBUG_ROOT "/.build-id/%02x/", wish->build_id[0]);
	for (size_t i = 1; i < wish->build_id_len; i++)
		at += (size_t)snprintf(ret + at, DEBUG_PATH_MAX - at, "%02x", wish->build_id[i]);
	(void)snprintf(ret + at, DEBUG_PATH_MAX - at, "%s", suffix);
}

static int try_build_id(struct root *root, const struct debug_wish *wish, const char *suffix)
{
	char path[DEBUG_PATH_MAX];

	build_id_path(wish, suffix, path);
	return path[0] ? open_in_root(root, path, NULL, 0) : -ENOENT;
}

/* Opens @before + the module's folder + @between + @name. */
static int try_beside(struct root *root, const struct debug_wish *wish, const char *before, const char *between,
		      const char *name)
{
	const char *slash = strrchr(wish->path, '/');
	char path[DEBUG_PATH_MAX];
	int len;

	if (!name[0] || wish->path[0] != '/' || !slash)
		return -ENOENT;
	len = snprintf(path, sizeof(path), "%s%.*s%s%s", before, (int)(slash - wish->path), wish->path,
		       between, name);
	/* A file that links to itself is no debug file. */
	if (len < 0 || (size_t)len >= sizeof(path) || strcmp(path, wish->path) == 0)
		return -ENOENT;
	return open_in_root(root, path, NULL, 0);
}

static int try_link(struct root *root, const struct debug_wish *wish)
{
	int fd = try_build_id(root, wish, ".debug");

	if (fd >= 0 || strchr(wish->name, '/'))
		return fd;
	fd = try_beside(root, wish, "", "/", wish->name);
	if (fd < 0)
		fd = try_beside(root, wish, "", "/.debug/", wish->name);
	if (fd < 0)
		fd = try_beside(root, wish, DEBUG_ROOT, "/", wish->name);
	return fd;
}

/* The name is relative to the file that has it: the module, or a debug file in either of its places. */
static int try_alt(struct root *root, const struct debug_wish *wish)
{
	char path[DEBUG_PATH_MAX];
	int fd = try_build_id(root, wish, ".debug");

	if (fd >= 0)
		return fd;
	if (wish->name[0] == '/')
		return open_in_root(root, wish->name, NULL, 0);
	fd = try_beside(root, wish, "", "/", wish->name);
	if (fd < 0)
		fd = try_beside(root, wish, DEBUG_ROOT, "/", wish->name);
	if (fd >= 0 || !wish->name[0])
		return fd;
	/* Debian's: ../../.dwz/… from any of these folders. */
	(void)snprintf(path, sizeof(path), DEBUG_ROOT "/.build-id/00/%s", wish->name);
	return open_in_root(root, path, NULL, 0);
}

static int try_package(struct root *root, const struct debug_wish *wish)
{
	char path[DEBUG_PATH_MAX];
	int fd = -ENOENT;

	if (wish->path[0] == '/' &&
	    (size_t)snprintf(path, sizeof(path), "%s.dwp", wish->path) < sizeof(path))
		fd = open_in_root(root, path, NULL, 0);
	return fd >= 0 ? fd : try_build_id(root, wish, ".dwp");
}

/* The suffix: a program that names something else has its other half nowhere, and no file of others is read
 * in its name. */
static int try_split(struct root *root, const struct debug_wish *wish)
{
	size_t len = strlen(wish->name);
	const char *slash = strrchr(wish->name, '/');
	int fd;

	if (len < sizeof(".dwo") || strcmp(wish->name + len - 4, ".dwo") != 0)
		return -ENOENT;
	fd = wish->name[0] == '/' ? open_in_root(root, wish->name, NULL, 0)
				  : try_beside(root, wish, "", "/", wish->name);
	return fd >= 0 || !slash ? fd : try_beside(root, wish, "", "/", slash + 1);
}

static int try_kind(struct root *root, const struct debug_wish *wish)
{
	switch (wish->kind) {
	case DEBUG_FILE:
		return try_link(root, wish);
	case DEBUG_ALT:
		return try_alt(root, wish);
	case DEBUG_PACKAGE:
		return try_package(root, wish);
	case DEBUG_SPLIT:
		return try_split(root, wish);
	}
	return -EINVAL;
}

struct debug_wish module_files_wish(const struct control_debug_want *want, const struct module *module)
{
	bool is_known = module && !module->slow;

	return (struct debug_wish){ .kind = want->kind,
				    .build_id = want->build_id,
				    .build_id_len = want->build_id_len,
				    .name = want->name,
				    .path = is_known ? module->path : "",
				    .tgid = is_known ? module->origin.tgid : 0 };
}

int module_files_open_debug(const struct debug_wish *wish, bool may_hang)
{
	uint32_t roots[2] = { wish->tgid, 0 };
	int rc = -ENOENT;

	for (size_t i = wish->tgid ? 0 : 1; i < ARRAY_SIZE(roots); i++) {
		cleanup(root) struct root root = { .fd = -1 };
		int fd = open_root(roots[i], may_hang, &root);

		if (fd == 0)
			fd = try_kind(&root, wish);
		else if (fd == -EXDEV)
			root.is_left = true;
		if (fd >= 0)
			return fd;
		if (root.is_left)
			rc = -EXDEV;
	}
	return rc;
}

/* ---- kernel ------------------------------------------------------------------------------------ */

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

/* Symbols come by address, after the per-CPU ones; _text is among the first few thousand. */
static int find_text(FILE *file, uint64_t *ret_va)
{
	char line[512];

	while (fgets(line, sizeof(line), file)) {
		unsigned long long va;
		char type, name[64];

		if (sscanf(line, "%llx %c %63s", &va, &type, name) != 3 ||
		    strcmp(name, "_text") != 0)
			continue;
		if (va == 0)
			return -EPERM;
		*ret_va = va;
		return 0;
	}
	return -ENODATA;
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
