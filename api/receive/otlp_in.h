/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes OTLP profiles: ExportProfilesServiceRequest of opentelemetry-proto 1.11.0,
 * profiles/v1development (alpha), as api/render/otlp.c writes it. The profiles of one scope of one
 * resource that are of one type make one profile: OTLP has a message for each value. */
#ifndef PROFD_API_RECEIVE_OTLP_IN_H
#define PROFD_API_RECEIVE_OTLP_IN_H

#include "api/receive/message.h"

/* Fills the empty @message, services and labels included. Profiles of unknown types, and those
 * without a service, are counted as rejected. -EINVAL with InvalidBody and the field; LimitReached;
 * what the first rejected profile lacks if none is left. */
int otlp_read(struct message *message, const void *data, size_t len, struct err *err) must_use;

#endif
