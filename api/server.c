// SPDX-License-Identifier: Apache-2.0
/* One thread per connection, because some calls block by contract (POST /sessions,
 * /debug/pprof/profile) and must not hold up others; the connection limit bounds the threads.
 * libmicrohttpd parses requests; what it does beyond that is switched off: no unescaping (it would
 * cut a path at %00), no idle timeout. */
#include "api/server.h"

#include <errno.h>
#include <microhttpd.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/log.h"
#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "api/http/compress.h"
#include "api/http/connections.h"
#include "api/render/negotiate.h"

#define THREAD_STACK_BYTES (512u << 10)
/* GnuTLS's defaults still speak what RFC 8996 retires. */
#define TLS_PRIORITIES "NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"
/* Beyond url_bytes and header_bytes, so that we and not the library refuse what is moderately too
 * large. */
#define POOL_SLACK_BYTES (64u << 10)
/* A body over the limit is read to its end up to here, so that the client gets to see the answer.
 */
#define DRAIN_MAX_BYTES (16u << 20)
#define COMPRESS_MIN_BYTES 1024
/* Beyond its limit the library closes connections unheard, and it counts those, too, that were shut
 * down and whose threads have not ended yet. */
#define LEAVING_MOST 128u
/* Connections of the Unix socket, beside those of the network: whoever pins all of these cannot
 * keep root from stopping the profiler. */
#define SOCKET_PLACES 64u
/* At a stop, a connection that the library is just accepting is known ACCEPTED_NS later. A client
 * that has connected, or was answered, sends its request within SILENT_NS. */
#define ACCEPTED_NS (20 * NS_PER_MS)
#define SILENT_NS   (2 * NS_PER_S)

struct listener {
	struct server *server;
	struct MHD_Daemon *daemon;
	int fd; /* owned while the daemon runs */
	bool unix_socket, tls;
};

struct server {
	struct api *api;
	struct connections *connections;
	struct listener listeners[2];
};

/* One request on a connection. */
struct exchange {
	char *target; /* raw, owned, cut at the first NUL; one byte more is allocated */
	uintptr_t version_at; /* where the version stands if the request line has no NUL */
	struct buf body;
	uint64_t body_seen; /* bytes, also those beyond the limit */
	uint64_t header_bytes;
	unsigned host_count;
	bool is_http10;
	uint64_t file_bytes; /* of an answer in a file, counted in api->answer_files */
	bool headers_done;
};

static struct connection *connection_of(struct MHD_Connection *mhd)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct listener *listener = cls;
	struct server *server = listener->server;
	struct api_counters *counters = &server->api->counters;
	const union MHD_ConnectionInfo *info;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
		*socket_context = info ? connections_add(server->connections, info->connect_fd,
							 !listener->tls)
				       : NULL;
		atomic_fetch_add(&counters->connections_total, 1);
		atomic_fetch_add(&counters->connections_open, 1);
	} else {
		if (*socket_context)
			connections_remove(server->connections, *socket_context);
		*socket_context = NULL;
		atomic_fetch_sub(&counters->connections_open, 1);
	}
}

/* The connection that this thread serves, from the first request line on. */
static _Thread_local struct connection *speaking;

/* Called with the raw request line's target as soon as it is complete. */
static void *on_target(void *cls, const char *target, struct MHD_Connection *mhd)
{
	struct listener *listener = cls;
	struct exchange *exchange = calloc(1, sizeof(*exchange));
	struct connection *connection = connection_of(mhd);

	if (!exchange)
		return NULL;
	exchange->target = calloc(1, strlen(target) + 2);
	exchange->version_at = (uintptr_t)target + strlen(target) + 1;
	if (!exchange->target || !connection) {
		free(exchange->target);
		free(exchange);
		return NULL;
	}
	memcpy(exchange->target, target, strlen(target));
	speaking = connection;
	connections_identify(listener->server->connections, connection, target, NULL);
	return exchange;
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **context,
			 enum MHD_RequestTerminationCode code)
{
	struct listener *listener = cls;
	struct exchange *exchange = *context;
	struct connection *connection = connection_of(mhd);

	(void)code;
	if (exchange) {
		atomic_fetch_sub(&listener->server->api->answer_files, exchange->file_bytes);
		free(exchange->target);
		buf_deinit(&exchange->body);
		free(exchange);
		*context = NULL;
	}
	/* Idle between requests: closing without a word is what clients of kept connections expect. */
	if (connection)
		connections_enter(listener->server->connections, connection, CONNECTION_HEADER,
				  false);
}

static size_t no_unescape(void *cls, struct MHD_Connection *mhd, char *text)
{
	(void)cls;
	(void)mhd;
	return strlen(text);
}

