// SPDX-License-Identifier: Apache-2.0
/* Tells whether names of one side were found later, or by another version, than those of the
 * other. */
#include <math.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/profile/compare/compare_internal.h"

#define UNKNOWN_POINTS 5.0  /* difference of unknown frames that puts names in doubt */
#define ALIKE_LEAST    0.1  /* of what a file hides on the other side */
#define ALIKE_PART     0.9  /* of what is hidden */

/* 0: not a function that a file hides. */
static uint64_t file_of(const struct window_matrix *m, const struct window_function *f)
{
	const char *package = window_text(m, f->package);

	if (!(f->flags & WINDOW_FUNCTION_UNKNOWN) || !f->build)
		return 0;
	return hash_bytes(package, strlen(package), f->build);
}

static uint64_t value_of(const struct window_matrix *m, uint32_t function)
{
	uint64_t sum = 0;

	for (uint32_t i = m->self.first[function]; i < m->self.first[function + 1]; i++)
		sum += m->self.value[i] > 0 ? (uint64_t)m->self.value[i] : 0;
	return sum;
}

static int add_files(struct u64map *files, const struct window_matrix *m)
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < m->function_count; i++) {
		const uint64_t file = file_of(m, &m->functions[i]);
		uint64_t value = 0;

		if (!(m->functions[i].flags & WINDOW_FUNCTION_UNKNOWN))
			continue;
		(void)u64map_get(files, file, &value);
		rc = u64map_put(files, file, value + value_of(m, i));
	}
	return rc;
}

/* Whether files of the same build hide nearly all of what is unknown in @more in @less, too: then
 * the program went other ways through one file without symbols, and each of its functions is one
 * place on both sides. Values become shares with the totals. */
static bool are_alike(const struct u64map *more, double more_total, const struct u64map *less,
		      double less_total)
{
	double all = 0, alike = 0;
	uint64_t file, value, other;
	size_t at = 0;

	while (u64map_next(more, &at, &file, &value)) {
		all += (double)value;
		other = 0;
		if (file && u64map_get(less, file, &other) &&
		    (double)other / less_total >= ALIKE_LEAST * (double)value / more_total)
			alike += (double)value;
	}
	return all > 0 && alike >= ALIKE_PART * all;
}

int compare_names(struct comparison *c)
{
	const double pct[2] = { c->side[0]->profile->quality.unknown_frame_pct,
				c->side[1]->profile->quality.unknown_frame_pct };
	const int more = pct[0] > pct[1] ? 0 : 1;
	struct u64map files[2]; /* values of unknown functions by the file that hides their names */
	int rc = 0;

	c->out->names_in_doubt = pct[0] >= 0 && pct[1] >= 0 &&
				 fabs(pct[0] - pct[1]) > UNKNOWN_POINTS;
	if (!c->out->names_in_doubt || c->total[0] <= 0 || c->total[1] <= 0)
		return 0;
	for (int s = 0; s < 2; s++)
		u64map_init(&files[s], 0);
	for (int s = 0; rc == 0 && s < 2; s++)
		rc = add_files(&files[s], c->m[s]);
	if (rc == 0 && are_alike(&files[more], c->total[more], &files[1 - more], c->total[1 - more]))
		c->out->names_in_doubt = false;
	for (int s = 0; s < 2; s++)
		u64map_deinit(&files[s]);
	return rc;
}
