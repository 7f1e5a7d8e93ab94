/* SPDX-License-Identifier: Apache-2.0 */
/* The capabilities that profiling a whole host takes beside those that the feature probes try
 * (CAP_BPF, CAP_PERFMON): what is lost without each. Source: storage-ecosystem measurements on
 * Debian's 5.10 to 7.2 kernels, capabilities(7). */
#ifndef PROFD_RIGHTS_H
#define PROFD_RIGHTS_H

#include <stdio.h>

/* One line for each, and for Landlock: name, yes or no, and what is lost without it. */
void rights_print(FILE *out);
/* A warning for each that this process has not. */
void rights_warn(void);

#endif
