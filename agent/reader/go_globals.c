// SPDX-License-Identifier: Apache-2.0
/* One pass over the program's data collects words that could be the wanted pointers; then the
 * memory they point to decides, in batches. A pointer into the program's own image is never one:
 * goroutines and buckets live in memory that the runtime maps. */
#include "agent/reader/go_globals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/vec.h"
#include "bpf/arch.h"

#define CANDIDATES_MAX (1u << 18)
#define SCAN_MAX       (256ull << 20) /* bytes of one segment */
#define PAGE_SHIFT     12
#define PAGEMAP_PAGES  512u
#define PAGE_IN_MEMORY                                                                             \
	(3ull << 62) /* present or swapped (Documentation/admin-guide/mm/pagemap.rst) */
#define G_LIST_MAX     (1ull << 28)
#define G_CHECKED      16u
#define BUCKETS_WALKED 100000u
#define WAIT_REASON_1  "GC assist marking" /* entry 1 in every version since 1.16; entry 0 is "" */

struct candidate {
	uint64_t va;	/* of the word */
	uint64_t ptr;	/* the word */
	uint64_t len;	/* the next one */
	uint64_t first; /* see read_words() */
};
VEC_DEFINE(candidate, struct candidate);

struct word_scan {
	struct go_layout *layout;
	struct candidate_vec slices; /* ptr, len, cap */
	struct candidate_vec pointers;
};

/* ---- collecting ------------------------------------------------------------------------------ */

static bool is_heap_pointer(const struct go_layout *layout, uint64_t va)
{
	return !(va & 7) && va >= 4096 && va < ARCH_USUAL_END &&
	       !(va >= layout->image.start_va && va < layout->image.end_va);
}

static int collect_words(void *ctx, uint64_t va, const uint8_t *data, size_t len)
{
	struct word_scan *scan = ctx;
	int rc = 0;

	for (size_t at = 0; at + 8 <= len && rc == 0; at += 8) {
		uint64_t words[3] = { 0 };

		memcpy(words, data + at, len - at < sizeof(words) ? len - at : sizeof(words));
		if (!is_heap_pointer(scan->layout, words[0]))
			continue;
		struct candidate c = { .va = va + at, .ptr = words[0], .len = words[1] };

		if (words[1] && words[1] <= words[2] && words[2] <= G_LIST_MAX &&
		    scan->slices.count < CANDIDATES_MAX)
			rc = candidate_vec_push(&scan->slices, c);
		if (rc == 0 && scan->pointers.count < CANDIDATES_MAX)
			rc = candidate_vec_push(&scan->pointers, c);
	}
	return rc;
}

/* Scans the pages of a range that are in memory: reading one that was never touched would map the
 * zero page into the target. Without the right to see the page map, everything is read. */
