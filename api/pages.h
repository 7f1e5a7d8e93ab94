/* SPDX-License-Identifier: Apache-2.0 */
/* Handler of the page's addresses: /, /s/…, /p/… and the others of routes.c with ROUTE_HTML. */
#ifndef PROFD_API_PAGES_H
#define PROFD_API_PAGES_H

#include "api/http/router.h"

http_handler_fn handle_page;

#endif
