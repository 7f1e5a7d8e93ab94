/* SPDX-License-Identifier: Apache-2.0 */
/* Routes about the agent itself: health, version, metrics. */
#ifndef PROFD_API_META_H
#define PROFD_API_META_H

#include "api/http/router.h"

http_handler_fn handle_healthz, handle_readyz, handle_version, handle_metrics;

#endif
