# SPDX-License-Identifier: Apache-2.0
"""Verdicts on real programs: lives of the same program, recorded side by side with others on a shared host, must not be
called regressed; a function that takes twice as much must be, and be the only one named."""

import contextlib
import datetime
import itertools
import math
import os
import tempfile
import time

import programs
from harness import FAMILY_A, Daemon, check, compile_workload

RATE = 99
SIDE = 4    # lives on each side of a planted change
ROUNDS = 8  # planted changes, all recorded at once
PLANTED = ("12", "24")  # percent of its work in one function, before and after
# Servers that write their title over their environment are told by what they run.
CONFIG = "[service life-postgres]\nexe = */postgres\n[service life-redis]\nexe = */redis-check-rdb\n"


def life(daemon, folder, planted, seconds):
    """One life of each program, and of one per planted change, all at once; {service: session}."""
    program = compile_workload("two_ways.c", "-O2", "-g")
    with contextlib.ExitStack() as stack:
        stack.enter_context(programs.lives(folder, "life-"))
        names = ["life-" + name for name in programs.LIVES]
        for number in range(ROUNDS):
            names.append(f"planted{number}")
            env = {"OTEL_SERVICE_NAME": names[-1]}
            stack.enter_context(programs.started([program, planted], env=dict(os.environ, **env)))
        time.sleep(3)
        sessions = {name: daemon.start_profile(name, seconds, rate=RATE, waitSeconds=30) for name in names}
        for session in sessions.values():
            check(daemon.finish_profile(session, seconds=seconds + 120)["status"] == "completed", session)
    return sessions


def interval(hits, count):
    """Wilson's, 95 %."""
    z, p = 1.96, hits / count
    middle, half = p + z * z / (2 * count), z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    return [(middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)]


def compare(daemon, base, other):
    return daemon.get(f"{FAMILY_A}/compare?baseProfileId={base}&comparisonProfileId={other}").json()


def null(daemon, absolute, taken, seconds):
    quiet = short = pairs = 0
    wrong, samples = [], []
    for name in ["life-" + name for name in programs.LIVES]:
        samples.append(min(daemon.get(f"{FAMILY_A}/{one[name]}").json()["sampleCount"] for one in taken))
        for base, other in itertools.combinations(taken, 2):
            answer = compare(daemon, base[name], other[name])
            pairs += 1
            short += answer["insufficientData"]
            quiet += answer["verdict"] != "regressed"
            if answer["verdict"] == "regressed":
                wrong.append(f"{name}: {answer['summary'][:80]}")
    low, high = interval(quiet, pairs)
    absolute(f"pairs of lives without a regression, of {pairs}", quiet / pairs, 0.98,
             f"95 % interval {low:.3f} to {high:.3f}; {', '.join(programs.LIVES)}: {seconds} s, "
             f"at least {samples} samples a life; {short} too short; " + "; ".join(wrong), smaller=False)


def stamp(when):
    return datetime.datetime.fromtimestamp(when, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def power(daemon, absolute, edges, seconds):
    """Four lives a side, merged: the function that was doubled is found, and the only one named."""
    found = alone = 0
    others = []
    for number in range(ROUNDS):
        answer = daemon.get(f"{FAMILY_A}/compare?service=planted{number}&profileType=cpu&baseFrom={stamp(edges[0])}"
                            f"&baseTo={stamp(edges[1])}&comparisonFrom={stamp(edges[1])}&comparisonTo={stamp(edges[2])}").json()
        named = [f["funcName"] for f in answer["regressions"] if not f["environment"]]
        found += "slow_way" in named
        alone += named == ["slow_way"]
        others += [name for name in named if name != "slow_way"]
    text = f"{ROUNDS} times, {SIDE} lives a side, {seconds} s; 95 % interval "
    for name, hits in (("a function doubled is found", found), ("and is the only one named", alone)):
        low, high = interval(hits, ROUNDS)
        absolute(name, hits / ROUNDS, 0.9, f"{text}{low:.3f} to {high:.3f} {' '.join(others)}", smaller=False)


def run(absolute, seconds):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "profd.conf"), "w") as f:
            f.write(CONFIG)
        lives(absolute, folder, seconds)


def lives(absolute, folder, seconds):
    with Daemon("--config", os.path.join(folder, "profd.conf")) as daemon:
        taken, edges = [], [time.time() - 1]
        for planted in PLANTED:
            taken += [life(daemon, folder, planted, seconds) for _ in range(SIDE)]
            edges.append(time.time())
        null(daemon, absolute, taken, seconds)
        power(daemon, absolute, edges, seconds)
