// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc/alloc_pace.h"

#include <math.h>

#include "agent/base/clock.h"

#define FADE	       0.95 /* of what earlier periods brought, per period */
#define FULL_DUTY      0.9  /* so cheap that detaching is not worth it */
#define FULL_WINDOWS   3u   /* windows looked at before that is believed */
#define FULL_CREDIT_NS (5.0 * NS_PER_S) /* open probes may run up a debt of what so long allows */
#define WHOLE_WINDOWS  2u   /* to each light one */
#define SHARE_WANTED   0.12 /* of the hits in a window that are sampled */
#define SHARE_LOW      0.08
#define SHARE_HIGH     0.16
#define COST_ERROR     0.1  /* relative, of what hits are believed to cost */
#define COST_SHARE_MAX                                                                             \
	0.9 /* of what a program uses in a window: it does something with what it allocates */
#define DILATION_MIN   0.05 /* less is an error of the costs */
#define BUDGET_LEAST   0.01 /* of a CPU: programs that sleep have the time, their blocks are few */
#define LEAP	       2.0 /* of what windows cost, from one to the next */
#define OVER_FACTOR    3.0
#define OVER_PEAK      2.0 /* bursts that are known are not cut: what they cost is paid back */
#define OVER_GRANTED_NS 1e6 /* whatever it was thought to allow */

void alloc_pace_init(struct alloc_pace *pace, const struct alloc_costs *costs, double budget)
{
	*pace = (struct alloc_pace){ .costs = *costs,
				     .budget = budget,
				     .gap_bytes = ALLOC_GAP_FIRST,
				     .next_light = true,
				     .next_window_ns = ALLOC_WINDOW_SCOUT_NS,
				     .next_period_ns = ALLOC_PERIOD_MIN_NS };
}

/* The cost of a hit was measured in another process, maybe at a busier moment. It is never more
 * than the CPU time that the program used. */
static double window_cost_ns(const struct alloc_pace *pace, const struct alloc_period *seen)
{
	double cost_ns = pace->costs.hit * (double)seen->hits +
			 pace->costs.returned * (double)seen->returns + (double)seen->walk_ns;

	return seen->window_cpu_ns ? fmin(cost_ns, COST_SHARE_MAX * (double)seen->window_cpu_ns) : cost_ns;
}

double alloc_pace_cost_ns(const struct alloc_pace *pace, const struct alloc_period *seen)
{
	return window_cost_ns(pace, seen) + pace->costs.hit * (double)seen->hits_outside;
}

static double clamp(double value, double low, double high)
{
	return value < low ? low : value > high ? high : value;
}

/* Between what it had time for in windows and what it did in them: the nearer to the latter the
 * better that is known. */
static double dilation_of(const struct alloc_pace *pace, const struct alloc_sums *windows)
{
	double used, could, did, error, between;

	if (windows->window_ns <= 0 || pace->period_ns <= 0)
		return 1;
	used = (pace->period_cpu_ns - pace->cost_ns) / pace->period_ns * windows->window_ns;
	/* Hardly any work of its own: nothing says that it lost some. */
	if (used <= 0)
		return 1;
	could = fmin((windows->capacity_ns - windows->cost_ns) / used, 1);
	did = fmin((windows->cpu_ns - windows->cost_ns) / used, could);
	error = COST_ERROR * windows->cost_ns / used;
	between = (could - did) * (could - did) / 3; /* anywhere between them is as likely */
	if (between > 0)
		could = (did * between + could * error * error) / (between + error * error);
	return clamp(could, DILATION_MIN, 1);
}

/* A program that had time to sleep is behind by no more than its busy time. */
static double least_of(const struct alloc_sums *windows)
{
	return windows->capacity_ns > 0 ? 1 - windows->cpu_ns / windows->capacity_ns : 0;
}

