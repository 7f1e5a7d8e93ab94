/* SPDX-License-Identifier: Apache-2.0 */
/* The reader process: reads memory of other processes on request, read-only and without stopping
 * them. It keeps CAP_SYS_PTRACE (their memory) and CAP_DAC_READ_SEARCH (their files in /proc) and
 * nothing else. Started as root, it runs as an unprivileged user. Each request has a deadline. The
 * process may be killed at any time: the request is then lost and may be repeated. Protocol:
 * agent/wire/control.h. */
#ifndef PROFD_READER_READER_H
#define PROFD_READER_READER_H

#include <stdint.h>

#include "agent/base/cleanup.h"

struct reader_options {
	int control_fd; /* channel to the supervisor; the server's and collector's arrive over it */
};

/* Drops privileges, then serves until CONTROL_STOP or the supervisor is gone. Exit status. */
int reader_run(const struct reader_options *options);

#endif
