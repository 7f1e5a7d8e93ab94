/* SPDX-License-Identifier: Apache-2.0 */
/* The Model Context Protocol (modelcontextprotocol.io, Streamable HTTP): assistants ask profd. One
 * JSON-RPC message a request, one JSON document an answer; no streams, no sessions. */
#ifndef PROFD_API_MCP_MCP_H
#define PROFD_API_MCP_MCP_H

#include "api/http/router.h"

/* POST /mcp */
int handle_mcp(struct http_call *call);

#endif
