/* SPDX-License-Identifier: Apache-2.0 */
/* Costs and losses of the collector and its programs, as the feed tells them. Loop thread only. */
#ifndef PROFD_COLLECT_COSTS_H
#define PROFD_COLLECT_COSTS_H

#include "agent/collect/collector_internal.h"

/* Writes outcomes since the last call and the costs. CPU time of the collector and its programs
 * since their start, in nanoseconds. */
uint64_t costs_feed(struct collector *c, uint64_t now_ns);

#endif
