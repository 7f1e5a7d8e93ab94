/* SPDX-License-Identifier: Apache-2.0 */
/* Texts, of which equal ones are kept once. Zero-initialized is a valid empty pool. Not
 * thread-safe. */
#ifndef PROFD_BASE_TEXT_POOL_H
#define PROFD_BASE_TEXT_POOL_H

#include "agent/base/intern.h"
#include "agent/base/vec.h"

VEC_DEFINE(pool_texts, char *);

struct text_pool {
	struct intern index;
	struct pool_texts_vec texts;
};

/* The kept copy of the @len bytes at @text, up to the first NUL; lent until the pool ends. NULL: no
 * memory. */
const char *text_pool_keep(struct text_pool *pool, const char *text, size_t len) must_use;
/* The pool is empty then. */
void text_pool_deinit(struct text_pool *pool);

#endif
