/* SPDX-License-Identifier: Apache-2.0 */
/* Growable arrays with a bound. `VEC_DEFINE(frames, struct frame)` declares struct frames_vec
 * {data, count, capacity} and frames_vec_push(), _reserve(), _deinit(). Zero-initialized is empty.
 */
#ifndef PROFD_BASE_VEC_H
#define PROFD_BASE_VEC_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "agent/base/cleanup.h"

/* Grows @data to hold @need elements of @size bytes. -ENOMEM; -E2BIG above @max (0 = no bound). */
int vec_grow(void **data, size_t *capacity, size_t need, size_t size, size_t max) must_use;

#define VEC_DEFINE(name, type)                                                                     \
	struct name##_vec {                                                                        \
		type *data;                                                                        \
		size_t count;                                                                      \
		size_t capacity;                                                                   \
	};                                                                                         \
	__attribute__((unused)) must_use static inline int name##_vec_reserve(                     \
		struct name##_vec *vec, size_t need)                                               \
	{                                                                                          \
		void *data = vec->data;                                                            \
		int rc = vec_grow(&data, &vec->capacity, need, sizeof(type), 0);                   \
		vec->data = data;                                                                  \
		return rc;                                                                         \
	}                                                                                          \
	__attribute__((unused)) must_use static inline int name##_vec_push(struct name##_vec *vec, \
									   type value)             \
	{                                                                                          \
		int rc = vec->count < vec->capacity ? 0 :                                           \
						      name##_vec_reserve(vec, vec->count + 1);     \
		if (rc < 0)                                                                        \
			return rc;                                                                 \
		vec->data[vec->count++] = value;                                                   \
		return 0;                                                                          \
	}                                                                                          \
	__attribute__((unused)) static inline void name##_vec_deinit(struct name##_vec *vec)       \
	{                                                                                          \
		free(vec->data);                                                                   \
		*vec = (struct name##_vec){ 0 };                                                   \
	}                                                                                          \
	struct name##_vec_semicolon

#endif
