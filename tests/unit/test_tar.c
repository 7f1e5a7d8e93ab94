// SPDX-License-Identifier: Apache-2.0
/* Archives of a backup: what is written is read back, also by tar(1); what is not ours is refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/io.h"
#include "agent/base/tar.h"

static int file_of(const char *text, size_t len)
{
	int fd = io_memfd("test", 0);

	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, text, len), 0);
	return fd;
}

static void test_headers(void **state)
{
	struct tar_entry entry = { "sessions/sess-1.log", 123456789012ull % TAR_BYTES_MAX,
				   1700000000 },
			 again;
	char block[TAR_BLOCK], bad[TAR_BLOCK] = { 0 };

	assert_int_equal(tar_encode(&entry, block), 0);
	assert_int_equal(tar_decode(block, &again), 1);
	assert_string_equal(again.name, entry.name);
	assert_true(again.bytes == entry.bytes && again.modified_s == entry.modified_s);
	assert_int_equal(tar_decode(bad, &again), 0);
	for (size_t i = 0; i < TAR_BLOCK; i++) {
		memcpy(bad, block, sizeof(bad));
		bad[i] ^= 1;
		/* the checksum covers every byte; its own last one is a blank that nobody reads */
		if (i != 155)
			assert_int_equal(tar_decode(bad, &again), -EBADMSG);
	}
	entry.bytes = TAR_BYTES_MAX + 1;
	assert_int_equal(tar_encode(&entry, block), -EFBIG);
	memset(entry.name, 'x', sizeof(entry.name));
	entry.name[TAR_NAME_SIZE - 1] = '\0';
	entry.bytes = TAR_BYTES_MAX;
	assert_int_equal(tar_encode(&entry, block), 0);
	assert_int_equal(tar_decode(block, &again), 1);
	entry.name[0] = '\0';
	assert_int_equal(tar_encode(&entry, block), -ENAMETOOLONG);
}

static void test_content(void **state)
{
	static char text[3 * TAR_BLOCK + 7];
	struct tar_entry entry = { "state.db", sizeof(text), 1 };
	cleanup_close int in = -1, out = file_of("", 0);
	char block[TAR_BLOCK], copy[sizeof(text)];

	memset(text, 'x', sizeof(text));
	in = file_of(text, sizeof(text));
	assert_int_equal(tar_append(out, &entry, in), 0);
	/* A file that has become shorter is filled: the archive stays readable. */
	entry.bytes = sizeof(text) + 1000;
	assert_int_equal(tar_append(out, &entry, in), 0);
	assert_int_equal(tar_finish(out), 0);
	assert_int_equal(lseek(out, 0, SEEK_CUR) % TAR_BLOCK, 0);
	assert_int_equal(lseek(out, 0, SEEK_SET), 0);
	assert_int_equal(io_read_exact(out, block, sizeof(block)), 0);
	assert_int_equal(tar_decode(block, &entry), 1);
	assert_int_equal(entry.bytes, sizeof(text));
	assert_int_equal(io_read_exact(out, copy, sizeof(copy)), 0);
	assert_memory_equal(copy, text, sizeof(text));
	assert_int_equal(io_read_exact(out, block, tar_padding(sizeof(text))), 0);
	assert_int_equal(io_read_exact(out, block, sizeof(block)), 0);
	assert_int_equal(tar_decode(block, &entry), 1);
	assert_int_equal(entry.bytes, sizeof(text) + 1000);
	assert_int_equal(lseek(out, (off_t)(entry.bytes + tar_padding(entry.bytes)), SEEK_CUR) >= 0, 1);
	for (unsigned i = 0; i < TAR_END_BLOCKS; i++) {
		assert_int_equal(io_read_exact(out, block, sizeof(block)), 0);
		assert_int_equal(tar_decode(block, &entry), 0);
	}
	assert_int_equal(io_read_exact(out, block, 1), -ENODATA);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_content),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
