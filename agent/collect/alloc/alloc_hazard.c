// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc/alloc_hazard.h"

#include <math.h>

#define AGE_FIRST_NS   1024.0
#define DEATHS_PER_BIN 4.0 /* bins of age are joined until they hold as many */
#define MISSED_DEATHS                                                                              \
	10.0 /* but not with one at whose hazard as many would have been seen before, where none   \
		was */
#define ENDING_SHARE 10u  /* a place of which a tenth ends frees what it allocates */
#define TAIL_PRIOR   0.35 /* deaths */

double alloc_bin_end_ns(unsigned bin)
{
	return ldexp(AGE_FIRST_NS, (int)bin);
}

unsigned alloc_bin_of(double age_ns)
{
	int exponent;

	if (age_ns < AGE_FIRST_NS)
		return 0;
	(void)frexp(age_ns / AGE_FIRST_NS, &exponent);
	return (unsigned)exponent < ALLOC_AGE_BINS ? (unsigned)exponent : ALLOC_AGE_BINS - 1;
}

void alloc_ages_watch(struct alloc_ages *ages, double from_ns, double to_ns, double scale)
{
	for (unsigned bin = alloc_bin_of(from_ns); bin < ALLOC_AGE_BINS && from_ns < to_ns; bin++) {
		const bool inside = bin + 1 < ALLOC_AGE_BINS && alloc_bin_end_ns(bin) < to_ns;
		const double end_ns = inside ? alloc_bin_end_ns(bin) : to_ns;

		if (end_ns > from_ns) {
			ages->observed[bin] += 1;
			ages->at_risk[bin] += (float)((end_ns - from_ns) * 1e-9 * scale);
		}
		from_ns = end_ns > from_ns ? end_ns : from_ns;
	}
}

/* Deaths of a bin as a hazard counts them: where many of those observed die, each is worth more
 * than one (of n that die all, no survivor is left). */
static double weighted_deaths(const struct alloc_ages *ages, unsigned bin)
{
	double observed = ages->observed[bin], died = ages->died[bin], left;

	if (observed <= 0 || died <= 0)
		return died;
	left = 1 - died / observed;
	if (left < 0.5 / observed)
		left = 0.5 / observed;
	return left < 1 ? -log(left) * observed : died;
}

bool alloc_ends_unseen(const struct alloc_ages *ages)
{
	return !ages->deaths && ages->followed_s > 0 && ages->ended * ENDING_SHARE > ages->followed;
}

/* The age up to which windows watched the site's blocks from their births on. */
static double watched_s(const struct alloc_ages *ages)
{
	unsigned bin = 0;

	while (bin < ALLOC_AGE_BINS - 1 && ages->observed[bin] > 0)
		bin++;
	return alloc_bin_end_ns(bin) * 1e-9;
}

/* Blocks whose ends nobody saw lived for longer than windows watch them, and for less than it takes
 * to find them gone. Any age between is as likely as one twice as high. Returns the middle one, and
 * sets the variance of its logarithm. */
static double unseen_life_s(const struct alloc_ages *ages, double *log_variance)
{
	const double most_s = ages->followed_s / ages->ended, least_s = fmin(watched_s(ages), most_s);
	const double range = log(most_s / least_s);

	*log_variance = range * range / 12;
	return sqrt(most_s * least_s);
}

void alloc_hazard_of(const struct alloc_ages *ages, struct alloc_hazard *ret)
{
	double weighted = 0, before = 0;
	struct alloc_piece piece = { 0 };
	unsigned last = ALLOC_AGE_BINS - 1; /* with a death */

	while (last > 0 && !ages->died[last])
		last--;
	*ret = (struct alloc_hazard){ 0 };
	if (alloc_ends_unseen(ages)) {
		ret->pieces[ret->count++] = (struct alloc_piece){ .end_s = INFINITY,
							    .per_s = 1 / unseen_life_s(ages, &ret->log_variance),
							    .deaths = ages->ended };
		return;
	}
	for (unsigned bin = 0; bin < ALLOC_AGE_BINS; bin++) {
		if (!piece.deaths && piece.risk_s * ages->died[bin] > MISSED_DEATHS * ages->at_risk[bin]) {
			piece.end_s = alloc_bin_end_ns(bin - 1) * 1e-9;
			ret->pieces[ret->count++] = piece;
			piece = (struct alloc_piece){ 0 };
		}
		weighted += weighted_deaths(ages, bin);
		piece.deaths += ages->died[bin];
		piece.risk_s += ages->at_risk[bin];
		if (weighted < DEATHS_PER_BIN && bin != last && bin + 1 < ALLOC_AGE_BINS)
			continue;
		piece.end_s = bin + 1 < ALLOC_AGE_BINS ? alloc_bin_end_ns(bin) * 1e-9 : INFINITY;
		if (bin + 1 == ALLOC_AGE_BINS && before > 0) {
			piece.deaths += TAIL_PRIOR;
			weighted += TAIL_PRIOR;
			piece.risk_s += TAIL_PRIOR / before;
			piece.is_tail = true;
		}
		before = piece.per_s = piece.risk_s > 0 ? weighted / piece.risk_s : 0;
		ret->pieces[ret->count++] = piece;
		piece = (struct alloc_piece){ 0 };
		weighted = 0;
	}
}

double alloc_survival(const struct alloc_hazard *hazard, double from_s, double to_s, double bytes,
		       struct alloc_remains *ret, struct alloc_tail *tail)
{
	double begin_s = 0, gone = 0, sum = 0;

	for (unsigned i = 0; i < hazard->count && begin_s < to_s; i++) {
		const struct alloc_piece *piece = &hazard->pieces[i];
		const double x = fmax(begin_s, from_s), y = fmin(piece->end_s, to_s), h = piece->per_s;
		const double width = y - x, left = exp(-gone - h * (x - begin_s)), power = h * width;

		if (piece->is_tail) {
			*tail = (struct alloc_tail){ exp(-gone) * width / (to_s - from_s), x - begin_s, y - begin_s };
			break;
		}
		if (width > 0) {
			const double lost = -expm1(-power);
			const double mass = left * (power > 1e-9 ? lost / h : width);

			sum += mass;
			ret->bytes[i] += bytes * mass / (to_s - from_s);
			ret->taken[i] += bytes / (to_s - from_s) *
					 (mass * h * (x - begin_s) +
					  (power > 1e-9 ? left * (lost - power * exp(-power)) / h : 0));
		}
		gone += h * (piece->end_s - begin_s);
		begin_s = piece->end_s;
	}
	return sum / (to_s - from_s);
}

double alloc_hazard_variance(const struct alloc_hazard *hazard, const struct alloc_remains *remains)
{
	double above = 0, variance = 0, begin_s, taken, total = 0;

	for (unsigned i = 0; i < hazard->count; i++)
		total += remains->bytes[i];
	for (unsigned i = hazard->count; total > 0 && i-- > 0; above += remains->bytes[i]) {
		const struct alloc_piece *piece = &hazard->pieces[i];

		begin_s = i ? hazard->pieces[i - 1].end_s : 0;
		taken = remains->taken[i] + (above > 0 ? above * piece->per_s * (piece->end_s - begin_s) : 0);
		if (piece->deaths > 0 && !piece->is_tail)
			variance += taken * taken / (total * total) / piece->deaths;
	}
	return variance;
}

double alloc_left_in_tail(const struct alloc_tail *tail, double per_s)
{
	const double power = per_s * (tail->to_s - tail->from_s);

	return tail->reaches * exp(-per_s * tail->from_s) * (power > 1e-9 ? -expm1(-power) / power : 1);
}
