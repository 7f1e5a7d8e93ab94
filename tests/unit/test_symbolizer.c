// SPDX-License-Identifier: Apache-2.0
/* The whole process, over its real channels, with real files and with files and messages that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/bytes.h"
#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/wire/control.h"
#include "symbolize/cfi_rows.h"
#include "symbolize/sandbox.h"
#include "symbolize/symbolizer.h"
#include "tests/support/elf_fixture.h"
#include "tests/support/elf_head.h"

#define ANSWER_MS      20000
#define DEBUG_AGAIN_MS 1500

#if defined(__SANITIZE_ADDRESS__)
#define HWM_MAX_KB (2u << 20) /* freed blocks are kept for a while */
#else
#define HWM_MAX_KB (600u << 10)
#endif

struct fixture {
	pid_t pid;
	int control, collector, server;
	int cache_fd;
	struct channel_message message;
};

/* ---- the other ends ------------------------------------------------------------------------------ */

static void send_to(int fd, const void *data, size_t len, int passed)
{
	assert_int_equal(channel_send_wait(fd, data, len, &passed, passed >= 0, 5000), 0);
}

static void refuse_debug(struct fixture *f)
{
	const struct control_debug_want *want = (const void *)f->message.data;
	struct control_debug debug = { .head = { .kind = CONTROL_DEBUG, .request = want->head.request },
				       .status = -ENOENT };

	send_to(f->collector, &debug, sizeof(debug), -1);
}

/* The next message of @kind; fails the test if there is none in time. Questions for debug files that are not
 * waited for are answered with no. */
static const void *receive(struct fixture *f, int fd, uint16_t kind)
{
	uint64_t end = clock_monotonic_ns() + ANSWER_MS * NS_PER_MS;

	for (;;) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		int rc;

		channel_message_close(&f->message);
		rc = channel_receive(fd, &f->message);
		if (rc < 0)
			fail_msg("the symbolizer is gone: %s", strerror(-rc));
		if (rc == 1 && ((struct channel_head *)(void *)f->message.data)->kind == kind)
			return f->message.data;
		if (rc == 1) {
			assert_int_equal(((struct channel_head *)(void *)f->message.data)->kind,
					 CONTROL_DEBUG_WANT);
			refuse_debug(f);
			continue;
		}
		if (clock_monotonic_ns() > end)
			fail_msg("no answer of kind %d", kind);
		(void)poll(&wait, 1, 100);
	}
}

static int connect_peer(struct fixture *f, enum role role)
{
	struct control_peer peer = { .head = { .kind = CONTROL_PEER }, .role = role, .generation = 1 };
	int fds[2];

	assert_int_equal(channel_pair(fds), 0);
	send_to(f->control, &peer, sizeof(peer), fds[1]);
	(void)close(fds[1]);
	return fds[0];
}

static void start(struct fixture *f, const char *cache_name)
{
	struct symbolizer_options options = { .cache_dir_fd = -1,
					      .cache_bytes = 64 << 20,
					      .memory_bytes = 64 << 20,
					      .debug_again_ns = DEBUG_AGAIN_MS * NS_PER_MS };
	char path[256];
	int fds[2];

	if (cache_name) {
		(void)snprintf(path, sizeof(path), "%s/%s", fixture_dir(), cache_name);
		(void)!mkdir(path, 0700);
		options.cache_dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(options.cache_dir_fd >= 0);
	}
	assert_int_equal(channel_pair(fds), 0);
	f->pid = fork();
	assert_true(f->pid >= 0);
	if (!f->pid) {
		(void)close(fds[0]);
		options.control_fd = fds[1];
		_exit(symbolizer_run(&options));
	}
	(void)close(fds[1]);
	if (options.cache_dir_fd >= 0)
		(void)close(options.cache_dir_fd);
	f->control = fds[0];
	f->message.fd_count = 0;
	for (int i = 0; i < CHANNEL_FDS_MAX; i++)
		f->message.fds[i] = -1;
	receive(f, f->control, CONTROL_READY);
	f->collector = connect_peer(f, ROLE_COLLECTOR);
	f->server = connect_peer(f, ROLE_SERVER);
}

