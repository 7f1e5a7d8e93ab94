// SPDX-License-Identifier: Apache-2.0
#include "api/auth/keys.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/parse.h"
#include "agent/base/ulid.h"
#include "agent/store/store.h"
#include "api/api_internal.h"
#include "api/http/json_in.h"
#include "api/http/json_out.h"
#include "api/auth/secret.h"

#define KIND	  "key"
#define NO_TENANT "-" /* keys for all tenants stand under this name in the store */
#define RELOAD_NS NS_PER_S	   /* when an unknown key comes */
#define FAILED_NS (10 * NS_PER_S) /* the same, after the store could not be read */
#define LOAD_WAIT_NS NS_PER_S	  /* for another caller that reads the store */
#define SHARED_NS (10 * NS_PER_S) /* of a store that others write to: they revoke keys, too */

struct keys {
	struct store *store;
	pthread_mutex_t lock;
	struct key *items;
	unsigned count;
	pthread_mutex_t load_lock; /* taken before lock: one reads the store, others go on with what
				      is known */
	_Atomic uint64_t tried_ns;	/* monotonic: the store was asked last */
	int tried;			/* what came of it; of load_lock */
};

static const char *const role_words[] = { "none", "read", "profile", "admin" };

const char *keys_role_word(enum http_role role)
{
	return role_words[role];
}

/* ---- store ----------------------------------------------------------------------------------- */

static int role_parse(const char *word, enum http_role *ret)
{
	for (unsigned i = HTTP_ROLE_READ; i < ARRAY_SIZE(role_words); i++) {
		if (strcmp(role_words[i], word) == 0) {
			*ret = (enum http_role)i;
			return 0;
		}
	}
	return -EINVAL;
}

static int key_from_json(const char *text, size_t len, struct key *ret)
{
	cleanup(json) cJSON *body = NULL;
	const char *id = "", *name = "", *tenant = "", *role = "", *digest = "";
	struct key key = { 0 };
	int rc = json_in_object(text, len, &body, NULL);

	if (rc < 0)
		return rc;
	if (json_in_text(body, "id", true, KEY_ID_SIZE - 1, &id, NULL) < 0 ||
	    json_in_text(body, "name", true, KEY_NAME_SIZE - 1, &name, NULL) < 0 ||
	    json_in_text(body, "tenant", false, TENANT_NAME_SIZE - 1, &tenant, NULL) < 0 ||
	    json_in_text(body, "role", true, 16, &role, NULL) < 0 ||
	    json_in_text(body, "digest", true, SECRET_BASE64_SIZE, &digest, NULL) < 0 ||
	    json_in_uint(body, "createdMs", true, 0, 1ull << 52, &key.created_at_ns, NULL) < 0 ||
	    role_parse(role, &key.role) < 0 ||
	    base64url_decode(digest, strlen(digest), key.digest, sizeof(key.digest)) != SECRET_BYTES)
		return -EINVAL;
	key.created_at_ns *= NS_PER_MS;
	(void)snprintf(key.id, sizeof(key.id), "%s", id);
	(void)snprintf(key.name, sizeof(key.name), "%s", name);
	(void)snprintf(key.tenant, sizeof(key.tenant), "%s", tenant);
	*ret = key;
	return 0;
}

struct loading {
	struct key *items;
	unsigned count;
};

static int visit(void *ctx, const struct store_record *record)
{
	struct loading *loading = ctx;

	/* A damaged record grants nothing. */
	if (loading->count < KEYS_MAX &&
	    key_from_json(record->body, record->body_len, &loading->items[loading->count]) == 0)
		loading->count++;
	return 0;
}

/* With load_lock held, and not the lock: the store may be slow. */
static int load(struct keys *keys, struct err *err)
{
	const struct store_query query = { .kind = KIND, .every_host = true };
	struct loading loading = { .items = calloc(KEYS_MAX, sizeof(*loading.items)) };
	struct key *old = NULL;
	int rc;

	rc = loading.items ? store_list(keys->store, &query, visit, &loading, NULL, err) : -ENOMEM;
	atomic_store(&keys->tried_ns, clock_monotonic_ns());
	keys->tried = rc;
	if (rc < 0) {
		free(loading.items);
		return rc;
	}
	(void)pthread_mutex_lock(&keys->lock);
	old = keys->items;
	keys->items = loading.items;
	keys->count = loading.count;
	(void)pthread_mutex_unlock(&keys->lock);
	free(old);
	return 0;
}

