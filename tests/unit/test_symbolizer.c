// SPDX-License-Identifier: Apache-2.0
/* The whole process, over its real channels, with real files and with files and messages that lie.
 */
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
#include "tests/support/symbolizer_host.h"

#if defined(__SANITIZE_ADDRESS__)
#define HWM_MAX_KB (2u << 20) /* freed blocks are kept for a while */
#else
#define HWM_MAX_KB (600u << 10)
#endif

/* ---- tests ----------------------------------------------------------------------------------- */

static void check_table(struct symbolizer_host *f, const struct control_indexed *answer)
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
	static struct symbolizer_host f;
	struct control_indexed answer;

	host_compile("plain", "-g");
	host_start(&f, NULL);
	answer = host_index(&f, 7, libc);
	assert_int_equal(answer.status, 0);
	assert_int_equal(answer.build_id_len, 20);
	assert_int_not_equal(answer.key, 0);
	assert_true(answer.row_count > 10000);
	assert_int_equal(answer.flags & (INDEXED_ROWS | INDEXED_FP | INDEXED_GO | INDEXED_DEBUG),
			 INDEXED_ROWS);
	assert_int_equal(answer.runtime, 0);
	check_table(&f, &answer);
	answer = host_index(&f, 8, "plain");
	assert_int_equal(answer.status, 0);
	assert_int_equal(answer.flags & (INDEXED_SYMBOLS | INDEXED_DEBUG),
			 INDEXED_SYMBOLS | INDEXED_DEBUG);
	check_table(&f, &answer);
	host_stop(&f);
}

/* Builds with frame pointers, small as they are, and others; one with a signal's return is none,
 * whatever else it has. */
static void test_frame_pointers(void **state)
{
	static const struct {
		const char *options;
		uint32_t flags;
	} cases[] = {
		{ "-fno-omit-frame-pointer", INDEXED_FP },
		{ "-fno-omit-frame-pointer -fcf-protection -mno-omit-leaf-frame-pointer", INDEXED_FP },
		{ "-fomit-frame-pointer", 0 },
		{ "-fno-omit-frame-pointer -static", 0 },
	};
	static struct symbolizer_host f;

	fixture_write("many.c", "#include <stdio.h>\n#include <stdlib.h>\n"
				"__attribute__((noinline)) int low(int n) { return n < 2 ? "
				"puts(\"x\") : low(n - 1) + low(n - 2); }\n"
				"__attribute__((noinline)) int high(int n) { return n < 1 ? "
				"atoi(\"1\") : low(n) * high(n - 1); }\n"
				"int main(int argc, char **argv) { return argc > 9 ? high(argc) + "
				"puts(argv[0]) : low(argc); }\n");
	host_start(&f, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct control_indexed answer;

		assert_true(fixture_run("gcc -O2 %s -o many many.c", cases[i].options));
		answer = host_index(&f, 10 + (uint32_t)i, "many");
		assert_int_equal(answer.status, 0);
		assert_int_equal(answer.flags & INDEXED_FP, cases[i].flags);
		check_table(&f, &answer);
	}
	host_stop(&f);
}

static void test_names(void **state)
{
	static struct symbolizer_host f;
	struct control_indexed answer;
	struct host_names names;

	host_compile("named", "-g");
	host_start(&f, "cache-names");
	answer = host_index(&f, 1, "named");
	names = host_names(&f, answer.key, host_offset("named", "twice"));
	assert_int_equal(names.frames, 1);
	assert_string_equal(names.function, "twice");
	assert_non_null(strstr(names.file, "named.c"));
	assert_int_equal(names.line, 1);
	names = host_names_once(&f, answer.key, 1 << 30);
	assert_int_equal(names.status, 0);
	assert_int_equal(names.frames, 0);
	names = host_names_once(&f, answer.key + 1, 0);
	assert_int_equal(names.status, -ENOENT);
	host_stop(&f);
	/* The next life has the names before it has seen the file. */
	host_start(&f, "cache-names");
	names = host_names_once(&f, answer.key, host_offset("named", "twice"));
	assert_string_equal(names.function, "twice");
	host_stop(&f);
}

