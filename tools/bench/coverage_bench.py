# SPDX-License-Identifier: Apache-2.0
"""Accuracy of memory and alloc for a program that counts its own allocations
(tests/workloads/heap.c): how often the truth lies inside the 95 % interval that the answer itself
states, and how far steady sites are off."""

import contextlib
import json
import subprocess
import time

from harness import FAMILY_A, Daemon, compile_workload, own_name, wait_until

RUNS, SECONDS = 20, 30
PAIRS_PER_S = (50_000, 100_000, 200_000, 400_000)  # in turn
BIRTHS = ("churn", "leak", "cache", "grow", "aligned", "zeroed")
LEAKING = {"leak": 100, "large": 200688}  # bytes of an object
STEADY = ("cache",)


class Program:
    def __init__(self, path, *args):
        self.process = subprocess.Popen([path, *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        self.service = f"pid:{self.process.pid}"

    def counters(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def stop(self):
        self.process.kill()
        self.process.communicate()


def functions(daemon, session):
    return {f["funcName"]: f for f in daemon.get(f"{FAMILY_A}/{session}?top=100").json()["topFunctions"]}


def started(daemon, program, kind):
    session = daemon.start_profile(program.service, 3600, kind)
    wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["startedAt"], 60, "sampling")
    return session


def observe(daemon, program):
    """(alloc, memory) as functions, and what the program counted at the outer and inner ends of both."""
    first = program.counters()
    sessions = {kind: started(daemon, program, kind) for kind in ("memory", "alloc")}
    before = program.counters()
    time.sleep(SECONDS)
    after = program.counters()
    for kind in ("alloc", "memory"):
        daemon.stop_profile(sessions[kind])
    quality = daemon.get(f"{FAMILY_A}/{sessions['memory']}").json()["quality"]
    print(f"# {quality['mode']}: duty {quality['dutyPct']} %, cost {quality['costPct']} %, {quality['sampled']} sampled in {quality['windows']} windows, dilation {quality['dilation']}", flush=True)
    suspected = [leak["funcName"] for leak in daemon.get(f"{FAMILY_A}/{sessions['memory']}").json()["suspectedLeaks"]]
    print(f"# suspected of leaking: {suspected}", flush=True)
    return {kind: functions(daemon, session) for kind, session in sessions.items()}, first, before, after, program.counters()


def judge(tally, what, seen, least, most):
    """The truth lies between what was counted inside and around the session."""
    low, high = seen["confidenceInterval"] if seen else (0, 0)
    value = seen["cumulativeValue"] if seen else 0
    tally[what].append((low <= most and high >= least, value / ((least + most) / 2)))


def run_once(daemon, path, pairs_per_s, tally):
    program = Program(path, pairs_per_s)
    try:
        wait_until(lambda: daemon.profile(program.service, 1, "alloc")["quality"].get("windows"), 90, "probes")
        seen, first, before, after, last = observe(daemon, program)
    finally:
        program.stop()
    for name in BIRTHS:
        judge(tally, "alloc " + name, seen["alloc"].get(name), after[name][0] - before[name][0], last[name][0] - first[name][0])
    for name, holds in LEAKING.items():  # a block holds more than was asked for
        objects = [holds * n for n in (after[name][3] - before[name][3], last[name][3] - first[name][3])]
        judge(tally, "memory " + name, seen["memory"].get(name), *objects)
    for name in STEADY:
        judge(tally, "memory " + name, seen["memory"].get(name), after[name][2], last[name][2])
        print(f"# {pairs_per_s} pairs a second: {name} {tally['memory ' + name][-1][1]:.2f} of the truth", flush=True)


def run(absolute):
    tally = {f"alloc {name}": [] for name in BIRTHS} | {f"memory {name}": [] for name in (*LEAKING, *STEADY)}
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(own_name(compile_workload("heap.c", "-O2", "-lpthread")))
        daemon = stack.enter_context(Daemon())
        for number in range(RUNS):
            run_once(daemon, path, PAIRS_PER_S[number % len(PAIRS_PER_S)], tally)
    for what, seen in tally.items():
        ratios = sorted(ratio for _, ratio in seen)
        print(f"# {what}: {sum(good for good, _ in seen)} of {len(seen)} inside, value / truth "
              f"{ratios[0]:.2f} … {ratios[len(ratios) // 2]:.2f} … {ratios[-1]:.2f}", flush=True)
    intervals = [good for what, seen in tally.items() if what != "memory cache" for good, _ in seen]
    absolute("sites inside the 95 % interval that is stated", 100 * sum(intervals) / len(intervals), 93,
             f"{len(intervals)} sites of {RUNS} runs", smaller=False)
    factor = max(max(ratio, 1 / ratio if ratio else float("inf")) for _, ratio in tally["memory cache"])
    absolute("steady sites in use, factor beside the truth", factor, 2.5, f"{len(tally['memory cache'])} of them")
