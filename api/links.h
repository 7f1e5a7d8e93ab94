/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses that answers carry. Absolute when a public address is configured, else an absolute path: a Host
 * header is never believed. */
#ifndef PROFD_API_LINKS_H
#define PROFD_API_LINKS_H

#include "agent/session/session.h"

struct api;

#define LINK_SIZE 1024

/* Page of the session's flame graph; returns @out. */
const char *link_flame_graph(struct api *api, const struct session_info *info,
			     char out[LINK_SIZE]);

#endif
