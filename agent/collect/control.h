/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the supervisor and the server. Lengths and ranges are checked; a message that makes
 * no sense is ignored. Loop thread only. */
#ifndef PROFD_COLLECT_CONTROL_H
#define PROFD_COLLECT_CONTROL_H

#include "agent/collect/collector_internal.h"

/* Reads messages of the supervisor; the end of its channel stops the collector. */
void control_supervisor(struct collector *c);
/* Reads messages of the server. The demand of a server that is gone stays in force. */
void control_server(struct collector *c);
/* Tells the server what this host can do and what is sampled. */
void control_send_status(struct collector *c);
/* Puts demand, governor and targets into force. */
void control_apply_demand(struct collector *c);
/* Writes every running process and its CPU time into the feed. */
void control_feed_processes(struct collector *c);

#endif