/* The share that light windows lose, where windows of all probes see @rates of the allocations
 * that light ones see. A program that catches up later loses what it is behind with at the end.
 * That grows as the square of the probes' cost, because a program that is delayed longer has more
 * to do meanwhile: 1 - a * all^2 = rates * (1 - a * few^2). */
static double light_loss(const struct alloc_sums *few, const struct alloc_sums *all, double rates)
{
	double cost = pow(few->cost_ns / few->window_ns, 2), more = pow(all->cost_ns / all->window_ns, 2);

	return rates < 1 && more > cost ? cost * (1 - rates) / (more - rates * cost) : 0;
}

double alloc_pace_dilation(const struct alloc_pace *pace, bool light)
{
	const struct alloc_sums *few = &pace->light, *all = &pace->heavy;
	double rates, of_light;

	if (few->allocations <= 0)
		return dilation_of(pace, all);
	if (all->window_ns <= 0)
		return dilation_of(pace, few);
	rates = all->allocations / all->window_ns / (few->allocations / few->window_ns);
	of_light = fmin(dilation_of(pace, few), clamp(1 - light_loss(few, all, rates), least_of(few), 1));
	return light ? of_light : clamp(of_light * clamp(rates, least_of(all), 1), DILATION_MIN, 1);
}

/* The time that the allocating threads had in a window for their work and for the probes. */
static double capacity_ns(const struct alloc_period *seen)
{
	double threads = 1, capacity;

	if (seen->squares && seen->allocations)
		threads = (double)seen->allocations * (double)seen->allocations / (double)seen->squares;
	if (threads < 1)
		threads = 1;
	capacity = threads * (double)seen->window_ns - (double)seen->delay_ns;
	/* The threads had at least the CPU time that they used. */
	return capacity > (double)seen->window_cpu_ns ? capacity : (double)seen->window_cpu_ns;
}

double alloc_pace_weight(const struct alloc_pace *pace, const struct alloc_period *seen)
{
	double weight;

	if (seen->window_ns >= seen->period_ns || !seen->window_ns)
		return 1;
	weight = (double)seen->period_ns / (double)seen->window_ns /
		 alloc_pace_dilation(pace, seen->light);
	return weight > 1 ? weight : 1;
}

/* The gap follows the sizes and the rate: enough samples, but not more walks than wanted. */
static void judge_gap(struct alloc_pace *pace, const struct alloc_period *seen)
{
	double share, walks_hz, factor = 1;

	if (seen->allocations < 50)
		return;
	share = (double)(seen->sampled - seen->closer) / (double)seen->allocations;
	walks_hz = (double)seen->sampled * 1e9 / (double)seen->period_ns;
	if (share < SHARE_LOW || share > SHARE_HIGH)
		factor = clamp(share / SHARE_WANTED, 0.25, 4);
	if (walks_hz * (factor < 1 ? 1 / factor : 1) > ALLOC_WALKS_MAX_HZ) {
		double least = walks_hz / ALLOC_WALKS_MAX_HZ;

		factor = factor < least ? least : factor;
	}
	pace->gap_bytes = (uint64_t)clamp((double)pace->gap_bytes * factor, ALLOC_GAP_MIN, ALLOC_GAP_MAX);
}

/* The share of a CPU that probes may take of a process that uses @cpu_share of one. */
static double allowed(const struct alloc_pace *pace, double cpu_share)
{
	return fmax(pace->budget * cpu_share, BUDGET_LEAST);
}

