// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc/alloc_check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include "agent/base/io.h"
#include "agent/base/text.h"
#include "agent/collect/alloc/alloc_probes.h"
#include "agent/collect/proc/proc_maps.h"
#include "bpf/arch.h"

#define MAPS_LINES_MAX 65536u
/* How far the functions of glibc's malloc.o, which lie together, reach beyond those that are
 * probed: in a statically linked program everything else lies beside them. */
#define CODE_BEFORE_BYTES 0x4800u
#define CODE_AFTER_BYTES  0x1000u
#define REFUSAL_GO                                                                                 \
	"it is a Go program, whose runtime keeps its own counters: profile it alone, not together "   \
	"with others"

/* ---- choosing ---------------------------------------------------------------------------------
 */

/* The order in which the dynamic linker would find malloc: the program, what was put before the C
 * library, the C library. The linker's own is for itself. */
static int rank_of(const struct proc *proc, const struct module *module)
{
	const char *name = text_file_name(module->path);

	if (strcmp(module->path, proc->text[PROC_EXE]) == 0)
		return 3;
	if (text_begins(name, "ld-linux") || text_begins(name, "ld-2"))
		return 0;
	return module->alloc_family == ALLOC_FAMILY_GLIBC ||
			       module->alloc_family == ALLOC_FAMILY_MUSL
		       ? 1
		       : 2;
}

static const char *refusal_of(const struct proc *proc)
{
	if (proc->flags & FEED_PROC_KTHREAD)
		return "kernel threads have no allocator";
	if (proc->flags & FEED_PROC_EXCLUDED)
		return "excluded by [collect] exclude of the configuration";
	if (proc->flags & FEED_PROC_PROFD)
		return "profd does not probe itself";
	if (proc->flags & FEED_PROC_COMPAT32)
		return "it is a 32-bit program, whose allocator is not probed: use cpu or offcpu";
	if (proc->flags & FEED_PROC_GO)
		return REFUSAL_GO;
	return NULL;
}

static void take_sites(const struct module *module, const struct mapping *mapping,
		       struct alloc_place *ret)
{
	ret->module = module->id;
	ret->start_va = mapping->start_va;
	ret->end_va = mapping->end_va;
	ret->bias = mapping->bias;
	ret->family = module->alloc_family;
	ret->site_count = 0;
	for (unsigned i = 0; i < module->alloc_count; i++) {
		const struct control_alloc_site *site = &module->alloc_sites[i];
		uint64_t va = site->fo + mapping->bias;

		if (alloc_probes_can_probe(site) && va >= mapping->start_va &&
		    va + site->code_len <= mapping->end_va)
			ret->sites[ret->site_count++] = *site;
	}
}

/* Where the frames of the allocator end and those of its caller begin. A C library is left out as a
 * whole (strdup() calls malloc()). */
static void find_code(struct alloc_place *place, bool is_program)
{
	uint64_t first = UINT64_MAX, last = 0;

	for (unsigned i = 0; i < place->site_count; i++) {
		const uint64_t va = place->sites[i].fo + place->bias;

		first = va < first ? va : first;
		last = va > last ? va : last;
	}
	place->code_va = is_program ? first - CODE_BEFORE_BYTES : place->start_va;
	place->code_end_va = is_program ? last + CODE_AFTER_BYTES : place->end_va;
}

static bool has_malloc(const struct alloc_place *place)
{
	bool malloc_seen = false, free_seen = false;

	for (unsigned i = 0; i < place->site_count; i++) {
		malloc_seen |= place->sites[i].kind == ALLOC_MALLOC;
		free_seen |= place->sites[i].kind == ALLOC_FREE;
	}
	return malloc_seen && free_seen;
}

static bool must_be_known(const struct proc *proc, const struct module *module)
{
	const char *name = text_file_name(module->path);

	return strcmp(module->path, proc->text[PROC_EXE]) == 0 || text_begins(name, "libc.") ||
	       text_begins(name, "libc-") || text_begins(name, "ld-musl") ||
	       strstr(name, "malloc");
}

