/* SPDX-License-Identifier: Apache-2.0 */
/* When a process's allocator is probed, for how long, and what the allocations seen stand for. Time
 * is divided into periods, each with one window at a random place; how long both are follows from
 * what hits cost and how much of the process's own CPU time may be spent on them. Where even all
 * the time is cheap enough the probes stay, until they have cost more than is allowed for some
 * seconds; that is paid back. Pure.
 *
 * A window stands for its period. Probes slow a program down, so in a window of 10 ms it does the
 * work of less: the dilation is what it does in a window against what it does otherwise. In a
 * window of length w its m allocating threads have m w of time, less what they waited for a CPU (d)
 * and what the probes took (k). Outside they use the share u of a CPU for their work. So they can
 * do (m w - d - k) / (u w) of it: a program that computes all the time loses what the probes take,
 * one that mostly waits need lose nothing (at most 1). It may all the same: one that waits for
 * clients who wait for it has no time to make up for anything. What it did is the CPU time that it
 * used (c) less the probes': (c - k) / (u w), which is the better of both unless k, which is not
 * known exactly, is most of c. Both are weighted by how far they can be off. All of it is summed
 * over the windows so far, older ones fading. m is the number of threads that would share the hits
 * equally (participation ratio): a busy thread among idle ones counts as one.
 *
 * That says nothing about a program that sleeps between bursts and is slowed down in them: it has
 * time left, and yet the window ends before it has caught up. So where frees are probed as well,
 * which makes an allocation three times as dear, every third window is a light one: only calls that
 * allocate are probed, and of those that are not sampled no return. How much fewer allocations a
 * window of all probes sees than a light one is what it lost more than that one; what the light one
 * lost follows from that and from what both cost. */
#ifndef PROFD_COLLECT_ALLOC_PACE_H
#define PROFD_COLLECT_ALLOC_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define ALLOC_PERIOD_MIN_NS 250000000ull
#define ALLOC_PERIOD_MAX_NS 4000000000ull
#define ALLOC_WINDOW_MIN_NS 6000000ull
#define ALLOC_WINDOW_SCOUT_NS 3000000ull /* the first one, before anything is known */
#define ALLOC_FULL_PERIOD_NS 1000000000ull
#define ALLOC_GAP_FIRST	    8192u
#define ALLOC_GAP_MIN	    64u
#define ALLOC_GAP_MAX	    (16u << 20)
#define ALLOC_WALKS_MAX_HZ  1000.0

/* Cost of a hit on this machine, ns. */
struct alloc_costs {
	double hit, returned; /* returned: on top of hit */
};

/* Counters and times of one period. */
struct alloc_period {
	uint64_t period_ns, window_ns;	    /* wall */
	uint64_t period_cpu_ns, window_cpu_ns; /* CPU time of the process, probes included */
	uint64_t hits, returns, sampled, lost;
	uint64_t hits_outside; /* of its window: probes were in, or still in. They cost and tell nothing */
	uint64_t squares, delay_ns, walk_ns; /* struct alloc_counts */
	uint64_t allocations; /* of the hits */
	uint64_t closer; /* of the sampled ones: not for the gap's sake */
	bool light; /* frees and returns were not probed */
};

/* Windows of one kind. */
struct alloc_sums {
	double cost_ns, window_ns, capacity_ns, cpu_ns, allocations;
};

struct alloc_pace {
	struct alloc_costs costs;
	double budget; /* share of the process's CPU time; BUDGET_LEAST of a CPU is always allowed */
	/* Sums over the windows so far, older windows fading. */
	double cost_ns, window_ns, period_ns, period_cpu_ns;
	struct alloc_sums light, heavy;
	double peak_ns; /* what the dearest window has cost, older ones fading */
	double debt_ns; /* spent beyond the budget and not paid back by waiting; what was not spent
			   is lost */
	unsigned windows; /* since the first, up to a few */
	unsigned whole; /* windows of all probes since the last light one */
	/* The next window and period. */
	bool full;	 /* the probes stay attached */
	bool next_light; /* the next window, where it has a choice */
	uint64_t next_window_ns, next_period_ns;
	uint64_t gap_bytes; /* mean distance of two samples */
};

void alloc_pace_init(struct alloc_pace *pace, const struct alloc_costs *costs, double budget);
/* Takes in a period and decides on the next. */
void alloc_pace_judge(struct alloc_pace *pace, const struct alloc_period *seen);
/* 0…1: the share of its own work that the process did in a window of this kind. */
double alloc_pace_dilation(const struct alloc_pace *pace, bool light);
/* How many allocations one allocation that this period's window saw stands for, at least 1. */
double alloc_pace_weight(const struct alloc_pace *pace, const struct alloc_period *seen);
/* CPU time that the probes took, outside the window as well. */
double alloc_pace_cost_ns(const struct alloc_pace *pace, const struct alloc_period *seen);
/* Hits on one CPU after which the next window costs far more than its period was thought to allow,
 * and than any that was seen: it is to end at once. 0: the window is so short that it ends by
 * itself. */
uint64_t alloc_pace_hits_granted(const struct alloc_pace *pace);

#endif