/* More names than one message holds come in several, in order. */
static void test_many_names(void **state)
{
	static struct symbolizer_host f;
	static struct control_names ask;
	struct control_indexed answer;
	uint32_t next = 0;
	uint64_t offset;
	uint32_t more;

	host_compile("many", "-g");
	offset = host_offset("many", "twice");
	host_start(&f, NULL);
	answer = host_index(&f, 1, "many");
	(void)host_names(&f, answer.key, offset);
	ask = (struct control_names){ .head = { .kind = CONTROL_NAMES, .request = 9 },
				      .key = answer.key,
				      .count = CONTROL_NAMES_MAX };
	for (uint32_t i = 0; i < ask.count; i++)
		ask.offsets[i] = offset + i % 2;
	host_send(f.server, &ask, sizeof(ask), -1);
	do {
		const struct control_named *named = host_receive(&f, f.server, CONTROL_NAMED);

		assert_int_equal(named->first, next);
		next += named->count;
		more = named->more;
	} while (more);
	assert_int_equal(next, CONTROL_NAMES_MAX);
	host_stop(&f);
}

static void test_debug_file(void **state)
{
	static struct symbolizer_host f;
	struct control_indexed answer;
	struct control_debug_want want;
	struct host_names names;
	uint64_t offset;

	host_compile("whole", "-g");
	host_compile("other", "-g -DOTHER");
	offset = host_offset("whole", "twice");
	assert_true(fixture_run("objcopy --only-keep-debug whole whole.debug && "
				"objcopy --only-keep-debug other other.debug && "
				"objcopy --strip-all --add-gnu-debuglink=whole.debug whole stripped && "
				"cp stripped stripped2 && objcopy -R .note.gnu.build-id stripped no-id"));
	host_start(&f, NULL);
	answer = host_index(&f, 3, "stripped");
	assert_int_equal(answer.flags & (INDEXED_SYMBOLS | INDEXED_DEBUG), 0);
	want = host_answer_debug(&f, "whole.debug");
	assert_int_equal(want.index_request, 3);
	assert_int_equal(want.build_id_len, answer.build_id_len);
	assert_memory_equal(want.build_id, answer.build_id, want.build_id_len);
	assert_string_equal(want.name, "whole.debug");
	names = host_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice");
	host_stop(&f);

	/* Another program's debug file is not believed. */
	host_start(&f, NULL);
	answer = host_index(&f, 3, "stripped");
	host_answer_debug(&f, "other.debug");
	names = host_names_once(&f, answer.key, offset);
	assert_int_equal(names.frames, 0);
	host_stop(&f);

	/* By the checksum of the link where there is no build-id. */
	host_start(&f, NULL);
	answer = host_index(&f, 3, "no-id");
	assert_int_equal(answer.build_id_len, 0);
	assert_int_not_equal(answer.key, 0);
	want = host_answer_debug(&f, "whole.debug");
	assert_int_equal(want.build_id_len, 0);
	names = host_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice");
	host_stop(&f);
}

/* The builder asks for split files that the debug information names, also after nobody answered
 * once. */
