// SPDX-License-Identifier: Apache-2.0
#include "agent/debug_fetch.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "agent/base/channel_slot.h"
#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "agent/base/text.h"
#include "agent/base/u64map.h"
#include "agent/wire/control.h"

#define URL_MAX	      1024u
#define REDIRECTS_MAX 4L
#define SEND_WAIT_MS  2000

struct server_url {
	char *base; /* owned; without a slash at its end */
	uint64_t down_until_ns;
};

struct debug_fetch {
	const char *data_dir;
	struct server_url servers[DEBUG_FETCH_SERVERS_MAX];
	unsigned server_count;
	CURL *curl;
	struct u64map absent; /* hash of a build-id and a server -> when to ask that again */
	pthread_t thread;
	bool started;
	atomic_bool stopping;
	int wake_fd;
	struct channel_slot slot; /* of the thread */
	struct channel_message message;
};

/* ---- one file -------------------------------------------------------------------------------- */

struct download {
	struct debug_fetch *fetch;
	int fd;
	int64_t bytes;
};

static size_t take_bytes(char *data, size_t size, size_t count, void *ctx)
{
	struct download *at = ctx;
	size_t len = size * count;

	at->bytes += (int64_t)len;
	return at->bytes <= DEBUG_FETCH_BYTES_MAX && io_write_all(at->fd, data, len) == 0 ? len : 0;
}

/* Not 0: the transfer ends. */
static int is_stopped(void *ctx, curl_off_t total, curl_off_t now, curl_off_t up_total,
		      curl_off_t up_now)
{
	(void)total, (void)now, (void)up_total, (void)up_now;
	return atomic_load(&((struct download *)ctx)->fetch->stopping);
}

static int set_up(CURL *curl, const char *url, struct download *at)
{
	curl_easy_reset(curl);
	if (curl_easy_setopt(curl, CURLOPT_URL, url) != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https") != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L) != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, REDIRECTS_MAX) != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L) != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)DEBUG_FETCH_CONNECT_S) !=
		    CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)DEBUG_FETCH_TOTAL_S) != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)DEBUG_FETCH_STALL_S) != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)DEBUG_FETCH_STALL_BYTES) !=
		    CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)DEBUG_FETCH_BYTES_MAX) !=
		    CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_USERAGENT, "profd") != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes) != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_WRITEDATA, at) != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L) != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, is_stopped) != CURLE_OK ||
	    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, at) != CURLE_OK)
		return -EIO;
	return 0;
}

/* A descriptor, read-only for whoever gets it; -ENOENT the server has no such file, -EHOSTDOWN it
 * does not answer, -EIO what it sends is not taken. */
