// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/threads.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/parse.h"
#include "agent/reader/task_records.h"
#include "agent/reader/thread_sample.h"
#include "agent/reader/thread_unwind.h"
#include "agent/reader/thread_wait.h"
#include "agent/reader/watch.h"
#include "bpf/outcome.h"

#define ATTEMPTS    3
#define RUN_WAIT_NS NS_PER_S /* of an answer in all, for threads to get a CPU */

struct thread_reader {
	struct answer *answer;
	struct row_tables *tables;
	struct thread_python *python;
	int task_fd; /* /proc/PID/task */
	bool compat32;
	struct read_thread moving[THREAD_SAMPLES_MAX]; /* without a stack so far, because they ran */
	unsigned moving_count;
	uint64_t waited_ns; /* for them */
	struct thread_frames frames;
	uint8_t flags[READ_FRAMES_MAX + 1]; /* zero: native frames have none */
	uint8_t stack[THREAD_STACK_BYTES];
};

/* ---- texts of /proc -------------------------------------------------------------------------- */

/* One read of a small file of a thread: these files are made anew by every read, so that looking
 * for the end would cost as much again. The length, NUL-terminated, or negative errno. */
static ssize_t read_text(int tid_fd, const char *name, char *buf, size_t size)
{
	cleanup_close int fd = -1;
	ssize_t len;

	watch_touch();
	fd = openat(tid_fd, name, O_RDONLY | O_CLOEXEC);
	len = fd < 0 ? -1 : read(fd, buf, size - 1);

	if (len < 0)
		return -errno;
	buf[len] = '\0';
	return len;
}

/* "tid (name) S ...": the name may contain anything but the last parenthesis ends it. */
static int read_stat(int tid_fd, char *name, size_t size, char *ret_letter)
{
	char text[512], *open, *close;
	ssize_t len = read_text(tid_fd, "stat", text, sizeof(text));

	if (len < 0)
		return (int)len;
	open = strchr(text, '(');
	close = strrchr(text, ')');
	if (!open || !close || close < open || !close[1])
		return -EINVAL;
	(void)snprintf(name, size, "%.*s", (int)(close - open - 1), open + 1);
	*ret_letter = close[2];
	return 0;
}

/* Nanoseconds on CPU so far, exact to the moment (proc_pid_schedstat); 0 = unknown. */
static uint64_t cpu_time_ns(int tid_fd)
{
	char text[128];
	unsigned long long ns;

	if (read_text(tid_fd, "schedstat", text, sizeof(text)) < 0 ||
	    sscanf(text, "%llu", &ns) != 1)
		return 0;
	return ns;
}

/* R is on a CPU or in a run queue: only the former's CPU time moves between two readings. */
static bool is_running(int tid_fd)
{
	uint64_t first = cpu_time_ns(tid_fd);

	return first && cpu_time_ns(tid_fd) > first;
}

static int read_syscall(int tid_fd, struct thread_syscall *ret)
{
	char text[256];
	ssize_t len = read_text(tid_fd, "syscall", text, sizeof(text));

	return len < 0 ? (int)len : thread_syscall_parse(text, ret);
}

static enum thread_file file_of(const struct thread_reader *t, const struct thread_syscall *call)
{
	int argument = thread_wait_descriptor(call->number);
	char path[32], link[128];
	ssize_t len;

	if (argument < 0)
		return THREAD_FILE_OTHER;
	(void)snprintf(path, sizeof(path), "fd/%d", (int)call->args[argument]);
	len = readlinkat(t->answer->target->proc_fd, path, link, sizeof(link) - 1);
	if (len < 0)
		return THREAD_FILE_OTHER;
	link[len] = '\0';
	return thread_file_kind(link);
}

/* "[<0>] futex_wait_queue+0x60/0x90" lines, or the one function that /proc/…/wchan names. */
static uint32_t kernel_stack(const struct thread_reader *t, int tid_fd, const char *wchan)
{
	char text[4096], out[4096];
	size_t used = 0;

	if (read_text(tid_fd, "stack", text, sizeof(text)) > 0) {
		char *at = text, *line;

		while ((line = strsep(&at, "\n"))) {
			char *name = strstr(line, "] ");

			if (name && used + strlen(name) < sizeof(out))
				used += (size_t)snprintf(out + used, sizeof(out) - used, "%s%s",
							 used ? "\n" : "", name + 2);
		}
		return answer_string(t->answer, out, used);
	}
	return strcmp(wchan, "0") != 0 ? answer_text(t->answer, wchan) : 0;
}