static void test_split_files(void **state)
{
	static struct symbolizer_host f;
	struct control_indexed answer;
	struct control_debug_want want;
	struct host_names names;
	uint64_t offset;

	host_compile("split", "-g -gsplit-dwarf -O0");
	assert_true(fixture_run("mv split*.dwo elsewhere.dwo"));
	offset = host_offset("split", "twice");
	host_start(&f, NULL);
	answer = host_index(&f, 5, "split");
	want = host_answer_debug(&f, NULL);
	assert_int_equal(want.kind, DEBUG_PACKAGE);
	assert_int_equal(want.index_request, 5);
	assert_memory_equal(want.build_id, answer.build_id, answer.build_id_len);
	want = host_answer_debug(&f, "elsewhere.dwo");
	assert_int_equal(want.kind, DEBUG_SPLIT);
	assert_int_equal(want.name[0], '/');
	assert_non_null(strstr(want.name, ".dwo"));
	names = host_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice");
	assert_non_null(strstr(names.file, "split.c"));
	host_stop(&f);

	/* A collector that says nothing costs two seconds a question, twice. */
	host_start(&f, NULL);
	answer = host_index(&f, 5, "split");
	(void)host_receive(&f, f.collector, CONTROL_DEBUG_WANT);
	names = host_names_once(&f, answer.key, offset);
	assert_int_equal(names.state, NAMES_COMING); /* nobody waits that long */
	(void)host_receive(&f, f.collector, CONTROL_DEBUG_WANT);
	names = host_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice"); /* by its symbol */
	assert_int_not_equal(names.state, NAMES_COMING);
	assert_int_equal(channel_receive(f.collector, &f.message), 0);
	host_stop(&f);
}

/* Is a question for a file of @kind, answered with @path. */
static void expect_question(struct symbolizer_host *f, enum control_debug_kind kind,
			    const char *path)
{
	assert_int_equal(host_answer_debug(f, path).kind, kind);
}

/* Split files may come later. The symbolizer asks for them again, and reads nothing anew before
 * they are there. */
static void test_split_files_later(void **state)
{
	static struct symbolizer_host f;
	struct control_indexed answer;
	struct host_names names;
	uint64_t offset;

	host_compile("parts", "-g -gsplit-dwarf -O0");
	assert_true(fixture_run("mv parts*.dwo parts-elsewhere.dwo"));
	offset = host_offset("parts", "twice");
	host_start(&f, "cache-parts");
	for (int life = 0; life < 2;
	     life++) { /* of the process; what is missing is found out again in each */
		answer = host_index(&f, 5, "parts");
		expect_question(&f, DEBUG_PACKAGE, NULL);
		expect_question(&f, DEBUG_SPLIT, NULL);
		names = host_names(&f, answer.key, offset);
		assert_string_equal(names.function, "twice"); /* by its symbol */
		assert_int_equal(host_names_once(&f, answer.key, offset).state, NAMES_MAY_IMPROVE);
		host_stop(&f);
		host_start(&f, "cache-parts");
	}
	answer = host_index(&f, 6, "parts");
	expect_question(&f, DEBUG_PACKAGE, NULL);
	expect_question(&f, DEBUG_SPLIT, NULL);
	(void)host_names(&f, answer.key, offset);
	for (int found = 0; found < 2; found++) {
		(void)poll(NULL, 0, DEBUG_AGAIN_MS);
		host_ask_names(&f, answer.key, offset);
		expect_question(&f, DEBUG_PACKAGE, NULL);
		expect_question(&f, DEBUG_SPLIT, found ? "parts-elsewhere.dwo" : NULL);
		if (!found)
			assert_int_equal(host_receive_names(&f).state, NAMES_MAY_IMPROVE);
	}
	host_receive(&f, f.collector, CONTROL_NAMES_WANT);
	host_ask_index(&f, 7, host_open_file("parts"));
	(void)host_receive(&f, f.collector, CONTROL_INDEXED);
	expect_question(&f, DEBUG_PACKAGE, NULL);
	expect_question(&f, DEBUG_SPLIT, "parts-elsewhere.dwo");
	assert_string_equal(host_receive_names(&f).function, "twice");
	names = host_names_once(&f, answer.key, offset);
	assert_int_equal(names.state, NAMES_FINAL);
	host_stop(&f);
}

/* The file offset of the PLT stub that crtstuff.c brings along. */
static uint64_t plt_offset(const char *path)
{
	cleanup_free char *at = fixture_output("objdump -d -j .plt.got %s | "
					       "sed -n 's/^\\([0-9a-f]*\\) <__cxa_finalize@plt>:/\\1/p'", path);

	assert_true(at && at[0]);
	return fixture_offset(path, strtoull(at, NULL, 16));
}

