# SPDX-License-Identifier: Apache-2.0
"""Time off the CPU: how near the ledger of a session is to what the kernel counted, and a storm of switches that
lasts."""

import contextlib
import os
import time

from harness import FAMILY_A, WORKLOADS, Counting, Daemon, compile_workload, own_name


@contextlib.contextmanager
def workload(name, *arguments):
    with own_name(compile_workload(name, "-O2", "-fomit-frame-pointer", "-lpthread")) as program, \
            Counting(program, *arguments) as running:
        yield running


def schedstats(pid):
    """{tid: (ns on a CPU, ns on run queues, clock)}"""
    found = {}
    for tid in map(int, os.listdir(f"/proc/{pid}/task")):
        with open(f"/proc/{pid}/task/{tid}/schedstat") as f:
            found[tid] = (*map(int, f.read().split()[:2]), time.monotonic_ns())
    return found


def exactness(absolute, seconds):
    """Per thread: elapsed - runtime - run delay of /proc/PID/task/TID/schedstat against the ledger's blocked time and what
    was stolen, as shares of the elapsed time of each; the session's ends are those of its requests."""
    with workload("off_waits.c", WORKLOADS) as program, Daemon() as daemon:
        daemon.profile(program.service, 3, "offcpu")
        session = daemon.start_profile(program.service, 3600, "wall")
        first = schedstats(program.pid)
        time.sleep(seconds)
        last = schedstats(program.pid)
        daemon.stop_profile(session)
        threads = daemon.get(f"{FAMILY_A}/{session}/ledger").json()["threads"]
    worst, text = 0, ""
    for t in threads:
        cpu, queued, elapsed = (b - a for a, b in zip(first[t["tid"]], last[t["tid"]]))
        off = abs((sum(t["blockedNs"].values()) + t["stolenNs"]) / t["elapsedNs"] - (elapsed - cpu - queued) / elapsed)
        worst, text = max((worst, text), (off, f"{len(threads)} threads, worst {t['thread']}"))
    absolute("blocked time per thread against schedstat, % of its elapsed time", 100 * worst, 1, text)


def calls(row, cost_s, seconds):
    """Thousands of calls a second that move bytes, all of them recorded: CPU time of the program and the agent a call."""
    for turn_ms in ("10", "4"):
        calls_in_turns(row, cost_s, seconds, turn_ms)


def calls_in_turns(row, cost_s, seconds, turn_ms):
    with workload("off_io.c", WORKLOADS, turn_ms) as program, Daemon() as daemon:
        daemon.profile(program.service, 3, "io", 10)

        def measure():
            before, first = cost_s(daemon, program.pid), program.counters()
            time.sleep(seconds)
            after, last = cost_s(daemon, program.pid), program.counters()
            return 1e6 * (after - before), sum(last[f][1] - first[f][1] for f in first if isinstance(first[f], list))

        bare, count = measure()
        session = daemon.start_profile(program.service, 3600, "io")
        ours, seen = measure()
        result = daemon.stop_profile(session)
        top = daemon.get(f"{FAMILY_A}/{session}?value=bytes").json()["topFunctions"]
    exact = not any("confidenceInterval" in function for function in top)
    row("CPU us of program and agent a call that moves bytes, io session / none", ours / seen, bare / count, None,
        f"{seen / seconds:.0f} calls a second, {'all' if exact else 'NOT ALL'} recorded, {result['quality']['lost']} lost")


def storm(absolute, seconds):
    """As many switches as two threads can make, all the time: memory stays bounded, losses are counted."""
    with workload("off_crowd.c", "switches") as program, Daemon() as daemon:
        daemon.profile(program.service, 3, "offcpu", 1000)
        memory = daemon.resident_mb()
        session = daemon.start_profile(program.service, 3600, "offcpu", 1000)
        first = program.counters()
        time.sleep(seconds)
        last = program.counters()
        grown = daemon.resident_mb() - memory
        result = daemon.stop_profile(session)
    rate = (last["switches"] - first["switches"]) * 1e9 / (last["time"] - first["time"])
    absolute(f"switches a second of a storm for {seconds} s", rate, 100000,
             f"{result['sampleCount']} samples, {result['quality']['lost']} lost", smaller=False)
    absolute("memory that it adds, MB", grown, 40)
