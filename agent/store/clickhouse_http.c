// SPDX-License-Identifier: Apache-2.0
#include "agent/store/clickhouse_http.h"

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/store/clickhouse_rows.h"

#define CONNECT_LIMIT_MS 2000L
#define QUERY_LIMIT_MS	 30000L
#define BROKEN_NS	 NS_PER_S /* after a connection that failed, others do not hang as well */
#define IDLE_MAX	 8
#define FRAME_BYTES	 (16 + 9)
#define METHOD_NONE	 0x02
#define PINS_SIZE	 1024 /* bytes of the pinned settings in a URL */
#define UNKNOWN_SETTING	 115  /* exception: the server is of another version than before */
#define BEHIND_NS	 (5 * NS_PER_S) /* a request waits so long for a replica to catch up */
#define BEHIND_PAUSE_NS	 (50 * NS_PER_MS)

struct clickhouse_http {
	struct clickhouse_url url;
	char name[CLICKHOUSE_WHERE_SIZE + CLICKHOUSE_WORD_SIZE + 1];
	struct curl_slist *headers;
	atomic_bool *stop;
	pthread_mutex_t lock;
	CURL *idle[IDLE_MAX];
	unsigned idle_count;
	unsigned version; /* 1000 * major + minor; 0 = not asked yet */
	bool tokens;	  /* it remembers blocks by their tokens */
	char pins[2][PINS_SIZE]; /* settings for that version, as a URL has them: 1 with a token */
	_Atomic uint64_t broken_until_ns; /* monotonic */
};

/* ---- life --------------------------------------------------------------------------------------
 */

static int add_header(struct curl_slist **list, const char *name, const char *value)
{
	char line[CLICKHOUSE_NAME_SIZE + 64];
	struct curl_slist *longer;

	(void)snprintf(line, sizeof(line), "%s: %s", name, value);
	longer = curl_slist_append(*list, line);
	if (!longer)
		return -ENOMEM;
	*list = longer;
	return 0;
}

int clickhouse_http_create(const struct clickhouse_url *url, atomic_bool *stop,
			   struct clickhouse_http **ret, struct err *err)
{
	cleanup(clickhouse_http) struct clickhouse_http *http = calloc(1, sizeof(*http));
	int rc = http ? 0 : -ENOMEM;

	if (http) {
		http->url = *url;
		http->stop = stop;
		(void)pthread_mutex_init(&http->lock, NULL);
		(void)snprintf(http->name, sizeof(http->name), "%s/%s", url->where, url->database);
		rc = add_header(&http->headers, "Expect", ""); /* no extra round trip */
		if (rc == 0 && url->user[0])
			rc = add_header(&http->headers, "X-ClickHouse-User", url->user);
		if (rc == 0 && url->password[0])
			rc = add_header(&http->headers, "X-ClickHouse-Key", url->password);
	}
	if (rc < 0)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to open the store");
	*ret = take_ptr(http);
	return 0;
}

void clickhouse_http_destroy(struct clickhouse_http *http)
{
	if (!http)
		return;
	for (unsigned i = 0; i < http->idle_count; i++)
		curl_easy_cleanup(http->idle[i]);
	curl_slist_free_all(http->headers);
	(void)pthread_mutex_destroy(&http->lock);
	memset(&http->url, 0, sizeof(http->url));
	free(http);
}

const struct clickhouse_url *clickhouse_http_url(const struct clickhouse_http *http)
{
	return &http->url;
}

const char *clickhouse_http_name(const struct clickhouse_http *http)
{
	return http->name;
}

static CURL *take_handle(struct clickhouse_http *http)
{
	CURL *curl = NULL;

	(void)pthread_mutex_lock(&http->lock);
	if (http->idle_count)
		curl = http->idle[--http->idle_count];
	(void)pthread_mutex_unlock(&http->lock);
	return curl ? curl : curl_easy_init();
}

static void give_handle(struct clickhouse_http *http, CURL *curl)
{
	/* Keeps the connection, forgets what points into the caller's frame. */
	curl_easy_reset(curl);
	(void)pthread_mutex_lock(&http->lock);
	if (http->idle_count < IDLE_MAX) {
		http->idle[http->idle_count++] = curl;
		curl = NULL;
	}
	(void)pthread_mutex_unlock(&http->lock);
	if (curl)
		curl_easy_cleanup(curl);
}

/* ---- settings ---------------------------------------------------------------------------------
 */