static int scan_resident(struct word_scan *scan, const struct go_range *range)
{
	struct image *image = &scan->layout->image;
	cleanup_close int fd = openat(image->target->proc_fd, "pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entries[PAGEMAP_PAGES], va = range->start_va;

	if (range->end_va - range->start_va > SCAN_MAX)
		return 0;
	while (va < range->end_va) {
		uint64_t page = va >> PAGE_SHIFT, run_va = va;
		ssize_t got = fd < 0 ? -1 : pread(fd, entries, sizeof(entries), (off_t)(page * 8));
		size_t count = got > 0 ? (size_t)got / 8 : 0;

		if (!count)
			return image_scan(image, va, range->end_va, 24, collect_words, scan);
		for (size_t i = 0; i <= count && run_va < range->end_va; i++) {
			uint64_t at = i ? (page + i) << PAGE_SHIFT : va;
			int rc;

			if (i < count && entries[i] & PAGE_IN_MEMORY)
				continue;
			if (i == count) /* a slice header may lie across the end of this piece */
				at += 16;
			if (at > range->end_va)
				at = range->end_va;
			rc = at > run_va ? image_scan(image, run_va, at, 24, collect_words, scan)
					 : 0;
			if (rc < 0)
				return rc;
			run_va = (page + i + 1) << PAGE_SHIFT;
		}
		va = (page + count) << PAGE_SHIFT;
	}
	return 0;
}

/* Profile lists were plain pointers without write barrier until 1.18 and lay in noptrbss; that
 * segment is 32 MB of mostly untouched pages in 1.26 and holds nothing that is wanted there. */
static int collect(struct word_scan *scan)
{
	struct go_layout *layout = scan->layout;
	int rc = scan_resident(scan, &layout->bss);

	if (rc == 0 && !go_layout_since(layout, 19))
		rc = scan_resident(scan, &layout->noptrbss);
	if (rc == 0)
		rc = scan_resident(scan, &layout->data);
	return rc;
}

static void word_scan_deinit(struct word_scan *scan)
{
	candidate_vec_deinit(&scan->slices);
	candidate_vec_deinit(&scan->pointers);
}

/* ---- the list of goroutines ------------------------------------------------------------------ */

static uint64_t word_of(const uint8_t *data, uint32_t offset)
{
	uint64_t word;

	memcpy(&word, data + offset, sizeof(word));
	return word;
}

/* Reads into each candidate's first the word at ptr (@offset GO_NO_FIELD) or at first + @offset; 0
 * where that is not readable. */
static int read_words(struct target *target, struct candidate *c, size_t count, uint32_t offset)
{
	struct target_piece pieces[TARGET_BATCH_MAX];
	uint64_t words[TARGET_BATCH_MAX];

	for (size_t done = 0; done < count; done += TARGET_BATCH_MAX) {
		size_t part = count - done < TARGET_BATCH_MAX ? count - done : TARGET_BATCH_MAX;
		int rc;

		for (size_t i = 0; i < part; i++) {
			const struct candidate *at = &c[done + i];

			words[i] = 0;
			pieces[i] = (struct target_piece){
				.va = offset == GO_NO_FIELD ? at->ptr : at->first + offset,
				.buf = &words[i],
				.len = 8,
			};
		}
		rc = target_read_batch(target, pieces, part);
		if (rc < 0)
			return rc;
		for (size_t i = 0; i < part; i++)
			c[done + i].first = pieces[i].got == 8 ? words[i] : 0;
	}
	return 0;
}

/* Keeps the slices whose first element is a structure that points to itself where a g does. */
static int filter_slices(struct word_scan *scan)
{
	const struct go_fields *f = &scan->layout->fields;
	struct target *target = scan->layout->image.target;
	struct candidate *c = scan->slices.data;
	size_t kept = 0;
	uint64_t *g;
	int rc = read_words(target, c, scan->slices.count, GO_NO_FIELD);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < scan->slices.count; i++)
		if (is_heap_pointer(scan->layout, c[i].first))
			c[kept++] = c[i];
	scan->slices.count = kept;
	g = malloc((kept + 1) * sizeof(*g));
	if (!g)
		return -ENOMEM;
	for (size_t i = 0; i < kept; i++)
		g[i] = c[i].first;
	rc = read_words(target, c, kept, f->g.sched + f->gobuf_g);
	for (size_t i = kept = 0; i < scan->slices.count && rc == 0; i++)
		if (c[i].first == g[i])
			c[kept++] = c[i];
	scan->slices.count = kept;
	free(g);
	return rc;
}

struct g_list_check {
	unsigned checked;
	unsigned passed;
	const char *failed; /* field */
	uint64_t first_goid;
};

/* go-runtime rules that hold for every entry; the text of the first one that does not. */
static const char *g_check(const struct go_layout *layout, const uint8_t *g, uint64_t va)
{
	const struct go_fields *f = &layout->fields;
	uint32_t status;
	uint64_t low = word_of(g, f->g.stack), high = word_of(g, f->g.stack + 8);
	uint64_t startpc = word_of(g, f->g.startpc);

	memcpy(&status, g + f->g.atomicstatus, sizeof(status));
	status &= ~0x1000u;
	if (word_of(g, f->g.sched + f->gobuf_g) != va)
		return "sched.g";
	if (status > 11 || status == 5 || status == 7)
		return "atomicstatus";
	if (status == 0 || status == 6 || status == 11)
		return NULL;
	if (low >= high || low & 7)
		return "stack";
	if (startpc && (startpc < layout->table.min_va || startpc >= layout->table.max_va))
		return "startpc";
	return NULL;
}

static int check_g_list(struct go_layout *layout, uint64_t array_va, uint64_t count,
			struct g_list_check *ret)
{
	uint64_t elements[G_CHECKED];
	uint8_t g[GO_G_BYTES_MAX];
	size_t n = count < G_CHECKED ? count : G_CHECKED;
	int rc = target_read(layout->image.target, array_va, elements, n * sizeof(elements[0]));