/* A debug file that is installed later is used: it is asked for again while names of the module
 * are, though the file itself is closed by then. */
static void test_debug_file_later(void **state)
{
	static const char gofmt[] = "/usr/local/go/bin/gofmt";
	static struct symbolizer_host f;
	struct control_indexed answer, go = { .key = 0 };
	struct control_debug_want want;
	struct host_names names;
	uint64_t offset, stub;

	host_compile("late", "-g");
	offset = host_offset("late", "twice");
	assert_true(fixture_run("objcopy --only-keep-debug late late.debug && strip -o late-bare late"));
	stub = plt_offset("late-bare");
	host_start(&f, "cache-late");
	answer = host_index(&f, 4, "late-bare");
	host_answer_debug(&f, NULL);
	names = host_names(&f, answer.key, stub);
	assert_string_equal(names.function, "__cxa_finalize@plt");
	names = host_names_once(&f, answer.key, offset);
	assert_int_equal(names.frames, 0);
	for (int i = 0; i < 5; i++) { /* not asked again at once */
		names = host_names_once(&f, answer.key, offset);
		assert_int_equal(channel_receive(f.collector, &f.message), 0);
	}
	if (access(gofmt, R_OK) == 0) {
		go = host_index(&f, 5, gofmt);
		host_answer_debug(&f, NULL);
		names = host_names(&f, go.key, host_offset(gofmt, "main.main"));
		assert_string_equal(names.function, "main.main");
	}
	(void)poll(NULL, 0, DEBUG_AGAIN_MS);
	if (go.key) { /* complete: pclntab has it all, and without the file that would be lost */
		(void)host_names_once(&f, go.key, 0);
		assert_int_equal(channel_receive(f.collector, &f.message), 0);
	}
	names = host_names_once(&f, answer.key, offset);
	want = host_answer_debug(&f, "late.debug");
	assert_int_equal(want.index_request, 4);
	names = host_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice");
	assert_non_null(strstr(names.file, "late.c"));
	/* Names that only the file itself has stay. */
	names = host_names_once(&f, answer.key, stub);
	assert_string_equal(names.function, "__cxa_finalize@plt");
	host_stop(&f);
}

/* Names of @offset, asked for when the debug file is wanted again, which is @debug. Was an index
 * written to "cache-poor"? */
static bool is_built_again(struct symbolizer_host *f, uint64_t key, uint64_t offset,
			   const char *debug)
{
	struct stat before, after;
	char path[512];

	(void)snprintf(path, sizeof(path), "%s/cache-poor", fixture_dir());
	(void)poll(NULL, 0, DEBUG_AGAIN_MS);
	assert_int_equal(stat(path, &before), 0);
	host_ask_names(f, key, offset);
	host_answer_debug(f, debug);
	assert_string_equal(host_receive_names(f).function, "twice");
	assert_int_equal(stat(path, &after), 0);
	return before.st_mtim.tv_sec != after.st_mtim.tv_sec ||
	       before.st_mtim.tv_nsec != after.st_mtim.tv_nsec;
}

/* A debug file that has no DWARF is read once, until it is another. */
static void test_useless_debug_file(void **state)
{
	static struct symbolizer_host f;
	struct control_indexed answer;
	uint64_t offset;

	host_compile("poor", "-g");
	offset = host_offset("poor", "twice");
	assert_true(fixture_run("objcopy --only-keep-debug poor poor.debug && strip -o poor-bare poor && "
				"strip -g -o poor-symbols poor.debug"));
	host_start(&f, "cache-poor");
	answer = host_index(&f, 4, "poor-bare");
	host_answer_debug(&f, "poor-symbols");
	assert_string_equal(host_names(&f, answer.key, offset).function, "twice");
	assert_false(is_built_again(&f, answer.key, offset, "poor-symbols"));
	assert_true(fixture_run("cp poor.debug poor-symbols"));
	assert_true(is_built_again(&f, answer.key, offset, "poor-symbols"));
	assert_non_null(strstr(host_names_once(&f, answer.key, offset).file, "poor.c"));
	host_stop(&f);
}

