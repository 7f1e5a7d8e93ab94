// SPDX-License-Identifier: Apache-2.0
#include "api/api.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "api/api_internal.h"
#include "api/push/push.h"
#include "api/routes.h"
#include "api/server.h"

/* Sets members that are 0 to their defaults. */
static void set_defaults(struct api_options *options)
{
	if (!options->body_bytes)
		options->body_bytes = 1u << 20;
	if (!options->url_bytes)
		options->url_bytes = 8u << 10;
	if (!options->header_bytes)
		options->header_bytes = 16u << 10;
	if (!options->header_timeout_ns)
		options->header_timeout_ns = 10 * NS_PER_S;
	if (!options->body_timeout_ns)
		options->body_timeout_ns = 10 * NS_PER_S;
	if (!options->answer_timeout_ns)
		options->answer_timeout_ns = 60 * NS_PER_S;
	if (!options->connections)
		options->connections = 256;
	if (!options->requests_per_second)
		options->requests_per_second = 1000;
	if (!options->request_burst)
		options->request_burst = 5000;
	if (!options->received_per_second)
		options->received_per_second = 20;
}

/* "https://profd.example:8443/base" -> "profd.example", with brackets kept around IPv6. */
static char *host_of_url(const char *url)
{
	const char *at = strstr(url, "://");
	const char *end;

	if (!at)
		return NULL;
	at += 3;
	end = at[0] == '[' ? strchr(at, ']') : at + strcspn(at, ":/?#");
	if (!end || end == at)
		return NULL;
	return strndup(at, (size_t)(end - at) + (*end == ']'));
}

static int take_public_host(const struct api_options *options, char **ret, struct err *err)
{
	*ret = options->public_url ? host_of_url(options->public_url) : NULL;
	if (!options->public_url || *ret)
		return 0;
	return err_set(err, EINVAL, NULL, "public_url",
		       "[server] public_url must look like https://host[:port], got %.200s", options->public_url);
}

static int check_certificate(const struct api_options *options, struct err *err)
{
	const gnutls_datum_t certificate = { (unsigned char *)options->tls_certificate,
					     (unsigned)strlen(options->tls_certificate) };
	const gnutls_datum_t key = { (unsigned char *)options->tls_key,
				     (unsigned)strlen(options->tls_key) };
	gnutls_certificate_credentials_t pair;
	int rc = gnutls_certificate_allocate_credentials(&pair);

	if (rc < 0)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to read the certificate");
	rc = gnutls_certificate_set_x509_key_mem(pair, &certificate, &key, GNUTLS_X509_FMT_PEM);
	gnutls_certificate_free_credentials(pair);
	if (rc >= 0)
		return 0;
	return err_set(
		err, EINVAL, NULL, "tls_certificate",
		"[server] tls_certificate and tls_key must be PEM files that belong together: %s",
		gnutls_strerror(rc));
}

int api_check(const struct api_options *options, struct err *err)
{
	cleanup(jwt_verifier) struct jwt_verifier *jwt = NULL;
	cleanup_free char *host = NULL;
	int rc = take_public_host(options, &host, err);

	if (rc == 0 && options->jwt.algorithm)
		rc = jwt_verifier_create(&options->jwt, &jwt, err);
	if (rc == 0 && options->tls_certificate)
		rc = check_certificate(options, err);
	return rc;
}

int api_create(const struct api_options *options, struct api **ret, struct err *err)
{
	cleanup(api) struct api *api = calloc(1, sizeof(*api));
	int rc;

	if (!api)
		return -ENOMEM;
	api->options = *options;
	set_defaults(&api->options);
	api->started_ns = clock_monotonic_ns();
	rc = take_public_host(options, &api->public_host, err);
	if (rc < 0)
		return rc;
	if (route_table.count > API_ROUTES_MAX)
		return -E2BIG;
	rc = keys_create(options->store, &api->keys, err);
	if (rc == 0)
		rc = links_init(&api->links, options->store, err);
	if (rc == 0 && options->jwt.algorithm)
		rc = jwt_verifier_create(&options->jwt, &api->jwt, err);
	if (rc == 0)
		rc = rate_limit_create(api->options.requests_per_second, api->options.request_burst,
				       &api->addresses);
	if (rc == 0)
		rc = rate_limit_create(api->options.requests_per_second, api->options.request_burst,
				       &api->callers);
	if (rc == 0)
		rc = rate_limit_create(api->options.received_per_second,
				       API_RECEIVED_BURST * api->options.received_per_second,
				       &api->received);
	if (rc == 0)
		rc = answer_cache_create(API_ANSWERS_BYTES, &api->answers);
	if (rc < 0)
		return rc;
	*ret = take_ptr(api);
	return 0;
}

