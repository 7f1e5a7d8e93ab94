// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The profiler's object once more for kernels with task work (since v7.0 in this form): its
 * samplers walk stacks again that are paged out. Older kernels are not shown any of it: they follow
 * callbacks that nothing calls there, and looking in vain for a kernel function takes CAP_SYS_ADMIN
 * (bpf_object__resolve_ksym_func_btf_id() of libbpf). */
#define PROF_TASK_WORK TASK_WORK_IMPLICIT
#include "bpf/profiler.bpf.c"
