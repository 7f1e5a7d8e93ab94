/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of a CPython process, read from outside while the process runs: types, strings, dicts,
 * sets, attributes. Release builds of 3.8 to 3.14 with the GIL. Every value is hostile: it is read
 * once, checked and bounded.
 *
 * The process may change its objects between two reads. cpython_objects_begin() starts a list of
 * all reads. cpython_objects_unchanged() repeats them and compares. Not thread-safe.
 * Sources: CPython's Include/cpython/object.h, Objects/dict-common.h, Include/internal/
 * pycore_dict.h, Include/cpython/setobject.h, Include/cpython/weakrefobject.h. */
#ifndef PROFD_READER_CPYTHON_OBJECTS_H
#define PROFD_READER_CPYTHON_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/target_memory.h"
#include "bpf/arch.h"
#include "bpf/script.h"

#define CPYTHON_OBJECTS_TYPES 64u   /* that are remembered */
#define CPYTHON_OBJECTS_NOTES 1024u /* reads that are noted */
#define CPYTHON_OBJECTS_BYTES 65536u /* of these */
#define CPYTHON_SET_MAX	      (1u << 20) /* elements */
#define CPYTHON_DICT_MAX      65536u /* entries */

enum cpython_kind {
	CPYTHON_OTHER,
	CPYTHON_COROUTINE, /* also a generator and an asynchronous generator */
	CPYTHON_WRAPPER, /* what `async for` and a coroutine's __await__() put around one of them */
	CPYTHON_TASK,	 /* _asyncio.Task, or a class derived from it */
	CPYTHON_FOREIGN_TASK, /* a class Task that is written in Python */
	CPYTHON_GATHER,	 /* the future of asyncio.gather() */
	CPYTHON_METHOD, /* a function bound to an object */
	CPYTHON_WEAKREF,
	CPYTHON_SET,
	CPYTHON_DICT,
	CPYTHON_LIST,
	CPYTHON_STR,
	CPYTHON_INT,
	CPYTHON_MODULE,
};

struct cpython_objects {
	struct target *target;		    /* borrowed */
	const struct script_python *python; /* borrowed */
	struct {
		uint64_t va;
		enum cpython_kind kind;
	} types[CPYTHON_OBJECTS_TYPES];
	size_t type_count;
	bool is_noting, is_full; /* full: more was read than can be noted */
	size_t note_count, noted_bytes;
	struct target_piece notes[CPYTHON_OBJECTS_NOTES];
	uint8_t noted[CPYTHON_OBJECTS_BYTES], again[CPYTHON_OBJECTS_BYTES];
};

/* Is @va the address of an object, as far as the number tells? */
static inline bool cpython_is_object(uint64_t va)
{
	return va >= 4096 && !(va & 7) && va < ARCH_USUAL_END;
}

/* Exactly @bytes at @va. -EFAULT, -ESRCH, -EPERM as target_read(). The other functions fail with
 * these, too, and with -EINVAL where the memory is no such object. */
int cpython_objects_read(struct cpython_objects *o, uint64_t va, void *ret, size_t bytes) must_use;
int cpython_objects_word(struct cpython_objects *o, uint64_t va, uint64_t *ret) must_use;

void cpython_objects_begin(struct cpython_objects *o);
/* 1: all that was read since cpython_objects_begin() is the same now. 0: it is not, or it was more
 * than can be noted. -ESRCH, -EPERM. Ends the note. */
int cpython_objects_unchanged(struct cpython_objects *o) must_use;

/* The kind of the object at @va by the name of its type, OTHER also where it cannot be read. */
enum cpython_kind cpython_objects_kind(struct cpython_objects *o, uint64_t va);
/* The text of a str, as UTF-8 without control characters, cut to @size bytes with its NUL. */
int cpython_objects_str(struct cpython_objects *o, uint64_t va, char *ret, size_t size) must_use;
/* The number of an int below 2^60 that is not negative. From 3.12 on. */
int cpython_objects_int(struct cpython_objects *o, uint64_t va, uint64_t *ret) must_use;
/* The value of the str @key in a dict. -ENOENT: there is none. */
int cpython_objects_lookup(struct cpython_objects *o, uint64_t dict_va, const char *key,
			   uint64_t *ret) must_use;
/* The values of an instance's attributes, @max at most. Returns how many. */
int cpython_objects_attributes(struct cpython_objects *o, uint64_t va, uint64_t *ret,
			       size_t max) must_use;
/* The items of a list, @max at most. Returns how many. */
int cpython_objects_list(struct cpython_objects *o, uint64_t va, uint64_t *ret,
			 size_t max) must_use;
/* Calls @each with every element of a set, until it returns something else than 0. -E2BIG: the set
 * is larger than CPYTHON_SET_MAX. -EAGAIN: the set was rebuilt meanwhile, some elements may be
 * missing. Else what @each returned. */
int cpython_objects_set(struct cpython_objects *o, uint64_t va,
			int (*each)(void *ctx, uint64_t element_va), void *ctx) must_use;

#endif