static int download(struct debug_fetch *fetch, const char *base, const char *build_id)
{
	cleanup_close int fd = open(fetch->data_dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct download at = { .fetch = fetch, .fd = fd };
	char url[URL_MAX + 128], path[40];
	CURLcode code;
	long status = 0;
	int rc;

	if (fd < 0)
		return -errno;
	(void)snprintf(url, sizeof(url), "%s/buildid/%s/debuginfo", base, build_id);
	rc = set_up(fetch->curl, url, &at);
	if (rc < 0)
		return rc;
	code = curl_easy_perform(fetch->curl);
	(void)curl_easy_getinfo(fetch->curl, CURLINFO_RESPONSE_CODE, &status);
	log_debug("debuginfod: %s: %s, status %ld, %lld bytes", url, curl_easy_strerror(code), status,
		  (long long)at.bytes);
	if (code == CURLE_HTTP_RETURNED_ERROR && status >= 400 && status < 500)
		return -ENOENT;
	if (code == CURLE_FILESIZE_EXCEEDED || code == CURLE_WRITE_ERROR)
		return -EIO;
	if (code != CURLE_OK)
		return -EHOSTDOWN;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rc = open(path, O_RDONLY | O_CLOEXEC);
	return rc < 0 ? -errno : rc;
}

/* ---- questions ------------------------------------------------------------------------------- */

static bool is_absent(const struct debug_fetch *fetch, uint64_t hash, uint64_t now_ns)
{
	uint64_t until_ns;

	return u64map_get(&fetch->absent, hash, &until_ns) && now_ns < until_ns;
}

/* A full table is emptied: at worst something absent is asked for again. */
static void remember_absent(struct debug_fetch *fetch, uint64_t hash)
{
	if (fetch->absent.count >= DEBUG_FETCH_ABSENT_MAX)
		u64map_clear(&fetch->absent);
	(void)!u64map_put(&fetch->absent, hash, clock_monotonic_ns() + DEBUG_FETCH_ABSENT_NS);
}

static int find(struct debug_fetch *fetch, const uint8_t *build_id, uint8_t len)
{
	char hex[2 * FEED_BUILD_ID_MAX + 1];

	for (uint8_t i = 0; i < len; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", build_id[i]);
	for (unsigned i = 0; i < fetch->server_count; i++) {
		struct server_url *server = &fetch->servers[i];
		uint64_t hash = hash_bytes(build_id, len, i), now_ns = clock_monotonic_ns();
		int fd;

		if (now_ns < server->down_until_ns || is_absent(fetch, hash, now_ns))
			continue;
		fd = download(fetch, server->base, hex);
		if (fd >= 0 || atomic_load(&fetch->stopping))
			return fd;
		if (fd == -EHOSTDOWN)
			server->down_until_ns = clock_monotonic_ns() + DEBUG_FETCH_DOWN_NS;
		else
			remember_absent(fetch, hash);
	}
	return -ENOENT;
}

static void answer(struct debug_fetch *fetch)
{
	const struct control_debug_want *want = (const void *)fetch->message.data;
	struct control_debug reply = { .head = { .kind = CONTROL_DEBUG } };
	cleanup_close int fd = -1;

	if (fetch->message.len != sizeof(*want) || want->head.kind != CONTROL_DEBUG_WANT)
		return;
	reply.head.request = want->head.request;
	fd = want->build_id_len >= 2 && want->build_id_len <= FEED_BUILD_ID_MAX &&
			     (want->kind == DEBUG_FILE || want->kind == DEBUG_ALT)
		     ? find(fetch, want->build_id, want->build_id_len)
		     : -EINVAL;
	reply.status = fd < 0 ? -ENOENT : 0;
	if (channel_send_wait(fetch->slot.fd, &reply, sizeof(reply), &fd, fd >= 0, SEND_WAIT_MS) < 0)
		log_debug("the symbolizer did not take a fetched file");
}

/* ---- thread ---------------------------------------------------------------------------------- */

static void *run(void *ctx)
{
	struct debug_fetch *fetch = ctx;

	while (!atomic_load(&fetch->stopping)) {
		struct pollfd polls[2] = { { .fd = fetch->wake_fd, .events = POLLIN },
					   { .fd = fetch->slot.fd, .events = POLLIN } };
		uint64_t wakes;
		int rc;

		if (poll(polls, ARRAY_SIZE(polls), -1) < 0)
			continue;
		if (polls[0].revents)
			(void)!read(fetch->wake_fd, &wakes, sizeof(wakes));
		(void)channel_slot_adopt(&fetch->slot);
		if (fetch->slot.fd < 0)
			continue;
		rc = channel_receive(fetch->slot.fd, &fetch->message);
		if (rc == 1)
			answer(fetch);
		channel_message_close(&fetch->message);
		if (rc == -EPIPE)
			channel_slot_lose(&fetch->slot);
	}
	return NULL;
}

static void wake(const struct debug_fetch *fetch)
{
	uint64_t one = 1;

	(void)!write(fetch->wake_fd, &one, sizeof(one));
}

/* @count: servers before this one. */
static int check_server(const char *url, size_t len, unsigned count, struct err *err)
{
	if (count == DEBUG_FETCH_SERVERS_MAX || len > URL_MAX ||
	    (!text_begins(url, "http://") && !text_begins(url, "https://")))
		return err_set(err, EINVAL, NULL, "debuginfod_urls",
			       "[collect] debuginfod_urls: '%.*s' is not a URL that begins with http:// or "
			       "https://, or there are more than %u",
			       (int)(len < 200 ? len : 200), url, DEBUG_FETCH_SERVERS_MAX);
	return 0;
}

int debug_fetch_check(const char *urls, struct err *err)
{
	int rc = 0;

	for (unsigned count = 0; rc == 0 && *(urls += strspn(urls, " \t")); urls += strcspn(urls, " \t"))
		rc = check_server(urls, strcspn(urls, " \t"), count++, err);
	return rc;
}

static int add_server(struct debug_fetch *fetch, const char *url, size_t len, struct err *err)
{
	int rc = check_server(url, len, fetch->server_count, err);

	if (rc < 0)
		return rc;
	while (len && url[len - 1] == '/')
		len--;
	fetch->servers[fetch->server_count].base = strndup(url, len);
	if (!fetch->servers[fetch->server_count].base)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for debuginfod_urls");
	fetch->server_count++;
	return 0;
}

int debug_fetch_create(const char *urls, const char *data_dir, struct debug_fetch **ret,
		       struct err *err)
{
	cleanup(debug_fetch) struct debug_fetch *fetch = calloc(1, sizeof(*fetch));
	int rc = 0;

	if (!fetch)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for debuginfod");
	channel_slot_init(&fetch->slot);
	fetch->data_dir = data_dir;
	fetch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fetch->curl = fetch->wake_fd >= 0 ? curl_easy_init() : NULL;
	if (!fetch->curl)
		return err_set(err, EIO, NULL, NULL, "debuginfod: libcurl cannot be set up");
	while (rc == 0 && *(urls += strspn(urls, " \t"))) {
		size_t len = strcspn(urls, " \t");

		rc = add_server(fetch, urls, len, err);
		urls += len;
	}
	if (rc < 0)
		return rc;
	rc = -pthread_create(&fetch->thread, NULL, run, fetch);
	if (rc < 0)
		return err_set(err, -rc, NULL, NULL, "debuginfod: %s", strerror(-rc));
	fetch->started = true;
	*ret = take_ptr(fetch);
	return 0;
}

void debug_fetch_destroy(struct debug_fetch *fetch)
{
	if (!fetch)
		return;
	if (fetch->started) {
		atomic_store(&fetch->stopping, true);
		wake(fetch);
		(void)pthread_join(fetch->thread, NULL);
	}
	if (fetch->curl)
		curl_easy_cleanup(fetch->curl);
	channel_slot_deinit(&fetch->slot);
	cleanup_close_fn(&fetch->wake_fd);
	for (unsigned i = 0; i < fetch->server_count; i++)
		free(fetch->servers[i].base);
	u64map_deinit(&fetch->absent);
	free(fetch);
}

void debug_fetch_set_channel(struct debug_fetch *fetch, int fd)
{
	channel_slot_set(&fetch->slot, fd);
	wake(fetch);
}