/* ---- one thread ------------------------------------------------------------------------------ */

static bool same_call(const struct thread_syscall *a, const struct thread_syscall *b)
{
	return a->blocked && b->blocked && a->number == b->number && a->sp == b->sp &&
	       a->pc == b->pc && !memcmp(a->args, b->args, sizeof(a->args));
}

static uint32_t write_stack(struct thread_reader *t)
{
	if (t->frames.outcome != OUTCOME_complete && t->frames.outcome != OUTCOME_guessed)
		t->answer->end.incomplete++;
	return answer_stack(t->answer, t->frames.outcome, t->frames.words, t->flags, t->frames.count);
}

/* Reads the user stack; a thread that is blocked in the same call with the same registers before
 * and after has not run in between. Returns the stack's id, 0 if it has none; *ret_moves: because
 * it runs. */
static int read_stack(struct thread_reader *t, uint32_t tid, int tid_fd,
		      struct thread_syscall *call, uint32_t *ret, bool *ret_moves)
{
	*ret = 0;
	*ret_moves = false;
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		struct thread_stack stack = { .sp = call->sp, .data = t->stack };
		struct thread_syscall again;
		ssize_t got;
		int rc;

		*ret_moves = !call->blocked && !t->compat32;
		if (!call->blocked || !call->sp || !call->pc || t->compat32)
			return 0;
		got = target_read_some(t->answer->target, call->sp, t->stack, sizeof(t->stack));
		if (got == -ESRCH || got == -EPERM)
			return (int)got;
		stack.len = got > 0 ? (uint32_t)got : 0;
		thread_unwind(t->answer, t->tables, t->python, tid, call->pc, &stack, &t->frames);
		rc = read_syscall(tid_fd, &again);
		if (rc < 0)
			return 0;
		if (!same_call(call, &again)) {
			*call = again;
			continue;
		}
		*ret = write_stack(t);
		return 0;
	}
	*ret_moves = true;
	return 0;
}

/* One that has no stack because it runs is put aside for read_moving(), unless it is the second
 * try. */
static int read_thread(struct thread_reader *t, uint32_t tid, int tid_fd, bool again)
{
	struct read_thread out = { .tid = tid, .syscall = -1 };
	struct thread_syscall call = { .number = -1 };
	char name[64], wchan[128] = "", letter = 0;
	const char *state, *word;
	bool moves;
	int rc = read_stat(tid_fd, name, sizeof(name), &letter);

	if (rc < 0)
		return 0; /* it has ended */
	state = thread_state_word(letter);
	rc = read_syscall(tid_fd, &call);
	if (rc == -EPERM)
		return rc;
	if (read_text(tid_fd, "wchan", wchan, sizeof(wchan)) < 0)
		wchan[0] = '\0';
	rc = read_stack(t, tid, tid_fd, &call, &out.stack, &moves);
	if (rc < 0)
		return rc;
	if (letter == 'R' ? is_running(tid_fd) : moves && !again)
		state = "running";
	out.name = answer_text(t->answer, name);
	out.state = answer_text(t->answer, *state ? state : "unknown");
	if (moves && !again) {
		t->moving[t->moving_count++] = out;
		return 0;
	}
	if (letter == 'S' || letter == 'D' || letter == 'I') {
		if (t->compat32)
			call.number = -1;
		out.syscall = call.number;
		word = thread_wait_word(&call, file_of(t, &call), wchan);
		out.wait = answer_text(t->answer, word);
		out.kernel_stack = kernel_stack(t, tid_fd, wchan);
		if (call.number >= 0 && !strcmp(word, "futex"))
			out.wait_object = call.args[0];
	}
	t->answer->end.inconsistent += moves;
	read_writer_fixed(t->answer->writer, READ_THREAD, &out, sizeof(out));
	return t->answer->writer->error;
}

