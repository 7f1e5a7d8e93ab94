/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the symbolizer: the whole process in a child, with the test as its supervisor,
 * its collector and its server. Files are those of elf_fixture.h. Every function fails the test on
 * an error. */
#ifndef PROFD_TESTS_SYMBOLIZER_HOST_H
#define PROFD_TESTS_SYMBOLIZER_HOST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/wire/control.h"

#define DEBUG_AGAIN_MS 1500 /* after which it looks for a debug file again */

struct symbolizer_host {
	pid_t pid;
	int control, collector, server;
	uint64_t voucher, debug_voucher; /* of the next files; 0 = MODULE_VOUCHER_ROOT */
	struct channel_message message;
};

/* @cache_name: its cache's folder, kept; NULL = none. */
void host_start(struct symbolizer_host *f, const char *cache_name);
void host_stop(struct symbolizer_host *f);
int host_connect(struct symbolizer_host *f, enum role role);

/* @passed: a descriptor, which stays the caller's; -1 = none. */
void host_send(int fd, const void *data, size_t len, int passed);
/* The next message of @kind, in f->message. Questions for debug files that are not waited for are
 * answered with no. */
const void *host_receive(struct symbolizer_host *f, int fd, uint16_t kind);

/* The descriptor of a file, by path or name. */
int host_open_file(const char *path);
/* CONTROL_INDEX; closes @fd. */
void host_ask_index(struct symbolizer_host *f, uint32_t request, int fd);
/* Indexes @path; descriptors of the answer stay in f->message. */
struct control_indexed host_index(struct symbolizer_host *f, uint32_t request, const char *path);
/* Receives DEBUG_WANT and answers it with @path, or that there is none. */
struct control_debug_want host_answer_debug(struct symbolizer_host *f, const char *path);

struct host_names {
	int status;
	uint32_t state;	 /* enum names_state */
	unsigned frames; /* of the first offset; 0 also of a function without a name */
	char function[256];
	char file[256];
	char symbol[256];
	uint32_t line;
	bool changes; /* NAMED_CHANGES */
};

/* Its two halves. */
void host_ask_names(struct symbolizer_host *f, uint64_t key, uint64_t offset);
struct host_names host_receive_names(struct symbolizer_host *f);
struct host_names host_names_once(struct symbolizer_host *f, uint64_t key, uint64_t offset);
/* The same, until the names are built. */
struct host_names host_names(struct symbolizer_host *f, uint64_t key, uint64_t offset);

/* A small program with a function twice(), as file @name. */
void host_compile(const char *name, const char *options);
/* The file offset of a symbol. */
uint64_t host_offset(const char *path, const char *symbol);

#endif