/* Called by libmicrohttpd in the connection's thread, just before it refuses a request with a page
 * of its own. */
#define LIBRARY_REFUSES "Error processing request (HTTP response code is %u ('%s'))"

static void refuse_for_library(struct server *server, unsigned status, const char *page)
{
	bool length = strstr(page, "Content-Length"), chunks = strstr(page, "chunk");
	struct err err = { 0 };

	if (status == MHD_HTTP_CONTENT_TOO_LARGE)
		(void)err_set(&err, E2BIG, "BodyTooLarge", NULL, "the body is larger than accepted");
	else if (status == MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE)
		(void)err_set(&err, E2BIG, "HeadersTooLarge", NULL, "the header block is larger than accepted");
	else if (status == MHD_HTTP_BAD_REQUEST && length)
		(void)err_set(&err, EINVAL, "InvalidParam", "Content-Length",
			      "Content-Length must be a number of bytes");
	else if (status == MHD_HTTP_BAD_REQUEST && chunks)
		(void)err_set(&err, EINVAL, "InvalidParam", "Transfer-Encoding",
			      "the chunks of the body are malformed");
	else if (status == MHD_HTTP_BAD_REQUEST)
		(void)err_set(&err, EINVAL, "InvalidParam", NULL, "the headers are not well-formed HTTP");
	else
		return;
	(void)connections_refuse(server->connections, speaking, &err);
}

static void on_log(void *cls, const char *fmt, va_list args)
{
	struct server *server = cls;
	char text[256];
	va_list again;

	va_copy(again, args);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	text[strcspn(text, "\n")] = '\0';
	log_debug("http: %s", text);
	if (speaking && text_begins(fmt, LIBRARY_REFUSES)) {
		unsigned status = va_arg(again, unsigned);

		refuse_for_library(server, status, va_arg(again, const char *));
	}
	va_end(again);
}

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *key,
				    const char *value)
{
	struct exchange *exchange = cls;

	(void)kind;
	exchange->header_bytes += strlen(key) + (value ? strlen(value) : 0) + 4;
	exchange->host_count += strcasecmp(key, "Host") == 0;
	return MHD_YES;
}

static const char *find_header(void *ctx, const char *name)
{
	return MHD_lookup_connection_value(ctx, MHD_HEADER_KIND, name);
}