void api_destroy(struct api *api)
{
	if (!api)
		return;
	push_destroy(api->push);
	answer_cache_destroy(api->answers);
	rate_limit_destroy(api->addresses);
	rate_limit_destroy(api->callers);
	rate_limit_destroy(api->received);
	jwt_verifier_destroy(api->jwt);
	keys_destroy(api->keys);
	links_deinit(&api->links);
	free(api->public_host);
	free(api);
}

static int start_push(struct api *api, struct err *err)
{
	const struct push_options options = {
		.sessions = api->options.sessions,
		.store = api->options.store,
		.data_dir = api->options.data_dir,
		.receivers = api->options.receivers,
		.receiver_count = api->options.receiver_count,
		.span_ns = api->options.span_ns,
	};

	return push_create(&options, &api->push, err);
}

/* Whether others than this host reach an address. */
static bool is_public_address(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)(const void *)address)
				     ->sin_addr.s_addr) >>
			       24 !=
		       IN_LOOPBACKNET;
	return address->sa_family != AF_INET6 ||
	       !IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

static bool is_public(int fd)
{
	struct sockaddr_storage address = { 0 };
	socklen_t len = sizeof(address);

	return getsockname(fd, (struct sockaddr *)&address, &len) < 0 ||
	       is_public_address((const struct sockaddr *)&address);
}

/* An address that other hosts can reach is served only with authentication and encryption. */
static int check_public(const struct api_options *options, bool asks_for_token, struct err *err)
{
	if (!asks_for_token)
		return err_set(err, EACCES, NULL, "listen",
			       "[server] listen can be reached from other hosts, and there is neither a key nor a "
			       "token verifier: make a key first (--listen 127.0.0.1:8088 and profctl key create "
			       "--name me --role admin), or set [auth] jwt_algorithm");
	if (!options->tls_certificate && !options->cleartext)
		return err_set(err, EACCES, NULL, "tls_certificate",
			       "[server] listen can be reached from other hosts and is not encrypted: set "
			       "tls_certificate and tls_key, or cleartext = yes if a proxy in front encrypts");
	return 0;
}

static int check_listener(struct api *api, struct err *err)
{
	api->is_public = is_public(api->options.listen_fd);
	return api->is_public ? check_public(&api->options, api->jwt || keys_any(api->keys), err) : 0;
}

int api_check_listener(const struct api_options *options, const struct sockaddr *address,
		       const char *store_url, struct err *err)
{
	int keys = 0;

	if (!is_public_address(address))
		return 0;
	if (!options->jwt.algorithm)
		keys = keys_peek(options->data_dir, store_url);
	if (keys < 0)
		log_warn(
			"cannot tell whether a key exists, since the store of %s cannot be read: %s",
			options->data_dir, strerror(-keys));
	return check_public(options, options->jwt.algorithm || keys, err);
}

int api_start(const struct api_options *options, struct api **ret, struct err *err)
{
	cleanup(api) struct api *api = NULL;
	int rc = api_create(options, &api, err);

	if (rc == 0)
		rc = check_listener(api, err);
	if (rc == 0)
		rc = start_push(api, err);
	if (rc == 0)
		rc = server_start(api, &api->server, err);
	if (rc < 0)
		return rc;
	*ret = take_ptr(api);
	return 0;
}

void api_stop(struct api *api, uint64_t grace_ns)
{
	if (!api)
		return;
	atomic_store(&api->stopping, true);
	server_stop(api->server, grace_ns);
	api_destroy(api);
}
