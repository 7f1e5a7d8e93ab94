/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a target for the readers of heaps: bytes that the fuzz target builds, and that
 * change while they are read, as a moving collector or a liar would do it. A change is 8 bytes of
 * the input: after how many reads, form of the word, place (2 bytes), value (4 bytes). This stands
 * in place of agent/reader/target_memory.c. */
#ifndef PROFD_FUZZ_FAKE_MEMORY_H
#define PROFD_FUZZ_FAKE_MEMORY_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/reader/script_names.h"
#include "agent/reader/target_memory.h"

#define FAKE_BASE	 0x10000000ull
#define FAKE_CHANGE	 8u
#define FAKE_CHANGES_MAX 64u

static struct {
	uint8_t *bytes;
	uint32_t count;	       /* of the bytes */
	uint32_t pointer_bits; /* are set in pointers to objects */
	const uint8_t *changes, *end;
	uint32_t reads;
} fake;

static void fake_change(void)
{
	for (; fake.end - fake.changes >= FAKE_CHANGE && fake.changes[0] <= fake.reads;
	     fake.changes += FAKE_CHANGE) {
		uint32_t at = fake.changes[2] | (uint32_t)fake.changes[3] << 8, value;
		uint64_t word;

		memcpy(&value, fake.changes + 4, sizeof(value));
		switch (fake.changes[1] & 3) {
		case 0: /* an object */
			word = FAKE_BASE + (value & ~7u) % fake.count + fake.pointer_bits;
			break;
		case 1: /* a small integer of V8 */
			word = (uint64_t)value << 32;
			break;
		default:
			word = value;
		}
		at %= fake.count - 7;
		if ((fake.changes[1] & 3) == 3) /* as it is, anywhere */
			memcpy(fake.bytes + at, &value, sizeof(value));
		else
			memcpy(fake.bytes + (at & ~7u), &word, sizeof(word));
	}
}

int target_read(struct target *target, uint64_t va, void *buf, size_t len)
{
	ssize_t got = target_read_some(target, va, buf, len);

	return got < 0 ? (int)got : (size_t)got == len ? 0 : -EFAULT;
}

ssize_t target_read_some(struct target *target, uint64_t va, void *buf, size_t len)
{
	(void)target;
	fake_change();
	fake.reads++;
	if (va < FAKE_BASE || va - FAKE_BASE >= fake.count)
		return -EFAULT;
	if (len > fake.count - (va - FAKE_BASE))
		len = fake.count - (va - FAKE_BASE);
	memcpy(buf, fake.bytes + (va - FAKE_BASE), len);
	return (ssize_t)len;
}

int target_read_batch(struct target *target, struct target_piece *pieces, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		ssize_t got = target_read_some(target, pieces[i].va, pieces[i].buf, pieces[i].len);

		pieces[i].got = got > 0 ? (uint32_t)got : 0;
	}
	return 0;
}

static const uint8_t *fake_check_text(const uint8_t *at, const uint8_t *end)
{
	uint16_t len;

	if (end - at < 2)
		abort();
	memcpy(&len, at, sizeof(len));
	at += sizeof(len);
	if (len > SCRIPT_NAME_MAX || len > end - at)
		abort();
	return at + len;
}

/* There is one entry for each of @places, whole and in bounds. */
static void fake_check_names(const struct script_names *names, size_t places)
{
	const uint8_t *at = (const uint8_t *)names->payload.data, *all = at;

	if (names->count != places)
		abort();
	for (size_t i = 0; i < places; i++) {
		const uint8_t *end = all + names->ends[i];
		uint16_t count;

		if (end - at < 2)
			abort();
		memcpy(&count, at, sizeof(count));
		at += sizeof(count);
		for (; count; count--) {
			if (end - at < 8)
				abort();
			at = fake_check_text(at + 8, end);
			at = fake_check_text(at, end);
		}
		if (at != end)
			abort();
	}
}

#endif
