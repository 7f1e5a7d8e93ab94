/* SPDX-License-Identifier: Apache-2.0 */
/* Files of api/ui that pages load, and the API's own description. */
#ifndef PROFD_API_STATIC_FILES_H
#define PROFD_API_STATIC_FILES_H

#include "api/http/router.h"

http_handler_fn handle_static_file, handle_openapi;

#endif
