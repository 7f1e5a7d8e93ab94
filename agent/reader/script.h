/* SPDX-License-Identifier: Apache-2.0 */
/* The collector's questions about script frames: does a runtime's description fit a process, and
 * which names have these frames. One file for all runtimes; each kind has its own *_check.c and
 * *_names.c. */
#ifndef PROFD_READER_SCRIPT_H
#define PROFD_READER_SCRIPT_H

#include "agent/base/channel.h"
#include "agent/base/cleanup.h"

/* Answers @message (CONTROL_SCRIPT_CHECK, CONTROL_SCRIPT_NAMES) on @fd. A message of another kind,
 * or one that is malformed, has no answer. Takes at most SCRIPT_DEADLINE_MS and one read beyond.
 * -EPIPE: the collector is gone; 0 in every other case. */
#define SCRIPT_DEADLINE_MS 2000u
int script_answer(int fd, const struct channel_message *message) must_use;

#endif
