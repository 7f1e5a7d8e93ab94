# SPDX-License-Identifier: Apache-2.0
"""What observing its allocations costs a program: CPU time of the same work with and without, interleaved."""

import os
import statistics
import subprocess
import tempfile
import time

from harness import FAMILY_A, Daemon, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS = 5
# name, pairs, turns between malloc and free (about 1 M and 100 k pairs a second of CPU time)
PROGRAMS = [("1 M pairs/s", 3_000_000, 330, 1.02), ("100 k pairs/s", 400_000, 3800, 1.015)]


def session_of(daemon, pid, kind):
    """The machine may be busy: a program that has just started is known after a moment."""
    def start():
        answer = daemon.request("POST", FAMILY_A + "/start", {
            "service": f"pid:{pid}", "profileType": kind, "durationSeconds": 600})
        return answer.json()["id"] if answer.status == 202 else None

    session = wait_until(start, 30, "a session")
    wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["startedAt"], 30, "sampling")
    time.sleep(0.6)
    return session


def work(program, pairs, spin, daemon=None, kind="alloc"):
    """CPU seconds of the work, and the cost that the session states."""
    with subprocess.Popen([program, str(pairs), str(spin)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        process.stdout.readline()
        session = session_of(daemon, process.pid, kind) if daemon else None
        process.stdin.write("\n")
        process.stdin.flush()
        seconds = float(process.stdout.readline())
        process.wait()
    if session:
        daemon.stop_profile(session)
    return seconds


def run(row):
    with tempfile.TemporaryDirectory() as folder, Daemon() as daemon:
        program = os.path.join(folder, f"pairs-{os.getpid()}")
        subprocess.run(["gcc", "-O2", "-o", program, os.path.join(HERE, "pairs.c")], check=True)
        for name, pairs, spin, must in PROGRAMS:
            work(program, pairs, spin, daemon)  # its files are known from here on
            for kind in ("alloc", "memory"):
                ratios, bases = [], []
                for _ in range(ROUNDS):
                    before = work(program, pairs, spin)
                    observed = work(program, pairs, spin, daemon, kind)
                    bases.append((before + work(program, pairs, spin)) / 2)
                    ratios.append(observed / bases[-1])
                base = statistics.median(bases)
                row(f"CPU time of a program under {kind}, {name}", statistics.median(ratios) * base, base, must,
                    f"{min(ratios):.3f} … {max(ratios):.3f} in {ROUNDS} rounds")
