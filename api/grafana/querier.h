/* SPDX-License-Identifier: Apache-2.0 */
/* The query API of Pyroscope, which Grafana's data source and its Drilldown app read: unary calls
 * of the Connect protocol (connectrpc.com/docs/protocol), protobuf or JSON. README.md has the
 * calls. */
#ifndef PROFD_API_GRAFANA_QUERIER_H
#define PROFD_API_GRAFANA_QUERIER_H

#include "api/http/router.h"

/* POST /querier.v1.QuerierService/{call} */
int handle_querier(struct http_call *call);

#endif
