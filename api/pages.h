/* SPDX-License-Identifier: Apache-2.0 */
/* The product's page (api/ui): /, /s/…, /p/… and the others of contract.md section 8. */
#ifndef PROFD_API_PAGES_H
#define PROFD_API_PAGES_H

#include "api/router.h"

http_handler_fn handle_page;

#endif
