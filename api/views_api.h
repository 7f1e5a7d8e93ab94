/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of the time views of one session: heat map and thread ledger. */
#ifndef PROFD_API_VIEWS_API_H
#define PROFD_API_VIEWS_API_H

#include "api/http/router.h"

http_handler_fn handle_heatmap, handle_ledger;

extern const struct query_spec heatmap_params[];

#endif
