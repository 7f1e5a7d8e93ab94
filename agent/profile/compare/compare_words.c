// SPDX-License-Identifier: Apache-2.0
/* The verdict as a sentence or two for people. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/profile/compare/compare_internal.h"

const char *compare_verdict_word(enum compare_verdict verdict)
{
	static const char *const words[] = { "unchanged", "improved", "regressed" };

	return words[verdict];
}

const char *compare_cause_word(enum compare_cause cause)
{
	static const char *const words[] = { NULL, "functions", "load", "contended",
					     "composition" };

	return words[cause];
}

const char *compare_change_word(enum compare_change change)
{
	static const char *const words[] = { "changed", "new", "gone" };

	return words[change];
}

#define NAME_SIZE 121

/* @name cut to the buffer, never inside a UTF-8 sequence. */
static const char *cut(const char *name, char out[NAME_SIZE])
{
	size_t len = strlen(name);

	if (len >= NAME_SIZE) {
		len = NAME_SIZE - 1;
		while (len > 0 && ((unsigned char)name[len] & 0xc0) == 0x80)
			len--;
	}
	memcpy(out, name, len);
	out[len] = 0;
	return out;
}

printf_like(2, 3) static void say(struct compare *c, const char *fmt, ...)
{
	size_t len = strlen(c->summary);
	va_list args;

	if (len && len + 1 < sizeof(c->summary)) {
		c->summary[len++] = ' ';
		c->summary[len] = 0;
	}
	va_start(args, fmt);
	(void)vsnprintf(c->summary + len, sizeof(c->summary) - len, fmt, args);
	va_end(args);
}

static const char *what(enum profile_type type)
{
	return profile_type_info(type)->noun;
}

/* q as people write it: 6·10⁻⁸ has no place in a terminal, 6e-08 is understood. */
static void say_function(struct comparison *c, const struct compare_function *f)
{
	struct compare *out = c->out;
	char name[NAME_SIZE];

	say(out,
	    "%s went from %.1f to %.1f %% of %s (%+.1f points, %g %% interval %.1f to %.1f, q "
	    "%.0e).",
	    cut(f->name, name), f->base_pct, f->comparison_pct, what(c->m[0]->type), f->delta_pct,
	    100 * out->confidence, f->interval[0], f->interval[1], f->q_value);
	if (compare_is_judged(c, PROFILE_JUDGED_SHARES) && isfinite(f->cost_growth) && f->cost_growth != 0)
		say(out, "Relative to the rest of the program its cost %s by about %.0f %%.",
		    f->cost_growth > 0 ? "grew" : "fell", 100 * fabs(f->cost_growth));
}

static const struct compare_function *first_of_program(const struct compare_function *list,
						       uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (!list[i].environment)
			return &list[i];
	return NULL;
}

/* Why functions of one side only were left out, and what that leaves open. */
static void say_doubt(struct comparison *c)
{
	const struct compare_function *first = c->out->doubtful_count ? &c->out->doubtful[0] : NULL;
	char name[NAME_SIZE];

	say(c->out,
	    "%.1f %% of the frames of one side are unknown and %.1f %% of the other's, so functions "
	    "that only one side has are not judged.",
	    c->side[0]->profile->quality.unknown_frame_pct,
	    c->side[1]->profile->quality.unknown_frame_pct);
	if (first)
		say(c->out, "%s (%+.1f points) may be another name for what was there.",
		    cut(first->name, name), first->delta_pct);
}

static bool is_of_minutes(const struct window_matrix *m)
{
	return !m->totals_only && m->window_ns >= 60 * NS_PER_S;
}

/* A gate is run again in vain, however long, if it is the baseline that is too short. */
static void say_too_few(struct comparison *c)
{
	static const char *const sides[] = { "the base", "the comparison", "both sides" };
	const double *samples = c->noise.samples;
	const unsigned weak = samples[0] <= samples[1] ? 0 : 1;
	const bool both = samples[1 - weak] < SHARE_SAMPLES_LEAST;
	const double wanted = 1.5 * SHARE_SAMPLES_LEAST / fmax(samples[weak], 1) * c->seconds[weak];
	const double seconds = fmin(fmax(30 * ceil(wanted / 30), 60), 3600);

	say(c->out, "Too few samples (%.0f; %d are the least) in %s. Record %s for %.0f s at this rate.",
	    samples[weak], SHARE_SAMPLES_LEAST, sides[both ? 2 : weak], both ? "them" : "it", seconds);
}

static void say_insufficient(struct comparison *c)
{
	double least = fmin(c->noise.samples[0], c->noise.samples[1]);

	if (c->out->cause == COMPARE_CAUSE_LOAD)
		say(c->out,
		    "%.1f× the %s per second, but too few samples to tell %s work from %s code: a function "
		    "of 5 %% would have had to change by about %.1f points to be seen. Record longer or at "
		    "a higher rate, or give a request count.",
		    c->out->overall_delta_pct / 100 + 1, what(c->m[0]->type),
		    c->out->overall_delta_pct > 0 ? "more" : "less",
		    c->out->overall_delta_pct > 0 ? "slower" : "faster",
		    c->out->min_detectable_points);
	else if (c->out->doubtful_count)
		say(c->out, "Not enough is known for a verdict: record both sides with the same "
			    "symbols.");
	else if (compare_is_judged(c, PROFILE_JUDGED_SHARES) && least < SHARE_SAMPLES_LEAST)
		say_too_few(c);
	else if (compare_is_judged(c, PROFILE_JUDGED_LEVELS))
		say(c->out, "Too few sampled allocations (about %.0f) to judge.", least);
	else if (is_of_minutes(c->m[0]) || is_of_minutes(c->m[1]))
		say(c->out, "Not enough data: the history keeps sums of minutes, and a side has "
			    "few of them. Choose ten minutes or more.");
	else
		say(c->out, "Not enough data: a side was too short, or too much of it was lost. "
			    "Record 60 s.");
}

