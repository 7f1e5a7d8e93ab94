/* SPDX-License-Identifier: Apache-2.0 */
/* Takes events and mapping records out of the kernel. Loop thread only. */
#ifndef PROFD_COLLECT_DRAIN_H
#define PROFD_COLLECT_DRAIN_H

#include "agent/collect/collector_internal.h"

/* Reads what the kernel has now and hands each event to the file that handles it. */
void drain_events(struct collector *c);

#endif