/* The stripped file first, then the whole one of the same build-id: names get better. */
static void test_better_file(void **state)
{
	static struct symbolizer_host f;
	struct control_indexed answer;
	struct host_names names;
	uint64_t offset;

	host_compile("full", "-g");
	offset = host_offset("full", "twice");
	assert_true(fixture_run("strip -o bare full"));
	host_start(&f, "cache-better");
	answer = host_index(&f, 1, "bare");
	host_answer_debug(&f, NULL);
	names = host_names_once(&f, answer.key, offset);
	assert_int_equal(names.frames, 0);
	assert_true(host_index(&f, 2, "full").key == answer.key);
	names = host_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice");
	host_stop(&f);
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
	static struct symbolizer_host f;
	uint64_t started_ns;
	int pipe_fds[2];

	host_compile("good", "-g");
	fixture_write("text", "#!/bin/sh\nexec true\n");
	fixture_write("empty", "");
	assert_true(fixture_run(
		"head -c 1000 good >cut-1000; head -c 100 good >cut-100; head -c 8000 good >cut; "
		"head -c 64 good >head-only; "
		"(head -c 5000 good; head -c 20000 /dev/urandom) >noise"));
	write_sparse_elf("zeros", 200u << 20);
	write_sparse_elf("huge", 5ull << 30);
	host_start(&f, "cache-bad");
	assert_int_equal(host_index(&f, 1, "text").status, -ENOEXEC);
	assert_int_equal(host_index(&f, 2, "empty").status, -ENOEXEC);
	assert_int_equal(host_index(&f, 3, "/dev/zero").status, -ENOEXEC);
	assert_int_equal(host_index(&f, 4, "/").status, -ENOEXEC);
	assert_int_equal(pipe(pipe_fds), 0);
	host_ask_index(&f, 5, pipe_fds[0]);
	assert_int_equal(
		((const struct control_indexed *)host_receive(&f, f.collector, CONTROL_INDEXED))
			->status,
		-ENOEXEC);
	(void)close(pipe_fds[1]);
	(void)host_index(&f, 6, "cut-1000");
	(void)host_index(&f, 7, "cut-100");
	(void)host_index(&f, 8, "head-only");
	started_ns = clock_monotonic_ns();
	(void)host_index(&f, 10, "zeros");
	(void)host_index(&f, 11, "huge");
	assert_true(clock_monotonic_ns() - started_ns < 10 * NS_PER_S);
	assert_true(status_kb(f.pid, "VmHWM:") < HWM_MAX_KB);
	host_stop(&f);
}

/* Messages that lie are dropped; the next honest one is served. */
static void test_bad_messages(void **state)
{
	static struct symbolizer_host f;
	struct control_index index = { .head = { .kind = CONTROL_INDEX, .request = 1 }, .kind = 99 };
	struct control_names names = { .head = { .kind = CONTROL_NAMES, .request = 1 },
				       .count = 1u << 31 };
	struct control_debug debug = { .head = { .kind = CONTROL_DEBUG, .request = 12345 } };
	struct control_peer peer = { .head = { .kind = CONTROL_PEER }, .role = 77 };
	struct channel_head stray = { .kind = 4242 };
	int fds[3];

	host_compile("honest", "-g");
	host_start(&f, NULL);
	for (int i = 0; i < 3; i++)
		fds[i] = host_open_file("honest");
	host_send(f.control, &peer, sizeof(peer), -1);
	host_send(f.control, &peer, sizeof(peer), fds[0]);
	host_send(f.control, &stray, sizeof(stray), fds[0]);
	host_send(f.collector, &stray, sizeof(stray), fds[0]);
	host_send(f.collector, &index, sizeof(index), -1);
	host_send(f.collector, &index, sizeof(index) - 1, fds[0]);
	assert_int_equal(channel_send(f.collector, &index, sizeof(index), fds, 3), 0);
	host_send(f.collector, &debug, sizeof(debug), -1);
	host_send(f.collector, &names, sizeof(names), -1);
	host_send(f.server, &names, sizeof(names), -1);
	host_send(f.server, &names, offsetof(struct control_names, offsets), -1);
	host_send(f.server, &names, sizeof(names.head), -1);
	host_send(f.server, &index, sizeof(index), fds[0]);
	for (int i = 0; i < 3; i++)
		(void)close(fds[i]);
	/* One that is well-formed but of no kind gets its answer. */
	index.head.request = 2;
	host_send(f.collector, &index, sizeof(index), host_open_file("honest"));
	assert_int_equal(
		((const struct control_indexed *)host_receive(&f, f.collector, CONTROL_INDEXED))
			->status,
		-EINVAL);
	assert_int_equal(host_index(&f, 3, "honest").status, 0);
	host_stop(&f);
}