static void judge_duty(struct alloc_pace *pace, const struct alloc_period *last)
{
	double cpu_share = pace->period_cpu_ns / pace->period_ns;
	double last_share = (double)last->period_cpu_ns / (double)last->period_ns;
	double cost = pace->cost_ns / pace->window_ns; /* per ns of window */
	double last_cost = alloc_pace_cost_ns(pace, last) / (double)last->window_ns;
	double duty = 1, window, period;

	/* It does what it did not do before. */
	if (last_cost > LEAP * cost)
		cost = last_cost;
	if (cost > 0)
		duty = allowed(pace, cpu_share) / cost;
	/* To close for one dear second would lose sight of every large block. */
	pace->full = pace->full ? pace->debt_ns <= FULL_CREDIT_NS * allowed(pace, cpu_share)
				: duty >= FULL_DUTY && pace->windows >= FULL_WINDOWS && pace->debt_ns <= 0;
	if (pace->full) {
		pace->next_period_ns = pace->next_window_ns = ALLOC_FULL_PERIOD_NS;
		return;
	}
	if (duty > FULL_DUTY)
		duty = FULL_DUTY;
	window = clamp(duty * (double)ALLOC_PERIOD_MIN_NS, (double)ALLOC_WINDOW_MIN_NS,
		       (double)ALLOC_PERIOD_MIN_NS * FULL_DUTY);
	pace->next_window_ns = (uint64_t)window;
	/* The first window, or one in a burst, is paid for by the periods that follow. */
	period = duty > 0 ? window / duty : (double)ALLOC_PERIOD_MAX_NS;
	if (pace->debt_ns > 0)
		period += pace->debt_ns / allowed(pace, fmax(cpu_share, last_share));
	pace->next_period_ns =
		(uint64_t)clamp(period, (double)ALLOC_PERIOD_MIN_NS, (double)ALLOC_PERIOD_MAX_NS);
}

static void add_window(struct alloc_sums *to, const struct alloc_period *seen, double cost_ns)
{
	to->cost_ns = to->cost_ns * FADE + cost_ns;
	to->window_ns = to->window_ns * FADE + (double)seen->window_ns;
	to->capacity_ns = to->capacity_ns * FADE + capacity_ns(seen);
	to->cpu_ns = to->cpu_ns * FADE + (double)seen->window_cpu_ns;
	to->allocations = to->allocations * FADE + (double)seen->allocations;
}

void alloc_pace_judge(struct alloc_pace *pace, const struct alloc_period *seen)
{
	if (!seen->window_ns || !seen->period_ns)
		return;
	add_window(seen->light ? &pace->light : &pace->heavy, seen, window_cost_ns(pace, seen));
	/* Only whole windows see deaths. */
	pace->whole = seen->light ? 0 : pace->whole + 1;
	pace->next_light = pace->whole >= WHOLE_WINDOWS;
	pace->cost_ns = pace->cost_ns * FADE + alloc_pace_cost_ns(pace, seen);
	pace->peak_ns = fmax(pace->peak_ns * FADE, alloc_pace_cost_ns(pace, seen));
	pace->window_ns = pace->window_ns * FADE + (double)seen->window_ns;
	pace->period_ns = pace->period_ns * FADE + (double)seen->period_ns;
	pace->period_cpu_ns = pace->period_cpu_ns * FADE + (double)seen->period_cpu_ns;
	pace->debt_ns += alloc_pace_cost_ns(pace, seen) -
			 fmax(pace->budget * (double)seen->period_cpu_ns, BUDGET_LEAST * (double)seen->period_ns);
	if (pace->debt_ns < 0)
		pace->debt_ns = 0;
	if (pace->windows < FULL_WINDOWS)
		pace->windows++;
	judge_gap(pace, seen);
	judge_duty(pace, seen);
}

uint64_t alloc_pace_hits_granted(const struct alloc_pace *pace)
{
	double cpu_share = pace->period_ns > 0 ? pace->period_cpu_ns / pace->period_ns : 0;
	double allowed_ns = fmax(OVER_FACTOR * pace->budget * cpu_share, BUDGET_LEAST) *
			    (double)pace->next_period_ns;
	double granted_ns = fmax(allowed_ns, OVER_PEAK * pace->peak_ns) + OVER_GRANTED_NS;

	if (pace->next_window_ns <= ALLOC_WINDOW_MIN_NS)
		return 0;
	return (uint64_t)(granted_ns / pace->costs.hit) + 1;
}