static int write_sampled(struct thread_reader *t, struct read_thread *out,
			 const struct thread_sample *sample)
{
	const struct thread_stack stack = { .sp = sample->regs[ARCH_REG_SP],
					    .data = sample->stack,
					    .len = sample->stack_len,
					    .regs = sample->regs };

	thread_unwind(t->answer, t->tables, t->python, out->tid, sample->ip, &stack, &t->frames);
	out->stack = write_stack(t);
	read_writer_fixed(t->answer->writer, READ_THREAD, out, sizeof(*out));
	return t->answer->writer->error;
}

/* Those that were put aside, where they stand the next time they run. Who does not run again is
 * read like the others. */
static int read_moving(struct thread_reader *t)
{
	cleanup_thread_samples struct thread_samples samples = { 0 };
	uint64_t begin_ns = clock_monotonic_ns(), until_ns = begin_ns + RUN_WAIT_NS - t->waited_ns;
	unsigned count = t->moving_count;
	int rc = 0;

	t->moving_count = 0;
	for (unsigned i = 0; i < count && t->waited_ns < RUN_WAIT_NS; i++)
		thread_samples_open(&samples, t->moving[i].tid);
	thread_samples_wait(&samples,
			    until_ns < t->answer->deadline_ns ? until_ns : t->answer->deadline_ns);
	t->waited_ns += clock_monotonic_ns() - begin_ns;
	for (unsigned i = 0; i < count && rc == 0; i++) {
		struct thread_sample sample;
		cleanup_close int tid_fd = -1;
		char tid[16];

		if (i < samples.count && thread_samples_get(&samples, i, &sample)) {
			rc = write_sampled(t, &t->moving[i], &sample);
			continue;
		}
		(void)snprintf(tid, sizeof(tid), "%u", t->moving[i].tid);
		tid_fd = openat(t->task_fd, tid, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (tid_fd >= 0)
			rc = read_thread(t, t->moving[i].tid, tid_fd, true);
	}
	return rc;
}

/* ---- whole ----------------------------------------------------------------------------------- */

/* A 32-bit program has another system-call table and no unwind rows here. */
static bool is_compat32(const struct target *target)
{
	uint8_t ident[EI_NIDENT];
	cleanup_close int fd = openat(target->proc_fd, "exe", O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	return fd >= 0 && io_pread_all(fd, ident, sizeof(ident), 0) == 0 &&
	       ident[EI_CLASS] == ELFCLASS32;
}

static int read_tasks(struct thread_reader *t, DIR *dir)
{
	struct dirent *entry;

	while ((entry = readdir(dir))) {
		uint64_t tid;
		int rc;

		if (parse_u64(entry->d_name, 1, INT32_MAX, &tid) < 0)
			continue;
		t->answer->end.listed++;
		if (answer_is_late(t->answer) || t->answer->end.read >= THREADS_READ_MAX) {
			t->answer->end.flags |= READ_END_SAMPLED;
			continue;
		}
		cleanup_close int tid_fd =
			openat(t->task_fd, entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (tid_fd < 0) {
			t->answer->end.dead++;
			continue;
		}
		rc = read_thread(t, (uint32_t)tid, tid_fd, false);
		if (rc == 0 && t->moving_count == THREAD_SAMPLES_MAX)
			rc = read_moving(t);
		if (rc < 0)
			return rc;
		t->answer->end.read++;
	}
	return read_moving(t);
}

static int read_asyncio(struct thread_reader *t)
{
	const char *why = "";
	const struct script_python *python = thread_python_runtime(t->python, t->tables, &why);

	return task_records_write(t->answer, python, why);
}

int threads_read(struct answer *answer, struct row_tables *tables, bool with_tasks)
{
	cleanup_free struct thread_reader *t = calloc(1, sizeof(*t));
	cleanup_thread_python struct thread_python *python = thread_python_create(answer);
	int fd = openat(answer->target->proc_fd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
	DIR *dir;

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	dir = t && python ? fdopendir(fd) : NULL;
	if (!dir) {
		(void)close(fd);
		return -ENOMEM;
	}
	t->answer = answer;
	t->tables = tables;
	t->python = python;
	t->task_fd = fd;
	t->compat32 = is_compat32(answer->target);
	rc = row_tables_begin(tables, answer->maps);
	if (rc == 0)
		rc = read_tasks(t, dir);
	if (rc == 0 && with_tasks)
		rc = read_asyncio(t);
	(void)closedir(dir);
	return rc;
}