static void test_sandboxed(void **state)
{
	static struct symbolizer_host f;
	char path[64];
	char text[4096];

	host_start(&f, "cache-sandbox");
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
	host_stop(&f);
}

/* The table of a second life comes from the folder, and a damaged one is built anew. */
static void test_cached_table(void **state)
{
	static const char libc[] = "/lib/x86_64-linux-gnu/libc.so.6";
	static struct symbolizer_host f;
	struct control_indexed first;
	struct control_indexed again;

	host_start(&f, "cache-table");
	first = host_index(&f, 1, libc);
	host_stop(&f);
	host_start(&f, "cache-table");
	again = host_index(&f, 1, libc);
	check_table(&f, &again);
	assert_memory_equal(&first, &again, sizeof(first));
	host_stop(&f);
	assert_true(fixture_run(
		"for t in cache-table/*.t*; do dd if=/dev/zero of=$t bs=40 count=1 conv=notrunc; "
		"done 2>/dev/null; chmod 700 cache-table"));
	host_start(&f, "cache-table");
	again = host_index(&f, 1, libc);
	check_table(&f, &again);
	assert_memory_equal(&first, &again, sizeof(first));
	host_stop(&f);
}

static void test_runtimes(void **state)
{
	/* Debian's node is a library and a program that calls it. */
	static const char libnode[] = "/usr/lib/x86_64-linux-gnu/libnode.so.108";
	const char *node = access(libnode, R_OK) == 0 ? libnode : "/usr/bin/node";
	const struct {
		const char *path;
		uint32_t runtime;
	} files[] = {
		{ "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", FEED_PROC_PYTHON },
		{ "/usr/bin/python3", FEED_PROC_PYTHON },
		{ "/usr/local/go/bin/gofmt", FEED_PROC_GO },
		{ "/usr/lib/go-1.19/bin/gofmt", FEED_PROC_GO },
		{ node, FEED_PROC_NODE },
		{ "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1", FEED_PROC_RUBY },
		{ "/usr/bin/php8.2", FEED_PROC_PHP },
		{ "/usr/sbin/php-fpm8.2", FEED_PROC_PHP },
		{ "/usr/bin/perl", FEED_PROC_PERL },
		{ "/bin/bash", 0 },
	};
	static struct symbolizer_host f;

	host_start(&f, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct control_indexed answer;

		if (access(files[i].path, R_OK) < 0) {
			print_message("no %s here\n", files[i].path);
			continue;
		}
		answer = host_index(&f, (uint32_t)i + 1, files[i].path);
		assert_int_equal(answer.runtime, files[i].runtime);
		assert_int_equal(!!(answer.flags & INDEXED_GO), files[i].runtime == FEED_PROC_GO);
	}
	host_stop(&f);
}