/* Per second is the other figure that people know, and what load moves. */
static void say_per_unit(struct comparison *c, const char *rest)
{
	double per_second = (c->total[1] / c->seconds[1]) / (c->total[0] / c->seconds[0]);

	say(c->out, "%.2f× the %s per unit of work (%.2f× per second)%s.",
	    c->out->overall_delta_pct / 100 + 1, what(c->m[0]->type), per_second, rest);
}

static void say_load(struct comparison *c)
{
	double ratio = c->out->overall_delta_pct / 100 + 1;

	if (!c->out->overall_known)
		say(c->out, "The base has no %s to compare with.", what(c->m[0]->type));
	else if (!profile_type_info(c->m[0]->type)->rate)
		say(c->out, "%.1f× the %s, same composition.", ratio, what(c->m[0]->type));
	else if (compare_by_unit(c))
		say_per_unit(
			c,
			ratio > 1
				? ", same composition: slower code, a slower host or larger units, not more of them"
				: ", same composition: faster code, a faster host or smaller units, not fewer of them");
	else
		say(c->out,
		    "%.1f× the %s per second, same composition: %s work is likelier than %s code; "
		    "give a request count to decide.",
		    ratio, what(c->m[0]->type), ratio > 1 ? "more" : "less",
		    ratio > 1 ? "slower" : "faster");
}

static void say_unchanged(struct comparison *c)
{
	struct compare *out = c->out;
	char name[NAME_SIZE];

	if (out->cause == COMPARE_CAUSE_COMPOSITION && c->unsettled && !c->composition)
		say(out, "Composition changed: functions that kept their proportions hold less than half of "
			 "the profile, so shares cannot tell which functions changed. Give units of work.");
	else if (out->cause == COMPARE_CAUSE_COMPOSITION)
		say(out, "Composition changed: %s runs on one side only, so there is no verdict.",
		    cut(c->composition_name ? c->composition_name : "a process", name));
	else if (out->cause == COMPARE_CAUSE_CONTENDED)
		say(out,
		    "One side waited %.0f %% of its runnable time for a CPU; only shares are "
		    "comparable.",
		    100 * fmax(c->side[0]->runqueue_share, c->side[1]->runqueue_share));
	else if (out->cause == COMPARE_CAUSE_LOAD)
		say_load(c);
	else if (out->regression_count || out->improvement_count)
		say(out, "Work moved between functions; neither direction outweighs the other.");
	else
		say(out, "No change found.");
	if (out->min_detectable_points > 0 && !out->regression_count && !out->improvement_count)
		say(out,
		    "With this much data a function of 5 %% would have had to change by about %.1f "
		    "points to be seen.",
		    out->min_detectable_points);
}

static bool has_doubtful_rows(const struct comparison *c)
{
	for (size_t i = 0; i < c->row_count; i++)
		if (c->rows[i].doubtful)
			return true;
	return false;
}

void compare_summary(struct comparison *c)
{
	struct compare *out = c->out;
	const struct compare_function *f = NULL;
	char name[NAME_SIZE], other[NAME_SIZE];

	if (out->insufficient_data) {
		say_insufficient(c);
		if (out->doubtful_count)
			say_doubt(c);
		return;
	}
	if (out->verdict == COMPARE_UNCHANGED) {
		say_unchanged(c);
	} else {
		bool worse = out->verdict == COMPARE_REGRESSED;

		f = worse ? first_of_program(out->regressions, out->regression_count)
			  : first_of_program(out->improvements, out->improvement_count);
		if (f)
			say_function(c, f);
		else
			say_load(c);
	}
	if (compare_by_unit(c) && c->total[0] > 0 && (f || out->verdict == COMPARE_UNCHANGED))
		say_per_unit(c, "");
	if (out->moved_count)
		say(out,
		    "%s lost %.1f points and %s took them over: inlined, outlined or renamed, "
		    "total unchanged.",
		    cut(out->moved[0].from, name), out->moved[0].points,
		    cut(out->moved[0].to, other));
	if (out->diluted_count && out->diluted[0].delta_pct < 0)
		say(out, "%s fell from %.1f to %.1f %% only because others take more.",
		    cut(out->diluted[0].name, name), out->diluted[0].base_pct,
		    out->diluted[0].comparison_pct);
	if (has_doubtful_rows(c))
		say_doubt(c);
	if (out->unsteady)
		say(out, "The workload's cycle is longer than half of a side: record longer.");
	if (out->different_lives && compare_is_judged(c, PROFILE_JUDGED_SHARES))
		say(out,
		    "The sides are different process instances; %.0f %% of each share is allowed for "
		    "changes by the restart alone.",
		    100 * c->tau_user);
}
