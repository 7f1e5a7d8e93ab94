// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/feed/feed_file.h"

#include <errno.h>
#include <string.h>

#define FILE_MAGIC "profdfd"

struct file_head {
	char magic[8];
	uint32_t version;
	uint32_t byte_order;
};

struct record_head {
	uint32_t len;
	uint32_t kind;
};

struct feed_file {
	FILE *stream;
	uint8_t *data; /* reading: of the present record */
	int error;
};

static struct feed_file *file_alloc(int fd, const char *mode)
{
	struct feed_file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	file->stream = fdopen(fd, mode);
	if (!file->stream) {
		free(file);
		return NULL;
	}
	return file;
}

int feed_file_create(int fd, struct feed_file **ret)
{
	struct file_head head = { .magic = FILE_MAGIC,
				  .version = FEED_FILE_VERSION,
				  .byte_order = FEED_FILE_BYTE_ORDER };
	struct feed_file *file = file_alloc(fd, "we");

	if (!file)
		return -ENOMEM;
	if (fwrite(&head, sizeof(head), 1, file->stream) != 1)
		file->error = -EIO;
	*ret = file;
	return 0;
}

int feed_file_open(int fd, struct feed_file **ret, struct err *err)
{
	cleanup_close int copy = dup(fd);
	cleanup(feed_file) struct feed_file *file = NULL;
	struct file_head head;

	if (copy < 0)
		return -errno;
	file = file_alloc(copy, "re");
	if (!file)
		return -ENOMEM;
	(void)take_fd(&copy);
	if (fread(&head, sizeof(head), 1, file->stream) != 1 ||
	    memcmp(head.magic, FILE_MAGIC, sizeof(head.magic)) != 0)
		return err_set(err, EPROTO, NULL, NULL, "it is not a recording of profd");
	if (head.byte_order != FEED_FILE_BYTE_ORDER)
		return err_set(err, EPROTO, NULL, NULL,
			       "it was recorded on a host of the other byte order");
	if (head.version != FEED_FILE_VERSION)
		return err_set(err, EPROTO, NULL, NULL,
			       "it has version %u, this profd reads version %u", head.version,
			       FEED_FILE_VERSION);
	(void)close(fd);
	*ret = take_ptr(file);
	return 0;
}

int feed_file_close(struct feed_file *file)
{
	int rc;

	if (!file)
		return 0;
	rc = file->error;
	if (fclose(file->stream) != 0 && rc == 0)
		rc = -errno;
	free(file->data);
	free(file);
	return rc;
}

static void put(struct feed_file *file, const void *data, size_t len)
{
	if (!file->error && len > 0 && fwrite(data, len, 1, file->stream) != 1)
		file->error = -EIO;
}

void feed_file_add(struct feed_file *file, uint32_t kind, const struct iovec *parts, int part_count)
{
	static const uint8_t zeros[8];
	struct record_head head = { .kind = kind };
	size_t len = 0;

	for (int i = 0; i < part_count; i++)
		len += parts[i].iov_len;
	if (len > FEED_FILE_RECORD_MAX) {
		file->error = file->error ? file->error : -EMSGSIZE;
		return;
	}
	head.len = (uint32_t)len;
	put(file, &head, sizeof(head));
	for (int i = 0; i < part_count; i++)
		put(file, parts[i].iov_base, parts[i].iov_len);
	put(file, zeros, -len & 7);
}

int feed_file_next(struct feed_file *file, uint32_t *ret_kind, void **ret_data, size_t *ret_len)
{
	struct record_head head;
	size_t padded;

	if (fread(&head, sizeof(head), 1, file->stream) != 1)
		return ferror(file->stream) ? -EIO : 0;
	if (head.len > FEED_FILE_RECORD_MAX)
		return -EPROTO;
	padded = (head.len + 7ull) & ~7ull;
	free(file->data);
	/* An exact size: whoever decodes beyond it is caught by a sanitizer. */
	file->data = malloc(padded ? padded : 1);
	if (!file->data)
		return -ENOMEM;
	if (padded && fread(file->data, padded, 1, file->stream) != 1)
		return ferror(file->stream) ? -EIO : 0;
	*ret_kind = head.kind;
	*ret_data = file->data;
	*ret_len = head.len;
	return 1;
}