static void test_kernel(void **state)
{
	struct control_index index = { .head = { .kind = CONTROL_INDEX, .request = 1 },
				       .kind = FEED_MODULE_KERNEL,
				       .build_id_len = 4,
				       .build_id = { 1, 2, 3, 4 } };
	static struct symbolizer_host f;
	struct control_indexed answer;
	struct host_names names;
	int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	host_start(&f, "cache-kernel");
	host_send(f.collector, &index, sizeof(index), fd);
	answer = *(const struct control_indexed *)host_receive(&f, f.collector, CONTROL_INDEXED);
	(void)close(fd);
	assert_int_equal(answer.status, 0);
	names = host_names_once(&f, answer.key, 0); /* _text itself, by one of its names */
	host_stop(&f);
	if (geteuid() && !names.frames) {
		print_message("skipped: kernel addresses are hidden from this user\n");
		skip();
	}
	assert_int_equal(names.frames, 1);
}

static void write_kernel(int fd, const char *modules)
{
	static const char core[] =
		"ffffffff81000000 T _text\nffffffff81000100 T schedule\nffffffff81001000 D some_data\n";

	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, core, sizeof(core) - 1, 0), sizeof(core) - 1);
	assert_int_equal(pwrite(fd, modules, strlen(modules), sizeof(core) - 1), (ssize_t)strlen(modules));
}

static void check_kernel(struct symbolizer_host *f, uint64_t key, uint64_t offset, const char *name)
{
	struct host_names names = host_names_once(f, key, offset);

	assert_string_equal(names.function, name);
	assert_int_equal(names.changes, strchr(name, '[') != NULL);
}

/* Modules and BPF programs that are loaded after the first look have names; those that are gone
 * keep theirs, unless another has their place. */
static void test_kernel_changes(void **state)
{
	struct control_index index = { .head = { .kind = CONTROL_INDEX, .request = 1 },
				       .kind = FEED_MODULE_KERNEL,
				       .build_id_len = 4,
				       .build_id = { 1, 2, 3, 5 } };
	static struct symbolizer_host f;
	cleanup_close int fd = io_memfd("kallsyms", 0);
	uint64_t key;

	assert_true(fd >= 0);
	write_kernel(fd, "ffffffffc0000000 t first_read\t[first]\n"
			 "ffffffffc0100000 t bpf_prog_1_one\t[bpf]\nffffffffc0110000 t bpf_prog_2_two\t[bpf]\n");
	host_start(&f, NULL);
	host_send(f.collector, &index, sizeof(index), fd);
	key = ((const struct control_indexed *)host_receive(&f, f.collector, CONTROL_INDEXED))->key;
	check_kernel(&f, key, 0x100, "schedule");
	check_kernel(&f, key, 0x3f000010, "first_read [first]");
	check_kernel(&f, key, 0x3f101000, "bpf_prog_1_one [bpf]");
	check_kernel(&f, key, 0x3f010000, "");
	write_kernel(
		fd,
		"ffffffffc0000800 t second_read\t[second]\nffffffffc0010000 t third_read\t[third]\n"
		"ffffffffc0100000 t bpf_prog_1_one\t[bpf]\nffffffffc0101000 t bpf_prog_3_new\t[bpf]\n"
		"ffffffffc0110000 t bpf_prog_2_two\t[bpf]\n");
	check_kernel(&f, key, 0x3f010000, ""); /* not read all the time */
	(void)poll(NULL, 0, DEBUG_AGAIN_MS);
	check_kernel(&f, key, 0x3f101000, "bpf_prog_3_new [bpf]");
	check_kernel(&f, key, 0x3f010000, "third_read [third]");
	check_kernel(&f, key, 0x3f000010, "first_read [first]");
	check_kernel(&f, key, 0x3f000810, "second_read [second]");
	check_kernel(&f, key, 0x100, "schedule");
	check_kernel(&f, key, 0x1000, "");
	host_stop(&f);
}

/* A file whose names nobody wants is read for its rows alone; whoever asks for them all the same
 * waits for it. */
