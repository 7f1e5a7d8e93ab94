/* SPDX-License-Identifier: Apache-2.0 */
/* API keys: 256 random bits, shown once, kept as SHA-256 of their text in the store. The table in
 * memory is read at the start. It is read again, at most once a second, when an unknown key
 * arrives: another writer of the same store may have made the key. Of a store that hosts share it
 * is also read every 10 s, so that a key that was revoked elsewhere ends. Thread-safe. */
#ifndef PROFD_API_KEYS_H
#define PROFD_API_KEYS_H

#include "api/http/http.h"
#include "api/http/router.h"

#define KEYS_MAX      1024
#define KEY_NAME_SIZE 65
#define KEY_ID_SIZE   32 /* "key-" + 26 + NUL */
#define KEY_TEXT_SIZE 64 /* "pk_" + 43 + NUL */

struct store;
struct keys;

struct key {
	char id[KEY_ID_SIZE];
	char name[KEY_NAME_SIZE];
	char tenant[TENANT_NAME_SIZE]; /* "" = for all */
	enum http_role role;
	uint64_t created_at_ns; /* realtime */
	uint8_t digest[32];
};

/* @store is borrowed and may be NULL: then there are no keys. */
int keys_create(struct store *store, struct keys **ret, struct err *err) must_use;
void keys_destroy(struct keys *keys);
CLEANUP_DEFINE(keys, struct keys *, keys_destroy);

bool keys_any(struct keys *keys);
/* Somebody came with a token where none is known: of a store that hosts share it is read again, at
 * most once a second. */
void keys_look(struct keys *keys);
/* The same of a store that is not open here: store_peek(). */
int keys_peek(const char *data_dir, const char *store_url) must_use;
/* "admin"; a static text. */
const char *keys_role_word(enum http_role role);
/* The key whose text is @token: 1, 0 = there is none; negative errno: it is none of those that are
 * known, and the store cannot be asked. */
int keys_find(struct keys *keys, const char *token, struct key *ret) must_use;
/* Whether a key of this id still exists: sessions of the page end with their key. */
bool keys_has(struct keys *keys, const char *id);

http_handler_fn handle_create_key, handle_list_keys, handle_delete_key;

#endif
