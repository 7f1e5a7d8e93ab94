// SPDX-License-Identifier: Apache-2.0
/* The collector's end of the conversation against a symbolizer played by the test. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/collect/modules/module_index.h"
#include "agent/wire/control.h"

struct told {
	unsigned ready, failed;
	uint64_t table_bytes;
	bool had_table;
};

static void on_indexed(void *ctx, struct module *module, int table_fd, uint64_t table_bytes)
{
	struct told *told = ctx;

	told->ready += module->state == MODULE_READY;
	told->failed += module->state == MODULE_FAILED;
	told->had_table |= table_fd >= 0;
	told->table_bytes = table_bytes;
}

struct fixture {
	struct module_table *modules;
	struct module_index *index;
	struct told told;
	int peer; /* the symbolizer's end */
	struct channel_message message;
};

static void connect_peer(struct fixture *f)
{
	int fds[2];

	if (f->peer >= 0)
		(void)close(f->peer);
	assert_int_equal(channel_pair(fds), 0);
	f->peer = fds[1];
	module_index_set_peer(f->index, fds[0]);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct module_index_sink sink = { .indexed = on_indexed };

	if (!f)
		return -1;
	sink.ctx = &f->told;
	f->peer = -1;
	f->modules = module_table_create();
	f->index = module_index_create(f->modules, &sink);
	connect_peer(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	module_index_destroy(f->index);
	module_table_destroy(f->modules);
	(void)close(f->peer);
	free(f);
	return 0;
}

/* A module for a file that exists: found by path and inode on the host. */
static struct module *real_module(struct fixture *f, const char *path)
{
	struct module_file file = { .dev_major = 1 };
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	file.inode = st.st_ino;
	return module_table_file(f->modules, &file, path);
}

/* Takes the next request as the symbolizer would; NULL = none. The descriptor is checked and
 * closed. */
static const struct control_index *next_request(struct fixture *f)
{
	struct stat st;

	if (channel_receive(f->peer, &f->message) != 1)
		return NULL;
	assert_int_equal(f->message.len, sizeof(struct control_index));
	assert_int_equal(f->message.fd_count, 1);
	assert_int_equal(fstat(f->message.fds[0], &st), 0);
	channel_message_close(&f->message);
	return (const void *)f->message.data;
}

static void answer(struct fixture *f, uint32_t request, int status, uint64_t key, int table_fd)
{
	struct control_indexed indexed = { .head = { .kind = CONTROL_INDEXED, .request = request },
					   .status = status,
					   .key = key,
					   .flags = INDEXED_FP,
					   .table_bytes = 64,
					   .build_id_len = 2,
					   .build_id = { 0xab, 0xcd } };

	assert_int_equal(channel_send(f->peer, &indexed, sizeof(indexed), &table_fd, table_fd >= 0),
			 0);
	module_index_receive(f->index, 100);
}

static void a_module_is_indexed(void **state)
{
	struct fixture *f = *state;
	struct module *module = real_module(f, "/bin/true");
	const struct control_index *request;
	int table[2];

	module_index_ask(f->index, module, false);
	module_index_ask(f->index, module, true); /* asked already */
	module_index_pump(f->index, 1);
	request = next_request(f);
	assert_non_null(request);
	assert_int_equal(request->kind, FEED_MODULE_ELF);
	assert_int_equal(request->want_rows, 1);
	assert_string_equal(request->path, "/bin/true");
	assert_int_equal(module->state, MODULE_ASKED);
	assert_int_equal(module_index_pending(f->index), 1);
	assert_int_equal(pipe(table), 0);
	answer(f, request->head.request, 0, 0x1234, table[0]);
	assert_int_equal(module->state, MODULE_READY);
	assert_true(module->key == 0x1234);
	assert_int_equal(module->flags, INDEXED_FP);
	assert_int_equal(module->build_id_len, 2);
	assert_int_equal(f->told.ready, 1);
	assert_true(f->told.had_table);
	assert_true(f->told.table_bytes == 64);
	assert_int_equal(module_index_pending(f->index), 0);
	assert_null(next_request(f));
	(void)close(table[0]);
	(void)close(table[1]);
}

static void what_cannot_be_opened_or_parsed_has_an_identity_all_the_same(void **state)
{
	struct fixture *f = *state;
	struct module_file nowhere = { .inode = 3, .dev_major = 9 };
	struct module *missing = module_table_file(f->modules, &nowhere, "/no/such/file");
	struct module *script = real_module(f, "/etc/passwd");
	const struct control_index *request;
	struct stat st;

	module_index_ask(f->index, missing, true);
	assert_int_equal(missing->state, MODULE_FAILED);
	/* It may come back, or another with its inode number. */
	assert_int_equal(stat("/etc/passwd", &st), 0);
	assert_true(missing->missed && !module_is_of(missing, &st));
	module_index_ask(f->index, script, false);
	module_index_pump(f->index, 1);
	request = next_request(f);
	assert_non_null(request);
	answer(f, request->head.request, -ENOEXEC, 0, -1);
	assert_int_equal(script->state, MODULE_FAILED);
	assert_int_equal(script->kind, FEED_MODULE_UNREADABLE);
	assert_true(!script->missed && module_is_of(script, &st));
	st.st_ctim.tv_nsec++;
	assert_false(module_is_of(script, &st));
	assert_true(script->key != 0 && missing->key != 0 && script->key != missing->key);
	assert_int_equal(f->told.failed, 2);
}

/* Another inode under the same name is another file: not taken. */
static void a_path_is_believed_only_with_its_inode(void **state)
{
	struct fixture *f = *state;
	struct module_file other = { .inode = 1, .dev_major = 9 };
	struct module *module = module_table_file(f->modules, &other, "/bin/true");

	module_index_ask(f->index, module, true);
	assert_int_equal(module->state, MODULE_FAILED);
	assert_null(next_request(f));
}

static void urgent_ones_overtake_and_flight_is_bounded(void **state)
{
	static const char *const paths[] = { "/bin/true", "/bin/ls", "/bin/cat" };
	struct fixture *f = *state;
	unsigned sent = 0;

	module_index_ask(f->index, real_module(f, paths[0]), false);
	module_index_ask(f->index, real_module(f, paths[1]), false);
	module_index_ask(f->index, real_module(f, paths[2]), true);
	module_index_pump(f->index, 1);
	assert_string_equal(next_request(f)->path, paths[2]);
	assert_string_equal(next_request(f)->path, paths[0]);
	assert_string_equal(next_request(f)->path, paths[1]);
	/* More files than may be open: the rest waits for answers. */
	for (uint32_t i = 0; i < 200; i++) {
		struct module_file file = { .inode = 1, .dev_major = 100 + i };
		struct stat st;
		struct module *module;

		assert_int_equal(stat("/bin/true", &st), 0);
		file.inode = st.st_ino;
		module = module_table_file(f->modules, &file, "/bin/true");
		module_index_ask(f->index, module, false);
	}
	module_index_pump(f->index, 2);
	while (next_request(f))
		sent++;
	assert_true(sent > 0 && sent <= MODULE_INDEX_FLIGHT_MAX - 3);
	assert_int_equal(module_index_pending(f->index), 203);
}

/* The first death puts all of them under suspicion: they go alone then, and only the one that kills
 * three symbolizers is given up. */
static void a_file_that_kills_the_symbolizer_is_found(void **state)
{
	struct fixture *f = *state;
	struct module *good = real_module(f, "/bin/true"), *bad = real_module(f, "/bin/ls");
	unsigned deaths = 0;

	module_index_ask(f->index, bad, true);
	module_index_ask(f->index, good, true);
	for (int round = 0; round < 10 && module_index_pending(f->index); round++) {
		const struct control_index *request;
		bool died = false;

		module_index_pump(f->index, (uint64_t)round + 1);
		while (!died && (request = next_request(f))) {
			if (request->head.request == bad->id)
				died = true;
			else
				answer(f, request->head.request, 0, 77, -1);
			module_index_pump(f->index, (uint64_t)round + 1);
		}
		if (died) {
			deaths++;
			connect_peer(f);
		}
	}
	assert_int_equal(deaths, 3);
	assert_int_equal(bad->state, MODULE_FAILED);
	assert_int_equal(good->state, MODULE_READY);
}

static void a_new_symbolizer_is_told_what_the_old_one_knew(void **state)
{
	struct fixture *f = *state;
	struct module *module = real_module(f, "/bin/true");
	const struct control_index *request;

	module_index_ask(f->index, module, true);
	module_index_pump(f->index, 1);
	request = next_request(f);
	answer(f, request->head.request, 0, 77, -1);
	module_table_charge(f->modules, module, 100); /* its table is published */
	connect_peer(f);
	module_index_pump(f->index, 2);
	request = next_request(f);
	assert_non_null(request);
	assert_int_equal(request->head.request, module->id);
	assert_int_equal(request->want_rows, 0);
	/* Even if this one cannot read it: what is known stays. */
	answer(f, request->head.request, -E2BIG, 0, -1);
	assert_int_equal(module->state, MODULE_READY);
	assert_true(module->key == 77);
}

/* Names of a file found while nothing is sampled are for later: until a stack goes through it, or
 * the symbolizer is asked for them, also when that happens while the first request is under way. */
static void names_come_when_they_are_wanted(void **state)
{
	struct fixture *f = *state;
	struct module *module = real_module(f, "/bin/true"), *other = real_module(f, "/bin/ls");
	struct channel_head want = { .kind = CONTROL_NAMES_WANT, .request = other->id };
	const struct control_index *request;

	module->names_later = other->names_later = true;
	module_index_ask(f->index, module, false);
	module_index_pump(f->index, 1);
	request = next_request(f);
	assert_int_equal(request->names_later, 1);
	assert_true(module_index_name(f->index, module));
	assert_null(next_request(f));
	answer(f, module->id, 0, 77, -1);
	module_table_charge(f->modules, module, 100);
	module_index_pump(f->index, 2);
	request = next_request(f);
	assert_int_equal(request->head.request, module->id);
	assert_int_equal(request->names_later, 0);
	assert_int_equal(request->want_rows, 0);
	module->flags |= INDEXED_ROWS;
	answer(f, module->id, 0, 77, -1);
	assert_int_equal(module->flags, INDEXED_ROWS | INDEXED_FP);
	assert_true(module_index_name(f->index, module));
	module_index_ask(f->index, other, false);
	module_index_pump(f->index, 3);
	assert_int_equal(next_request(f)->names_later, 1);
	answer(f, other->id, 0, 78, -1);
	assert_int_equal(channel_send(f->peer, &want, sizeof(want), NULL, 0), 0);
	assert_int_equal(channel_send(f->peer, &want, sizeof(want), NULL, 0), 0);
	want.request = 999;
	assert_int_equal(channel_send(f->peer, &want, sizeof(want), NULL, 0), 0);
	module_index_receive(f->index, 100);
	module_index_pump(f->index, 4);
	request = next_request(f);
	assert_int_equal(request->head.request, other->id);
	assert_int_equal(request->names_later, 0);
	assert_null(next_request(f));
}

/* Lost names of a file that was read already are sent again too, for the module whose table it
 * is. */
static void names_that_were_lost_are_sent_again(void **state)
{
	struct fixture *f = *state;
	struct module *first = real_module(f, "/bin/true"), *second = real_module(f, "/bin/ls");
	struct channel_head want = { .kind = CONTROL_NAMES_WANT, .request = second->id };
	const struct control_index *request;

	module_index_ask(f->index, first, false);
	module_index_ask(f->index, second, false);
	module_index_pump(f->index, 1);
	assert_non_null(next_request(f));
	answer(f, first->id, 0, 77, -1);
	module_table_charge(f->modules, first, 100);
	assert_non_null(next_request(f));
	answer(f, second->id, 0, 77, -1); /* another copy of it */
	first->flags |= INDEXED_ROWS;
	assert_int_equal(channel_send(f->peer, &want, sizeof(want), NULL, 0), 0);
	assert_int_equal(channel_send(f->peer, &want, sizeof(want), NULL, 0), 0);
	module_index_receive(f->index, 100);
	module_index_pump(f->index, 2);
	request = next_request(f);
	assert_non_null(request);
	assert_int_equal(request->head.request, first->id);
	assert_int_equal(request->want_rows, 0);
	assert_int_equal(request->names_later, 0);
	assert_null(next_request(f));
	answer(f, first->id, 0, 77, -1);
	assert_int_equal(first->state, MODULE_READY);
	assert_true(first->flags & INDEXED_ROWS);
	assert_int_equal(first->table_bytes, 100);
}

/* Found while nothing is sampled, a file is only identified; its table is asked for when a session
 * begins, also when that happens while the first request is under way, and from where it is mapped
 * when its file was not to be had then. */
static void tables_come_when_something_is_sampled(void **state)
{
	struct fixture *f = *state;
	struct module *module = real_module(f, "/bin/true"), *other = real_module(f, "/bin/ls");
	const struct control_index *request;
	int table[2];

	module->names_later = module->rows_later = other->names_later = other->rows_later = true;
	module_index_ask(f->index, module, false);
	module_index_pump(f->index, 1);
	request = next_request(f);
	assert_int_equal(request->want_rows, 0);
	assert_false(module_is_awaited(module));
	module_want_rows(module);
	module_index_ask(f->index, module, true);
	assert_true(module_is_awaited(module) && module->changed);
	answer(f, module->id, 0, 77, -1);
	module_index_pump(f->index, 2);
	request = next_request(f);
	assert_int_equal(request->head.request, module->id);
	assert_true(request->want_rows && request->names_later);
	assert_int_equal(pipe(table), 0);
	answer(f, module->id, 0, 77, table[0]);
	assert_true(f->told.had_table && module->state == MODULE_READY);
	assert_null(next_request(f));

	module_index_ask(f->index, other, false);
	module_index_pump(f->index, 3);
	assert_int_equal(next_request(f)->want_rows, 0);
	answer(f, other->id, 0, 78, -1);
	other->path[1] = 'x';
	module_want_rows(other);
	module_index_ask(f->index, other, true);
	assert_true(other->state == MODULE_READY && other->rows_later);
	other->path[1] = 'b';
	module_want_rows(other);
	module_index_ask(f->index, other, true);
	module_index_pump(f->index, 4);
	assert_int_equal(next_request(f)->want_rows, 1);
	(void)close(table[0]);
	(void)close(table[1]);
}

/* A file that was deleted cannot be opened again: its names are read with it. */
static void names_of_deleted_files_do_not_wait(void **state)
{
	struct fixture *f = *state;
	char path[] = "/tmp/profd-deleted-XXXXXX";
	struct module_file file = { .dev_major = 1 };
	struct module *module;
	struct stat st;
	void *page;
	int fd = mkstemp(path);

	if (geteuid()) {
		print_message("skipped: only root can open what a process has mapped\n");
		skip();
	}
	assert_true(fd >= 0 && ftruncate(fd, 4096) == 0 && fstat(fd, &st) == 0);
	page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(page != MAP_FAILED && unlink(path) == 0);
	file.inode = st.st_ino;
	module = module_table_file(f->modules, &file, path);
	module->names_later = true;
	module->origin = (struct module_origin){ .start_va = (uintptr_t)page,
						 .end_va = (uintptr_t)page + 4096,
						 .tgid = (uint32_t)getpid() };
	module_index_ask(f->index, module, false);
	module_index_pump(f->index, 1);
	assert_int_equal(next_request(f)->names_later, 0);
	(void)munmap(page, 4096);
	(void)close(fd);
}

/* The program may be gone, and its file with it, when the first stack through it is read. */
static void what_was_indexed_stays_open_for_its_names(void **state)
{
	struct fixture *f = *state;

	for (unsigned late = 0; late < 2; late++) {
		char path[] = "/tmp/profd-kept-XXXXXX";
		const struct control_index *request;
		struct module *module;
		int fd = mkstemp(path);
		uint64_t before_ns;

		assert_true(fd >= 0);
		(void)close(fd);
		module = real_module(f, path);
		module->names_later = true;
		module_index_ask(f->index, module, true);
		module_index_pump(f->index, 1);
		request = next_request(f);
		assert_true(request && request->want_rows && request->names_later);
		before_ns = clock_monotonic_ns();
		answer(f, module->id, 0, 77 + late, -1);
		assert_int_equal(unlink(path), 0);
		module_index_pump(f->index, late ? clock_monotonic_ns() + 4 * NS_PER_S
						 : before_ns + 2 * NS_PER_S);
		assert_true(module_index_name(f->index, module) == !late);
		module_index_pump(f->index, clock_monotonic_ns());
		request = next_request(f);
		assert_true(late ? !request : request && !request->names_later);
		assert_int_equal(module->state, late ? MODULE_READY : MODULE_ASKED);
	}
}

static void silence_is_given_up(void **state)
{
	struct fixture *f = *state;
	struct module *module = real_module(f, "/bin/true");

	module_index_ask(f->index, module, true);
	module_index_pump(f->index, 1);
	module_index_pump(f->index, 20 * NS_PER_S);
	assert_int_equal(module->state, MODULE_ASKED);
	module_index_pump(f->index, 40 * NS_PER_S);
	assert_int_equal(module->state, MODULE_FAILED);
	assert_int_equal(module_index_pending(f->index), 0);
}

static void debug_files_are_looked_for_and_lies_ignored(void **state)
{
	struct fixture *f = *state;
	struct module *module = real_module(f, "/bin/true");
	struct control_debug_want want = { .head = { .kind = CONTROL_DEBUG_WANT, .request = 9 },
					   .index_request = module->id,
					   .kind = DEBUG_FILE,
					   .name = "cat" };
	const struct control_debug *got = (const void *)f->message.data;
	struct stat st, expected;

	module->origin.tgid = (uint32_t)getpid();
	/* The "debug file" beside /bin/true that exists everywhere is /bin/cat. */
	assert_int_equal(channel_send(f->peer, &want, sizeof(want), NULL, 0), 0);
	module_index_receive(f->index, 100);
	assert_int_equal(channel_receive(f->peer, &f->message), 1);
	assert_int_equal(got->head.request, 9);
	assert_int_equal(got->status, 0);
	assert_int_equal(fstat(f->message.fds[0], &st), 0);
	assert_int_equal(stat("/bin/cat", &expected), 0);
	assert_true(st.st_ino == expected.st_ino);
	channel_message_close(&f->message);
	strcpy(want.name, "../etc/passwd");
	assert_int_equal(channel_send(f->peer, &want, sizeof(want), NULL, 0), 0);
	module_index_receive(f->index, 100);
	assert_int_equal(channel_receive(f->peer, &f->message), 1);
	assert_int_equal(got->status, -ENOENT);
	/* A supplementary file may be anywhere, but it must be an ELF file. */
	want.kind = DEBUG_ALT;
	strcpy(want.name, "/etc/passwd");
	assert_int_equal(access(want.name, R_OK), 0);
	assert_int_equal(channel_send(f->peer, &want, sizeof(want), NULL, 0), 0);
	module_index_receive(f->index, 100);
	assert_int_equal(channel_receive(f->peer, &f->message), 1);
	assert_int_equal(got->status, -ENOENT);
	assert_int_equal(f->message.fd_count, 0);
	/* Short, unterminated and senseless messages change nothing. */
	memset(want.name, 'x', sizeof(want.name));
	assert_int_equal(channel_send(f->peer, &want, sizeof(want), NULL, 0), 0);
	assert_int_equal(channel_send(f->peer, &want, 12, NULL, 0), 0);
	want.head.kind = 999;
	assert_int_equal(channel_send(f->peer, &want, sizeof(want), NULL, 0), 0);
	answer(f, 4711, 0, 5, -1);
	assert_int_equal(channel_receive(f->peer, &f->message), 0);
	assert_int_equal(f->told.ready, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_module_is_indexed),
		TEST(what_cannot_be_opened_or_parsed_has_an_identity_all_the_same),
		TEST(a_path_is_believed_only_with_its_inode),
		TEST(urgent_ones_overtake_and_flight_is_bounded),
		TEST(a_file_that_kills_the_symbolizer_is_found),
		TEST(a_new_symbolizer_is_told_what_the_old_one_knew),
		TEST(names_come_when_they_are_wanted),
		TEST(names_that_were_lost_are_sent_again),
		TEST(tables_come_when_something_is_sampled),
		TEST(names_of_deleted_files_do_not_wait),
		TEST(what_was_indexed_stays_open_for_its_names),
		TEST(silence_is_given_up),
		TEST(debug_files_are_looked_for_and_lies_ignored),
	};

	return cmocka_run_group_tests_name("module_index", tests, NULL, NULL);
}
