// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/proc/proc_facts.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "agent/base/parse.h"
#include "agent/collect/proc/container_names.h"

/* USER_HZ is 100 on every architecture Linux exports /proc on today (include/asm-generic/param.h);
 * nsec_to_clock_t() rounds down. */
#define TICK_NS		 (NS_PER_S / 100)
#define STAT_BYTES	 1024u
#define STATUS_BYTES	 4096u
#define CGROUP_FILE_MAX	 16384u
#define ENVIRON_MAX	 131072u
#define ENVIRON_LINE_MAX 1024u
#define PF_KTHREAD	 0x00200000u /* include/linux/sched.h */

bool proc_facts_same_start(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns / TICK_NS == b_ns / TICK_NS;
}

/* Field @n of proc(5), counted from 3 = state, in the text behind the name. */
static bool stat_field(const char *text, unsigned n, uint64_t *ret)
{
	char number[24];
	size_t len;

	for (unsigned at = 3; at < n; at++) {
		text = strchr(text, ' ');
		if (!text)
			return false;
		text++;
	}
	len = strcspn(text, " \n");
	if (len == 0 || len >= sizeof(number))
		return false;
	memcpy(number, text, len);
	number[len] = '\0';
	return parse_u64(number, 0, UINT64_MAX, ret) == 0;
}

static uint64_t layout_of(const char *text)
{
	/* startstack, start_brk, env_start, env_end */
	static const unsigned fields[] = { 28, 47, 50, 51 };
	uint64_t hash = 0, at;

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (!stat_field(text, fields[i], &at) || !at)
			return 0;
		hash = hash_combine(hash, at);
	}
	return hash;
}

int proc_facts_parse_stat(const char *text, struct proc_facts *ret)
{
	const char *open = strchr(text, '('), *close = strrchr(text, ')');
	uint64_t parent, flags, minor, major, user, system, threads, start;
	size_t len;

	if (!open || !close || close < open || close[1] != ' ')
		return -EINVAL;
	if (!stat_field(close + 2, 4, &parent) || !stat_field(close + 2, 9, &flags) ||
	    !stat_field(close + 2, 10, &minor) || !stat_field(close + 2, 12, &major) ||
	    !stat_field(close + 2, 14, &user) || !stat_field(close + 2, 15, &system) ||
	    !stat_field(close + 2, 20, &threads) || !stat_field(close + 2, 22, &start) ||
	    parent > UINT32_MAX || start > UINT64_MAX / TICK_NS ||
	    user + system > UINT64_MAX / TICK_NS)
		return -EINVAL;
	len = (size_t)(close - open - 1);
	if (len >= sizeof(ret->comm))
		len = sizeof(ret->comm) - 1;
	memset(ret->comm, 0, sizeof(ret->comm));
	memcpy(ret->comm, open + 1, len);
	ret->parent_tgid = (uint32_t)parent;
	ret->kthread = (flags & PF_KTHREAD) != 0;
	/* A first thread that has ended while others run is a zombie, too. */
	ret->ended = (close[2] == 'Z' || close[2] == 'X') && threads <= 1;
	ret->start_boottime_ns = start * TICK_NS;
	ret->cpu_ns = (user + system) * TICK_NS;
	ret->faults = minor + major;
	ret->layout = layout_of(close + 2);
	return 0;
}

/* ---- cgroup ------------------------------------------------------------------------------------
 */

enum cgroup_rank { RANK_NONE, RANK_ROOT, RANK_CONTROLLER, RANK_SYSTEMD, RANK_V2 };

static enum cgroup_rank cgroup_rank(const char *line, size_t controllers_len, const char *path,
				    size_t path_len)
{
	const char *controllers = strchr(line, ':') + 1;

	if (path_len == 0)
		return RANK_NONE;
	if (path_len == 1)
		return RANK_ROOT;
	if (controllers_len == 0)
		return RANK_V2;
	if (controllers_len == strlen("name=systemd") &&
	    memcmp(controllers, "name=systemd", controllers_len) == 0)
		return RANK_SYSTEMD;
	return RANK_CONTROLLER;
}

void proc_facts_parse_cgroup(const char *text, char *ret, size_t size)
{
	enum cgroup_rank best = RANK_NONE;
	const char *best_path = "";
	size_t best_len = 0;

	for (const char *line = text; *line;) {
		size_t line_len = strcspn(line, "\n");
		const char *first = memchr(line, ':', line_len);
		const char *second =
			first ? memchr(first + 1, ':', line_len - (size_t)(first + 1 - line)) : NULL;

		if (second) {
			const char *path = second + 1;
			size_t len = (size_t)(line + line_len - path);
			enum cgroup_rank rank =
				cgroup_rank(line, (size_t)(second - first - 1), path, len);

			if (rank > best ||
			    (rank == best && rank == RANK_CONTROLLER && len > best_len)) {
				best = rank;
				best_path = path;
				best_len = len;
			}
		}
		line += line_len + (line[line_len] == '\n');
	}
	if (best_len >= size)
		best_len = size - 1;
	memcpy(ret, best_path, best_len);
	ret[best_len] = '\0';
}

