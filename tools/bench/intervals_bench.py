# SPDX-License-Identifier: Apache-2.0
"""Intervals of alloc and memory for programs that nobody tuned to: a seed draws sizes, rates, threads and what is kept
(tests/workloads/mixed_heap.c). How often the truth lies inside the 95 % interval that the answer itself states, and whether
all sites of a session are off by one factor. As root: tools/bench/run intervals, or this file with the seeds."""

import collections
import contextlib
import math
import statistics
import sys
import time

from coverage_bench import Program, functions, started
from harness import Daemon, compile_workload, own_name, wait_until

SESSIONS, SECONDS = 40, 30
SITES = ("churn", "parts", "queue", "shuffle", "vector", "leak_small", "leak_big", "nap_churn", "nap_keep")
FREED_AT_ONCE = ("churn", "vector", "nap_churn")  # of memory they have next to nothing
KEPT = ("parts", "leak_small", "leak_big", "nap_keep")  # what is in use of them grows


def observe(daemon, program, kinds):
    """{kind: functions}, and what the program counted around and inside the sessions."""
    counted = [program.counters()]
    sessions = {kind: started(daemon, program, kind) for kind in kinds}
    counted.append(program.counters())
    time.sleep(SECONDS)
    counted.append(program.counters())
    results = {kind: daemon.stop_profile(session) for kind, session in sessions.items()}
    counted.append(program.counters())
    quality = results[kinds[-1]]["quality"]
    print(f"# {'+'.join(kinds)}: {quality['mode']}, {quality['windows']} windows, {quality['sampled']} sampled, dilation "
          f"{quality['dilation']}, rel_err {quality.get('relErrPct')}, cost {quality['costPct']} %", flush=True)
    return {kind: functions(daemon, session) for kind, session in sessions.items()}, counted


def truth_of(kind, site, counted):
    """(least, most) bytes: those between the inner and the outer ends."""
    first, before, after, last = (c[site] for c in counted)
    if kind == "alloc":
        return after[0] - before[0], last[0] - first[0]
    if site in KEPT:
        return after[1] - before[1], last[1] - first[1] + max(0, last[2] - last[1])
    return min(after[2], last[2]), max(after[2], last[2])


def judge(kind, seen, counted, tally):
    """Returns the logarithms of value / truth."""
    logs = {}
    for site in SITES:
        if kind == "memory" and site in FREED_AT_ONCE:
            continue
        least, most = truth_of(kind, site, counted)
        row = seen.get(site)
        low, high = row["confidenceInterval"] if row else (0, 0)
        value, truth = row["cumulativeValue"] if row else 0, (least + most) / 2
        inside = low <= most and high >= least
        tally[kind, site].append(inside)
        if value and truth:
            logs[site] = math.log(value / truth)
        if not inside or value > 1.3 * truth or value < truth / 1.3:
            print(f"#   {kind} {site}: {value / 1e6:.2f} [{low / 1e6:.2f}, {high / 1e6:.2f}] MB, in truth {truth / 1e6:.2f}"
                  f"{'' if inside else ' MISSED'}", flush=True)
    return logs


def session(path, seed, kinds, tally, factors):
    print(f"# seed {seed}", flush=True)
    with Daemon() as daemon:
        program = Program(path, seed)
        try:
            wait_until(lambda: daemon.profile(program.service, 1, "alloc")["quality"].get("windows"), 90, "probes")
            seen, counted = observe(daemon, program, kinds)
        finally:
            program.stop()
        for kind in kinds:
            logs = judge(kind, seen[kind], counted, tally)
            if kind == "alloc" and logs:
                factors.append(math.exp(statistics.median(logs.values())))
                print(f"#   all sites by {factors[-1]:.2f}", flush=True)


def measure(seeds):
    tally, factors = collections.defaultdict(list), []
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(own_name(compile_workload("mixed_heap.c", "-O2", "-lpthread", "-lm")))
        for seed in seeds:
            session(path, seed, ("alloc",) if seed % 2 else ("alloc", "memory"), tally, factors)
    for (kind, site), inside in sorted(tally.items()):
        print(f"# {kind} {site}: {sum(inside)} of {len(inside)} inside", flush=True)
    return {kind: [good for (k, _), inside in tally.items() if k == kind for good in inside] for kind in ("alloc", "memory")}, factors


def run(absolute):
    inside, factors = measure(range(SESSIONS))
    for kind, good in inside.items():
        absolute(f"sites of {kind} inside the 95 % interval that is stated, programs drawn by chance", 100 * sum(good) / len(good),
                 93, f"{len(good)} sites", smaller=False)
    absolute("factor by which all sites of a session are off", max(max(f, 1 / f) for f in factors), 1.3, f"{len(factors)} sessions")


if __name__ == "__main__":
    result, factors = measure([int(seed) for seed in sys.argv[1:]] or range(SESSIONS))
    print({kind: f"{sum(good)} of {len(good)}" for kind, good in result.items()}, [round(f, 2) for f in factors])