	*ret = (struct g_list_check){ 0 };
	for (size_t i = 0; i < n && rc == 0; i++) {
		const char *failed = "address";

		rc = target_read(layout->image.target, elements[i], g, layout->fields.g.size);
		if (rc == 0)
			failed = g_check(layout, g, elements[i]);
		else if (rc != -EFAULT)
			return rc;
		if (rc == 0 && i == 0)
			ret->first_goid = word_of(g, layout->fields.g.goid);
		rc = 0;
		ret->checked++;
		if (!failed)
			ret->passed++;
		else
			ret->failed = failed;
	}
	return rc == -EFAULT ? 0 : rc;
}

static bool is_pointed_to_elsewhere(const struct word_scan *scan, const struct candidate *slice)
{
	for (size_t i = 0; i < scan->pointers.count; i++)
		if (scan->pointers.data[i].ptr == slice->ptr &&
		    scan->pointers.data[i].va != slice->va)
			return true;
	return false;
}

/* runtime.allgs: the list that begins with goroutine 1, else (main ended, c-shared) the longest one
 * whose array runtime.allgptr points to as well. */
static int choose_allgs(struct word_scan *scan, struct err *err)
{
	struct go_layout *layout = scan->layout;
	const char *failed = NULL;
	uint64_t best_len = 0;

	for (size_t i = 0; i < scan->slices.count; i++) {
		const struct candidate *c = &scan->slices.data[i];
		struct g_list_check check;
		int rc = check_g_list(layout, c->ptr, c->len, &check);

		if (rc < 0)
			return rc;
		if (!check.checked || check.passed * 16 < check.checked * 15) {
			failed = check.failed;
			continue;
		}
		if (check.first_goid == 1) {
			layout->allgs_va = c->va;
			return 0;
		}
		if (c->len > best_len && is_pointed_to_elsewhere(scan, c)) {
			best_len = c->len;
			layout->allgs_va = c->va;
		}
	}
	if (layout->allgs_va)
		return 0;
	if (failed)
		return err_set(err, EOPNOTSUPP, NULL, NULL,
			       "this Go program's goroutines failed the self-check (%s, field %s)",
			       layout->version, failed);
	return err_set(err, EAGAIN, NULL, NULL,
		       "the Go runtime of this program has not started yet");
}

/* ---- profile lists --------------------------------------------------------------------------- */

uint64_t go_bucket_hash(const uint64_t *frames, uint64_t count, uint64_t size)
{
	uint64_t h = 0;

	for (uint64_t i = 0; i < count; i++) {
		h += frames[i];
		h += h << 10;
		h ^= h >> 6;
	}
	h += size;
	h += h << 10;
	h ^= h >> 6;
	h += h << 3;
	h ^= h >> 11;
	return h;
}

static bool bucket_is_plausible(const struct go_bucket_head *b)
{
	return b->type >= GO_BUCKET_MEMORY && b->type <= GO_BUCKET_MUTEX && b->frame_count &&
	       b->frame_count <= GO_BUCKET_FRAMES_MAX && !(b->allnext & 7);
}

static bool bucket_is_real(struct target *target, uint64_t va, const struct go_bucket_head *b)
{
	uint64_t frames[GO_BUCKET_FRAMES_MAX];

	return target_read(target, va + GO_BUCKET_BYTES, frames, b->frame_count * 8) == 0 &&
	       go_bucket_hash(frames, b->frame_count, b->size) == b->hash;
}

bool go_bucket_read(struct target *target, uint64_t va, struct go_bucket_head *ret)
{
	return target_read(target, va, ret, sizeof(*ret)) == 0 && bucket_is_plausible(ret) &&
	       bucket_is_real(target, va, ret);
}

static uint64_t list_length(struct target *target, uint64_t va)
{
	struct go_bucket_head b;
	uint64_t length = 0;

	while (va && length < BUCKETS_WALKED && target_read(target, va, &b, sizeof(b)) == 0) {
		va = b.allnext;
		length++;
	}
	return length;
}

struct list_choice {
	uint64_t va[GO_BUCKET_MUTEX + 1];
	uint64_t head[GO_BUCKET_MUTEX + 1];
	uint64_t length[GO_BUCKET_MUTEX + 1];
};

/* Others may point into a list; the head is the pointer with the longest way to the end. */
static void consider_list(struct target *target, const struct candidate *c,
			  const struct go_bucket_head *b, struct list_choice *best)
{
	uint64_t length;

	if (best->head[b->type] == c->ptr || !bucket_is_real(target, c->ptr, b))
		return;
	length = list_length(target, c->ptr);
	if (length <= best->length[b->type])
		return;
	best->va[b->type] = c->va;
	best->head[b->type] = c->ptr;
	best->length[b->type] = length;
}

