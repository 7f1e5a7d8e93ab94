/* SPDX-License-Identifier: Apache-2.0 */
/* Tells others over HTTP: one POST of a JSON body. */
#ifndef PROFD_WEBHOOK_H
#define PROFD_WEBHOOK_H

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

/* Once per process, before threads use it. */
int webhook_init(void) must_use;
/* http and https only, no redirects, 10 s at most. 0 when the answer's status is 2xx; else -EPROTO (another
 * status) or -ECONNREFUSED (no answer) with the reason in @err. Any thread. */
int webhook_post(const char *url, const char *body, struct err *err) must_use;

#endif
