/* SPDX-License-Identifier: Apache-2.0 */
/* A file that a command writes: there as a whole or not at all, and what was there before stays
 * until then. */
#ifndef PROFCTL_OUTPUT_FILE_H
#define PROFCTL_OUTPUT_FILE_H

#include <stdbool.h>
#include <sys/types.h>

#include "agent/base/buf.h"

struct output_file {
	int fd;		 /* what is written goes here */
	char *path;	 /* where it will be; symbolic links followed */
	struct buf part; /* path of what is written until then; empty = @path itself, which is a
			    device, a pipe or the like */
};

/* Begins a file at @path, of @mode if it is new. 0, or -1 after printing why. */
int output_file_open(struct output_file *file, const char *path, mode_t mode) must_use;
/* Puts what was written in its place and on the disk (@keep), or leaves everything as it was
 * before; @file is released. 0, or -1 after printing why. */
int output_file_end(struct output_file *file, bool keep) must_use;

#endif