static void set_peer(const struct listener *listener, const struct connection *connection,
		     struct http_request *request)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	request->peer = connection_group(connection);
	if (!listener->unix_socket)
		return;
	request->over_unix_socket = true;
	request->peer_uid = UINT32_MAX;
	if (getsockopt(connection_fd(connection), SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
		request->peer_uid = peer.uid;
}

static void compress_answer(struct MHD_Connection *mhd, struct http_answer *answer)
{
	const char *accepted = find_header(mhd, "Accept-Encoding");
	struct buf packed = { .max = HTTP_ANSWER_MAX };

	if (answer->no_compress || answer->body.len < COMPRESS_MIN_BYTES)
		return;
	http_answer_header(answer, "Vary", "Accept-Encoding");
	if (!negotiate_gzip(accepted))
		return;
	if ((answer->literal ? compress_literal(answer->literal, &packed)
			     : compress_gzip(answer->body.data, answer->body.len, 1, &packed)) < 0) {
		buf_deinit(&packed);
		return;
	}
	buf_deinit(&answer->body);
	answer->body = packed;
	http_answer_header(answer, "Content-Encoding", "gzip");
}

/* The body becomes the response's. */
static struct MHD_Response *make_response(struct http_answer *answer)
{
	struct MHD_Response *response;
	size_t len = answer->body.len;
	char *data;

	if (answer->has_file) {
		response = MHD_create_response_from_fd64(answer->file_bytes, answer->file_fd);
		answer->has_file = !response;
		return response;
	}
	data = len ? buf_take(&answer->body, &len) : NULL;
	response = MHD_create_response_from_buffer(data ? len : 0, data ? data : (void *)"",
						   data ? MHD_RESPMEM_MUST_FREE
							: MHD_RESPMEM_PERSISTENT);
	if (!response)
		free(data);
	return response;
}

static enum MHD_Result queue_answer(struct server *server, struct MHD_Connection *mhd,
				    struct http_answer *answer)
{
	struct MHD_Response *response;
	enum MHD_Result queued;
	uint64_t sent = answer->has_file ? answer->file_bytes : answer->body.len;

	response = make_response(answer);
	if (!response)
		return MHD_NO;
	if (answer->content_type)
		(void)MHD_add_response_header(response, "Content-Type", answer->content_type);
	for (unsigned i = 0; i < answer->header_count; i++)
		(void)MHD_add_response_header(response, answer->headers[i].name,
					      answer->headers[i].value);
	/* The next request of this client goes to the next server. */
	if (atomic_load(&server->api->stopping))
		(void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	atomic_fetch_add(&server->api->counters.bytes_out, sent);
	queued = MHD_queue_response(mhd, answer->status, response);
	MHD_destroy_response(response);
	return queued;
}

static enum MHD_Result answer_exchange(struct listener *listener, struct MHD_Connection *mhd,
				       struct exchange *exchange, const char *method)
{
	struct server *server = listener->server;
	struct connection *connection = connection_of(mhd);
	cleanup_http_answer struct http_answer answer = { 0 };
	struct http_request request = {
		.method = method,
		.target = exchange->target,
		.body = exchange->body.data ? exchange->body.data : "",
		.body_len = exchange->body_seen,
		.header_bytes = exchange->header_bytes,
		.host_count = exchange->host_count,
		.may_lack_host = exchange->is_http10,
		.header = find_header,
		.header_ctx = mhd,
	};
	enum MHD_Result queued;

	connections_enter(server->connections, connection, CONNECTION_HANDLER, false);
	set_peer(listener, connection, &request);
	api_dispatch(server->api, &request, &answer);
	http_request_deinit(&request);
	compress_answer(mhd, &answer);
	if (!answer.unhurried)
		connections_enter(server->connections, connection, CONNECTION_ANSWER, false);
	queued = queue_answer(server, mhd, &answer);
	/* The file lives as long as the exchange. */
	exchange->file_bytes = answer.files ? answer.file_bytes : 0;
	answer.files = NULL;
	return queued;
}

/* True when the body need not be waited for: the client said how large it is and asks first, or it
 * is far beyond what is read to its end. */
static bool refuse_early(const struct server *server, struct MHD_Connection *mhd,
			 struct exchange *exchange)
{
	const char *length = find_header(mhd, "Content-Length");
	const char *expect = find_header(mhd, "Expect");
	uint64_t bytes;

	if (!length || parse_u64(length, 0, UINT64_MAX, &bytes) < 0 ||
	    bytes <= server->api->options.body_bytes)
		return false;
	if (!expect && bytes <= DRAIN_MAX_BYTES)
		return false;
	exchange->body_seen = bytes;
	return true;
}

static enum MHD_Result take_body(struct server *server, struct MHD_Connection *mhd,
				 struct exchange *exchange, const char *data, size_t *len)
{
	struct err err = { 0 };

	exchange->body_seen += *len;
	if (exchange->body_seen <= server->api->options.body_bytes)
		buf_add(&exchange->body, data, *len);
	*len = 0;
	if (exchange->body_seen > DRAIN_MAX_BYTES) {
		(void)err_set(&err, E2BIG, "BodyTooLarge", NULL, "the body is larger than accepted");
		(void)connections_refuse(server->connections, connection_of(mhd), &err);
		return MHD_NO;
	}
	return exchange->body.error ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *data_len, void **context)
{
	struct listener *listener = cls;
	struct server *server = listener->server;
	struct exchange *exchange = *context;

	(void)url;
	if (!exchange)
		return MHD_NO;
	if (!exchange->headers_done) {
		exchange->headers_done = true;
		exchange->body.max = server->api->options.body_bytes;
		/* The library ends the target with a NUL in front of the version. One that was sent
		 * stands earlier and becomes a control character, which dispatch refuses. */
		if ((uintptr_t)version != exchange->version_at)
			exchange->target[strlen(exchange->target)] = '\x01';
		exchange->is_http10 = strcmp(version, MHD_HTTP_VERSION_1_0) == 0;
		(void)MHD_get_connection_values(mhd, MHD_HEADER_KIND, count_header, exchange);
		connections_identify(server->connections, connection_of(mhd), exchange->target,
				     find_header(mhd, "X-Request-ID"));
		connections_enter(server->connections, connection_of(mhd), CONNECTION_BODY, true);
		if (refuse_early(server, mhd, exchange))
			return answer_exchange(listener, mhd, exchange, method);
		return MHD_YES;
	}
	if (*data_len > 0)
		return take_body(server, mhd, exchange, data, data_len);
	return answer_exchange(listener, mhd, exchange, method);
}

static void on_expired(void *ctx, enum connection_phase phase)
{
	struct api_counters *counters = ctx;

	if (phase == CONNECTION_HEADER)
		atomic_fetch_add(&counters->deadline_header, 1);
	else if (phase == CONNECTION_BODY)
		atomic_fetch_add(&counters->deadline_body, 1);
	else
		atomic_fetch_add(&counters->deadline_answer, 1);
}

static int listener_start(struct server *server, struct listener *listener, int fd,
			  bool unix_socket)
{
	const struct api_options *options = &server->api->options;
	size_t pool = options->url_bytes + options->header_bytes + POOL_SLACK_BYTES;
	struct MHD_OptionItem tls[4] = { 0 }; /* MHD_OPTION_END is 0 */

	listener->server = server;
	listener->unix_socket = unix_socket;
	listener->fd = fd;
	listener->tls = !unix_socket && options->tls_certificate;
	/* The array of options ends the list; without TLS it is empty. */
	if (listener->tls) {
		tls[0] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_CERT, 0,
						  (void *)options->tls_certificate };
		tls[1] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_KEY, 0,
						  (void *)options->tls_key };
		tls[2] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)TLS_PRIORITIES };
	}
	listener->daemon = MHD_start_daemon(
		MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL |
			MHD_USE_ITC | MHD_USE_ERROR_LOG | (listener->tls ? MHD_USE_TLS : 0u),
		0, NULL, NULL, on_request, listener, MHD_OPTION_EXTERNAL_LOGGER, on_log, server,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		(unix_socket ? SOCKET_PLACES : (unsigned)options->connections) + LEAVING_MOST,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, pool,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, listener, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, listener, MHD_OPTION_URI_LOG_CALLBACK, on_target, listener,
		MHD_OPTION_UNESCAPE_CALLBACK, no_unescape, NULL, MHD_OPTION_THREAD_STACK_SIZE,
		(size_t)THREAD_STACK_BYTES, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
	if (!listener->daemon) {
		listener->fd = -1;
		return -EIO;
	}
	return 0;
}

