// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/file_name.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/parse.h"
#include "bpf/profiler.h"

#define WORD_BYTES 7u

_Static_assert((WORD_BYTES + 1) * PROF_NAME_WORDS_MAX <= FILE_NAME_SIZE,
	       "each word may be a component");

struct words {
	char text[PROF_NAME_WORDS_MAX * WORD_BYTES]; /* what comes before the kind */
	uint16_t length[PROF_NAME_WORDS_MAX];	     /* of each component */
	size_t text_len, raw_len, components;
	uint64_t kind; /* with its data; 0 = there is none */
};

size_t file_name_at(const uint64_t *frames, size_t count)
{
	while (count && prof_frame_kind(frames[count - 1]) == PROF_FRAME_NAME)
		count--;
	return count;
}

static void read_words(struct words *w, const uint64_t *words, size_t count)
{
	for (size_t i = 0; i < count && i < PROF_NAME_WORDS_MAX && !w->kind; i++) {
		unsigned form = words[i] >> PROF_NAME_FORM_SHIFT & 3;
		uint64_t bits = words[i] & PROF_NAME_BITS;
		size_t len;

		if (form == PROF_NAME_KIND) {
			w->kind = bits;
			return;
		}
		memcpy(w->text + w->text_len, &bits, WORD_BYTES);
		if (form == PROF_NAME_BEGIN)
			w->components++;
		if (!w->components) { /* an address */
			w->text_len += WORD_BYTES;
			w->raw_len = w->text_len;
			continue;
		}
		len = strnlen(w->text + w->text_len, WORD_BYTES);
		w->length[w->components - 1] += (uint16_t)len;
		w->text_len += len;
	}
}

/* Outermost first. */
static void join(const struct words *w, bool whole, char ret[FILE_NAME_SIZE])
{
	const char *end = w->text + w->text_len;
	size_t at = 0;

	if (!whole)
		at = (size_t)snprintf(ret, FILE_NAME_SIZE, "…");
	for (size_t i = w->components; i-- > 0; end -= w->length[i]) {
		const char *part = end - w->length[i];

		/* [eventfd] lies in no directory; the root of all is "/" itself */
		if (w->components > 1 || part[0] != '[')
			ret[at++] = '/';
		if (w->length[i] == 1 && part[0] == '/')
			continue;
		memcpy(ret + at, part, w->length[i]);
		at += w->length[i];
	}
	if (!at)
		ret[at++] = '/';
	ret[at] = '\0';
}

static void peer(const struct words *w, int family, const char *protocol, char ret[FILE_NAME_SIZE])
{
	uint32_t address = (uint32_t)(w->kind >> 24), port = w->kind >> 8 & 0xffff;
	char text[INET6_ADDRSTRLEN];
	const void *from = family == AF_INET ? (const void *)&address : w->text;

	if (family == AF_INET6 && w->raw_len < sizeof(struct in6_addr))
		return;
	if (inet_ntop(family, from, text, sizeof(text)))
		(void)snprintf(ret, FILE_NAME_SIZE, family == AF_INET ? "%s %s:%u" : "%s [%s]:%u", protocol, text,
			       port);
}

static void make_printable(char *text)
{
	bool is_utf8 = parse_is_utf8(text, strlen(text));

	for (unsigned char *c = (unsigned char *)text; *c; c++)
		if (*c < ' ' || *c == 0x7f || (*c >= 0x80 && !is_utf8))
			*c = '?';
}

void file_name_text(const uint64_t *words, size_t count, char ret[FILE_NAME_SIZE])
{
	struct words w = { 0 };

	ret[0] = '\0';
	read_words(&w, words, count);
	switch (w.kind & 0xff) {
	case PROF_NAME_PATH:
	case PROF_NAME_CUT_PATH:
		join(&w, (w.kind & 0xff) == PROF_NAME_PATH, ret);
		break;
	case PROF_NAME_PIPE:
		(void)snprintf(ret, FILE_NAME_SIZE, "pipe:[%llu]", (unsigned long long)(w.kind >> 8));
		break;
	case PROF_NAME_TCP:
		peer(&w, AF_INET, "tcp", ret);
		break;
	case PROF_NAME_UDP:
		peer(&w, AF_INET, "udp", ret);
		break;
	case PROF_NAME_TCP6:
		peer(&w, AF_INET6, "tcp", ret);
		break;
	case PROF_NAME_UDP6:
		peer(&w, AF_INET6, "udp", ret);
		break;
	case PROF_NAME_UNIX:
	case PROF_NAME_UNIX_ABSTRACT:
		(void)snprintf(ret, FILE_NAME_SIZE, "unix%s%.*s",
			       (w.kind & 0xff) == PROF_NAME_UNIX_ABSTRACT ? " @" : w.text_len ? " " : "",
			       (int)w.text_len, w.text);
		break;
	}
	make_printable(ret);
}
