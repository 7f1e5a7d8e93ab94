// SPDX-License-Identifier: Apache-2.0
/* Matrices as bytes (README.md, "Format of a window matrix") and with fewer windows. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/bytes.h"
#include "agent/base/clock.h"
#include "agent/profile/builder_internal.h"
#include "agent/profile/window_internal.h"

static const char magic[4] = { 'P', 'W', 'M', '1' };

/* ---- coarser --------------------------------------------------------------------------------- */

static int coarsen_cells(const struct window_cells *from, uint32_t function_count, uint32_t factor,
			 uint32_t window_count, struct window_cells *ret)
{
	__attribute__((__cleanup__(
		window_cells_list_vec_deinit))) struct window_cells_list_vec list = { 0 };
	uint32_t f, i;
	int rc;

	for (f = 0; f < function_count; f++) {
		for (i = from->first[f]; i < from->first[f + 1]; i++) {
			uint32_t window = from->window[i] / factor;
			struct window_cell *last = list.count ? &list.data[list.count - 1] : NULL;

			window = window < window_count ? window : window_count - 1;
			if (last && last->function == f && last->window == window) {
				last->value = profile_add(last->value, from->value[i]);
				continue;
			}
			rc = window_cells_list_vec_push(
				&list, (struct window_cell){ f, window, from->value[i] });
			if (rc < 0)
				return rc;
		}
	}
	return window_cells_make(&list, function_count, ret);
}

static int64_t *coarsen_totals(const int64_t *from, uint32_t from_count, uint32_t factor,
			       uint32_t count)
{
	int64_t *totals = calloc(count, sizeof(*totals));
	uint32_t i;

	for (i = 0; totals && i < from_count; i++) {
		uint32_t to = i / factor < count ? i / factor : count - 1;

		totals[to] = profile_add(totals[to], from[i]);
	}
	return totals;
}

/* A copy of an array; an empty one gets one unused element so that NULL means failure. */
static void *copy_array(const void *from, size_t count, size_t size)
{
	void *copy = calloc(count + 1, size);

	if (copy && count)
		memcpy(copy, from, count * size);
	return copy;
}

static int coarsen_strata(const struct window_matrix *m, uint32_t factor, struct window_matrix *to)
{
	uint32_t k;
	int rc = 0;

	if (!m->stratum_count)
		return 0;
	to->strata = calloc(m->stratum_count, sizeof(*to->strata));
	if (!to->strata)
		return -ENOMEM;
	to->stratum_count = m->stratum_count;
	for (k = 0; rc == 0 && k < m->stratum_count; k++) {
		to->strata[k].name = m->strata[k].name;
		to->strata[k].totals = coarsen_totals(m->strata[k].totals, m->window_count, factor,
						      to->window_count);
		if (!to->strata[k].totals)
			return -ENOMEM;
		rc = coarsen_cells(&m->strata[k].self, m->function_count, factor, to->window_count,
				   &to->strata[k].self);
	}
	return rc;
}

int window_matrix_coarsen(const struct window_matrix *m, uint32_t factor,
			  struct window_matrix **ret)
{
	cleanup(window_matrix) struct window_matrix *to = NULL;
	int rc;

