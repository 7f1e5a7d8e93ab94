/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes the chunks of a session, of every kind. Decoding takes hostile bytes. Pure. */
#ifndef PROFD_RECORDING_CHUNK_DECODE_H
#define PROFD_RECORDING_CHUNK_DECODE_H

#include "agent/recording/session_chunks.h"

/* Hands the content of a chunk to the callbacks of @sink. @kind: enum store_chunk_kind; unknown
 * kinds are ignored. -EPROTO damaged, -ENOMEM, or what a callback returned. */
int chunk_decode(int kind, const void *data, size_t len, const struct chunk_sink *sink) must_use;

#endif
