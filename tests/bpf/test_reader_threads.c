// SPDX-License-Identifier: Apache-2.0
/* Threads of programs that are not Go, through the reader process with its own (reduced)
 * privileges. */
#include <errno.h>
#include <fcntl.h>
#include <libelf.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bpf/outcome.h"
#include "bpf/profiler.h"
#include "symbolize/symbol_index.h"
#include "tests/support/reader_peer.h"

#define PROGRAM "build/tests/workload-threads"

/* ---- a program ------------------------------------------------------------------------------- */

struct program {
	pid_t pid;
	struct symbol_index *names;
	Elf *elf;
	int fd;
};

static void build(const char *flags)
{
	char command[512];

	(void)mkdir("build/tests", 0755);
	(void)snprintf(command, sizeof(command),
		       "cc -g0 -pthread %s -o %s-new tests/workloads/threads.c && "
		       "mv %s-new %s",
		       flags, PROGRAM, PROGRAM, PROGRAM);
	assert_int_equal(system(command), 0);
}

static void start(struct program *p, const char *argument)
{
	char line[16];
	int out[2];
	FILE *file;

	assert_int_equal(pipe(out), 0);
	fflush(NULL);
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (p->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(out[1], 1);
		execl(PROGRAM, PROGRAM, argument, NULL);
		_exit(127);
	}
	(void)close(out[1]);
	file = fdopen(out[0], "r");
	assert_non_null(fgets(line, sizeof(line), file));
	assert_string_equal(line, "ready\n");
	(void)fclose(file);
	(void)elf_version(EV_CURRENT);
	p->fd = open(PROGRAM, O_RDONLY);
	p->elf = elf_begin(p->fd, ELF_C_READ, NULL);
	assert_non_null(p->elf);
	assert_int_equal(symbol_index_build(p->elf, NULL, &p->names), 0);
}