static void on_shed(void *ctx)
{
	struct api_counters *counters = ctx;

	atomic_fetch_add(&counters->connections_shed, 1);
}

int server_start(struct api *api, struct server **ret, struct err *err)
{
	const struct api_options *options = &api->options;
	struct server *server = calloc(1, sizeof(*server));
	struct connections_options limits = {
		.timeout_ns = { [CONNECTION_HEADER] = options->header_timeout_ns,
				[CONNECTION_BODY] = options->body_timeout_ns,
				[CONNECTION_ANSWER] = options->answer_timeout_ns },
		.expired = on_expired,
		.shed = on_shed,
		.most = options->connections,
		.most_local = SOCKET_PLACES,
		.ctx = &api->counters,
	};
	int rc;

	if (!server)
		return -ENOMEM;
	server->api = api;
	server->listeners[0].fd = server->listeners[1].fd = -1;
	rc = connections_create(&limits, &server->connections);
	if (rc == 0 && options->listen_fd >= 0)
		rc = listener_start(server, &server->listeners[0], options->listen_fd, false);
	if (rc == 0 && options->socket_fd >= 0)
		rc = listener_start(server, &server->listeners[1], options->socket_fd, true);
	if (rc < 0) {
		/* On failure the descriptors stay the caller's. */
		for (unsigned i = 0; i < ARRAY_SIZE(server->listeners); i++)
			if (server->listeners[i].daemon)
				(void)MHD_quiesce_daemon(server->listeners[i].daemon);
		for (unsigned i = 0; i < ARRAY_SIZE(server->listeners); i++)
			server->listeners[i].fd = -1;
		server_stop(server, 0);
		return err_set(err, -rc, NULL, NULL, "cannot start the HTTP server: %s%s", strerror(-rc),
			       options->tls_certificate ? "; tls_certificate and tls_key must be PEM and belong together"
							: "");
	}
	*ret = server;
	return 0;
}

void server_stop(struct server *server, uint64_t grace_ns)
{
	uint64_t end_ns = clock_monotonic_ns() + grace_ns;

	if (!server)
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(server->listeners); i++)
		if (server->listeners[i].daemon && server->listeners[i].fd >= 0)
			(void)MHD_quiesce_daemon(server->listeners[i].daemon);
	clock_sleep_ns(grace_ns < ACCEPTED_NS ? grace_ns : ACCEPTED_NS);
	while (clock_monotonic_ns() < end_ns &&
	       connections_awaiting(server->connections, SILENT_NS) > 0)
		clock_sleep_ns(5 * NS_PER_MS);
	for (unsigned i = 0; i < ARRAY_SIZE(server->listeners); i++) {
		if (server->listeners[i].daemon)
			MHD_stop_daemon(server->listeners[i].daemon);
		if (server->listeners[i].fd >= 0)
			(void)close(server->listeners[i].fd);
	}
	connections_destroy(server->connections);
	free(server);
}