/* Settings of the user's profile that would change answers or durability, pinned to the values that
 * this engine relies on. A server refuses settings that it does not know, so each is sent from the
 * version on that has it (system.settings of 18.16 and 26.9, Core/SettingsChangesHistory.cpp). */
static const struct pin {
	unsigned since; /* 1000 * major + minor */
	const char *text;
} pins[] = {
	/* NULL instead of 0 where a join or an aggregate finds nothing: rows would be left out. */
	{ 0, "&join_use_nulls=0" },
	{ 20011, "&aggregate_functions_null_for_empty=0" },
	{ 22008, "&group_by_use_nulls=0" },
	{ 21002, "&data_type_default_nullable=0" },
	/* Answers that are cut short without an exception, or come from a cache. */
	{ 0, "&read_overflow_mode=throw&group_by_overflow_mode=throw&sort_overflow_mode=throw" },
	{ 0, "&result_overflow_mode=throw&timeout_overflow_mode=throw&set_overflow_mode=throw" },
	{ 0, "&join_overflow_mode=throw&distinct_overflow_mode=throw" },
	{ 20009, "&limit=0&offset=0" },
	{ 23002, "&use_query_cache=0" },
	/* An INSERT is on the server's disk when it is acknowledged. */
	{ 21012, "&async_insert=0&wait_for_async_insert=1" },
	/* Statements that clean name many hosts. */
	{ 0, "&max_query_size=16777216" },
	{ 20001, "&mutations_sync=0" },
};
/* A block that is sent again is inserted again, whatever the server remembers of it: it may
 * remember a block that it lost when it was killed, or that did not reach the views. All rows have
 * keys of their own. Since 26.2 the first setting alone says nothing. */
static const struct pin forgetful_pins[] = {
	{ 0, "&insert_deduplicate=0" },
	{ 26002, "&deduplicate_insert=disable&deduplicate_insert_select=disable" },
};
/* With a token. Replicas note a block in Keeper in one step with the part that holds it, so none of
 * them remembers a block that is not there; each view looks for itself whether it has the block. */
static const struct pin token_pins[] = {
	{ 0, "&insert_deduplicate=1&deduplicate_blocks_in_dependent_materialized_views=1" },
	{ 26002, "&deduplicate_insert=enable" },
};
#define TOKEN_VERSION 23001 /* from here on an INSERT also waits for most replicas */
/* With replicas: an acknowledged INSERT is on most of them, and a replica that lacks it does not
 * answer. Servers before 23.1 do not count the replicas: the user's profile may name a quorum. A
 * server gives up its wait for a quorum before this engine gives up its wait for the server. */
static const struct pin replica_pins[] = {
	{ 0, "&select_sequential_consistency=1&insert_quorum_timeout=20000" },
	{ 20010, "&insert_quorum_parallel=0" },
	{ 23001, "&insert_quorum=auto" },
};

static void add_pins(char text[PINS_SIZE], unsigned version, const struct pin *list, size_t count)
{
	for (size_t i = 0; i < count && version; i++)
		if (version >= list[i].since)
			strncat(text, list[i].text, PINS_SIZE - 1 - strlen(text));
}

static void set_version(struct clickhouse_http *http, unsigned version)
{
	const bool replicas = http->url.cluster[0];
	char text[2][PINS_SIZE] = { "", "" };

	for (int token = 0; token < 2; token++) {
		add_pins(text[token], version, pins, ARRAY_SIZE(pins));
		if (replicas)
			add_pins(text[token], version, replica_pins, ARRAY_SIZE(replica_pins));
	}
	add_pins(text[0], version, forgetful_pins, ARRAY_SIZE(forgetful_pins));
	add_pins(text[1], version, token_pins, ARRAY_SIZE(token_pins));
	(void)pthread_mutex_lock(&http->lock);
	http->version = version;
	http->tokens = replicas && version >= TOKEN_VERSION;
	memcpy(http->pins, text, sizeof(text));
	(void)pthread_mutex_unlock(&http->lock);
}

/* "26.9.2.1" */
static void note_version(struct clickhouse_http *http, const char *text)
{
	unsigned major = 0, minor = 0;

	if (sscanf(text, "%4u.%3u", &major, &minor) == 2)
		set_version(http, major * 1000 + minor);
}

