// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* profiler_retry.bpf.c for v6.18 and v6.19, whose task work takes one argument more. */
#define PROF_TASK_WORK TASK_WORK_EXPLICIT
#include "bpf/profiler.bpf.c"