	if (!factor)
		return -EINVAL;
	to = calloc(1, sizeof(*to));
	if (!to)
		return -ENOMEM;
	*to = *m;
	to->self = to->cumulative = (struct window_cells){ 0 };
	to->strata = NULL;
	to->stratum_count = 0;
	to->window_count = m->window_count / factor ? m->window_count / factor : 1;
	to->window_ns = m->window_ns * factor;
	to->text = copy_array(m->text, m->text_len, 1);
	to->functions = copy_array(m->functions, m->function_count, sizeof(*m->functions));
	to->lives = copy_array(m->lives, m->life_count, sizeof(*m->lives));
	to->totals = coarsen_totals(m->totals, m->window_count, factor, to->window_count);
	if (!to->text || !to->functions || !to->lives || !to->totals)
		return -ENOMEM;
	rc = coarsen_cells(&m->self, m->function_count, factor, to->window_count, &to->self);
	if (rc == 0)
		rc = coarsen_cells(&m->cumulative, m->function_count, factor, to->window_count,
				   &to->cumulative);
	if (rc == 0)
		rc = coarsen_strata(m, factor, to);
	if (rc == 0)
		*ret = take_ptr(to);
	return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_double(struct buf *out, double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	buf_add_varint(out, bits);
}

static void put_cells(struct buf *out, const struct window_cells *cells, uint32_t function_count)
{
	uint32_t f, i;

	for (f = 0; f < function_count; f++) {
		uint32_t before = 0;

		buf_add_varint(out, cells->first[f + 1] - cells->first[f]);
		for (i = cells->first[f]; i < cells->first[f + 1]; i++) {
			buf_add_varint(out, cells->window[i] - before);
			buf_add_varint(out, (uint64_t)cells->value[i]);
			before = cells->window[i];
		}
	}
}

static void put_totals(struct buf *out, const int64_t *totals, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		buf_add_varint(out, (uint64_t)totals[i]);
}

void window_matrix_write(const struct window_matrix *m, struct buf *out)
{
	uint32_t i;

	buf_add(out, magic, sizeof(magic));
	buf_add_varint(out, m->type);
	buf_add_varint(out, m->start_ns);
	buf_add_varint(out, m->window_ns);
	buf_add_varint(out, m->duration_ns);
	put_double(out, m->scale);
	put_double(out, m->effective_lives);
	buf_add_varint(out, m->totals_only);
	buf_add_varint(out, m->window_count);
	buf_add_varint(out, m->function_count);
	buf_add_varint(out, m->life_count);
	buf_add_varint(out, m->stratum_count);
	buf_add_varint(out, m->text_len);
	buf_add(out, m->text, m->text_len);
	for (i = 0; i < m->function_count; i++) {
		const struct window_function *f = &m->functions[i];

		buf_add_varint(out, f->name);
		buf_add_varint(out, f->package);
		buf_add_varint(out, f->file);
		buf_add_varint(out, f->label);
		buf_add_varint(out, f->line);
		buf_add_varint(out, f->kind);
		buf_add_varint(out, f->flags);
		buf_add_varint(out, f->build);
	}
	for (i = 0; i < m->life_count; i++) {
		buf_add_varint(out, m->lives[i].started_at_ns);
		buf_add_varint(out, m->lives[i].pid);
		put_double(out, m->lives[i].part);
	}
	put_totals(out, m->totals, m->window_count);
	put_cells(out, &m->self, m->function_count);
	put_cells(out, &m->cumulative, m->function_count);
	for (i = 0; i < m->stratum_count; i++) {
		buf_add_varint(out, m->strata[i].name);
		put_totals(out, m->strata[i].totals, m->window_count);
		put_cells(out, &m->strata[i].self, m->function_count);
	}
}

/* ---- reading --------------------------------------------------------------------------------- */

static double get_double(struct bytes *in)
{
	uint64_t bits = bytes_varint(in);
	double value;

	memcpy(&value, &bits, sizeof(value));
	if (!isfinite(value) || value < 0)
		in->failed = true;
	return value;
}

/* A number that may not exceed @max. */
static uint64_t get(struct bytes *in, uint64_t max)
{
	uint64_t value = bytes_varint(in);

	if (value > max) {
		in->failed = true;
		return 0;
	}
	return value;
}

static int get_cells(struct bytes *in, const struct window_matrix *m, struct window_cells *ret)
{
	__attribute__((__cleanup__(
		window_cells_list_vec_deinit))) struct window_cells_list_vec list = { 0 };
	uint32_t f;
	int rc;

	for (f = 0; f < m->function_count; f++) {
		uint64_t count = get(in, m->window_count), window = 0, i;

		for (i = 0; i < count && !in->failed; i++) {
			uint64_t step = get(in, m->window_count), value;

			value = get(in, INT64_MAX);
			window += step;
			if ((i && !step) || window >= m->window_count)
				in->failed = true;
			if (in->failed)
				break;
			rc = window_cells_list_vec_push(
				&list, (struct window_cell){ f, (uint32_t)window, (int64_t)value });
			if (rc < 0)
				return rc;
		}
		if (in->failed)
			return -EPROTO;
	}
	return window_cells_make(&list, m->function_count, ret);
}

static int64_t *get_totals(struct bytes *in, uint32_t count)
{
	int64_t *totals = calloc(count, sizeof(*totals));
	uint32_t i;

	for (i = 0; totals && i < count; i++)
		totals[i] = (int64_t)get(in, INT64_MAX);
	return totals;
}

static int get_head(struct bytes *in, struct window_matrix *m)
{
	const void *found = bytes_take(in, sizeof(magic));

	if (!found || memcmp(found, magic, sizeof(magic)) != 0)
		return -EPROTO;
	m->type = (enum profile_type)get(in, PROFILE_TYPE_MAX - 1);
	m->start_ns = bytes_varint(in);
	m->window_ns = get(in, INT64_MAX);
	m->duration_ns = get(in, INT64_MAX);
	m->scale = get_double(in);
	m->effective_lives = get_double(in);
	m->totals_only = get(in, 1);
	m->window_count = (uint32_t)get(in, WINDOW_MATRIX_WINDOWS_MAX);
	/* Each takes several bytes: what the input cannot hold is refused before it is allocated.
	 */
	m->function_count = (uint32_t)get(in, bytes_left(in));
	m->life_count = (uint32_t)get(in, WINDOW_MATRIX_LIVES_MAX);
	m->stratum_count = 0;
	if (in->failed || !m->window_count || !m->window_ns || m->effective_lives < 1)
		return -EPROTO;
	return 0;
}

static int get_functions(struct bytes *in, struct window_matrix *m)
{
	const char *text;
	uint32_t i;

	m->text_len = (uint32_t)get(in, WINDOW_MATRIX_TEXT_MAX);
	text = bytes_take(in, m->text_len);
	if (!text || !m->text_len || text[m->text_len - 1])
		return -EPROTO;
	m->text = copy_array(text, m->text_len, 1);
	m->functions = calloc((size_t)m->function_count + 1, sizeof(*m->functions));
	m->lives = calloc((size_t)m->life_count + 1, sizeof(*m->lives));
	if (!m->text || !m->functions || !m->lives)
		return -ENOMEM;
	for (i = 0; i < m->function_count && !in->failed; i++) {
		struct window_function *f = &m->functions[i];

		f->name = (uint32_t)get(in, m->text_len - 1);
		f->package = (uint32_t)get(in, m->text_len - 1);
		f->file = (uint32_t)get(in, m->text_len - 1);
		f->label = (uint32_t)get(in, m->text_len - 1);
		f->line = (uint32_t)get(in, UINT32_MAX);
		f->kind = (uint8_t)get(in, PROFILE_FRAME_MARKER);
		f->flags = (uint8_t)get(in, UINT8_MAX);
		f->build = bytes_varint(in);
	}
	for (i = 0; i < m->life_count && !in->failed; i++) {
		m->lives[i].started_at_ns = bytes_varint(in);
		m->lives[i].pid = (uint32_t)get(in, UINT32_MAX);
		m->lives[i].part = get_double(in);
	}
	return in->failed ? -EPROTO : 0;
}

static int get_strata(struct bytes *in, struct window_matrix *m, uint32_t count)
{
	uint32_t k;
	int rc = 0;

	if (!count)
		return 0;
	m->strata = calloc(count, sizeof(*m->strata));
	if (!m->strata)
		return -ENOMEM;
	m->stratum_count = count;
	for (k = 0; rc == 0 && k < count; k++) {
		m->strata[k].name = (uint32_t)get(in, m->text_len - 1);
		m->strata[k].totals = get_totals(in, m->window_count);
		if (!m->strata[k].totals)
			return -ENOMEM;
		rc = get_cells(in, m, &m->strata[k].self);
	}
	return rc;
}

int window_matrix_read(const void *data, size_t len, struct window_matrix **ret)
{
	cleanup(window_matrix) struct window_matrix *m = calloc(1, sizeof(*m));
	struct bytes in = bytes_of(data, len);
	uint32_t strata;
	int rc;

	if (!m)
		return -ENOMEM;
	rc = get_head(&in, m);
	if (rc < 0)
		return rc;
	strata = (uint32_t)get(&in, WINDOW_MATRIX_STRATA_MAX);
	rc = get_functions(&in, m);
	if (rc < 0)
		return rc;
	m->totals = get_totals(&in, m->window_count);
	if (!m->totals)
		return -ENOMEM;
	rc = get_cells(&in, m, &m->self);
	if (rc == 0)
		rc = get_cells(&in, m, &m->cumulative);
	if (rc == 0)
		rc = get_strata(&in, m, strata);
	if (rc == 0 && (in.failed || bytes_left(&in)))
		rc = -EPROTO;
	if (rc == 0)
		*ret = take_ptr(m);
	return rc;
}
