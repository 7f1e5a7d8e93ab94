/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of baselines, the regression gate and the trend over baselines. */
#ifndef PROFD_API_BASELINES_API_H
#define PROFD_API_BASELINES_API_H

#include "api/http/router.h"

http_handler_fn handle_create_baseline, handle_list_baselines, handle_get_baseline,
	handle_delete_baseline, handle_check_regression, handle_get_report, handle_trend;

extern const struct query_spec baselines_params[], trend_params[];

#endif
