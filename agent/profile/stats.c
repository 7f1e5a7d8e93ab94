// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/stats.h"

#include <math.h>
#include <stdlib.h>

#define ASYMPTOTIC_FROM 10.0

double stats_digamma(double x)
{
	double sum = 0, r;

	for (; x < ASYMPTOTIC_FROM; x += 1)
		sum -= 1 / x;
	r = 1 / (x * x);
	return sum + log(x) - 0.5 / x -
	       r * (1.0 / 12 -
		    r * (1.0 / 120 -
			 r * (1.0 / 252 -
			      r * (1.0 / 240 - r * (1.0 / 132 - r * (691.0 / 32760 - r / 12))))));
}

double stats_trigamma(double x)
{
	double sum = 0, r;

	for (; x < ASYMPTOTIC_FROM; x += 1)
		sum += 1 / (x * x);
	r = 1 / (x * x);
	return sum + 1 / x + r / 2 +
	       r / x *
		       (1.0 / 6 -
			r * (1.0 / 30 -
			     r * (1.0 / 42 - r * (1.0 / 30 - r * (5.0 / 66 - r * (691.0 / 2730 -
										  r * 7 / 6))))));
}

double stats_tetragamma(double x)
{
	double sum = 0, r;

	for (; x < ASYMPTOTIC_FROM; x += 1)
		sum -= 2 / (x * x * x);
	r = 1 / (x * x);
	return sum - r - r / x -
	       r * r *
		       (0.5 -
			r * (1.0 / 6 -
			     r * (1.0 / 6 - r * (3.0 / 10 - r * (5.0 / 6 - r * (691.0 / 210 -
										r * 35.0 / 2))))));
}

double stats_trigamma_inverse(double v)
{
	double y = 0.5 + 1 / v, step;
	int i;

	/* The start is above the root and the steps descend to it; a dozen is ample. */
	for (i = 0; i < 50; i++) {
		double value = stats_trigamma(y);

		step = value * (1 - value / v) / stats_tetragamma(y);
		y += step;
		if (fabs(step) < 1e-10 * y)
			break;
	}
	return y;
}

/* Continued fraction of the incomplete beta function by Lentz's method, for x < (a+1)/(a+b+2). */
static double beta_fraction(double a, double b, double x)
{
	static const double tiny = 1e-300;
	double c = 1, d = 1 - (a + b) * x / (a + 1), h;
	int m;

	d = 1 / (fabs(d) < tiny ? tiny : d);
	h = d;
	for (m = 1; m <= 1000; m++) {
		double m2 = 2 * m, term;

		term = m * (b - m) * x / ((a + m2 - 1) * (a + m2));
		d = 1 + term * d;
		c = 1 + term / c;
		d = 1 / (fabs(d) < tiny ? tiny : d);
		c = fabs(c) < tiny ? tiny : c;
		h *= d * c;
		term = -(a + m) * (a + b + m) * x / ((a + m2) * (a + m2 + 1));
		d = 1 + term * d;
		c = 1 + term / c;
		d = 1 / (fabs(d) < tiny ? tiny : d);
		c = fabs(c) < tiny ? tiny : c;
		h *= d * c;
		if (fabs(d * c - 1) < 1e-15)
			break;
	}
	return h;
}

double stats_beta(double a, double b, double x)
{
	double front;
	int sign; /* all arguments are positive; lgamma() itself would write a global */

	if (x <= 0)
		return 0;
	if (x >= 1)
		return 1;
	front = exp(lgamma_r(a + b, &sign) - lgamma_r(a, &sign) - lgamma_r(b, &sign) + a * log(x) +
		    b * log1p(-x));
	if (x < (a + 1) / (a + b + 2))
		return front * beta_fraction(a, b, x) / a;
	return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double stats_t_p(double t, double df)
{
	if (isnan(t))
		return 1;
	if (isinf(t))
		return 0;
	return stats_beta(df / 2, 0.5, df / (df + t * t));
}

double stats_t_quantile(double p, double df)
{
	double low = 0, high = 1;
	int i;

	while (stats_t_p(high, df) > p && high < 1e12)
		high *= 2;
	for (i = 0; i < 200 && high - low > 1e-12 * high; i++) {
		double middle = (low + high) / 2;

		if (stats_t_p(middle, df) > p)
			low = middle;
		else
			high = middle;
	}
	return (low + high) / 2;
}

double stats_normal_p(double z)
{
	return erfc(fabs(z) / sqrt(2));
}

static int by_p(const void *left, const void *right)
{
	const struct stats_rank *a = left, *b = right;

	if (a->p != b->p)
		return a->p < b->p ? -1 : 1;
	return (a->at > b->at) - (a->at < b->at);
}

void stats_bh(const double *p, size_t count, double *q, struct stats_rank *scratch)
{
	double least = 1;
	size_t i;

	for (i = 0; i < count; i++)
		scratch[i] = (struct stats_rank){ p[i], i };
	if (count)
		qsort(scratch, count, sizeof(*scratch), by_p);
	for (i = count; i > 0; i--) {
		least = fmin(least, scratch[i - 1].p * (double)count / (double)i);
		q[scratch[i - 1].at] = least;
	}
}

static int by_value(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

double stats_quantile(double *values, size_t count, double fraction)
{
	double at;
	size_t low;

	if (!count)
		return 0;
	qsort(values, count, sizeof(*values), by_value);
	at = fraction * (double)(count - 1);
	low = (size_t)at;
	if (low + 1 >= count)
		return values[count - 1];
	return values[low] + (at - (double)low) * (values[low + 1] - values[low]);
}