/* Reads the keys of a shared store again when they are older than the limit, so that keys made or
 * revoked on other hosts count here. One thread reads; the others do not wait. While the store
 * cannot be reached, the keys read last count. */
static void refresh(struct keys *keys, uint64_t age_ns)
{
	if (!keys->store || !store_is_shared(keys->store) ||
	    clock_monotonic_ns() - atomic_load(&keys->tried_ns) < age_ns ||
	    pthread_mutex_trylock(&keys->load_lock) != 0)
		return;
	if (clock_monotonic_ns() - atomic_load(&keys->tried_ns) >= age_ns)
		(void)!load(keys, NULL);
	(void)pthread_mutex_unlock(&keys->load_lock);
}

int keys_create(struct store *store, struct keys **ret, struct err *err)
{
	cleanup(keys) struct keys *keys = calloc(1, sizeof(*keys));
	int rc;

	if (!keys)
		return -ENOMEM;
	(void)pthread_mutex_init(&keys->lock, NULL);
	(void)pthread_mutex_init(&keys->load_lock, NULL);
	keys->store = store;
	rc = store ? load(keys, err) : 0;
	if (rc < 0)
		return rc;
	*ret = take_ptr(keys);
	return 0;
}

void keys_destroy(struct keys *keys)
{
	if (!keys)
		return;
	(void)pthread_mutex_destroy(&keys->lock);
	(void)pthread_mutex_destroy(&keys->load_lock);
	free(keys->items);
	free(keys);
}

/* ---- look-up --------------------------------------------------------------------------------- */

void keys_look(struct keys *keys)
{
	refresh(keys, RELOAD_NS);
}

bool keys_any(struct keys *keys)
{
	bool any;

	refresh(keys, SHARED_NS);
	(void)pthread_mutex_lock(&keys->lock);
	any = keys->count > 0;
	(void)pthread_mutex_unlock(&keys->lock);
	return any;
}

int keys_peek(const char *data_dir, const char *store_url)
{
	return store_peek(data_dir, store_url, KIND);
}

/* Every digest is compared, whichever matches. */
static bool find_digest(const struct keys *keys, const uint8_t digest[SECRET_BYTES],
			struct key *ret)
{
	bool found = false;

	for (unsigned i = 0; i < keys->count; i++) {
		if (secret_equal(keys->items[i].digest, digest)) {
			*ret = keys->items[i];
			found = true;
		}
	}
	return found;
}

static bool is_known(struct keys *keys, const uint8_t digest[SECRET_BYTES], struct key *ret)
{
	bool found;

	(void)pthread_mutex_lock(&keys->lock);
	found = find_digest(keys, digest, ret);
	(void)pthread_mutex_unlock(&keys->lock);
	return found;
}

int keys_find(struct keys *keys, const char *token, struct key *ret)
{
	const uint64_t until_ns = clock_monotonic_ns() + LOAD_WAIT_NS;
	uint8_t digest[SECRET_BYTES];
	int rc = 0;

	if (secret_sha256(token, strlen(token), digest) < 0)
		return 0;
	refresh(keys, SHARED_NS);
	if (is_known(keys, digest, ret))
		return 1;
	if (!keys->store)
		return 0;
	/* A store that hangs holds one caller, not one after another. */
	rc = pthread_mutex_clocklock(&keys->load_lock, CLOCK_MONOTONIC, &(struct timespec){
			(time_t)(until_ns / NS_PER_S), (long)(until_ns % NS_PER_S) });
	if (rc)
		return is_known(keys, digest, ret) ? 1 : -rc;
	if (clock_monotonic_ns() - atomic_load(&keys->tried_ns) >
	    (keys->tried < 0 ? FAILED_NS : RELOAD_NS))
		(void)!load(keys, NULL);
	rc = keys->tried;
	(void)pthread_mutex_unlock(&keys->load_lock);
	return is_known(keys, digest, ret) ? 1 : rc;
}

bool keys_has(struct keys *keys, const char *id)
{
	bool found = false;

	refresh(keys, SHARED_NS);
	(void)pthread_mutex_lock(&keys->lock);
	for (unsigned i = 0; i < keys->count && !found; i++)
		found = strcmp(keys->items[i].id, id) == 0;
	(void)pthread_mutex_unlock(&keys->lock);
	return found;
}

/* ---- handlers -------------------------------------------------------------------------------- */

