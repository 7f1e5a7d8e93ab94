// SPDX-License-Identifier: Apache-2.0
#include "agent/wire/module_key.h"

#include "agent/base/hash.h"

/* The seeds keep the two kinds of id apart; stored, so never to be changed. */
#define SEED_BUILD_ID 0x6275696c642d6964ull /* "build-id" */
#define SEED_GO_ID    0x676f206275696c64ull /* "go build" */
#define SEED_VOUCHER  0x766f756368657273ull /* "vouchers" */
#define SEED_FILE     0x66696c65206f6620ull /* "file of " */

static uint64_t key_of(const void *data, size_t len, uint64_t seed)
{
	uint64_t key = hash_bytes(data, len, seed);

	return key ? key : 1;
}

uint64_t module_key_of_build_id(const uint8_t *build_id, size_t len)
{
	return key_of(build_id, len, SEED_BUILD_ID);
}

uint64_t module_key_of_go_id(const uint8_t *go_id, size_t len)
{
	return key_of(go_id, len, SEED_GO_ID);
}

uint64_t module_voucher_of(const struct stat *st)
{
	const uint64_t writers[] = { st->st_uid, st->st_mode & S_IWGRP ? st->st_gid + 1ull : 0,
				     st->st_mode & S_IWOTH };
	uint64_t voucher;

	if (!st->st_uid && !(st->st_mode & (S_IWGRP | S_IWOTH)))
		return MODULE_VOUCHER_ROOT;
	voucher = hash_bytes(writers, sizeof(writers), SEED_VOUCHER);
	return voucher > MODULE_VOUCHER_CONTENT ? voucher : SEED_VOUCHER;
}

uint64_t module_key_vouched(uint64_t id_key, uint64_t layout, uint64_t voucher)
{
	const uint64_t parts[] = { id_key, layout, voucher };

	return key_of(parts, sizeof(parts), SEED_VOUCHER);
}

uint64_t module_file_number(uint32_t dev_major, uint32_t dev_minor, uint64_t inode)
{
	const uint64_t parts[] = { (uint64_t)dev_major << 32 | dev_minor, inode };

	return inode ? key_of(parts, sizeof(parts), SEED_FILE) : 0;
}
