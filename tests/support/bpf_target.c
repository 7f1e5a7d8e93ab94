// SPDX-License-Identifier: Apache-2.0
#include "tests/support/bpf_target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/collect/proc/proc_maps.h"
#include "symbolize/cfi_rows.h"

#define GROW(array, count)                                                                         \
	do {                                                                                       \
		if (((count) & ((count)-1)) == 0) {                                                \
			(array) = realloc((array), ((count) ? (count)*2 : 1) * sizeof(*(array)));  \
			assert_non_null(array);                                                    \
		}                                                                                  \
	} while (0)

/* Functions of one file, read once; another path replaces them. */
static struct {
	char path[PATH_MAX];
	struct named_range {
		uint64_t start_fo, end_fo;
		char name[64];
	} * ranges;
	size_t count;
} functions;

/* ---- programs -------------------------------------------------------------------------------- */

static char folder[64];

bool bpf_target_skip(void)
{
	struct features features = { 0 };
	struct err err = { 0 };

	features_probe(&features);
	if (features_require(&features, &err) == 0)
		return false;
	printf("skipped: %s\n", err.text);
	return true;
}

struct features bpf_target_features(const char *disable)
{
	struct features features = { 0 };

	features_probe(&features);
	if (disable)
		assert_int_equal(features_disable(&features, disable, "the test", NULL), 0);
	return features;
}

char *bpf_target_compile(const char *name, const char *source, const char *flags)
{
	char command[1024], *path = NULL, *kept = getenv("PROFD_TEST_PROGRAMS");
	FILE *file;

	if (kept) {
		(void)snprintf(folder, sizeof(folder), "%s", kept);
		assert_true(asprintf(&path, "%s/%s", folder, name) > 0);
		if (!access(path, X_OK))
			return path;
		free(path);
	} else if (!folder[0]) {
		(void)snprintf(folder, sizeof(folder), "/tmp/profd-test-XXXXXX");
		assert_non_null(mkdtemp(folder));
	}
	(void)snprintf(command, sizeof(command), "%s/%s.c", folder, name);
	file = fopen(command, "we");
	assert_non_null(file);
	assert_true(fputs(source, file) >= 0);
	assert_int_equal(fclose(file), 0);
	(void)snprintf(command, sizeof(command), "gcc %s -o %s/%s %s/%s.c -lpthread", flags, folder,
		       name, folder, name);
	assert_int_equal(system(command), 0);
	assert_true(asprintf(&path, "%s/%s", folder, name) > 0);
	return path;
}

void bpf_target_cleanup(void)
{
	char command[128];

	if (!folder[0])
		return;
	if (!getenv("PROFD_TEST_PROGRAMS")) {
		(void)snprintf(command, sizeof(command), "rm -rf %s", folder);
		(void)!system(command);
	}
	folder[0] = '\0';
	free(functions.ranges);
	memset(&functions, 0, sizeof(functions));
}

pid_t bpf_target_start(const char *path, const char *argument)
{
	int ends[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(ends[1], STDOUT_FILENO);
		(void)execl(path, path, argument, NULL);
		_exit(127);
	}
	(void)close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	(void)close(ends[0]);
	return pid;
}