static int choose_lists(struct word_scan *scan)
{
	struct target *target = scan->layout->image.target;
	struct target_piece pieces[TARGET_BATCH_MAX];
	cleanup_free struct go_bucket_head *heads = malloc(TARGET_BATCH_MAX * sizeof(*heads));
	struct list_choice best = { 0 };
	uint64_t *lists = scan->layout->bucket_lists_va;

	if (!heads)
		return -ENOMEM;
	for (size_t done = 0; done < scan->pointers.count; done += TARGET_BATCH_MAX) {
		const struct candidate *c = scan->pointers.data + done;
		size_t left = scan->pointers.count - done;
		size_t part = left < TARGET_BATCH_MAX ? left : TARGET_BATCH_MAX;
		int rc;

		for (size_t i = 0; i < part; i++)
			pieces[i] = (struct target_piece){ .va = c[i].ptr,
							   .buf = &heads[i],
							   .len = sizeof(*heads) };
		rc = target_read_batch(target, pieces, part);
		if (rc < 0)
			return rc;
		for (size_t i = 0; i < part; i++)
			if (pieces[i].got == sizeof(*heads) && bucket_is_plausible(&heads[i]))
				consider_list(target, &c[i], &heads[i], &best);
	}
	for (unsigned type = GO_BUCKET_MEMORY; type <= GO_BUCKET_MUTEX; type++)
		if (best.va[type])
			lists[type] = best.va[type];
	/* From 1.21 the three pointers are neighbours, so that one gives the empty ones too. */
	for (unsigned type = GO_BUCKET_MEMORY; type <= GO_BUCKET_MUTEX; type++)
		for (unsigned other = GO_BUCKET_MEMORY; other <= GO_BUCKET_MUTEX; other++)
			if (go_layout_since(scan->layout, 21) && !lists[type] && lists[other])
				lists[type] =
					lists[other] + 8 * (uint64_t)type - 8 * (uint64_t)other;
	return 0;
}

/* ---- wait reasons ---------------------------------------------------------------------------- */

static int find_wait_reasons(void *ctx, uint64_t va, const uint8_t *data, size_t len)
{
	struct go_layout *layout = ctx;

	for (size_t at = 0; at + 16 <= len; at += 8) {
		char text[sizeof(WAIT_REASON_1) - 1];
		uint64_t pair[2];

		memcpy(pair, data + at, sizeof(pair));
		if (pair[1] != sizeof(text) || pair[0] < layout->image.start_va ||
		    pair[0] >= layout->image.end_va ||
		    image_read(&layout->image, pair[0], text, sizeof(text)) < 0 ||
		    memcmp(text, WAIT_REASON_1, sizeof(text)) != 0)
			continue;
		/* Words behind the table look like text, too, but no goroutine refers to them. */
		for (unsigned i = 1; i < GO_WAIT_REASONS_MAX; i++, at += 16) {
			if (at + 16 > len)
				break;
			memcpy(pair, data + at, sizeof(pair));
			if (pair[1] >= GO_WAIT_REASON_SIZE || pair[0] < layout->image.start_va ||
			    pair[0] >= layout->image.end_va ||
			    image_read(&layout->image, pair[0], layout->wait_reasons[i], pair[1]) <
				    0)
				break;
			layout->wait_reasons[i][pair[1]] = '\0';
			layout->wait_reason_count = i + 1;
		}
		return 1;
	}
	return 0;
}

/* ---- whole ----------------------------------------------------------------------------------- */

int go_globals_find(struct go_layout *layout, struct err *err)
{
	struct word_scan scan = { .layout = layout };
	int rc = collect(&scan);

	if (rc == 0)
		rc = filter_slices(&scan);
	if (rc == 0)
		rc = choose_allgs(&scan, err);
	if (rc == 0)
		rc = choose_lists(&scan);
	word_scan_deinit(&scan);
	if (rc == 0)
		rc = image_scan(&layout->image, layout->data.start_va, layout->data.end_va,
				16 * GO_WAIT_REASONS_MAX, find_wait_reasons, layout);
	return rc < 0 ? rc : 0;
}

int go_globals_find_buckets(struct go_layout *layout)
{
	struct word_scan scan = { .layout = layout };
	int rc = collect(&scan);

	if (rc == 0)
		rc = choose_lists(&scan);
	word_scan_deinit(&scan);
	return rc;
}
