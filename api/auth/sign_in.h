/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of the page: a key or token once, then a cookie that script cannot read. */
#ifndef PROFD_API_SIGN_IN_H
#define PROFD_API_SIGN_IN_H

#include "api/http/router.h"

http_handler_fn handle_sign_in, handle_sign_out;

#endif
