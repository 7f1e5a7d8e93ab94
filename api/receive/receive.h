/* SPDX-License-Identifier: Apache-2.0 */
/* Receives profiles that programs take of themselves: README.md has the formats. Role profile. */
#ifndef PROFD_API_RECEIVE_RECEIVE_H
#define PROFD_API_RECEIVE_RECEIVE_H

#include "api/http/query.h"
#include "api/http/router.h"

extern const struct query_spec ingest_params[];

/* POST /ingest: one pprof profile, as the body or as a part of a form. */
int handle_ingest(struct http_call *call);
/* POST /v1development/profiles: OTLP/HTTP, protobuf or JSON. */
int handle_otlp_profiles(struct http_call *call);
/* POST /push.v1.PusherService/Push: pprof profiles, Connect protocol. */
int handle_push(struct http_call *call);

#endif
