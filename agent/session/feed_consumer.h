/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that reads the feed, with two cursors: one runs ahead and fills the tables of modules,
 * processes and stacks, the other hands out samples behind it, so that a sample finds what it
 * refers to even when a predecessor died and the facts had to be asked for again (they come behind
 * the samples). A new life of the collector (FEED_EPOCH) stops the first cursor until the second
 * has come up to it.
 *
 * Space is released up to what every session has made durable: a server that is killed loses
 * nothing. */
#ifndef PROFD_SESSION_FEED_CONSUMER_H
#define PROFD_SESSION_FEED_CONSUMER_H

#include "agent/session/sessions_internal.h"

#define FEED_STALL_NS	    (2 * NS_PER_S) /* longest wait for the facts of one process */
#define FEED_ABSENT_NS	     (5 * NS_PER_S) /* the same while there is no collector to ask */
#define FEED_RECORDS_AT_ONCE 20000u	   /* handled under one hold of the lock */

#endif