unsigned clickhouse_http_version(struct clickhouse_http *http)
{
	unsigned version;

	(void)pthread_mutex_lock(&http->lock);
	version = http->version;
	(void)pthread_mutex_unlock(&http->lock);
	return version;
}

/* ---- one request -------------------------------------------------------------------------------
 */

/* The body as one block of the server's own framing (16 bytes of checksum that is not looked at,
 * method, both lengths): a block that is cut short is refused, where rows that are cut short
 * between two of them would be taken for all. */
struct upload {
	uint8_t head[FRAME_BYTES];
	const char *body;
	size_t len, at; /* of head and body */
};

struct exchange {
	struct clickhouse_http *http;
	struct buf *answer;
	struct buf text; /* what the server says of an error */
	struct upload upload;
	CURL *curl;
	bool too_large;
};

#define TEXT_MAX 4096u

static void upload_begin(struct upload *upload, const void *body, size_t len)
{
	uint32_t lengths[2] = { (uint32_t)len + 9, (uint32_t)len };

	upload->head[16] = METHOD_NONE;
	memcpy(upload->head + 17, lengths, sizeof(lengths));
	upload->body = body;
	upload->len = FRAME_BYTES + len;
}

static size_t on_read(char *out, size_t size, size_t count, void *ctx)
{
	struct upload *upload = ctx;
	size_t room = size * count, done = 0;

	while (done < room && upload->at < upload->len) {
		bool in_head = upload->at < FRAME_BYTES;
		const char *from = in_head ? (const char *)upload->head + upload->at
					   : upload->body + (upload->at - FRAME_BYTES);
		size_t left = (in_head ? FRAME_BYTES : upload->len) - upload->at,
		       part = left < room - done ? left : room - done;

		memcpy(out + done, from, part);
		upload->at += part;
		done += part;
	}
	return done;
}

/* A connection that was kept too long is made anew, and all is sent again. */
static int on_seek(void *ctx, curl_off_t offset, int origin)
{
	struct upload *upload = ctx;

	if (origin != SEEK_SET || offset < 0 || (size_t)offset > upload->len)
		return CURL_SEEKFUNC_FAIL;
	upload->at = (size_t)offset;
	return CURL_SEEKFUNC_OK;
}

static size_t on_data(char *data, size_t size, size_t count, void *ctx)
{
	struct exchange *ex = ctx;
	size_t len = size * count;
	long status = 0;

	(void)curl_easy_getinfo(ex->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200) {
		size_t room = TEXT_MAX - ex->text.len;

		buf_add(&ex->text, data, len < room ? len : room);
		return len;
	}
	if (!ex->answer)
		return len;
	ex->too_large = len > CLICKHOUSE_ANSWER_MAX - ex->answer->len;
	if (!ex->too_large)
		buf_add(ex->answer, data, len);
	return ex->too_large || ex->answer->error ? 0 : len;
}

static int on_progress(void *ctx, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
		       curl_off_t up)
{
	(void)down_total, (void)down, (void)up_total, (void)up;
	return atomic_load((atomic_bool *)ctx);
}

static int make_url(struct exchange *ex, const struct clickhouse_request *request, struct buf *url)
{
	const struct clickhouse_url *to = &ex->http->url;
	char *escaped = request->body ? curl_easy_escape(ex->curl, request->sql, 0) : NULL;
	const char *token;

	/* The answer is held back until it is known that there is one: an exception is never behind
	 * rows. */
	buf_printf(url, "%s://%s/?wait_end_of_query=1", to->tls ? "https" : "http", to->where);
	if (!request->outside)
		buf_printf(url, "&database=%s", to->database);
	(void)pthread_mutex_lock(&ex->http->lock);
	token = ex->http->tokens && request->token ? request->token : NULL;
	buf_add_str(url, ex->http->pins[token != NULL]);
	(void)pthread_mutex_unlock(&ex->http->lock);
	if (token)
		buf_printf(url, "&insert_deduplication_token=%s", token);
	if (escaped)
		buf_printf(
			url,
			"&decompress=1&http_native_compression_disable_checksumming_on_decompress=1&query=%s",
			escaped);
	buf_add_char(url, '\0');
	if (request->body && !escaped)
		return -ENOMEM;
	curl_free(escaped);
	return url->error;
}

