/* SPDX-License-Identifier: Apache-2.0 */
/* The stable identity of a module, equal in every process, on every host and for ever: stored
 * frames carry it. By build-id; without one a Go program by its Go build id; else by content
 * (symbolize/elf_file.h). An id is what a file claims: a copy with code at other offsets keeps it,
 * and anybody can write it into a file. So the key has the file's layout and its voucher, too. */
#ifndef PROFD_WIRE_MODULE_KEY_H
#define PROFD_WIRE_MODULE_KEY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* A hash of the build-id, never 0. */
uint64_t module_key_of_build_id(const uint8_t *build_id, size_t len);
/* By the text of Go's build id; a shorter one than MODULE_KEY_GO_ID_MIN does not identify a build.
 */
#define MODULE_KEY_GO_ID_MIN 16u
uint64_t module_key_of_go_id(const uint8_t *go_id, size_t len);

/* A voucher says who could have written a file. Files of different vouchers never have one key, so
 * names and unwind tables of one are not used for the other. */
#define MODULE_VOUCHER_ROOT    0u /* root alone */
#define MODULE_VOUCHER_CONTENT 1u /* nobody knows, as on FUSE: only equal bytes have an equal key */
/* The voucher of a file on a local file system: MODULE_VOUCHER_ROOT, or a hash of its owner and of
 * the groups or others that may write it. Root in a container without a user namespace of its own
 * counts as root. */
uint64_t module_voucher_of(const struct stat *st);
/* @id_key: one of the above. @layout: a digest of where the file's code lies (and of all its bytes
 * for MODULE_VOUCHER_CONTENT). Never 0. */
uint64_t module_key_vouched(uint64_t id_key, uint64_t layout, uint64_t voucher);

/* Names a mapped file on this host as /proc/PID/maps prints it; 0 = none (@inode is 0). */
uint64_t module_file_number(uint32_t dev_major, uint32_t dev_minor, uint64_t inode);

#endif
