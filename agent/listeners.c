// SPDX-License-Identifier: Apache-2.0
#include "agent/listeners.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "agent/base/parse.h"

#define BACKLOG 128

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static int parse_address(const char *text, union address *ret, socklen_t *ret_len)
{
	const char *colon = strrchr(text, ':');
	char host[INET6_ADDRSTRLEN + 2];
	size_t len = colon ? (size_t)(colon - text) : 0;
	uint64_t port;

	if (!colon || len >= sizeof(host) || parse_u64(colon + 1, 0, 65535, &port) < 0)
		return -EINVAL;
	memcpy(host, text, len);
	host[len] = '\0';
	*ret = (union address){ 0 };
	if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
		host[len - 1] = '\0';
		if (inet_pton(AF_INET6, host + 1, &ret->v6.sin6_addr) != 1)
			return -EINVAL;
		ret->v6.sin6_family = AF_INET6;
		ret->v6.sin6_port = htons((uint16_t)port);
		*ret_len = sizeof(ret->v6);
		return 0;
	}
	if (!strcmp(host, "localhost"))
		(void)strcpy(host, "127.0.0.1");
	if (inet_pton(AF_INET, host, &ret->v4.sin_addr) != 1)
		return -EINVAL;
	ret->v4.sin_family = AF_INET;
	ret->v4.sin_port = htons((uint16_t)port);
	*ret_len = sizeof(ret->v4);
	return 0;
}

bool listeners_is_address(const char *listen)
{
	union address address;
	socklen_t len;

	return parse_address(listen, &address, &len) == 0;
}

int listeners_parse(const char *listen, struct sockaddr_storage *ret)
{
	union address address;
	socklen_t len;
	int rc = parse_address(listen, &address, &len);

	if (rc < 0)
		return rc;
	*ret = (struct sockaddr_storage){ 0 };
	memcpy(ret, &address, len);
	return 0;
}

static void describe(const union address *address, char out[LISTENERS_ADDRESS_SIZE])
{
	char host[INET6_ADDRSTRLEN] = "";

	if (address->any.sa_family == AF_INET6) {
		(void)inet_ntop(AF_INET6, &address->v6.sin6_addr, host, sizeof(host));
		(void)snprintf(out, LISTENERS_ADDRESS_SIZE, "[%s]:%u", host,
			       ntohs(address->v6.sin6_port));
	} else {
		(void)inet_ntop(AF_INET, &address->v4.sin_addr, host, sizeof(host));
		(void)snprintf(out, LISTENERS_ADDRESS_SIZE, "%s:%u", host,
			       ntohs(address->v4.sin_port));
	}
}

int listeners_tcp(const char *listen_text, char ret_address[LISTENERS_ADDRESS_SIZE],
		  struct err *err)
{
	cleanup_close int fd = -1;
	union address address;
	socklen_t len;
	int one = 1;

	if (parse_address(listen_text, &address, &len) < 0)
		return err_set(err, EINVAL, NULL, "listen",
			       "%s is not ADDR:PORT, as 127.0.0.1:8088 or [::1]:8088", listen_text);
	fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(err, errno, NULL, "listen", "cannot make a socket for %s: %s",
			       listen_text, strerror(errno));
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, &address.any, len) < 0 || listen(fd, BACKLOG) < 0)
		return err_set(err, errno, NULL, "listen",
			       "cannot listen on %s: %s; give another address with --listen "
			       "ADDR:PORT or stop the program that has it",
			       listen_text, strerror(errno));
	if (getsockname(fd, &address.any, &len) < 0)
		return err_set(err, errno, NULL, "listen", "cannot read the bound address: %s",
			       strerror(errno));
	describe(&address, ret_address);
	return take_fd(&fd);
}

/* True when a server answers on the socket: it must not be taken away from it. */
static bool is_served(const struct sockaddr_un *address)
{
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0;
}

static void make_folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *folder = slash && slash != path ? strndup(path, (size_t)(slash - path)) : NULL;

	if (folder)
		(void)mkdir(folder, 0755); /* bind tells when this did not help */
}

int listeners_unix(const char *path, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_close int fd = -1;
	mode_t mask;
	int rc;

	if (strlen(path) >= sizeof(address.sun_path))
		return err_set(err, ENAMETOOLONG, NULL, "socket",
			       "--socket path is longer than %zu bytes: %s",
			       sizeof(address.sun_path) - 1, path);
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_set(err, errno, NULL, "socket", "cannot make a Unix socket: %s",
			       strerror(errno));
	make_folder_of(path);
	if (is_served(&address))
		return err_set(err, EADDRINUSE, NULL, "socket",
			       "another profd serves %s; stop it or give --socket PATH", path);
	(void)unlink(path);
	mask = umask(0117); /* 0660 */
	rc = bind(fd, (const struct sockaddr *)&address, sizeof(address));
	(void)umask(mask);
	if (rc < 0 || listen(fd, BACKLOG) < 0)
		return err_set(err, errno, NULL, "socket",
			       "cannot listen on %s: %s; give another path with --socket PATH", path,
			       strerror(errno));
	return take_fd(&fd);
}