static void stop(struct program *p)
{
	(void)kill(p->pid, SIGKILL);
	(void)waitpid(p->pid, NULL, 0);
	symbol_index_destroy(p->names);
	(void)elf_end(p->elf);
	(void)close(p->fd);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static const char *thread_name(const struct read_collect *c, const struct read_thread *t)
{
	return read_collect_string(c, t->name);
}

/* Functions of the program itself in a thread's stack, innermost first, separated by spaces. */
static void own_functions(const struct program *p, const struct read_collect *c,
			  const struct read_thread *t, char *out, size_t size)
{
	const struct read_record *s;

	out[0] = '\0';
	if (!t->stack)
		return;
	s = &c->stacks.data[t->stack - 1];
	for (unsigned i = 0; i < s->stack->frame_count; i++) {
		uint64_t frame = s->frames[i];
		struct symbol_frame names[SYMBOL_INLINE_MAX];
		const struct read_record *m;
		uint64_t offset = prof_frame_offset(frame) - (frame & PROF_FRAME_RETURN ? 1 : 0);

		if (prof_frame_kind(frame) != PROF_FRAME_MODULE)
			continue;
		m = &c->modules.data[prof_frame_module_id(frame) - 1];
		if (!memmem(m->text, m->module->path_len, "workload-threads", 16) ||
		    symbol_index_find(p->names, offset, names) < 1)
			continue;
		(void)snprintf(out + strlen(out), size - strlen(out), "%s ", names[0].function);
	}
}

static void print_stack(const struct read_collect *c, const struct read_thread *t)
{
	const struct read_record *s = &c->stacks.data[t->stack - 1];

	for (unsigned i = 0; i < s->stack->frame_count; i++) {
		const struct read_record *m =
			&c->modules.data[prof_frame_module_id(s->frames[i]) - 1];

		print_message("  %.*s+0x%llx%s\n", m->module->path_len, m->text,
			      (unsigned long long)prof_frame_offset(s->frames[i]),
			      s->frames[i] & PROF_FRAME_GUESSED ? " (guessed)" : "");
	}
}

struct expected {
	const char *name;
	const char *state;
	const char *wait;
	const char *function;
};

static const struct expected table[] = {
	{ "futex mutex", "sleeping", "futex", "wait_mutex" },
	{ "futex cond", "sleeping", "futex", "wait_condition" },
	{ "nanosleep", "sleeping", "nanosleep", "wait_sleep" },
	{ "pipe read", "sleeping", "pipe read", "wait_pipe" },
	{ "socket read", "sleeping", "socket read", "wait_socket" },
	{ "epoll", "sleeping", "epoll", "wait_epoll" },
	{ "poll", "sleeping", "poll", "wait_poll" },
	{ "select", "sleeping", "select", "wait_select" },
	{ "eventfd read", "sleeping", "eventfd read", "wait_event" },
	{ "child", "sleeping", "child", "wait_child" },
	{ "spin", NULL, "", "wait_spin" }, /* it runs, or waits for a CPU */
};

static const struct read_thread *find_thread(const struct read_collect *c, const char *name)
{
	for (size_t i = 0; i < c->threads.count; i++)
		if (!strcmp(thread_name(c, c->threads.data[i].thread), name))
			return c->threads.data[i].thread;
	fail_msg("no thread %s", name);
	return NULL;
}

static void expect_thread(const struct program *p, const struct read_collect *c,
			  const struct expected *e)
{
	const struct read_thread *t = find_thread(c, e->name);
	char functions[1024], chain[200];

	assert_string_equal(read_collect_string(c, t->wait), e->wait);
	if (e->state)
		assert_string_equal(read_collect_string(c, t->state), e->state);
	else
		assert_true(strstr("running runnable", read_collect_string(c, t->state)) != NULL);
	if (!strcmp(e->wait, "futex"))
		assert_true(t->wait_object != 0);
	if (!t->stack)
		fail_msg("%s has no stack", e->name);
	own_functions(p, c, t, functions, sizeof(functions));
	(void)snprintf(chain, sizeof(chain), "%s third_level second_level first_level thread_main ",
		       e->function);
	if (!strstr(functions, chain)) /* static: libc's are beside them */
		print_stack(c, t);
	if (!strstr(functions, chain))
		fail_msg("%s: %s instead of %s, outcome %d, %u frames", e->name, functions, chain,
			 c->stacks.data[t->stack - 1].stack->outcome,
			 c->stacks.data[t->stack - 1].stack->frame_count);
	assert_int_equal(c->stacks.data[t->stack - 1].stack->outcome & ~10u,
			 0); /* complete, guessed */
}

static struct control_read_target request_for(pid_t pid)
{
	return (struct control_read_target){ .head = { .kind = CONTROL_THREADS },
					     .tgid = (uint32_t)pid,
					     .deadline_ms = 10000 };
}

static void test_states_waits_and_stacks(void **state)
{
	static const char *const builds[] = { "-O2 -fomit-frame-pointer",
					      "-O2 -fno-omit-frame-pointer", "-O0",
					      "-O1 -fno-pie -no-pie", "-Os -static" };
	struct reader_peer client;

	reader_peer_start(&client);
	for (size_t i = 0; i < ARRAY_SIZE(builds); i++) {
		struct program p;
		struct read_collect c;
		struct control_read_target request;
		unsigned guessed = 0;

		build(builds[i]);
		start(&p, "0");
		request = request_for(p.pid);
		assert_int_equal(reader_peer_ask(&client, &request, &c), 0);
		assert_int_equal(c.end->listed, 12);
		assert_int_equal(c.end->inconsistent, 0);
		for (size_t e = 0; e < ARRAY_SIZE(table); e++)
			expect_thread(&p, &c, &table[e]);
		for (size_t s = 0; s < c.stacks.count; s++)
			guessed += c.stacks.data[s].stack->outcome == OUTCOME_guessed;
		print_message("%s: %u of %u stacks guessed, %lu us\n", builds[i], guessed,
			      (unsigned)c.stacks.count, (unsigned long)(c.end->duration_ns / 1000));
		read_collect_deinit(&c);
		stop(&p);
	}
	assert_int_equal(reader_peer_stop(&client), 0);
}

static void test_many_threads(void **state)
{
	struct reader_peer client;
	struct read_collect c;
	struct program p;
	struct control_read_target request;
	unsigned waiting = 0;

	build("-O2");
	start(&p, "1000");
	reader_peer_start(&client);
	request = request_for(p.pid);
	assert_int_equal(reader_peer_ask(&client, &request, &c), 0);
	for (size_t i = 0; i < c.threads.count; i++)
		waiting += !strcmp(thread_name(&c, c.threads.data[i].thread), "futex cond");
	assert_int_equal(waiting, 1001);
	/* One stack for all of them, and it is the whole chain. */
	assert_true(c.stacks.count < 20);
	print_message("%u threads in %lu us\n", (unsigned)c.threads.count,
		      (unsigned long)(c.end->duration_ns / 1000));
	read_collect_deinit(&c);
	assert_int_equal(reader_peer_stop(&client), 0);
	stop(&p);
}

static void test_refusals(void **state)
{
	struct reader_peer client;
	struct read_collect c;
	struct program p;
	struct control_read_target request;

	build("-O2");
	start(&p, "0");
	reader_peer_start(&client);
	request = request_for(p.pid);
	request.start_boottime_ns = 12345; /* another life of this pid */
	assert_int_equal(reader_peer_ask(&client, &request, &c), -ESRCH);
	read_collect_deinit(&c);
	request = request_for(p.pid);
	request.deadline_ms = 0;
	assert_int_equal(reader_peer_ask(&client, &request, &c), -EINVAL);
	read_collect_deinit(&c);
	request = request_for(p.pid);
	request.head.kind = CONTROL_GOROUTINES;
	assert_int_equal(reader_peer_ask(&client, &request, &c), -ENOEXEC);
	assert_string_equal(client.text, "not a Go program");
	read_collect_deinit(&c);
	stop(&p);
	request = request_for(p.pid);
	assert_int_equal(reader_peer_ask(&client, &request, &c), -ESRCH);
	read_collect_deinit(&c);
	assert_int_equal(reader_peer_stop(&client), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states_waits_and_stacks),
		cmocka_unit_test(test_many_threads),
		cmocka_unit_test(test_refusals),
	};

	if (geteuid() != 0) {
		print_message("skipped: reading other processes needs root\n");
		return 0;
	}
	return cmocka_run_group_tests_name("reader_threads", tests, NULL, NULL);
}