int alloc_check_find(const struct proc *proc, const struct module_table *modules,
		     bool wait_for_files, struct alloc_place *ret, struct err *err)
{
	struct alloc_place place = { .tgid = proc->tgid };
	const char *refusal = refusal_of(proc);
	bool waits = !mapping_set_count(proc->mappings);
	int best = 0;

	if (refusal)
		return err_set(err, EOPNOTSUPP, NULL, NULL, "%s", refusal);
	for (size_t i = 0; i < mapping_set_count(proc->mappings); i++) {
		const struct mapping *mapping = mapping_set_at(proc->mappings, i);
		const struct module *module = module_table_get(modules, mapping->module);
		int rank;

		if (!module || module->kind != FEED_MODULE_ELF)
			continue;
		if (module->state == MODULE_SEEN || module->state == MODULE_ASKED)
			waits |= wait_for_files || must_be_known(proc, module);
		if ((module->runtime & FEED_PROC_GO) && strcmp(module->path, proc->text[PROC_EXE]) == 0)
			return err_set(err, EOPNOTSUPP, NULL, NULL, REFUSAL_GO);
		rank = module->alloc_count ? rank_of(proc, module) : 0;
		if (rank <= best)
			continue;
		take_sites(module, mapping, &place);
		find_code(&place, strcmp(module->path, proc->text[PROC_EXE]) == 0);
		if (has_malloc(&place))
			best = rank;
	}
	if (waits)
		return -EAGAIN;
	if (!best)
		return err_set(err, EOPNOTSUPP, NULL, NULL,
			       "no allocator was found in it: it is linked statically and has no symbols, or "
			       "it allocates by means of its own; a symbol table or a dynamic C library helps");
	(void)snprintf(place.path, sizeof(place.path), "/proc/%u/map_files/%llx-%llx", place.tgid,
		       (unsigned long long)place.start_va, (unsigned long long)place.end_va);
	*ret = place;
	return 0;
}

/* ---- before attaching --------------------------------------------------------------------------
 */

struct look {
	const struct alloc_place *place;
	const struct module_file *file;
	bool found, changeable;
};

static int look_at_map(void *ctx, const struct proc_map *map)
{
	struct look *look = ctx;

	if (map->start_va != look->place->start_va)
		return 0;
	look->found = map->end_va == look->place->end_va && map->inode == look->file->inode &&
		      map->dev_major == look->file->dev_major && map->dev_minor == look->file->dev_minor &&
		      map->start_va - map->pgoff_fo == look->place->bias;
	look->changeable = map->changeable;
	return -ECANCELED; /* seen: no more lines */
}

static int compare_site(const struct alloc_place *place, const struct control_alloc_site *site,
			struct err *err)
{
	uint8_t seen[ALLOC_SITE_CODE_BYTES];
	struct iovec to = { seen, site->code_len };
	struct iovec from = { (void *)(uintptr_t)(site->fo + place->bias), site->code_len }; /* NOLINT */
	ssize_t len = process_vm_readv((pid_t)place->tgid, &to, 1, &from, 1, 0);

	if (len < 0)
		return err_set(err, errno, NULL, NULL, "its memory cannot be read: %s", strerror(errno));
	if (len != site->code_len || !site->code_len)
		return err_set(err, ESTALE, NULL, NULL, "its allocator's code cannot be read whole");
	if (len >= ARCH_BREAKPOINT_BYTES && arch_is_breakpoint(seen))
		return err_set(err, ESTALE, NULL, NULL,
			       "somebody else's breakpoint is in its allocator: a debugger or another tracer");
	if (memcmp(seen, site->code, site->code_len) != 0)
		return err_set(err, ESTALE, NULL, NULL,
			       "its allocator's code in memory differs from its file");
	return 0;
}

/* Probing waits for pages with the lock that every fork on the host takes: a program that serves
 * them itself would hold all of them. */
static int check_file_system(const struct alloc_place *place, struct err *err)
{
	cleanup_close int fd = open(place->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct statfs fs;

	if (fd < 0 || fstatfs(fd, &fs) < 0)
		return err_set(err, errno, NULL, NULL, "its allocator's file cannot be opened: %s",
			       strerror(errno));
	if (fs.f_type == FUSE_SUPER_MAGIC)
		return err_set(err, EOPNOTSUPP, NULL, NULL,
			       "its allocator's file lies on a FUSE file system, whose server could hold up the host: "
			       "a copy on another file system can be probed");
	return 0;
}

int alloc_check_mapping(const struct alloc_place *place, const struct module_file *file,
			struct err *err)
{
	struct look look = { .place = place, .file = file };
	int rc = proc_maps_read(place->tgid, MAPS_LINES_MAX, look_at_map, &look);

	if (rc < 0 && rc != -ECANCELED)
		return err_set(err, ESRCH, NULL, NULL, "the process is gone");
	if (!look.found)
		return err_set(err, ESTALE, NULL, NULL, "its allocator is mapped elsewhere by now");
	if (look.changeable)
		return err_set(err, EOPNOTSUPP, NULL, NULL,
			       "its allocator's code is mapped shared or writable: probing it is not safe");
	return 0;
}

int alloc_check_bytes(const struct alloc_place *place, const struct module_file *file,
		      struct err *err)
{
	int rc = alloc_check_mapping(place, file, err);

	if (rc == 0)
		rc = check_file_system(place, err);
	for (unsigned i = 0; i < place->site_count && rc == 0; i++)
		rc = compare_site(place, &place->sites[i], err);
	return rc;
}

bool alloc_check_is_filtered(uint32_t tgid)
{
	char path[40], text[4096];
	const char *line;

	(void)snprintf(path, sizeof(path), "/proc/%u/status", tgid);
	if (io_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return false;
	line = strstr(text, "\nSeccomp:");
	return line && strtoul(line + strlen("\nSeccomp:"), NULL, 10) != 0;
}
