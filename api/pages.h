/* SPDX-License-Identifier: Apache-2.0 */
/* Pages for people that need no script. */
#ifndef PROFD_API_PAGES_H
#define PROFD_API_PAGES_H

#include "api/router.h"

http_handler_fn handle_home, handle_profile_page;

#endif