static void set_options(struct exchange *ex, const struct clickhouse_request *request,
			const char *url)
{
	CURL *curl = ex->curl;

	(void)curl_easy_setopt(curl, CURLOPT_URL, url);
	(void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
	if (request->body) {
		upload_begin(&ex->upload, request->body, request->body_len);
		(void)curl_easy_setopt(curl, CURLOPT_READFUNCTION, on_read);
		(void)curl_easy_setopt(curl, CURLOPT_READDATA, &ex->upload);
		(void)curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, on_seek);
		(void)curl_easy_setopt(curl, CURLOPT_SEEKDATA, &ex->upload);
		(void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)ex->upload.len);
	} else {
		(void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(request->sql));
		(void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->sql);
	}
	(void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, ex->http->headers);
	(void)curl_easy_setopt(curl, CURLOPT_USERAGENT, "profd/" PROFD_VERSION);
	(void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_LIMIT_MS);
	(void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, QUERY_LIMIT_MS);
	(void)curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
	(void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
	(void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, ex);
	(void)curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	(void)curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
	(void)curl_easy_setopt(curl, CURLOPT_XFERINFODATA, ex->http->stop);
}

static int unreachable(struct clickhouse_http *http, const char *why, struct err *err)
{
	return err_set(err, EIO, "StoreUnavailable", NULL,
		       "ClickHouse at %s cannot be reached (%s): start it or correct [store] url; "
		       "recorded data waits on this host",
		       http->url.where, why);
}

/* "Code: 60, …" or "Code: 60. DB::Exception: …". */
static int exception_code(const char *text)
{
	const char *at = strstr(text, "Code: ");
	int code = at ? atoi(at + strlen("Code: ")) : 0;

	return code > 0 ? code : -1;
}

