/* SPDX-License-Identifier: Apache-2.0 */
/* Fails the n-th allocation, for programs named test_*_nomem, which the Makefile links with --wrap.
 * Include it in exactly that one file. Only calls from the project's own objects are counted, not
 * those inside libraries. */
#ifndef PROFD_TESTS_ALLOC_FAIL_H
#define PROFD_TESTS_ALLOC_FAIL_H

#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>

static long alloc_fail_left = -1; /* calls that still succeed; -1 = never fail */
static bool alloc_fail_once;
static bool alloc_failed;
static bool alloc_watched;
static size_t alloc_most; /* bytes in use, while watched */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static bool alloc_fail_now(void)
{
	if (alloc_fail_left < 0)
		return false;
	if (alloc_fail_left > 0) {
		alloc_fail_left--;
		return false;
	}
	alloc_failed = true;
	if (alloc_fail_once)
		alloc_fail_left = -1;
	return true;
}

static size_t alloc_in_use(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static void *alloc_seen(void *made)
{
	if (alloc_watched && alloc_in_use() > alloc_most)
		alloc_most = alloc_in_use();
	return made;
}

void *__wrap_malloc(size_t size)
{
	return alloc_fail_now() ? NULL : alloc_seen(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
	return alloc_fail_now() ? NULL : alloc_seen(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size)
{
	return alloc_fail_now() ? NULL : alloc_seen(__real_realloc(old, size));
}

/* The (@n + 1)-th allocation fails; with @once only that one, else all until alloc_fail_stop(). */
static void alloc_fail_after(long n, bool once)
{
	alloc_fail_left = n;
	alloc_fail_once = once;
	alloc_failed = false;
}

/* True when an allocation did fail since alloc_fail_after(). */
static bool alloc_fail_stop(void)
{
	alloc_fail_left = -1;
	return alloc_failed;
}

#endif