/* ---- environment -------------------------------------------------------------------------------
 */

static bool wanted_variable(const char *text, size_t len)
{
	static const char *const names[] = { "OTEL_SERVICE_NAME=", "OTEL_RESOURCE_ATTRIBUTES=",
					     "DD_SERVICE=" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (len >= strlen(names[i]) && memcmp(text, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

/* A title that runs on into the environment may hold a '=' too, but not behind a plain name. */
static bool is_variable(const char *text, size_t len)
{
	size_t at = 0;

	while (at < len && (isalnum((unsigned char)text[at]) || text[at] == '_'))
		at++;
	return at > 0 && at < len && text[at] == '=';
}

bool proc_facts_parse_environ(const char *text, size_t len, char *ret, size_t size)
{
	bool begins = !len || is_variable(text, strnlen(text, len));
	size_t out = 0;

	for (size_t at = 0; at < len;) {
		size_t line = strnlen(text + at, len - at);
		size_t kept = line > ENVIRON_LINE_MAX ? ENVIRON_LINE_MAX : line;

		if (wanted_variable(text + at, line) && out + kept + 1 < size) {
			for (size_t i = 0; i < kept; i++)
				ret[out++] = text[at + i] == '\n' ? ' ' : text[at + i];
			ret[out++] = '\n';
		}
		at += line + 1;
	}
	ret[out] = '\0';
	return begins || out > 0;
}

size_t proc_facts_own_environment(const char *lines)
{
	size_t len = 0;

	while (wanted_variable(lines + len, strcspn(lines + len, "\n"))) {
		len += strcspn(lines + len, "\n");
		len += lines[len] == '\n';
	}
	return len;
}

/* ---- reading -----------------------------------------------------------------------------------
 */

bool proc_facts_is_thread(uint32_t tgid, uint32_t tid)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%u/task/%u", tgid, tid);
	return access(path, F_OK) == 0;
}

static int open_proc_dir(uint32_t tgid)
{
	char path[32];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%u", tgid);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int read_stat(int dir_fd, struct proc_facts *facts)
{
	char text[STAT_BYTES];
	ssize_t len = io_read_small(dir_fd, "stat", text, sizeof(text));

	if (len < 0)
		return len == -ENOENT ? -ESRCH : (int)len;
	return proc_facts_parse_stat(text, facts);
}

static int read_uid(int dir_fd, uint32_t *ret)
{
	char text[STATUS_BYTES];
	const char *line;
	unsigned real, effective;

	if (io_read_small(dir_fd, "status", text, sizeof(text)) < 0)
		return -ESRCH;
	line = strstr(text, "\nUid:\t");
	if (!line || sscanf(line, "\nUid:\t%u\t%u", &real, &effective) != 2)
		return -EPROTO;
	*ret = effective;
	return 0;
}

static void read_exe(int dir_fd, struct proc_facts *facts)
{
	static const char suffix[] = " (deleted)";
	ssize_t len = readlinkat(dir_fd, "exe", facts->exe, sizeof(facts->exe) - 1);

	if (len < 0)
		len = 0;
	facts->exe[len] = '\0';
	if ((size_t)len > sizeof(suffix) &&
	    strcmp(facts->exe + len - (sizeof(suffix) - 1), suffix) == 0)
		facts->exe[(size_t)len - (sizeof(suffix) - 1)] = '\0';
}

/* The command line, and the name that it gives the program. The executable is known before. */
static void read_cmdline(int dir_fd, struct proc_facts *facts)
{
	cleanup_free char *text = malloc(PROGRAM_ARGUMENTS_SIZE + PATH_MAX);
	char *cwd = text ? text + PROGRAM_ARGUMENTS_SIZE : NULL;
	ssize_t len, cwd_len;

	if (!text)
		return;
	len = io_read_small(dir_fd, "cmdline", text, PROGRAM_ARGUMENTS_SIZE);
	while (len > 0 && text[len - 1] == '\0')
		len--;
	if (len <= 0)
		return;
	cwd_len = readlinkat(dir_fd, "cwd", cwd, PATH_MAX - 1);
	cwd[cwd_len > 0 ? cwd_len : 0] = '\0';
	program_name(&(struct program){ .exe = facts->exe,
					.comm = facts->comm,
					.cwd = cwd,
					.args = text,
					.args_len = (size_t)len },
		     facts->program);
	if ((size_t)len >= sizeof(facts->cmdline))
		len = sizeof(facts->cmdline) - 1;
	for (ssize_t i = 0; i < len; i++)
		facts->cmdline[i] = text[i] ? text[i] : ' ';
}

static int read_cgroup(int dir_fd, char *ret, size_t size)
{
	cleanup_free char *text = malloc(CGROUP_FILE_MAX);
	ssize_t len;

	if (!text)
		return -ENOMEM;
	len = io_read_small(dir_fd, "cgroup", text, CGROUP_FILE_MAX);
	if (len < 0)
		return (int)len;
	proc_facts_parse_cgroup(text, ret, size);
	return 0;
}

static void read_environ(int dir_fd, struct proc_facts *facts)
{
	cleanup_free char *text = malloc(ENVIRON_MAX);
	ssize_t len;

	if (!text)
		return;
	len = io_read_small(dir_fd, "environ", text, ENVIRON_MAX);
	facts->environment_lost =
		len < 0 || !proc_facts_parse_environ(text, (size_t)len, facts->environment,
						     sizeof(facts->environment));
	/* Passwords among the other variables do not stay in memory that is used again. */
	explicit_bzero(text, ENVIRON_MAX);
}

/* Behind the lines of the process's own environment, which have other names. */
static void read_container(struct proc_facts *facts)
{
	size_t len = strlen(facts->environment);

	container_names_read(facts->cgroup, facts->environment + len, sizeof(facts->environment) - len);
}

int proc_facts_read(uint32_t tgid, uint64_t start_boottime_ns, struct proc_facts *ret)
{
	cleanup_free struct proc_facts *facts = calloc(1, sizeof(*facts));
	struct proc_facts after = { 0 };
	cleanup_close int dir_fd = -1;
	int rc;

	if (!facts)
		return -ENOMEM;
	dir_fd = open_proc_dir(tgid);
	if (dir_fd < 0)
		return dir_fd == -ENOENT ? -ESRCH : dir_fd;
	rc = read_stat(dir_fd, facts);
	if (rc < 0)
		return rc;
	if (start_boottime_ns && !proc_facts_same_start(facts->start_boottime_ns, start_boottime_ns))
		return -ESRCH;
	(void)!read_uid(dir_fd, &facts->uid);
	(void)!read_cgroup(dir_fd, facts->cgroup, sizeof(facts->cgroup));
	if (!facts->kthread) {
		read_exe(dir_fd, facts);
		read_cmdline(dir_fd, facts);
		read_environ(dir_fd, facts);
		read_container(facts);
	}
	rc = read_stat(dir_fd, &after);
	if (rc < 0)
		return rc;
	if (after.start_boottime_ns != facts->start_boottime_ns)
		return -ESRCH;
	*ret = *facts;
	return 0;
}

int proc_facts_read_group(uint32_t tgid, uint64_t start_boottime_ns,
			  char ret[PROC_FACTS_CGROUP_SIZE])
{
	cleanup_close int dir_fd = open_proc_dir(tgid);
	struct proc_facts facts = { 0 };
	int rc = dir_fd < 0 ? -ESRCH : read_cgroup(dir_fd, ret, PROC_FACTS_CGROUP_SIZE);

	/* Still the same one behind the reading. */
	rc = rc < 0 ? rc : read_stat(dir_fd, &facts);
	if (rc == 0 && !proc_facts_same_start(facts.start_boottime_ns, start_boottime_ns))
		rc = -ESRCH;
	return rc;
}

int proc_facts_read_stat(uint32_t tgid, struct proc_facts *ret)
{
	cleanup_close int dir_fd = open_proc_dir(tgid);

	if (dir_fd < 0)
		return dir_fd == -ENOENT ? -ESRCH : dir_fd;
	return read_stat(dir_fd, ret);
}

int proc_facts_read_uid(uint32_t tgid, uint32_t *ret)
{
	cleanup_close int dir_fd = open_proc_dir(tgid);

	return dir_fd < 0 ? -ESRCH : read_uid(dir_fd, ret);
}

/* The second number of proc_pid_schedstat(5); 0 where the thread has ended. */
static int read_run_delay(int threads_fd, const char *name, uint64_t *ret_ns)
{
	char path[NAME_MAX + 16], text[96], *end;

	*ret_ns = 0;
	(void)snprintf(path, sizeof(path), "%s/schedstat", name);
	if (io_read_small(threads_fd, path, text, sizeof(text)) <= 0)
		return 0;
	(void)strtoull(text, &end, 10);
	if (*end != ' ')
		return -ENODATA;
	*ret_ns = strtoull(end, NULL, 10);
	return 0;
}

int proc_facts_run_delay(uint32_t tgid, unsigned threads_max, uint64_t *ret_ns)
{
	const struct dirent *entry;
	uint64_t sum_ns = 0, waited_ns;
	unsigned count = 0;
	char path[32];
	DIR *threads;
	int rc = 0;

	(void)snprintf(path, sizeof(path), "/proc/%u/task", tgid);
	threads = opendir(path);
	if (!threads)
		return -ESRCH;
	while (rc == 0 && (entry = readdir(threads))) {
		if (entry->d_name[0] == '.')
			continue;
		rc = ++count > threads_max ? -E2BIG : read_run_delay(dirfd(threads), entry->d_name, &waited_ns);
		sum_ns += rc == 0 ? waited_ns : 0;
	}
	(void)closedir(threads);
	if (rc == 0)
		*ret_ns = sum_ns;
	return rc;
}
