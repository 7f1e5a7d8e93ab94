/* SPDX-License-Identifier: Apache-2.0 */
/* Time views of one session (contract.md section 5): heat map and the ledger of its threads. */
#ifndef PROFD_API_VIEWS_API_H
#define PROFD_API_VIEWS_API_H

#include "api/router.h"

http_handler_fn handle_heatmap, handle_ledger;

extern const struct query_spec heatmap_params[];

#endif
