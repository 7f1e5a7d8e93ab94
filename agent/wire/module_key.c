// SPDX-License-Identifier: Apache-2.0
#include "agent/wire/module_key.h"

#include "agent/base/hash.h"

/* The seeds keep the two kinds of id apart; stored, so never to be changed. */
#define SEED_BUILD_ID 0x6275696c642d6964ull /* "build-id" */
#define SEED_GO_ID    0x676f206275696c64ull /* "go build" */

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
