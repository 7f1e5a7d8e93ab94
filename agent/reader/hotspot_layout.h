/* SPDX-License-Identifier: Apache-2.0 */
/* HotSpot's description of itself, read from a process that runs: offsets of structures and places
 * of the code heaps, as struct script_hotspot. Sources: the exported tables of
 * src/hotspot/share/runtime/vmStructs.cpp, whose entries have had one form since JDK 6; what they
 * leave out is stated where it is used. */
#ifndef PROFD_READER_HOTSPOT_LAYOUT_H
#define PROFD_READER_HOTSPOT_LAYOUT_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/target_memory.h"
#include "bpf/script.h"

/* Completes @hotspot, of which structs, types and nmethod_names are known. -EAGAIN: the virtual
 * machine is still starting. -EOPNOTSUPP: a structure that is needed is not described, or not as
 * any known version does. -ETIMEDOUT (@deadline_ns is monotonic), -ESRCH, -EPERM, -ENOMEM. @hotspot
 * is unchanged then. */
int hotspot_layout_read(struct target *target, struct script_hotspot *hotspot, uint64_t deadline_ns)
	must_use;

#endif
