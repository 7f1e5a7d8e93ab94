/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent says about itself: health, version, metrics. */
#ifndef PROFD_API_META_H
#define PROFD_API_META_H

#include "api/router.h"

http_handler_fn handle_healthz, handle_readyz, handle_version, handle_metrics;

#endif