static void key_json(struct json_out *json, const struct key *key, const char *text,
		     const struct json_warnings *warnings)
{
	json_out_open(json, NULL, '{');
	json_out_text(json, "id", key->id);
	json_out_text(json, "name", key->name);
	json_out_text(json, "role", role_words[key->role]);
	json_out_text(json, "tenant", key->tenant[0] ? key->tenant : NULL);
	json_out_time(json, "createdAt", key->created_at_ns);
	if (text)
		json_out_text(json, "key", text);
	warnings_json(json, warnings);
	json_out_close(json, '}');
}

static int parse_key(const struct http_request *request, struct key *ret,
		     struct json_warnings *warnings, struct err *err)
{
	cleanup(json) cJSON *body = NULL;
	const char *name = "", *role = "", *tenant = "";
	int rc = json_in_object(request->body, request->body_len, &body, err);

	if (rc == 0)
		rc = json_in_text(body, "name", true, KEY_NAME_SIZE - 1, &name, err);
	if (rc == 0)
		rc = json_in_text(body, "role", true, 16, &role, err);
	if (rc == 0)
		rc = json_in_text(body, "tenant", false, TENANT_NAME_SIZE - 1, &tenant, err);
	if (rc < 0)
		return rc;
	if (role_parse(role, &ret->role) < 0)
		return err_set(err, EINVAL, "InvalidParam", "role",
			       "member role must be read, profile or admin");
	if (*tenant && !parse_is_name(tenant))
		return err_set(err, EINVAL, "InvalidParam", "tenant",
			       "member tenant must be 1 to 64 of A-Z a-z 0-9 . _ -");
	(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	(void)snprintf(ret->tenant, sizeof(ret->tenant), "%s", tenant);
	json_in_unknown(body, "name role tenant", warnings);
	return 0;
}

static int save(struct store *store, const struct key *key, struct err *err)
{
	struct buf body = { .max = 4096 };
	struct json_out json = json_out_to(&body);
	char digest[SECRET_BASE64_SIZE];
	struct store_record record = { .kind = KIND, .id = key->id, .service = "", .type = "",
				       .status = "", .created_ns = key->created_at_ns,
				       .tenant = key->tenant[0] ? key->tenant : NO_TENANT };
	int rc = base64url_encode(key->digest, SECRET_BYTES, digest, sizeof(digest));

	json_out_open(&json, NULL, '{');
	json_out_text(&json, "id", key->id);
	json_out_text(&json, "name", key->name);
	json_out_text(&json, "tenant", key->tenant);
	json_out_text(&json, "role", role_words[key->role]);
	json_out_text(&json, "digest", digest);
	json_out_uint(&json, "createdMs", key->created_at_ns / NS_PER_MS);
	json_out_close(&json, '}');
	record.body = body.data;
	record.body_len = body.len;
	if (rc == 0)
		rc = body.error ? body.error : store_put(store, &record, err);
	buf_deinit(&body);
	return rc;
}

static int make_key(struct key *key, char text[KEY_TEXT_SIZE])
{
	uint8_t random[SECRET_BYTES];
	int rc = secret_random(random);

	memcpy(text, "pk_", 4);
	if (rc == 0)
		rc = base64url_encode(random, sizeof(random), text + 3, KEY_TEXT_SIZE - 3);
	if (rc == 0)
		rc = secret_sha256(text, strlen(text), key->digest);
	key->created_at_ns = clock_realtime_ns() / NS_PER_MS * NS_PER_MS;
	memcpy(key->id, "key-", 4);
	ulid_make(key->created_at_ns, key->id + 4);
	return rc;
}

static int no_store(struct err *err)
{
	return err_set(err, EIO, "StoreUnavailable", NULL, "there is no store to keep keys in");
}

/* An administrator of one tenant sees the keys of this tenant only. */
static bool may_see(const struct http_request *request, const struct key *key)
{
	return !request->bound || strcmp(request->tenant, key->tenant) == 0;
}

/* An administrator of one tenant makes keys of this tenant, and no others. */
static int bind_key(struct http_call *call, struct key *key)
{
	const struct http_request *request = call->request;

	if (!key->tenant[0] && request->bound)
		memcpy(key->tenant, request->tenant, sizeof(key->tenant));
	if (!may_see(request, key))
		return err_set(call->err, EACCES, "TenantMismatch", "tenant",
			       "this token may make keys of its own tenant only");
	return 0;
}

/* Keys written while the store cannot be read count on this host, until it can be read again.
 * load_lock held. */
static void know(struct keys *keys, const struct key *key)
{
	(void)pthread_mutex_lock(&keys->lock);
	if (keys->items && keys->count < KEYS_MAX)
		keys->items[keys->count++] = *key;
	(void)pthread_mutex_unlock(&keys->lock);
}

static void forget(struct keys *keys, const char *id)
{
	(void)pthread_mutex_lock(&keys->lock);
	for (unsigned i = 0; i < keys->count; i++)
		if (strcmp(keys->items[i].id, id) == 0)
			keys->items[i--] = keys->items[--keys->count];
	(void)pthread_mutex_unlock(&keys->lock);
}

static unsigned count(struct keys *keys)
{
	unsigned count;

	(void)pthread_mutex_lock(&keys->lock);
	count = keys->count;
	(void)pthread_mutex_unlock(&keys->lock);
	return count;
}

int handle_create_key(struct http_call *call)
{
	struct keys *keys = call->api->keys;
	struct json_out json = json_out_to(&call->answer->body);
	struct key key = { 0 };
	struct json_warnings warnings = { 0 };
	char text[KEY_TEXT_SIZE];
	int rc = keys->store ? parse_key(call->request, &key, &warnings, call->err) : no_store(call->err);

	if (rc == 0)
		rc = bind_key(call, &key);
	if (rc == 0)
		rc = make_key(&key, text);
	if (rc < 0)
		return rc;
	(void)pthread_mutex_lock(&keys->load_lock);
	if (count(keys) >= KEYS_MAX)
		rc = err_set(call->err, E2BIG, "LimitReached", NULL, "there are %d keys already",
			     KEYS_MAX);
	else
		rc = save(keys->store, &key, call->err);
	if (rc == 0 && load(keys, NULL) < 0)
		know(keys, &key);
	(void)pthread_mutex_unlock(&keys->load_lock);
	if (rc < 0)
		return rc;
	key_json(&json, &key, text, &warnings);
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	return 0;
}

int handle_list_keys(struct http_call *call)
{
	struct keys *keys = call->api->keys;
	struct json_out json = json_out_to(&call->answer->body);
	unsigned total = 0;

	refresh(keys, SHARED_NS);
	json_out_open(&json, NULL, '{');
	json_out_open(&json, "items", '[');
	(void)pthread_mutex_lock(&keys->lock);
	for (unsigned i = 0; i < keys->count; i++) {
		if (!may_see(call->request, &keys->items[i]))
			continue;
		key_json(&json, &keys->items[i], NULL, NULL);
		total++;
	}
	json_out_close(&json, ']');
	json_out_null(&json, "nextCursor");
	json_out_uint(&json, "total", total);
	(void)pthread_mutex_unlock(&keys->lock);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	return 0;
}

/* One that the caller may see. */
static int find_id(struct http_call *call, const char *id, struct key *ret)
{
	struct keys *keys = call->api->keys;
	int rc = -ENOENT;

	(void)pthread_mutex_lock(&keys->lock);
	for (unsigned i = 0; i < keys->count && rc == -ENOENT; i++) {
		if (strcmp(keys->items[i].id, id) != 0 || !may_see(call->request, &keys->items[i]))
			continue;
		*ret = keys->items[i];
		rc = 0;
	}
	(void)pthread_mutex_unlock(&keys->lock);
	return rc;
}

int handle_delete_key(struct http_call *call)
{
	struct keys *keys = call->api->keys;
	struct key key;
	int rc;

	(void)pthread_mutex_lock(&keys->load_lock);
	rc = find_id(call, call->request->path[0], &key);
	/* Another host may just have made it. */
	if (rc < 0 && keys->store && store_is_shared(keys->store)) {
		rc = load(keys, call->err);
		if (rc == 0)
			rc = find_id(call, call->request->path[0], &key);
	}
	if (rc == 0)
		rc = store_delete(keys->store, KIND, key.tenant[0] ? key.tenant : NO_TENANT, key.id, call->err);
	if (rc == 0 && load(keys, NULL) < 0)
		forget(keys, key.id);
	(void)pthread_mutex_unlock(&keys->load_lock);
	if (rc == -ENOENT)
		return err_set(call->err, ENOENT, "UnknownKey", "id", "there is no such key");
	call->answer->status = 204;
	call->answer->no_store = true;
	return rc;
}
