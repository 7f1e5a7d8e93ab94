/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The architecture that is built for: arch_NAME.h and arch_NAME.bpf.h are the only files under bpf/
 * that name its registers. Compiles for BPF and for the host. */
#ifndef PROFD_BPF_ARCH_H
#define PROFD_BPF_ARCH_H

#if defined(__TARGET_ARCH_arm64) || (!defined(__bpf__) && defined(__aarch64__))
#include "bpf/arch_arm64.h"
#else
#include "bpf/arch_x86_64.h"
#endif

#endif
