/* SPDX-License-Identifier: Apache-2.0 */
/* YAML to JSON for the one file openapi.yaml. A subset: block mappings and sequences by indentation, plain, 'single'
 * and "double" quoted scalars, flow [lists] and {maps} within a line, literal (|) and folded (>) blocks,
 * comments. No anchors, tags, multi-line plain scalars or tabs. Order is kept. Pure. */
#ifndef PROFD_API_YAML_JSON_H
#define PROFD_API_YAML_JSON_H

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"
#include "agent/base/err.h"

/* -EINVAL with the line in @err. */
int yaml_to_json(const char *text, struct buf *out, struct err *err) must_use;

#endif