static void stop(struct fixture *f)
{
	struct channel_head head = { .kind = CONTROL_STOP };
	int status;

	send_to(f->control, &head, sizeof(head), -1);
	assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	channel_message_close(&f->message);
	(void)close(f->control);
	(void)close(f->collector);
	(void)close(f->server);
}

static int open_file(const char *path)
{
	char full[512];
	int fd;

	(void)snprintf(full, sizeof(full), path[0] == '/' ? "%.0s%s" : "%s/%s", fixture_dir(), path);
	fd = open(full, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void ask_index_fd(struct fixture *f, uint32_t request, int fd)
{
	struct control_index index = { .head = { .kind = CONTROL_INDEX, .request = request },
				       .kind = FEED_MODULE_ELF,
				       .want_rows = 1,
				       .path = "/x" };

	send_to(f->collector, &index, sizeof(index), fd);
	(void)close(fd);
}

/* Indexes @path; descriptors of the answer stay in f->message. */
static struct control_indexed index_file(struct fixture *f, uint32_t request, const char *path)
{
	struct control_indexed answer;

	ask_index_fd(f, request, open_file(path));
	answer = *(const struct control_indexed *)receive(f, f->collector, CONTROL_INDEXED);
	assert_int_equal(answer.head.request, request);
	return answer;
}

/* Receives DEBUG_WANT and answers it with @path, or that there is none. */
static struct control_debug_want answer_debug(struct fixture *f, const char *path)
{
	struct control_debug_want want =
		*(const struct control_debug_want *)receive(f, f->collector, CONTROL_DEBUG_WANT);
	struct control_debug debug = { .head = { .kind = CONTROL_DEBUG, .request = want.head.request },
				       .status = path ? 0 : -ENOENT };
	int fd = path ? open_file(path) : -1;

	send_to(f->collector, &debug, sizeof(debug), fd);
	if (fd >= 0)
		(void)close(fd);
	return want;
}

struct names {
	int status;
	unsigned frames; /* of the first offset */
	char function[256];
	char file[256];
	char symbol[256];
	uint32_t line;
};

static void read_text(struct bytes *b, char *ret, size_t size)
{
	uint16_t len = bytes_u16(b);
	const char *text = bytes_take(b, len);

	assert_non_null(text);
	if (len >= size)
		len = (uint16_t)(size - 1);
	memcpy(ret, text, len);
	ret[len] = '\0';
}

static struct names ask_names_once(struct fixture *f, uint64_t key, uint64_t offset)
{
	struct control_names ask = { .head = { .kind = CONTROL_NAMES, .request = 5 }, .key = key, .count = 1 };
	const struct control_named *named;
	struct names names = { 0 };
	struct bytes b;

	ask.offsets[0] = offset;
	send_to(f->server, &ask, offsetof(struct control_names, offsets) + 8, -1);
	named = receive(f, f->server, CONTROL_NAMED);
	assert_int_equal(named->head.request, 5);
	names.status = named->status;
	if (named->status)
		return names;
	assert_int_equal(named->count, 1);
	assert_int_equal(named->more, 0);
	b = bytes_of(named + 1, f->message.len - sizeof(*named));
	names.frames = bytes_u16(&b);
	if (names.frames) {
		names.line = bytes_u32(&b);
		(void)bytes_u32(&b);
		read_text(&b, names.function, sizeof(names.function));
		read_text(&b, names.file, sizeof(names.file));
		read_text(&b, names.symbol, sizeof(names.symbol));
	}
	return names;
}

/* The same, until the names are built. */
static struct names ask_names(struct fixture *f, uint64_t key, uint64_t offset)
{
	struct names names;

	for (int i = 0; i < 100; i++) {
		names = ask_names_once(f, key, offset);
		if (names.status || names.frames)
			break;
		(void)poll(NULL, 0, 50);
	}
	return names;
}

static const char program[] = "int __attribute__((noinline)) twice(int x) { return x * 2; }\n"
			      "int main(int argc, char **argv) { return twice(argc) - 2; }\n";

static void compile(const char *name, const char *options)
{
	char source[64];

	(void)snprintf(source, sizeof(source), "%s.c", name);
	fixture_write(source, program);
	assert_true(fixture_run("gcc %s -O1 -Wl,--build-id -o %s %s", options, name, source));
}

static uint64_t offset_of(const char *path, const char *symbol)
{
	uint64_t size;
	uint64_t ev = fixture_symbol(path, symbol, &size);

	assert_int_not_equal(ev, 0);
	return fixture_offset(path, ev);
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void check_table(struct fixture *f, const struct control_indexed *answer)
{
	struct cfi_table table = { .image_bytes = answer->table_bytes };

	assert_int_equal(f->message.fd_count, 1);
	table.image = mmap(NULL, answer->table_bytes, PROT_READ, MAP_PRIVATE, f->message.fds[0], 0);
	assert_true(table.image != MAP_FAILED);
	assert_int_equal(cfi_image_validate(table.image, table.image_bytes), 0);
	assert_int_equal(((struct unwind_table_head *)table.image)->row_count, answer->row_count);
	(void)munmap(table.image, table.image_bytes);
}

static void test_index(void **state)
{
	static const char libc[] = "/lib/x86_64-linux-gnu/libc.so.6";
	static struct fixture f;
	struct control_indexed answer;

	compile("plain", "-g");
	start(&f, NULL);
	answer = index_file(&f, 7, libc);
	assert_int_equal(answer.status, 0);
	assert_int_equal(answer.build_id_len, 20);
	assert_int_not_equal(answer.key, 0);
	assert_true(answer.row_count > 10000);
	assert_int_equal(answer.flags & (INDEXED_ROWS | INDEXED_FP | INDEXED_GO | INDEXED_DEBUG), INDEXED_ROWS);
	assert_int_equal(answer.runtime, 0);
	check_table(&f, &answer);
	answer = index_file(&f, 8, "plain");
	assert_int_equal(answer.status, 0);
	assert_int_equal(answer.flags & (INDEXED_SYMBOLS | INDEXED_DEBUG), INDEXED_SYMBOLS | INDEXED_DEBUG);
	check_table(&f, &answer);
	stop(&f);
}

static void test_names(void **state)
{
	static struct fixture f;
	struct control_indexed answer;
	struct names names;

	compile("named", "-g");
	start(&f, "cache-names");
	answer = index_file(&f, 1, "named");
	names = ask_names(&f, answer.key, offset_of("named", "twice"));
	assert_int_equal(names.frames, 1);
	assert_string_equal(names.function, "twice");
	assert_non_null(strstr(names.file, "named.c"));
	assert_int_equal(names.line, 1);
	names = ask_names_once(&f, answer.key, 1 << 30);
	assert_int_equal(names.status, 0);
	assert_int_equal(names.frames, 0);
	names = ask_names_once(&f, answer.key + 1, 0);
	assert_int_equal(names.status, -ENOENT);
	stop(&f);
	/* The next life has the names before it has seen the file. */
	start(&f, "cache-names");
	names = ask_names_once(&f, answer.key, offset_of("named", "twice"));
	assert_string_equal(names.function, "twice");
	stop(&f);
}

/* Three files in one child, the second of which kills it: the first is done, the third is built again. */
static void test_builder_killed(void **state)
{
	static const char *const files[] = { "small", "killer", "large" }; /* the order of building */
	static struct fixture f;
	struct control_indexed answers[3];
	struct rlimit before, limit;

	fixture_write("many.s", ".macro one name\n.type \\name, @function\n\\name: ret\n.size \\name, 1\n.endm\n.globl twice\n"
				"one twice\n.macro another\none many\\@\n.endm\n.rept COUNT\nanother\n.endr\n");
	assert_true(fixture_run("for f in small=1 killer=4000 large=2; do gcc -shared -nostdlib -Wl,--build-id=none -o ${f%%=*} "
				"-Wa,--defsym,COUNT=${f#*=} many.s || exit; done; truncate -s 1M large; chmod 755 small killer large"));
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = (struct rlimit){ 65536, before.rlim_max }; /* SIGXFSZ for who writes a larger image */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	start(&f, NULL);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before) | kill(f.pid, SIGSTOP), 0); /* they wait, and go together */
	for (uint32_t i = 0; i < 3; i++)
		ask_index_fd(&f, i + 1, open_file(files[i]));
	assert_int_equal(kill(f.pid, SIGCONT), 0);
	for (unsigned i = 0; i < 3; i++)
		answers[i] = *(const struct control_indexed *)receive(&f, f.collector, CONTROL_INDEXED);
	for (uint32_t i = 0; i < 3; i += 2)
		assert_string_equal(ask_names(&f, answers[i].key, offset_of(files[i], "twice")).function, "twice");
	assert_int_equal(ask_names_once(&f, answers[1].key, offset_of("killer", "twice")).frames, 0);
	stop(&f);
}

/* More names than one message holds come in several, in order. */
static void test_many_names(void **state)
{
	static struct fixture f;
	static struct control_names ask;
	struct control_indexed answer;
	uint32_t next = 0;
	uint64_t offset;
	uint32_t more;

	compile("many", "-g");
	offset = offset_of("many", "twice");
	start(&f, NULL);
	answer = index_file(&f, 1, "many");
	(void)ask_names(&f, answer.key, offset);
	ask = (struct control_names){ .head = { .kind = CONTROL_NAMES, .request = 9 },
				      .key = answer.key,
				      .count = CONTROL_NAMES_MAX };
	for (uint32_t i = 0; i < ask.count; i++)
		ask.offsets[i] = offset + i % 2;
	send_to(f.server, &ask, sizeof(ask), -1);
	do {
		const struct control_named *named = receive(&f, f.server, CONTROL_NAMED);

		assert_int_equal(named->first, next);
		next += named->count;
		more = named->more;
	} while (more);
	assert_int_equal(next, CONTROL_NAMES_MAX);
	stop(&f);
}

static void test_debug_file(void **state)
{
	static struct fixture f;
	struct control_indexed answer;
	struct control_debug_want want;
	struct names names;
	uint64_t offset;

	compile("whole", "-g");
	compile("other", "-g -DOTHER");
	offset = offset_of("whole", "twice");
	assert_true(fixture_run("objcopy --only-keep-debug whole whole.debug && "
				"objcopy --only-keep-debug other other.debug && "
				"objcopy --strip-all --add-gnu-debuglink=whole.debug whole stripped && "
				"cp stripped stripped2 && objcopy -R .note.gnu.build-id stripped no-id"));
	start(&f, NULL);
	answer = index_file(&f, 3, "stripped");
	assert_int_equal(answer.flags & (INDEXED_SYMBOLS | INDEXED_DEBUG), 0);
	want = answer_debug(&f, "whole.debug");
	assert_int_equal(want.index_request, 3);
	assert_int_equal(want.build_id_len, answer.build_id_len);
	assert_memory_equal(want.build_id, answer.build_id, want.build_id_len);
	assert_string_equal(want.name, "whole.debug");
	names = ask_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice");
	stop(&f);

	/* Another program's debug file is not believed. */
	start(&f, NULL);
	answer = index_file(&f, 3, "stripped");
	answer_debug(&f, "other.debug");
	names = ask_names_once(&f, answer.key, offset);
	assert_int_equal(names.frames, 0);
	stop(&f);

	/* By the checksum of the link where there is no build-id. */
	start(&f, NULL);
	answer = index_file(&f, 3, "no-id");
	assert_int_equal(answer.build_id_len, 0);
	assert_int_not_equal(answer.key, 0);
	want = answer_debug(&f, "whole.debug");
	assert_int_equal(want.build_id_len, 0);
	names = ask_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice");
	stop(&f);
}

/* What the debug information names itself is asked for by the builder, also after nobody answered once. */
static void test_split_files(void **state)
{
	static struct fixture f;
	struct control_indexed answer;
	struct control_debug_want want;
	struct names names;
	uint64_t offset;

	compile("split", "-g -gsplit-dwarf -O0");
	assert_true(fixture_run("mv split*.dwo elsewhere.dwo"));
	offset = offset_of("split", "twice");
	start(&f, NULL);
	answer = index_file(&f, 5, "split");
	want = answer_debug(&f, NULL);
	assert_int_equal(want.kind, DEBUG_PACKAGE);
	assert_int_equal(want.index_request, 5);
	assert_memory_equal(want.build_id, answer.build_id, answer.build_id_len);
	want = answer_debug(&f, "elsewhere.dwo");
	assert_int_equal(want.kind, DEBUG_SPLIT);
	assert_int_equal(want.name[0], '/');
	assert_non_null(strstr(want.name, ".dwo"));
	names = ask_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice");
	assert_non_null(strstr(names.file, "split.c"));
	stop(&f);

	/* A collector that says nothing costs two seconds a question, twice. */
	start(&f, NULL);
	answer = index_file(&f, 5, "split");
	(void)receive(&f, f.collector, CONTROL_DEBUG_WANT);
	(void)receive(&f, f.collector, CONTROL_DEBUG_WANT);
	names = ask_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice"); /* by its symbol */
	assert_int_equal(channel_receive(f.collector, &f.message), 0);
	stop(&f);
}

/* A debug file that is installed later is used: it is asked for again while names of the module are, though
 * the file itself is closed by then. */
static void test_debug_file_later(void **state)
{
	static struct fixture f;
	struct control_indexed answer;
	struct control_debug_want want;
	struct names names;
	uint64_t offset;

	compile("late", "-g");
	offset = offset_of("late", "twice");
	assert_true(fixture_run("objcopy --only-keep-debug late late.debug && strip -o late-bare late"));
	start(&f, "cache-late");
	answer = index_file(&f, 4, "late-bare");
	answer_debug(&f, NULL);
	names = ask_names_once(&f, answer.key, offset);
	assert_int_equal(names.frames, 0);
	for (int i = 0; i < 5; i++) { /* not asked again at once */
		names = ask_names_once(&f, answer.key, offset);
		assert_int_equal(channel_receive(f.collector, &f.message), 0);
	}
	(void)poll(NULL, 0, DEBUG_AGAIN_MS);
	names = ask_names_once(&f, answer.key, offset);
	want = answer_debug(&f, "late.debug");
	assert_int_equal(want.index_request, 4);
	names = ask_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice");
	assert_non_null(strstr(names.file, "late.c"));
	stop(&f);
}

/* The stripped file first, then the whole one of the same build-id: names get better. */
static void test_better_file(void **state)
{
	static struct fixture f;
	struct control_indexed answer;
	struct names names;
	uint64_t offset;

	compile("full", "-g");
	offset = offset_of("full", "twice");
	assert_true(fixture_run("strip -o bare full"));
	start(&f, "cache-better");
	answer = index_file(&f, 1, "bare");
	answer_debug(&f, NULL);
	names = ask_names_once(&f, answer.key, offset);
	assert_int_equal(names.frames, 0);
	assert_true(index_file(&f, 2, "full").key == answer.key);
	names = ask_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice");
	stop(&f);
}

static void write_sparse_elf(const char *name, uint64_t section_bytes)
{
	Elf64_Ehdr ehdr =
		elf_head(ET_DYN, (struct elf_tables){ sizeof(Elf64_Ehdr), 512, 1, 3, 2 });
	Elf64_Phdr phdr = { .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = 1ull << 40 };
	Elf64_Shdr shdrs[3] = { { 0 },
				{ .sh_name = 1, .sh_type = SHT_PROGBITS, .sh_offset = 4096,
				  .sh_size = section_bytes },
				{ .sh_name = 11, .sh_type = SHT_STRTAB, .sh_offset = 1024, .sh_size = 32 } };
	char path[256];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", fixture_dir(), name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, &ehdr, sizeof(ehdr), 0), sizeof(ehdr));
	assert_int_equal(pwrite(fd, &phdr, sizeof(phdr), sizeof(ehdr)), sizeof(phdr));
	assert_int_equal(pwrite(fd, shdrs, sizeof(shdrs), 512), sizeof(shdrs));
	assert_int_equal(pwrite(fd, "\0.eh_frame\0.shstrtab", 21, 1024), 21);
	assert_int_equal(ftruncate(fd, (off_t)(4096 + section_bytes)), 0);
	(void)close(fd);
}

static uint64_t status_kb(pid_t pid, const char *key)
{
	char path[64];
	char text[4096];
	const char *at;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	assert_true(io_read_small(AT_FDCWD, path, text, sizeof(text)) > 0);
	at = strstr(text, key);
	assert_non_null(at);
	return strtoull(at + strlen(key), NULL, 0);
}

/* Files that are not what they claim: an answer each, in time, and the process lives. */
static void test_bad_files(void **state)
{
	static struct fixture f;
	uint64_t started_ns;
	int pipe_fds[2];

	compile("good", "-g");
	fixture_write("text", "#!/bin/sh\nexec true\n");
	fixture_write("empty", "");
	assert_true(fixture_run("head -c 1000 good >cut-1000; head -c 100 good >cut-100; head -c 8000 good >cut; "
				"head -c 64 good >head-only; "
				"(head -c 5000 good; head -c 20000 /dev/urandom) >noise"));
	write_sparse_elf("zeros", 200u << 20);
	write_sparse_elf("huge", 5ull << 30);
	start(&f, "cache-bad");
	assert_int_equal(index_file(&f, 1, "text").status, -ENOEXEC);
	assert_int_equal(index_file(&f, 2, "empty").status, -ENOEXEC);
	assert_int_equal(index_file(&f, 3, "/dev/zero").status, -ENOEXEC);
	assert_int_equal(index_file(&f, 4, "/").status, -ENOEXEC);
	assert_int_equal(pipe(pipe_fds), 0);
	ask_index_fd(&f, 5, pipe_fds[0]);
	assert_int_equal(((const struct control_indexed *)receive(&f, f.collector, CONTROL_INDEXED))->status,
			 -ENOEXEC);
	(void)close(pipe_fds[1]);
	(void)index_file(&f, 6, "cut-1000");
	(void)index_file(&f, 7, "cut-100");
	(void)index_file(&f, 8, "head-only");
	started_ns = clock_monotonic_ns();
	(void)index_file(&f, 10, "zeros");
	(void)index_file(&f, 11, "huge");
	assert_true(clock_monotonic_ns() - started_ns < 10 * NS_PER_S);
	assert_true(status_kb(f.pid, "VmHWM:") < HWM_MAX_KB);
	stop(&f);
}

/* Messages that lie are dropped; the next honest one is served. */
static void test_bad_messages(void **state)
{
	static struct fixture f;
	struct control_index index = { .head = { .kind = CONTROL_INDEX, .request = 1 }, .kind = 99 };
	struct control_names names = { .head = { .kind = CONTROL_NAMES, .request = 1 }, .count = 1u << 31 };
	struct control_debug debug = { .head = { .kind = CONTROL_DEBUG, .request = 12345 } };
	struct control_peer peer = { .head = { .kind = CONTROL_PEER }, .role = 77 };
	struct channel_head stray = { .kind = 4242 };
	int fds[3];

	compile("honest", "-g");
	start(&f, NULL);
	for (int i = 0; i < 3; i++)
		fds[i] = open_file("honest");
	send_to(f.control, &peer, sizeof(peer), -1);
	send_to(f.control, &peer, sizeof(peer), fds[0]);
	send_to(f.control, &stray, sizeof(stray), fds[0]);
	send_to(f.collector, &stray, sizeof(stray), fds[0]);
	send_to(f.collector, &index, sizeof(index), -1);
	send_to(f.collector, &index, sizeof(index) - 1, fds[0]);
	assert_int_equal(channel_send(f.collector, &index, sizeof(index), fds, 3), 0);
	send_to(f.collector, &debug, sizeof(debug), -1);
	send_to(f.collector, &names, sizeof(names), -1);
	send_to(f.server, &names, sizeof(names), -1);
	send_to(f.server, &names, offsetof(struct control_names, offsets), -1);
	send_to(f.server, &names, sizeof(names.head), -1);
	send_to(f.server, &index, sizeof(index), fds[0]);
	for (int i = 0; i < 3; i++)
		(void)close(fds[i]);
	/* One that is well-formed but of no kind gets its answer. */
	index.head.request = 2;
	send_to(f.collector, &index, sizeof(index), open_file("honest"));
	assert_int_equal(((const struct control_indexed *)receive(&f, f.collector, CONTROL_INDEXED))->status,
			 -EINVAL);
	assert_int_equal(index_file(&f, 3, "honest").status, 0);
	stop(&f);
}

static void test_sandboxed(void **state)
{
	static struct fixture f;
	char path[64];
	char text[4096];

	start(&f, "cache-sandbox");
	(void)snprintf(path, sizeof(path), "/proc/%d/status", f.pid);
	assert_true(io_read_small(AT_FDCWD, path, text, sizeof(text)) > 0);
	assert_non_null(strstr(text, "CapEff:\t0000000000000000"));
	assert_non_null(strstr(text, "CapPrm:\t0000000000000000"));
	assert_non_null(strstr(text, "NoNewPrivs:\t1"));
	assert_non_null(strstr(text, "Seccomp:\t2"));
	if (!geteuid()) {
		assert_non_null(strstr(text, "Uid:\t65534\t65534\t65534\t65534"));
		assert_non_null(strstr(text, "Groups:\t \n"));
	}
	stop(&f);
}

/* The table of a second life comes from the folder, and a damaged one is built anew. */
static void test_cached_table(void **state)
{
	static struct fixture f;
	struct control_indexed first;
	struct control_indexed again;

	compile("cached", "-g");
	start(&f, "cache-table");
	first = index_file(&f, 1, "cached");
	stop(&f);
	start(&f, "cache-table");
	again = index_file(&f, 1, "cached");
	check_table(&f, &again);
	assert_memory_equal(&first, &again, sizeof(first));
	stop(&f);
	assert_true(fixture_run("for t in cache-table/*.t*; do dd if=/dev/zero of=$t bs=40 count=1 conv=notrunc; "
				"done 2>/dev/null; chmod 700 cache-table"));
	start(&f, "cache-table");
	again = index_file(&f, 1, "cached");
	check_table(&f, &again);
	assert_memory_equal(&first, &again, sizeof(first));
	stop(&f);
}

static void test_runtimes(void **state)
{
	static const struct {
		const char *path;
		uint32_t runtime;
	} files[] = {
		{ "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", FEED_PROC_PYTHON },
		{ "/usr/bin/python3", FEED_PROC_PYTHON },
		{ "/usr/local/go/bin/gofmt", FEED_PROC_GO },
		{ "/usr/bin/node", FEED_PROC_NODE },
		{ "/bin/bash", 0 },
	};
	static struct fixture f;

	start(&f, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct control_indexed answer;

		if (access(files[i].path, R_OK) < 0) {
			print_message("skipped: no %s here\n", files[i].path);
			continue;
		}
		answer = index_file(&f, (uint32_t)i + 1, files[i].path);
		assert_int_equal(answer.runtime, files[i].runtime);
		assert_int_equal(!!(answer.flags & INDEXED_GO), files[i].runtime == FEED_PROC_GO);
	}
	stop(&f);
}

static void test_kernel(void **state)
{
	struct control_index index = { .head = { .kind = CONTROL_INDEX, .request = 1 },
				       .kind = FEED_MODULE_KERNEL,
				       .build_id_len = 4,
				       .build_id = { 1, 2, 3, 4 } };
	static struct fixture f;
	struct control_indexed answer = { .status = -ENOENT };
	struct names names;
	int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);

	start(&f, "cache-kernel");
	if (fd >= 0) {
		send_to(f.collector, &index, sizeof(index), fd);
		answer = *(const struct control_indexed *)receive(&f, f.collector, CONTROL_INDEXED);
		(void)close(fd);
	}
	if (answer.status < 0) {
		stop(&f);
		print_message("skipped: kernel addresses are hidden from this user\n");
		skip();
	}
	assert_int_not_equal(answer.kernel_text_va, 0);
	names = ask_names_once(&f, answer.key, 0); /* _text itself, by one of its names */
	assert_int_equal(names.frames, 1);
	stop(&f);
}