static void test_names_later(void **state)
{
	struct control_index index = { .head = { .kind = CONTROL_INDEX, .request = 6 },
				       .kind = FEED_MODULE_ELF,
				       .want_rows = 1,
				       .names_later = 1 };
	static struct symbolizer_host f;
	struct control_indexed answer;
	struct host_names names;
	int fd;

	host_compile("later", "-g");
	fd = host_open_file("later");
	host_start(&f, "cache-later");
	host_send(f.collector, &index, sizeof(index), fd);
	answer = *(const struct control_indexed *)host_receive(&f, f.collector, CONTROL_INDEXED);
	check_table(&f, &answer);
	host_ask_names(&f, answer.key, host_offset("later", "twice"));
	assert_int_equal(
		((const struct channel_head *)host_receive(&f, f.collector, CONTROL_NAMES_WANT))->request, 6);
	assert_true(host_index(&f, 6, "later").key == answer.key);
	names = host_receive_names(&f);
	if (!names.frames) /* a busy machine */
		names = host_names(&f, answer.key, host_offset("later", "twice"));
	assert_string_equal(names.function, "twice");
	host_stop(&f);
	/* Names in the cache are there at once. */
	host_start(&f, "cache-later");
	host_send(f.collector, &index, sizeof(index), fd);
	(void)close(fd);
	(void)host_receive(&f, f.collector, CONTROL_INDEXED);
	names = host_names_once(&f, answer.key, host_offset("later", "twice"));
	assert_string_equal(names.function, "twice");
	host_stop(&f);
}

/* An index that is not there any more (damaged by a power loss, another version's, evicted) is
 * built again, from the file, which is asked for. */
static void test_lost_index(void **state)
{
	static struct symbolizer_host f;
	struct control_indexed answer;
	struct host_names names;
	uint64_t offset;

	host_compile("lost", "-g");
	offset = host_offset("lost", "twice");
	host_start(&f, "cache-lost");
	answer = host_index(&f, 1, "lost");
	names = host_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice");
	host_stop(&f);
	assert_true(fixture_run(
		"for s in cache-lost/*.s*; do dd if=/dev/zero of=$s bs=40 count=1 conv=notrunc; "
		"done 2>/dev/null; chmod 700 cache-lost"));
	host_start(&f, "cache-lost");
	answer = host_index(&f, 8, "lost");
	host_ask_names(&f, answer.key, offset);
	assert_int_equal(
		((const struct channel_head *)host_receive(&f, f.collector, CONTROL_NAMES_WANT))
			->request,
		8);
	assert_true(host_index(&f, 8, "lost").key == answer.key);
	names = host_receive_names(&f);
	if (!names.frames) /* a busy machine */
		names = host_names(&f, answer.key, offset);
	assert_string_equal(names.function, "twice");
	assert_int_equal(names.state, NAMES_FINAL);
	host_stop(&f);
}

/* A new collector and a new server take the places of the old ones; a supervisor that is gone ends
 * it. */
static void test_peers_come_and_go(void **state)
{
	static struct symbolizer_host f;
	int status;

	host_compile("again", "-g");
	host_start(&f, NULL);
	(void)close(f.collector);
	(void)close(f.server);
	f.collector = host_connect(&f, ROLE_COLLECTOR);
	f.server = host_connect(&f, ROLE_SERVER);
	assert_int_equal(host_index(&f, 1, "again").status, 0);
	(void)close(f.control);
	assert_int_equal(waitpid(f.pid, &status, 0), f.pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	channel_message_close(&f.message);
	(void)close(f.collector);
	(void)close(f.server);
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
		cmocka_unit_test(test_split_files),
		cmocka_unit_test(test_better_file),   cmocka_unit_test(test_bad_files),
		cmocka_unit_test(test_split_files_later),
		cmocka_unit_test(test_debug_file_later), cmocka_unit_test(test_useless_debug_file),
		cmocka_unit_test(test_bad_messages),  cmocka_unit_test(test_sandboxed),
		cmocka_unit_test(test_cached_table),  cmocka_unit_test(test_runtimes),
		cmocka_unit_test(test_kernel),	      cmocka_unit_test(test_kernel_changes),
		cmocka_unit_test(test_peers_come_and_go),
		cmocka_unit_test(test_names_later),   cmocka_unit_test(test_lost_index),
		cmocka_unit_test(test_frame_pointers),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
