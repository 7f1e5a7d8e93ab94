/* SPDX-License-Identifier: Apache-2.0 */
/* Man page and shell completion of profctl, made from the table of commands, so that they cannot differ
 * from what the program takes. */
#ifndef PROFCTL_GENERATE_H
#define PROFCTL_GENERATE_H

#include "agent/base/cleanup.h"

/* Prints "man", "bash", "zsh" or "fish" on standard output. -EINVAL for any other word. */
int generate(const char *what) must_use;

/* Prints the options that stand before a command. */
void generate_help(void);

#endif
