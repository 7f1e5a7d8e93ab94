// SPDX-License-Identifier: Apache-2.0
#include "api/auth.h"

#include <errno.h>
#include <unistd.h>

/* Without a key and without a token verifier the API is open, as role `profile`; the listener is on loopback
 * then. On the Unix socket the kernel says who calls: root and the daemon's own user are admin. */
int auth_check(struct http_call *call)
{
	struct http_request *request = call->request;
	bool owner = request->over_unix_socket &&
		     (request->peer_uid == 0 || request->peer_uid == geteuid());

	request->role = owner ? HTTP_ROLE_ADMIN : HTTP_ROLE_PROFILE;
	if (request->role < request->route->role && !(request->route->flags & ROUTE_OPEN))
		return err_set(call->err, EACCES, "Forbidden", NULL,
			       "this call is for administrators; use the Unix socket as root");
	return 0;
}
