/* SPDX-License-Identifier: Apache-2.0 */
/* Special functions and small procedures of statistics. They use libm only: same input, same
 * output. Pure, thread-safe. compare/README.md says what they are used for. */
#ifndef PROFD_PROFILE_STATS_H
#define PROFD_PROFILE_STATS_H

#include <stddef.h>

/* psi, psi', psi'' for x > 0: recurrence up to x >= 10, then the asymptotic series (Abramowitz and
 * Stegun 6.3.5, 6.3.18, 6.4.6, 6.4.12). Relative error below 1e-12. */
double stats_digamma(double x);
double stats_trigamma(double x);
double stats_tetragamma(double x);
/* y > 0 with psi'(y) = v, v > 0; by Newton's method (Smyth 2004, limma, appendix). */
double stats_trigamma_inverse(double v);

/* Regularized incomplete beta function I_x(a, b): continued fraction with a log prefactor, so that
 * tails down to 1e-300 keep their digits. */
double stats_beta(double a, double b, double x);
/* Two-sided p-value of Student's t with @df degrees of freedom (> 0, need not be whole). */
double stats_t_p(double t, double df);
/* The t with P(|T| > t) = @p, 0 < p < 1; by bisection. */
double stats_t_quantile(double p, double df);
/* Two-sided p-value of a standard normal z. */
double stats_normal_p(double z);

struct stats_rank {
	double p;
	size_t at;
};

/* Benjamini-Hochberg: q-values of @count p-values, q[i] for p[i]. @scratch: @count elements. */
void stats_bh(const double *p, size_t count, double *q, struct stats_rank *scratch);

/* Quantile with linear interpolation (type 7); sorts @values. 0 for none. */
double stats_quantile(double *values, size_t count, double fraction);

#endif