void bpf_target_stop(pid_t pid)
{
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

uint64_t bpf_target_stolen_ns(void)
{
	unsigned long long ticks = 0;
	char text[512];

	assert_true(io_read_small(AT_FDCWD, "/proc/stat", text, sizeof(text)) > 0);
	assert_int_equal(sscanf(text, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks), 1);
	return ticks * NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
}

uint64_t bpf_target_start_boottime_ns(pid_t pid)
{
	unsigned long long ticks;
	char path[64], text[1024];

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	assert_true(io_read_small(AT_FDCWD, path, text, sizeof(text)) > 0);
	/* field 22; the fields behind the name begin with number 3 */
	assert_int_equal(sscanf(strrchr(text, ')') + 2,
				"%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
				"%*d %*d %*d %llu",
				&ticks),
			 1);
	return ticks * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

/* ---- publishing ------------------------------------------------------------------------------ */

#define MODULES_MAX 64u

static struct {
	char path[PATH_MAX];
	uint64_t inode;
} modules[MODULES_MAX];
static uint32_t module_count;

struct publishing {
	struct bpf_agent *agent;
	pid_t pid;
	unsigned what;
	uint32_t flags;
	char exe[PATH_MAX];
};

void bpf_target_forget_modules(void)
{
	module_count = 0;
}

static Elf *open_elf(const struct proc_map *map, int *fd)
{
	char *vdso = (char *)getauxval(AT_SYSINFO_EHDR);

	(void)elf_version(EV_CURRENT);
	if (!strcmp(map->path, "[vdso]"))
		return elf_memory(vdso, map->end_va - map->start_va);
	*fd = open(map->path, O_RDONLY | O_CLOEXEC);
	return *fd < 0 ? NULL : elf_begin(*fd, ELF_C_READ_MMAP, NULL);
}

static void publish_table(struct bpf_agent *agent, uint32_t module, const struct proc_map *map)
{
	struct cfi_table table = { 0 };
	cleanup_close int fd = -1, memfd = -1;
	uint64_t charged = 0;
	Elf *elf = open_elf(map, &fd);
	int rc;

	assert_non_null(elf);
	rc = cfi_table_build(elf, -1, &table);
	elf_end(elf);
	if (rc == -ENODATA)
		return;
	assert_int_equal(rc, 0);
	memfd = io_memfd("table", table.image_bytes);
	assert_true(memfd >= 0);
	assert_int_equal(pwrite(memfd, table.image, table.image_bytes, 0), table.image_bytes);
	assert_int_equal(bpf_agent_table_publish(agent, module, memfd, table.image_bytes, &charged),
			 0);
	assert_true(charged >= table.image_bytes);
	cfi_table_deinit(&table);
}

static uint32_t module_of(const struct publishing *to, const struct proc_map *map)
{
	uint32_t module = 0;

	while (module < module_count && strcmp(modules[module].path, map->path) != 0)
		module++;
	if (module < module_count)
		return module;
	assert_true(module_count < MODULES_MAX);
	(void)snprintf(modules[module].path, PATH_MAX, "%s", map->path);
	modules[module].inode = map->inode;
	module_count++;
	if (to->what & PUBLISH_TABLES)
		publish_table(to->agent, module, map);
	return module;
}

static int publish_one(void *ctx, const struct proc_map *map)
{
	const struct publishing *to = ctx;
	uint32_t module, flags = strcmp(map->path, to->exe) ? 0 : to->flags;

	if (map->path[0] != '/' && strcmp(map->path, "[vdso]") != 0)
		return 0;
	module = module_of(to, map);
	if (to->what & PUBLISH_MAPPINGS) {
		const struct prof_mapping mapping = { .bias = map->start_va - map->pgoff_fo,
						      .module = module,
						      .flags = flags };

		assert_int_equal(bpf_agent_map_add(to->agent, (uint32_t)to->pid, map->start_va,
						   map->end_va, &mapping),
				 0);
	}
	if (to->what & PUBLISH_FILES) {
		const struct prof_file_key key = { .inode = map->inode,
						   .dev_major = map->dev_major,
						   .dev_minor = map->dev_minor };
		const struct prof_file file = { .module = module, .flags = flags };

		assert_int_equal(bpf_agent_file_add(to->agent, &key, &file), 0);
	}
	return 0;
}

static void ignore_stack(void *ctx, const struct prof_stack_event *event)
{
}

static void ignore_sample(void *ctx, const struct prof_sample_event *event)
{
}

static void ignore_task(void *ctx, const struct prof_task_event *event)
{
}

void bpf_target_publish(struct bpf_agent *agent, pid_t pid, unsigned what, uint32_t flags)
{
	struct publishing to = { .agent = agent, .pid = pid, .what = what, .flags = flags };
	const struct bpf_sink nobody = { .on_stack = ignore_stack,
					 .on_sample = ignore_sample,
					 .on_task = ignore_task };
	char link[64];

	(void)snprintf(link, sizeof(link), "/proc/%d/exe", pid);
	assert_true(readlink(link, to.exe, sizeof(to.exe) - 1) > 0);
	assert_true(proc_maps_read((uint32_t)pid, 10000, publish_one, &to) > 0);
	/* a poll makes the tables visible */
	assert_true(bpf_agent_poll(agent, &nobody) >= 0);
}

void bpf_target_want(struct bpf_agent *agent, pid_t pid, uint32_t wanted)
{
	const struct prof_target target = { .start_boottime_ns = bpf_target_start_boottime_ns(pid),
					    .wanted = wanted };

	assert_int_equal(bpf_agent_set_target(agent, (uint32_t)pid, &target), 0);
}

/* ---- names ----------------------------------------------------------------------------------- */

static uint64_t offset_of_address(Elf *elf, uint64_t address)
{
	size_t count = 0;
	GElf_Phdr phdr;

	(void)elf_getphdrnum(elf, &count);
	for (size_t i = 0; i < count; i++)
		if (gelf_getphdr(elf, (int)i, &phdr) && phdr.p_type == PT_LOAD &&
		    address - phdr.p_vaddr < phdr.p_filesz)
			return address - phdr.p_vaddr + phdr.p_offset;
	return 0;
}

static void add_function(Elf *elf, const GElf_Sym *symbol, const char *name)
{
	struct named_range *range;

	if (GELF_ST_TYPE(symbol->st_info) != STT_FUNC || !symbol->st_size)
		return;
	GROW(functions.ranges, functions.count);
	range = &functions.ranges[functions.count++];
	range->start_fo = offset_of_address(elf, symbol->st_value);
	range->end_fo = range->start_fo + symbol->st_size;
	(void)snprintf(range->name, sizeof(range->name), "%s", name);
}

static void load_functions(const char *path)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	GElf_Sym symbol;
	Elf *elf;

	functions.count = 0;
	(void)snprintf(functions.path, sizeof(functions.path), "%s", path);
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	assert_non_null(elf);
	while ((section = elf_nextscn(elf, section))) {
		if (!gelf_getshdr(section, &header) || header.sh_type != SHT_SYMTAB)
			continue;
		for (int i = 0; gelf_getsym(elf_getdata(section, NULL), i, &symbol); i++)
			add_function(elf, &symbol, elf_strptr(elf, header.sh_link, symbol.st_name));
	}
	elf_end(elf);
}

const char *bpf_target_function(const char *path, uint64_t frame)
{
	uint32_t module = prof_frame_module_id(frame);
	uint64_t offset = prof_frame_offset(frame) - !!(frame & PROF_FRAME_RETURN);

	if (prof_frame_kind(frame) != PROF_FRAME_MODULE || module >= module_count ||
	    strcmp(modules[module].path, path) != 0)
		return "";
	if (strcmp(functions.path, path) != 0)
		load_functions(path);
	for (size_t i = 0; i < functions.count; i++)
		if (offset >= functions.ranges[i].start_fo && offset < functions.ranges[i].end_fo)
			return functions.ranges[i].name;
	return "";
}

/* ---- recording ------------------------------------------------------------------------------- */

static void on_stack(void *ctx, const struct prof_stack_event *event)
{
	struct bpf_recording *to = ctx;

	GROW(to->stacks, to->stack_count);
	to->stacks[to->stack_count] = malloc(event->head.size_bytes);
	assert_non_null(to->stacks[to->stack_count]);
	memcpy(to->stacks[to->stack_count++], event, event->head.size_bytes);
}

static void on_sample(void *ctx, const struct prof_sample_event *event)
{
	struct bpf_recording *to = ctx;

	GROW(to->records, to->record_count);
	to->records[to->record_count++] = (struct bpf_record){ .sample = *event };
}

static void on_task(void *ctx, const struct prof_task_event *event)
{
	struct bpf_recording *to = ctx;

	GROW(to->tasks, to->task_count);
	to->tasks[to->task_count++] = *event;
}

/* The sample came before. */
static void on_retried(void *ctx, const struct prof_retried_event *event)
{
	struct bpf_recording *to = ctx;

	for (size_t i = to->record_count; i-- > 0;) {
		struct prof_sample_event *sample = &to->records[i].sample;

		if (sample->time_ns != event->time_ns || sample->tid != event->tid)
			continue;
		assert_true(sample->head.flags & PROF_SAMPLE_LATE);
		sample->user_stack_hash = event->stack_hash;
		to->retried_count++;
	}
}

static const struct prof_stack_event *find_stack(const struct bpf_recording *in, uint64_t hash)
{
	for (size_t i = 0; hash && i < in->stack_count; i++)
		if (in->stacks[i]->stack_hash == hash)
			return in->stacks[i];
	return NULL;
}

void bpf_target_kill_events(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned killed = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char target[64];
		ssize_t len = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);

		target[len > 0 ? len : 0] = '\0';
		if (strcmp(target, "anon_inode:[perf_event]") == 0)
			killed += ioctl(atoi(entry->d_name), PERF_EVENT_IOC_DISABLE, 0) == 0;
	}
	(void)closedir(dir);
	assert_true(killed > 0);
}

void bpf_recording_poll(struct bpf_recording *recording, struct bpf_agent *agent, unsigned ms)
{
	const struct bpf_sink sink = { .ctx = recording,
				       .on_stack = on_stack,
				       .on_sample = on_sample,
				       .on_task = on_task,
				       .on_retried = on_retried };
	uint64_t end = clock_monotonic_ns() + ms * NS_PER_MS;

	do {
		clock_sleep_ns(10 * NS_PER_MS);
		assert_true(bpf_agent_poll(agent, &sink) >= 0);
	} while (clock_monotonic_ns() < end);
	for (size_t i = 0; i < recording->record_count; i++) {
		struct bpf_record *record = &recording->records[i];

		record->user = find_stack(recording, record->sample.user_stack_hash);
		record->kernel = find_stack(recording, record->sample.kernel_stack_hash);
	}
}

void bpf_recording_deinit(struct bpf_recording *recording)
{
	for (size_t i = 0; i < recording->stack_count; i++)
		free(recording->stacks[i]);
	free(recording->stacks);
	free(recording->records);
	free(recording->tasks);
	*recording = (struct bpf_recording){ 0 };
}
