/* SPDX-License-Identifier: Apache-2.0 */
/* Ownership by scope: a local marked with one of these is released when its scope ends, unless it
 * was handed over with take_ptr() or take_fd(). Every owning local in the project uses them, so
 * that an early `return -E…` is always right. Pointers start as NULL, descriptors as -1. */
#ifndef PROFD_BASE_CLEANUP_H
#define PROFD_BASE_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Result must be looked at; ignoring on purpose is written `(void)!f()`. */
#define must_use __attribute__((warn_unused_result))
#define printf_like(fmt, args) __attribute__((format(printf, fmt, args)))

/* Defines the cleanup function for locals of pointer type @type released by @destroy, which must
 * accept NULL. Use: `CLEANUP_DEFINE(elf_file, struct elf_file *, elf_file_destroy)`, then
 * `cleanup(elf_file) struct elf_file *file = NULL;`. */
#define CLEANUP_DEFINE(name, type, destroy)                                                        \
	__attribute__((unused)) static inline void cleanup_##name##_fn(type *value)                \
	{                                                                                          \
		if (*value)                                                                        \
			destroy(*value);                                                           \
	}                                                                                          \
	struct cleanup_##name##_semicolon

#define cleanup(name) __attribute__((__cleanup__(cleanup_##name##_fn)))

static inline void cleanup_free_fn(void *slot)
{
	free(*(void **)slot);
}

static inline void cleanup_close_fn(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd);
}

static inline void cleanup_fclose_fn(FILE **file)
{
	if (*file)
		(void)fclose(*file);
}

#define cleanup_free   __attribute__((__cleanup__(cleanup_free_fn)))
#define cleanup_close  __attribute__((__cleanup__(cleanup_close_fn)))
#define cleanup_fclose __attribute__((__cleanup__(cleanup_fclose_fn)))

/* Hands the value of an owning local over and leaves NULL (-1) behind. */
#define take_ptr(slot)                                                                             \
	__extension__({                                                                            \
		__auto_type taken_ = (slot);                                                       \
		(slot) = NULL;                                                                     \
		taken_;                                                                            \
	})

static inline int take_fd(int *slot)
{
	int fd = *slot;

	*slot = -1;
	return fd;
}

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#endif
