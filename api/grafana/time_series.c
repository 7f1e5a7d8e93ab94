// SPDX-License-Identifier: Apache-2.0
/* SelectSeries: sums by time and labels. A point at t holds what was taken in the step that ends at
 * t, as Pyroscope has it. What only series labels choose and group comes from the index of the
 * history; for labels of samples, or a call site, the profile is built and its events are summed.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "api/api_internal.h"
#include "api/grafana/answers.h"
#include "api/grafana/select.h"
#include "api/render/proto.h"

#define GROUPS_MAX 20000u
#define MINUTE_NS  (60 * NS_PER_S)
#define STEP_MIN_S 1.0
#define STEP_MAX_S (400.0 * 86400)

struct group {
	struct buf labels; /* encoded pairs: field 1 of the answer's series */
	double *values;	   /* by step, owned */
	bool *observed;
	double total;
};

struct sums {
	struct selection *selection;
	const struct querier_request *request;
	uint64_t step_ns;
	size_t steps;
	struct group *groups;
	size_t count;
	struct u64map at; /* hash of labels -> group */
};

static void sums_deinit(struct sums *sums)
{
	for (size_t i = 0; i < sums->count; i++) {
		buf_deinit(&sums->groups[i].labels);
		free(sums->groups[i].values);
		free(sums->groups[i].observed);
	}
	free(sums->groups);
	u64map_deinit(&sums->at);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int too_many(struct sums *sums)
{
	return err_set(
		sums->selection->call->err, E2BIG, "LimitReached", "groupBy",
		"more than %u series or %u points: group by fewer labels or ask for longer steps",
		GROUPS_MAX, HISTORY_CELLS_MAX);
}

static int add_group(struct sums *sums, uint64_t hash, struct buf *labels, struct group **ret)
{
	struct group group = { 0 }, *groups;
	int rc;

	if (sums->count == GROUPS_MAX || (sums->count + 1) * sums->steps > HISTORY_CELLS_MAX)
		return too_many(sums);
	rc = u64map_put(&sums->at, hash, sums->count);
	groups = rc == 0 ? reallocarray(sums->groups, sums->count + 1, sizeof(*groups)) : NULL;
	if (!groups)
		return -ENOMEM;
	sums->groups = groups;
	group.values = calloc(sums->steps, sizeof(*group.values));
	group.observed = calloc(sums->steps, sizeof(*group.observed));
	if (!group.values || !group.observed) {
		free(group.values);
		free(group.observed);
		return -ENOMEM;
	}
	buf_add(&group.labels, labels->data, labels->len);
	groups[sums->count] = group;
	*ret = &groups[sums->count++];
	return 0;
}

/* The group of the encoded @labels. */
static int find_group(struct sums *sums, struct buf *labels, struct group **ret)
{
	uint64_t hash = hash_bytes(labels->data, labels->len, 0), at;

	if (labels->error)
		return labels->error;
	if (!u64map_get(&sums->at, hash, &at))
		return add_group(sums, hash, labels, ret);
	*ret = &sums->groups[at];
	return 0;
}

static void add_label(struct buf *labels, struct buf *pair, const char *name, const char *value)
{
	proto_text(pair, 1, name);
	proto_text(pair, 2, value);
	proto_message(labels, 1, pair);
}

/* ---- from the index -------------------------------------------------------------------------- */

static int add_row(struct sums *sums, const struct history_series *series)
{
	const struct series_row row = { series->service, series->host, sums->selection->id };
	cleanup_buf struct buf labels = { 0 }, pair = { 0 };
	bool is_count = row.id.value != profile_type_info(row.id.type)->value_index;
	char scratch[SERIES_LABEL_SIZE];
	struct group *group;
	int rc = selection_has_row(sums->selection, &row);

	if (rc <= 0)
		return rc;
	for (size_t i = 0; i < sums->request->group_by.count; i++)
		add_label(&labels, &pair, sums->request->group_by.items[i],
			  series_label(sums->selection, &row, sums->request->group_by.items[i],
				       scratch));
	rc = find_group(sums, &labels, &group);
	for (size_t i = 0; rc == 0 && i < sums->steps; i++) {
		group->values[i] +=
			is_count ? (double)series->samples[i] : (double)series->values[i];
		group->observed[i] |= series->observed[i];
	}
	return rc;
}

static int sum_index(struct sums *sums)
{
	struct history_series_list list = { 0 };
	int rc = selection_series(sums->selection, 1u << sums->selection->id.type, sums->step_ns,
				  &list);

	for (size_t i = 0; rc == 0 && i < list.count; i++)
		rc = add_row(sums, &list.items[i]);
	history_series_list_deinit(&list);
	return rc;
}

/* ---- from samples ---------------------------------------------------------------------------- */

#define GROUP_BY_MAX 16u

struct by_samples {
	struct sums *sums;
	const struct profile *p;
	struct sample_label labels[GROUP_BY_MAX];
	uint32_t *group;	      /* by attributes: number + 1, 0 = not known yet */
	double *main_sum, *value_sum; /* by group: of the samples */
};

/* The value of a label, of samples or of series, that the samples of @attrs have. */
static const char *text_of(struct by_samples *by, uint32_t attrs, size_t label,
			   char scratch[SERIES_LABEL_SIZE])
{
	const char *name = by->sums->request->group_by.items[label];
	const struct sample_label service = { { ATTRIBUTE_SERVICE, 0 }, true },
				  host = { { ATTRIBUTE_HOST, 0 }, true };
	const struct series_row row = { sample_label_text(by->p, attrs, &service, scratch),
					sample_label_text(by->p, attrs, &host, scratch),
					by->sums->selection->id };

	return selection_is_series_label(name)
		       ? series_label(by->sums->selection, &row, name, scratch)
		       : sample_label_text(by->p, attrs, &by->labels[label], scratch);
}

static int group_of_attrs(struct by_samples *by, uint32_t attrs, uint32_t *ret)
{
	const struct text_list *names = &by->sums->request->group_by;
	cleanup_buf struct buf labels = { 0 }, pair = { 0 };
	char scratch[SERIES_LABEL_SIZE];
	struct group *group;
	int rc;

	for (size_t i = 0; i < names->count; i++)
		add_label(&labels, &pair, names->items[i], text_of(by, attrs, i, scratch));
	rc = find_group(by->sums, &labels, &group);
	if (rc == 0)
		*ret = (uint32_t)(group - by->sums->groups) + 1;
	return rc;
}

static int find_groups(struct by_samples *by)
{
	struct sums *sums = by->sums;
	int rc = 0;

	for (size_t i = 0; i < sums->request->group_by.count; i++)
		by->labels[i] = sample_label_find(by->p, sums->request->group_by.items[i]);
	for (uint32_t i = 0; rc == 0 && i < by->p->sample_count; i++)
		if (!by->group[by->p->samples[i].attrs])
			rc = group_of_attrs(by, by->p->samples[i].attrs,
					    &by->group[by->p->samples[i].attrs]);
	if (rc < 0)
		return rc;
	by->main_sum = calloc(sums->count + 1, sizeof(*by->main_sum));
	by->value_sum = calloc(sums->count + 1, sizeof(*by->value_sum));
	if (!by->main_sum || !by->value_sum)
		return -ENOMEM;
	for (uint32_t i = 0; i < by->p->sample_count; i++) {
		const struct profile_sample *sample = &by->p->samples[i];
		uint32_t group = by->group[sample->attrs];

		by->main_sum[group] += (double)sample->values[profile_value_index(by->p)];
		by->value_sum[group] += (double)sample->values[sums->selection->id.value];
	}
	return 0;
}

/* Shares @value, taken from @from_ns on for @length_ns, among the steps that it lies in. A step of
 * whole minutes takes a minute whole, by its begin, as the index does. */
static void add_event(const struct sums *sums, struct group *group, uint64_t from_ns,
		      uint64_t length_ns, double value)
{
	uint64_t base_ns = sums->selection->from_ns, end_ns = from_ns + (length_ns ? length_ns : 1);
	size_t at = from_ns > base_ns ? (from_ns - base_ns) / sums->step_ns : 0;
	bool is_whole = sums->step_ns % MINUTE_NS == 0 || !length_ns;
	uint64_t done_ns = from_ns;

	for (at = at < sums->steps ? at : sums->steps - 1; at < sums->steps && done_ns < end_ns;
	     at++) {
		uint64_t until_ns = base_ns + (at + 1) * sums->step_ns;

		if (is_whole || until_ns > end_ns || at + 1 == sums->steps)
			until_ns = end_ns;
		group->values[at] +=
			value * (double)(until_ns - done_ns) / (double)(end_ns - from_ns);
		group->observed[at] = true;
		done_ns = until_ns;
	}
}

static int sum_events(struct by_samples *by)
{
	int rc = find_groups(by);

	for (uint32_t i = 0; rc == 0 && i < by->p->event_count; i++) {
		const struct profile_event *event = &by->p->events[i];
		uint32_t group = by->group[event->attrs];
		double of_main;

		if (!group)
			continue;
		/* Events have the main value only. */
		of_main = by->main_sum[group] ? by->value_sum[group] / by->main_sum[group] : 0;
		add_event(by->sums, &by->sums->groups[group - 1], event->time_ns,
			  by->p->meta.grain_ns, (double)event->value * of_main);
	}
	return rc;
}

static int sum_samples(struct sums *sums)
{
	cleanup(profile) struct profile *p = NULL;
	struct by_samples by = { .sums = sums };
	int rc = selection_profile(sums->selection, &p);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	if (p->sample_count && !p->event_count)
		return err_set(
			sums->selection->call->err, ENOTSUP, "NotImplemented", "groupBy",
			"%s profiles have a time series by service_name, host, unit and container only",
			profile_type_info(p->meta.type)->word);
	by.p = p;
	by.group = calloc((size_t)p->attrs_count + 1, sizeof(*by.group));
	rc = by.group ? sum_events(&by) : -ENOMEM;
	free(by.group);
	free(by.main_sum);
	free(by.value_sum);
	return rc;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void write_points(const struct sums *sums, const struct group *group, struct buf *series)
{
	cleanup_buf struct buf point = { 0 };
	/* A mean of a flow is by minute; a level has one value in a step. */
	bool mean = sums->request->aggregation == 1 &&
		    profile_type_info(sums->selection->id.type)->rate;
	double minutes = mean ? fmax(1, (double)sums->step_ns / (double)MINUTE_NS) : 1;

	for (size_t i = 0; i < sums->steps; i++) {
		uint64_t end_ns = sums->selection->from_ns + (i + 1) * sums->step_ns;
		double value = group->values[i] / minutes;
		uint64_t bits;

		if (!group->observed[i])
			continue;
		if (end_ns > sums->selection->to_ns)
			end_ns = sums->selection->to_ns;
		memcpy(&bits, &value, sizeof(bits));
		if (bits)
			proto_fixed64(&point, 1, bits);
		proto_uint(&point, 2, end_ns / NS_PER_MS);
		proto_message(series, 2, &point);
	}
}

static int by_total(const void *a, const void *b)
{
	const struct group *x = a, *y = b;

	if (x->total != y->total)
		return x->total > y->total ? -1 : 1;
	return 0;
}

static void write_groups(struct sums *sums, struct buf *out)
{
	cleanup_buf struct buf series = { 0 };
	int64_t limit = sums->request->limit;

	for (size_t i = 0; i < sums->count; i++)
		for (size_t step = 0; step < sums->steps; step++)
			sums->groups[i].total += sums->groups[i].values[step];
	if (sums->count && limit > 0)
		qsort(sums->groups, sums->count, sizeof(*sums->groups), by_total);
	for (size_t i = 0; i < sums->count && (limit <= 0 || i < (uint64_t)limit); i++) {
		buf_add(&series, sums->groups[i].labels.data, sums->groups[i].labels.len);
		write_points(sums, &sums->groups[i], &series);
		proto_message(out, 1, &series);
	}
}

/* Can the index of the history answer it? Its counts are exact for CPU samples. */
static bool index_is_enough(const struct sums *sums)
{
	const struct selection *selection = sums->selection;
	const struct profile_type_info *info = profile_type_info(selection->id.type);

	for (size_t i = 0; i < sums->request->group_by.count; i++)
		if (!selection_is_series_label(sums->request->group_by.items[i]))
			return false;
	return (selection->id.value == info->value_index || selection->id.type == PROFILE_CPU) &&
	       !selection->call_site->count && !selection_has_sample_matchers(selection);
}

static int read_step(struct sums *sums)
{
	const struct selection *selection = sums->selection;
	double step_s = sums->request->step_s;
	uint64_t span_ns = selection->to_ns - selection->from_ns;

	if (!(step_s >= STEP_MIN_S && step_s <= STEP_MAX_S))
		return err_set(selection->call->err, EINVAL, "InvalidParam", "step",
			       "step must be at least %.0f s", STEP_MIN_S);
	if (sums->request->group_by.count > GROUP_BY_MAX)
		return err_set(selection->call->err, EINVAL, "InvalidParam", "groupBy",
			       "at most %u labels", GROUP_BY_MAX);
	sums->step_ns = (uint64_t)(step_s * 1e9);
	sums->steps = (span_ns + sums->step_ns - 1) / sums->step_ns;
	if (sums->steps <= HISTORY_STEPS_MAX)
		return 0;
	return err_set(selection->call->err, EINVAL, "InvalidParam", "step",
		       "makes %zu points of this time range, at most %u are given", sums->steps,
		       HISTORY_STEPS_MAX);
}

int answer_select_series(struct http_call *call, const struct querier_request *request,
			 struct buf *out)
{
	cleanup_selection struct selection selection = { 0 };
	struct sums sums = { .selection = &selection, .request = request };
	int rc = selection_read(call, request, &selection);

	if (rc == 0)
		rc = read_step(&sums);
	if (rc == 0 && !selection.nothing)
		rc = index_is_enough(&sums) ? sum_index(&sums) : sum_samples(&sums);
	if (rc == 0)
		write_groups(&sums, out);
	sums_deinit(&sums);
	return rc;
}
