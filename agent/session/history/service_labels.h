/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps where the services of this host run (enum service_label) in the store, so that their
 * history has these labels when they run no more. A record for each service of each host holds the
 * values with the time of each change. Readers call sessions_service_labels() (history.h). */
#ifndef PROFD_SESSION_SERVICE_LABELS_H
#define PROFD_SESSION_SERVICE_LABELS_H

#include "agent/session/core/sessions.h"

#define SERVICE_LABELS_KIND "labels"

/* Writes what has changed since the last call, at most every ten seconds. The finisher's thread
 * only; takes the lock itself. */
void service_labels_look(struct sessions *s);
void service_labels_destroy(struct sessions *s);

#endif