/* The remedy for exceptions that do not go away by themselves, "" for the others. */
static const char *remedy(int code)
{
	static const struct {
		int code;
		const char *text;
	} remedies[] = {
		/* Wrong user, wrong password, or (since 21.10) one of both. */
		{ 192, "; correct the user and password in [store] url" },
		{ 193, "; correct the user and password in [store] url" },
		{ 194, "; give the user and password in [store] url" },
		{ 516, "; correct the user and password in [store] url" },
		/* No right to do so, by one of ClickHouse's four ways to say that. */
		{ 497, "; grant it, see GRANTS in profd(8)" },
		{ 392, "; let an administrator make the tables, see GRANTS in profd(8)" },
		{ 291, "; give the user this database, see GRANTS in profd(8)" },
		{ 164, "; the user's profile must not be readonly" },
		/* The settings of every request cannot be set. */
		{ 452, "; the user's profile must not constrain this setting" },
		/* No such table, no such database, and nobody may make them. */
		{ 60, "; see GRANTS in profd(8)" },
		{ 81, "; see GRANTS in profd(8)" },
		/* Too few replicas, or one of them did not take an INSERT in time. */
		{ 285, "; start the other replicas: most of them must take what is stored" },
		{ 319, "; start the other replicas: most of them must take what is stored" },
		/* Statements that this version of ClickHouse does not understand. */
		{ 206, "; report it to profd with the version of ClickHouse" },
		{ 62, "; report it to profd with the version of ClickHouse" },
		{ 47, "; report it to profd with the version of ClickHouse" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(remedies); i++)
		if (remedies[i].code == code)
			return remedies[i].text;
	return "";
}

/* The server's text goes to logs and to people: printable, one line. */
static int exception(struct clickhouse_http *http, struct buf *text, long status, int *ret_code,
		     struct err *err)
{
	const char *version;
	int code;

	buf_add_char(text, '\0');
	if (text->error)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for an answer of the store");
	version = strstr(text->data, "(version ");
	for (char *at = text->data; *at; at++)
		if (!isprint((unsigned char)*at))
			*at = ' ';
	code = exception_code(text->data);
	if (version && !clickhouse_http_version(http))
		note_version(http, version + strlen("(version "));
	if (ret_code)
		*ret_code = code;
	return err_set(err, EIO, "StoreUnavailable", NULL,
		       "ClickHouse at %s refuses (status %ld): %.200s%s", http->url.where, status,
		       text->data, remedy(code));
}

static int outcome(struct exchange *ex, CURLcode code, int *ret_code, struct err *err)
{
	struct clickhouse_http *http = ex->http;
	long status = 0;

	if (ex->too_large)
		return err_set(err, E2BIG, "StoreUnavailable", NULL,
			       "an answer of ClickHouse at %s is larger than %u MiB: ask for less",
			       http->url.where, CLICKHOUSE_ANSWER_MAX >> 20);
	if (ex->answer && ex->answer->error)
		return err_set(err, -ex->answer->error, NULL, NULL, "no memory for an answer of the store");
	if (code != CURLE_OK) {
		if (code != CURLE_ABORTED_BY_CALLBACK)
			atomic_store(&http->broken_until_ns, clock_monotonic_ns() + BROKEN_NS);
		return unreachable(http, curl_easy_strerror(code), err);
	}
	atomic_store(&http->broken_until_ns, 0);
	(void)curl_easy_getinfo(ex->curl, CURLINFO_RESPONSE_CODE, &status);
	return status == 200 ? 0 : exception(http, &ex->text, status, ret_code, err);
}

static int exchange(struct clickhouse_http *http, const struct clickhouse_request *request,
		    struct buf *answer, int *ret_code, struct err *err)
{
	struct exchange ex = { .http = http, .answer = answer };
	cleanup_buf struct buf url = { 0 };
	int rc;

	ex.curl = take_handle(http);
	rc = ex.curl ? make_url(&ex, request, &url) : -ENOMEM;
	if (rc < 0) {
		rc = err_set(err, ENOMEM, NULL, NULL, "no memory to ask the store");
	} else {
		set_options(&ex, request, url.data);
		rc = outcome(&ex, curl_easy_perform(ex.curl), ret_code, err);
	}
	buf_deinit(&ex.text);
	if (ex.curl)
		give_handle(http, ex.curl);
	return rc;
}

/* The server is asked "26.9.2.1" before anything else, so that no question is asked without its
 * settings. An exception tells the version as well: a user's profile may make this one fail. */
static int ask_version(struct clickhouse_http *http, int *ret_code, struct err *err)
{
	static const struct clickhouse_request request = {
		.sql = "SELECT " ROW_MARK ", " ROW_TEXT("version()") " FORMAT RowBinary",
		.outside = true
	};
	cleanup_buf struct buf answer = { 0 };
	struct err why = { 0 };
	int rc = exchange(http, &request, &answer, ret_code, &why);
	struct bytes in = bytes_of(answer.data, answer.len);

	if (rc == 0 && row_begin(&in) == 1)
		note_version(http, row_text(&in));
	if (clickhouse_http_version(http)) {
		*ret_code = 0;
		return 0;
	}
	if (rc < 0) {
		if (err)
			*err = why;
		return rc;
	}
	*ret_code = -1;
	return err_set(err, EIO, "StoreUnavailable", NULL,
		       "%s is no ClickHouse: it answers something else", clickhouse_http_name(http));
}

/* Another INSERT waits for its quorum, or this replica has not taken the last one yet. This mostly
 * ends within milliseconds, and a balancer may choose another replica. */
static bool is_behind(int code)
{
	return code == 286 || code == 289;
}

/* exchange(), again while replicas are behind. */
static int exchange_in_turn(struct clickhouse_http *http, const struct clickhouse_request *request,
			    struct buf *answer, int *ret_code, struct err *err)
{
	const uint64_t until = clock_monotonic_ns() + BEHIND_NS;

	for (;;) {
		uint64_t now;
		int rc;

		*ret_code = 0;
		rc = exchange(http, request, answer, ret_code, err);
		now = clock_monotonic_ns();
		if (rc == 0 || !is_behind(*ret_code) || now > until || atomic_load(http->stop))
			return rc;
		clock_sleep_ns(hash_mix64(now) % BEHIND_PAUSE_NS);
	}
}

int clickhouse_http_do(struct clickhouse_http *http, const struct clickhouse_request *request,
		       struct buf *answer, int *ret_code, struct err *err)
{
	int code = 0, rc = 0;

	if (ret_code)
		*ret_code = 0;
	if (request->body_len > CLICKHOUSE_BODY_MAX)
		return err_set(err, E2BIG, "StoreUnavailable", NULL, "too much for one step of the store");
	if (!request->whatever && clock_monotonic_ns() < atomic_load(&http->broken_until_ns))
		return unreachable(http, "a moment ago", err);
	if (!clickhouse_http_version(http))
		rc = ask_version(http, &code, err);
	if (rc == 0)
		rc = exchange_in_turn(http, request, answer, &code, err);
	if (code == UNKNOWN_SETTING)
		set_version(http, 0);
	if (ret_code)
		*ret_code = code;
	return rc;
}
