// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/memory/interval.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/stats.h"

#define OUTSIDE 0.05 /* of the cases */

/* Moments of one function, or of the total. */
struct moments {
	double sum, squares; /* over windows */
	double window;	     /* of the window under way */
	double estimated;    /* in use by the deaths seen */
	double variance;     /* of that, or what samples know */
	double exact;	     /* what is known to the byte */
	double unsure;	     /* of the sum: nobody was seen to end, but may have */
	uint32_t event;	     /* last one that was added, from 1 */
};

struct work {
	const struct profile *p;
	struct moments *moments; /* function_count + 1 */
	double *places;		 /* by node: value in use that rests on deaths */
	double *errors;		 /* by node: its standard error, relative */
	double windows;
};

bool profile_is_probed(const struct profile *p)
{
	return p->quality.probes.mode[0] && p->event_count > 0;
}

static void add_to(struct moments *m, uint32_t event, double value, bool unsure)
{
	/* A function that calls itself counts once. */
	if (m->event == event)
		return;
	m->event = event;
	m->window += value;
	m->unsure += unsure ? value : 0;
}

static void end_window(struct work *w)
{
	for (uint32_t i = 0; i <= w->p->function_count; i++) {
		struct moments *m = &w->moments[i];

		m->sum += m->window;
		m->squares += m->window * m->window;
		m->window = 0;
	}
	w->windows++;
}

/* NULL = they have none of that name. */
static const char *label_of(const struct profile *p, uint32_t attrs, const char *name)
{
	const struct profile_attrs *a = &p->attrs[attrs];

	for (uint32_t i = 0; i < a->label_count; i++) {
		const struct profile_label *label = &p->labels[a->label_first + i];

		if (strcmp(profile_string(p, label->name), name) == 0)
			return profile_string(p, label->value);
	}
	return NULL;
}

/* The standard error of the place of these attributes, relative, 0 = it does not rest on deaths. */
static double error_of(const struct profile *p, uint32_t attrs)
{
	const char *error = label_of(p, attrs, PROFILE_LABEL_ERROR);

	return error ? strtod(error, NULL) / 100 : 0;
}

static bool is_exact(const struct profile *p, const struct profile_event *event)
{
	return strcmp(profile_string(p, p->attrs[event->attrs].state), PROFILE_STATE_EXACT) == 0;
}

static void add_exact_to(struct moments *m, uint32_t event, double value)
{
	m->exact += m->event == event ? 0 : value;
	m->event = event;
}

static void add_exact(struct work *w, uint32_t at)
{
	const struct profile *p = w->p;
	const struct profile_event *event = &p->events[at];

	for (uint32_t node = event->node; node; node = p->nodes[node].parent)
		add_exact_to(&w->moments[p->frames[p->nodes[node].frame].function], at + 1,
			     (double)event->value);
	add_exact_to(&w->moments[p->function_count], at + 1, (double)event->value);
}

static void add_event(struct work *w, uint32_t at)
{
	const struct profile *p = w->p;
	const struct profile_event *event = &p->events[at];
	double value = (double)event->value, error = error_of(p, event->attrs);
	const bool unsure = label_of(p, event->attrs, PROFILE_LABEL_UNSURE);

	/* Hardly anything but the last windows is left: their spread says nothing of what is not known. */
	if (error > 0) {
		w->places[event->node] += value;
		w->errors[event->node] = error;
		return;
	}
	for (uint32_t node = event->node; node; node = p->nodes[node].parent)
		add_to(&w->moments[p->frames[p->nodes[node].frame].function], at + 1, value, unsure);
	add_to(&w->moments[p->function_count], at + 1, value, unsure);
}

static void add_place(struct moments *m, uint32_t mark, double value, double variance)
{
	if (m->event == mark)
		return;
	m->event = mark;
	m->estimated += value;
	m->variance += variance;
}

static void add_places(struct work *w)
{
	const struct profile *p = w->p;

	for (uint32_t i = 0; i < p->node_count; i++) {
		uint32_t mark = p->event_count + 1 + i;
		double value = w->places[i], variance = value * value * w->errors[i] * w->errors[i];

		if (value <= 0)
			continue;
		for (uint32_t node = i; node; node = p->nodes[node].parent)
			add_place(&w->moments[p->frames[p->nodes[node].frame].function], mark, value, variance);
		add_place(&w->moments[p->function_count], mark, value, variance);
	}
}

/* The value that one sample stands for: so much more may be there without having been seen. */
static double unseen_of(const struct profile *p)
{
	const struct profile_probes *probes = &p->quality.probes;

	if (probes->duty_pct <= 0 || probes->dilation <= 0)
		return 0;
	return (double)probes->gap_bytes * 100 / probes->duty_pct / probes->dilation;
}

static double relative_of(double variance, double sum, double common)
{
	return sqrt(log1p((variance > 0 ? variance : 0) / (sum * sum) + common * common));
}

/* Never below 0 and wider upwards: the interval of a logarithm with the same relative spread. Its
 * upper end is that of one sample more than there was (Fay and Feuer, Statistics in Medicine 16,
 * 1997), which matters where there were few; not where deaths were seen: they say what becomes of
 * those that were not. */
static struct profile_interval interval_of(const struct moments *m, double windows, double common,
					   double times, double unseen)
{
	double variance = m->squares, above, sum = m->sum + m->estimated;

	if (sum <= 0)
		return (struct profile_interval){ m->exact, m->exact };
	if (windows > 1)
		variance = windows / (windows - 1) * (m->squares - m->sum * m->sum / windows);
	variance += m->variance;
	above = m->variance > 0 ? 0 : unseen;
	return (struct profile_interval){
		m->exact + sum * exp(-times * relative_of(variance, sum, common)),
		m->exact + (sum + above) * exp(times * relative_of(variance + above * above,
								   sum + above, common)),
	};
}

