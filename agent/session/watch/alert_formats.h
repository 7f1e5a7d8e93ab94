/* SPDX-License-Identifier: Apache-2.0 */
/* A finding as the message that its receiver reads. Pure. */
#ifndef PROFD_SESSION_ALERT_FORMATS_H
#define PROFD_SESSION_ALERT_FORMATS_H

#include "agent/session/history.h"

/* The body of the message, which the caller frees; NULL = no memory.
 * WATCH_PLAIN: the finding as the API shows it.
 * WATCH_ALERTMANAGER: a list of one alert (openapi.yaml of prometheus/alertmanager, api/v2,
 * postableAlerts). An open finding ends in 400 days, when it is deleted, because Alertmanager
 * resolves alerts that nobody repeats; a closed one has ended.
 * WATCH_CLOUDEVENTS: an event in structured mode (cloudevents.io, spec 1.0). */
char *alert_message(const struct finding_info *info, enum watch_format format) must_use;
/* The media type of the body, a literal. */
const char *alert_content_type(enum watch_format format);
/* The address that takes the message: @webhook, or Alertmanager's path below it where @webhook does
 * not end with that path. The caller frees; NULL = no memory. */
char *alert_address(const char *webhook, enum watch_format format) must_use;

#endif
