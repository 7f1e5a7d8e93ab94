/* SPDX-License-Identifier: Apache-2.0 */
/* Man page and shell completion of profctl, made from the table of commands, so that they cannot
 * differ from what the program takes. */
#ifndef PROFCTL_GENERATE_H
#define PROFCTL_GENERATE_H

#include <stdio.h>

#include "agent/base/cleanup.h"
#include "tools/profctl/command.h"

/* Prints "man", "bash", "zsh" or "fish" on standard output. -EINVAL for any other word. */
int generate(const char *what) must_use;

/* Prints the options that stand before a command. */
void generate_help(void);
/* Prints @head (a command or an option) and its explanation, in lines of at most 80 columns. */
void generate_entry(FILE *to, const char *head, const char *text);
/* Explains an option as @command takes it; @command NULL = in general. */
void generate_option_help(const struct command *command, const struct command_option *option);
/* Prints the usage of one command, an example and its options. */
void generate_command_help(const struct command *command);

#endif