/* A new collector and a new server take the places of the old ones; a supervisor that is gone ends it. */
static void test_peers_come_and_go(void **state)
{
	static struct fixture f;
	int status;

	compile("again", "-g");
	start(&f, NULL);
	(void)close(f.collector);
	(void)close(f.server);
	f.collector = connect_peer(&f, ROLE_COLLECTOR);
	f.server = connect_peer(&f, ROLE_SERVER);
	assert_int_equal(index_file(&f, 1, "again").status, 0);
	(void)close(f.control);
	assert_int_equal(waitpid(f.pid, &status, 0), f.pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	channel_message_close(&f.message);
	(void)close(f.collector);
	(void)close(f.server);
}

/* ---- JIT code ------------------------------------------------------------------------------------ */

static struct control_indexed index_jit(struct fixture *f, uint64_t key, uint8_t key_len, int fd)
{
	struct control_index index = { .head = { .kind = CONTROL_INDEX, .request = 3 },
				       .kind = FEED_MODULE_JIT,
				       .build_id_len = key_len };

	memcpy(index.build_id, &key, sizeof(key));
	send_to(f->collector, &index, sizeof(index), fd);
	(void)close(fd);
	return *(const struct control_indexed *)receive(f, f->collector, CONTROL_INDEXED);
}

static void check_jit(struct fixture *f, uint64_t key, uint64_t offset, const char *name)
{
	struct names names = ask_names_once(f, key, offset);

	assert_int_equal(names.status, 0);
	assert_int_equal(names.frames, name ? 1 : 0);
	assert_string_equal(names.function, name ? name : "");
}

static void append(const char *name, const char *text)
{
	char path[512];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", fixture_dir(), name);
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
	(void)close(fd);
}

static void test_jit(void **state)
{
	static struct fixture f;
	struct control_indexed answer;

	fixture_write("perf.map", "7f0012345000 40 first\n7f00123");
	fixture_write("perf2.map", "12345000 40 of another\n");
	start(&f, NULL);
	answer = index_jit(&f, 77, 8, open_file("perf.map"));
	assert_int_equal(answer.status, 0);
	assert_int_equal(answer.flags, INDEXED_SYMBOLS);
	assert_int_equal(answer.key, 77);
	assert_int_equal(index_jit(&f, 78, 8, open_file("perf2.map")).status, 0);
	/* The frame has the low 40 bits. */
	check_jit(&f, 77, 0x0012345000, "first");
	check_jit(&f, 77, 0x001234503f, "first");
	check_jit(&f, 77, 0x0012345040, NULL);
	check_jit(&f, 78, 0x0012345000, "of another");
	assert_int_equal(ask_names_once(&f, 79, 0x12345000).status, -ENOENT);
	append("perf.map", "45040 10 second\n7f0012345010 10 over it\n");
	check_jit(&f, 77, 0x0012345040, "second");
	check_jit(&f, 77, 0x001234501f, "over it");
	check_jit(&f, 77, 0x0012345000, "first");
	/* Another file under the same key takes the place of the first. */
	assert_int_equal(index_jit(&f, 77, 8, open_file("perf2.map")).status, 0);
	check_jit(&f, 77, 0x0012345000, "of another");
	stop(&f);
}

static void test_bad_jit(void **state)
{
	static struct fixture f;
	static const char damaged[] = "DTiJ\2";
	int pipes[2];

	fixture_write("perf.map", "1000 10 a\n");
	fixture_write("bad.dump", damaged);
	append("bad.dump", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
	start(&f, NULL);
	assert_int_equal(index_jit(&f, 1, 20, open_file("perf.map")).status, -EINVAL);
	assert_int_equal(index_jit(&f, 1, 8, open_file("bad.dump")).status, -ENOEXEC);
	assert_int_equal(pipe(pipes), 0);
	(void)close(pipes[1]);
	assert_int_equal(index_jit(&f, 1, 8, pipes[0]).status, -EINVAL);
	assert_int_equal(ask_names_once(&f, 1, 0x1000).status, -ENOENT);
	/* More processes than are kept: the last ones are there, the first are not. */
	for (uint64_t key = 1; key <= 300; key++)
		assert_int_equal(index_jit(&f, key, 8, open_file("perf.map")).status, 0);
	check_jit(&f, 300, 0x1000, "a");
	check_jit(&f, 100, 0x1000, "a");
	assert_int_equal(ask_names_once(&f, 1, 0x1000).status, -ENOENT);
	stop(&f);
}

static int set_up(void **state)
{
	return !fixture_run("chmod 755 .");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_index),	      cmocka_unit_test(test_names),
		cmocka_unit_test(test_many_names),    cmocka_unit_test(test_debug_file),
		cmocka_unit_test(test_split_files),   cmocka_unit_test(test_builder_killed),
		cmocka_unit_test(test_better_file),   cmocka_unit_test(test_bad_files),
		cmocka_unit_test(test_debug_file_later),
		cmocka_unit_test(test_bad_messages),  cmocka_unit_test(test_sandboxed),
		cmocka_unit_test(test_cached_table),  cmocka_unit_test(test_runtimes),
		cmocka_unit_test(test_kernel),	      cmocka_unit_test(test_peers_come_and_go),
		cmocka_unit_test(test_jit),	      cmocka_unit_test(test_bad_jit),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
