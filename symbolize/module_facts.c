// SPDX-License-Identifier: Apache-2.0
#include "symbolize/module_facts.h"

#include <errno.h>
#include <string.h>

#include "agent/base/io.h"

#define FACTS_MAGIC   "profdmod"
#define FACTS_VERSION 2u
#define SKELETON_MAX      (64u << 10)

struct facts_head {
	char magic[8];
	uint32_t version;
	uint32_t skeleton_len;
	uint64_t size_bytes;
	uint64_t voucher;
	struct elf_identity identity;
};

void module_facts_keep(struct module_cache *cache, uint64_t key, const struct module_facts *facts)
{
	struct facts_head head = { .magic = FACTS_MAGIC,
				   .version = FACTS_VERSION,
				   .skeleton_len = (uint32_t)facts->skeleton_len,
				   .size_bytes = facts->size_bytes,
				   .voucher = facts->voucher };
	cleanup_free uint8_t *image = NULL;
	uint8_t tag;

	if (!cache || !facts->skeleton || facts->skeleton_len > SKELETON_MAX ||
	    module_cache_has(cache, key, MODULE_CACHE_FACTS, &tag))
		return;
	image = malloc(sizeof(head) + facts->skeleton_len);
	if (!image)
		return;
	memcpy(&head.identity, &facts->identity, sizeof(head.identity));
	memcpy(image, &head, sizeof(head));
	memcpy(image + sizeof(head), facts->skeleton, facts->skeleton_len);
	(void)!module_cache_put(cache, key, MODULE_CACHE_FACTS, 0, image,
				sizeof(head) + facts->skeleton_len);
}

static bool is_valid(const struct facts_head *head, size_t len)
{
	return len >= sizeof(*head) && !memcmp(head->magic, FACTS_MAGIC, sizeof(head->magic)) &&
	       head->version == FACTS_VERSION && head->skeleton_len <= SKELETON_MAX &&
	       len == sizeof(*head) + head->skeleton_len &&
	       head->identity.build_id_len <= sizeof(head->identity.build_id) &&
	       memchr(head->identity.debug_link, '\0', sizeof(head->identity.debug_link));
}

int module_facts_recall(struct module_cache *cache, uint64_t key, struct module_facts *ret)
{
	cleanup_free char *image = NULL;
	cleanup_close int fd = -1;
	struct facts_head head;
	uint8_t tag;
	size_t len;
	void *skeleton;

	fd = cache ? module_cache_open(cache, key, MODULE_CACHE_FACTS, &tag) : -ENOENT;
	if (fd < 0 || io_read_fd(fd, sizeof(head) + SKELETON_MAX, &image, &len) < 0)
		return -ENOENT;
	if (len >= sizeof(head))
		memcpy(&head, image, sizeof(head));
	if (len < sizeof(head) || !is_valid(&head, len)) {
		module_cache_drop(cache, key, MODULE_CACHE_FACTS);
		return -ENOENT;
	}
	skeleton = malloc(head.skeleton_len + 1u);
	if (!skeleton)
		return -ENOMEM;
	memcpy(skeleton, image + sizeof(head), head.skeleton_len);
	*ret = (struct module_facts){ .identity = head.identity,
				      .size_bytes = head.size_bytes,
				      .voucher = head.voucher,
				      .skeleton = skeleton,
				      .skeleton_len = head.skeleton_len };
	return 0;
}
