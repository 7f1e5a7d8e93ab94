/* SPDX-License-Identifier: Apache-2.0 */
/* The stable identity of a module, equal in every process, on every host and for ever: stored frames carry
 * it. By build-id; without one a Go program by its Go build id; else by content (symbolize/elf_file.h). */
#ifndef PROFD_WIRE_MODULE_KEY_H
#define PROFD_WIRE_MODULE_KEY_H

#include <stddef.h>
#include <stdint.h>

/* A hash of the build-id, never 0. */
uint64_t module_key_of_build_id(const uint8_t *build_id, size_t len);
/* By the text of Go's build id; a shorter one than MODULE_KEY_GO_ID_MIN does not identify a build. */
#define MODULE_KEY_GO_ID_MIN 16u
uint64_t module_key_of_go_id(const uint8_t *go_id, size_t len);

#endif