/* Takes what nobody saw end out of the lower end, and gives to the upper end what it was fitted by,
 * if others may have ended instead. */
static void widen(const struct work *w, const struct moments *m, double times,
		  struct profile_interval *interval)
{
	const struct profile_probes *probes = &w->p->quality.probes;
	const struct moments *all = &w->moments[w->p->function_count];
	const double fitted = probes->fitted > 0 && probes->fitted < 1 ? probes->fitted : 1;
	/* The sum that the heap's is compared with is known no better than what windows stand for. */
	const double open_bytes = probes->gone_bytes + all->sum / fitted * expm1(times * probes->rel_err);
	const double gone =
		fmin(m->unsure / fitted, probes->fitted > 0 && m != all ? open_bytes : INFINITY);
	const double others = all->unsure - m->unsure, sum = m->sum + m->estimated;
	const double open = interval->lo - m->exact, more = fmin(m->sum * (1 / fitted - 1), others);

	if (sum <= 0)
		return;
	interval->lo = m->exact + open * fmin(fmax(sum / fitted - gone, 0) / sum, 1);
	interval->hi = m->exact + (interval->hi - m->exact) * (1 + more / sum);
}

/* No function holds more than the heap as a whole, or than its process has resident. */
static void limit(const struct profile *p, const struct moments *m,
		  struct profile_interval *interval)
{
	const struct profile_probes *probes = &p->quality.probes;
	const double heap = (double)(probes->heap_bytes ? probes->heap_bytes : probes->resident_bytes);

	if (p->meta.type == PROFILE_MEMORY && heap > 0)
		interval->hi = fmin(interval->hi, fmax(heap, m->exact + m->sum + m->estimated));
}

static int compute(struct work *w, struct profile_interval *ret)
{
	const struct profile *p = w->p;
	uint64_t time_ns = 0;
	bool seen = false;
	double times, unseen = unseen_of(p);

	if (!w->moments || !w->places || !w->errors)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->event_count; i++) {
		if (is_exact(p, &p->events[i])) {
			add_exact(w, i);
			continue;
		}
		if (seen && p->events[i].time_ns != time_ns)
			end_window(w);
		add_event(w, i);
		time_ns = p->events[i].time_ns;
		seen = true;
	}
	if (seen)
		end_window(w);
	add_places(w);
	times = stats_t_quantile(OUTSIDE, w->windows > 1 ? w->windows - 1 : 1);
	for (uint32_t i = 0; i <= p->function_count; i++) {
		ret[i] = interval_of(&w->moments[i], w->windows, p->quality.probes.rel_err, times, unseen);
		widen(w, &w->moments[i], times, &ret[i]);
		limit(p, &w->moments[i], &ret[i]);
	}
	return 0;
}

static int intervals_of_probes(const struct profile *p, struct profile_interval *ret)
{
	struct work work = { .p = p };
	int rc;

	work.moments = calloc(p->function_count + 1u, sizeof(*work.moments));
	work.places = calloc(p->node_count + 1u, sizeof(*work.places));
	work.errors = calloc(p->node_count + 1u, sizeof(*work.errors));
	rc = compute(&work, ret);
	free(work.moments);
	free(work.places);
	free(work.errors);
	return rc;
}

/* ---- samples that know their variance -------------------------------------------------------- */

static bool has_variance(const struct profile *p, unsigned value_index)
{
	for (uint32_t i = 0; i < p->sample_count; i++)
		if (p->samples[i].variance > 0 && p->samples[i].values[value_index])
			return true;
	return false;
}

static void add_estimate(struct moments *m, uint32_t mark, double value, double variance)
{
	if (m->event == mark)
		return;
	m->event = mark;
	m->sum += value;
	m->variance += variance;
}

static int intervals_of_samples(const struct profile *p, unsigned value_index,
				struct profile_interval *ret)
{
	cleanup_free struct moments *moments = calloc(p->function_count + 1u, sizeof(*moments));
	double times = stats_t_quantile(OUTSIDE, 1e6); /* as good as normal */

	if (!moments)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->sample_count; i++) {
		const struct profile_sample *s = &p->samples[i];
		double value = (double)s->values[value_index], variance = value > 0 ? s->variance : 0;

		for (uint32_t node = s->node; node; node = p->nodes[node].parent)
			add_estimate(&moments[p->frames[p->nodes[node].frame].function], i + 1, value, variance);
		add_estimate(&moments[p->function_count], i + 1, value, variance);
	}
	for (uint32_t i = 0; i <= p->function_count; i++)
		ret[i] = interval_of(&moments[i], 1, 0, times, 0);
	return 0;
}

int profile_intervals(const struct profile *p, unsigned value_index, struct profile_interval **ret)
{
	const bool probed = profile_is_probed(p);
	/* Counts beside the main value have no variance of their own. */
	const bool counted =
		value_index != profile_value_index(p) &&
		strcmp(profile_type_info(p->meta.type)->values[value_index].unit, "count") == 0;
	cleanup_free struct profile_interval *intervals = NULL;
	int rc;

	if (probed ? value_index != profile_value_index(p)
		   : counted || !has_variance(p, value_index))
		return -ENODATA;
	intervals = calloc(p->function_count + 1u, sizeof(*intervals));
	if (!intervals)
		return -ENOMEM;
	rc = probed ? intervals_of_probes(p, intervals) : intervals_of_samples(p, value_index, intervals);
	if (rc == 0)
		*ret = take_ptr(intervals);
	return rc;
}
