/* SPDX-License-Identifier: Apache-2.0 */
/* Names of Java classes and methods as people know them. Pure: bytes in, a text out. The bytes are
 * read from other processes, so every one is hostile: what is no printable UTF-8 becomes '?'.
 * Numbers and addresses that the virtual machine puts into names of classes that it makes itself
 * are left out, so that profiles of different runs have the same functions. */
#ifndef PROFD_RUNTIMES_HOTSPOT_NAMES_H
#define PROFD_RUNTIMES_HOTSPOT_NAMES_H

#include <stddef.h>

#include "agent/base/cleanup.h"

/* Writes "package.Class.method" for the class "package/Class". @ret is terminated and cut at @max
 * bytes. */
void hotspot_function_name(const void *class_name, size_t class_len, const void *method,
			   size_t method_len, char *ret, size_t max);
/* Writes "package/Source.java": the source file that the class names, in the class's package. */
void hotspot_file_name(const void *class_name, size_t class_len, const void *file, size_t file_len,
		       char *ret, size_t max);
/* Writes @text as it is. */
void hotspot_plain_name(const void *text, size_t len, char *ret, size_t max);

#endif
