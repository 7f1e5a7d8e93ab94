/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a file or a socket's peer behind a kernel stack (PROF_FRAME_NAME of bpf/profiler.h)
 * as text. Pure. */
#ifndef PROFD_RECORDING_FILE_NAME_H
#define PROFD_RECORDING_FILE_NAME_H

#include <stddef.h>
#include <stdint.h>

#define FILE_NAME_SIZE 512 /* any name, with its NUL */

/* How many of the @count frames, innermost first, are code: the others are the name. */
size_t file_name_at(const uint64_t *frames, size_t count);
/* `/var/lib/x`, `.../x` without its directories, `pipe:[7]`, `tcp 10.0.0.1:80`, `udp [::1]:53`,
 * `unix /run/x`, `unix @x`; UTF-8, without control characters. "" if the words make no sense: they
 * are not trusted. */
void file_name_text(const uint64_t *words, size_t count, char ret[FILE_NAME_SIZE]);

#endif
