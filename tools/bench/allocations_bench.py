# SPDX-License-Identifier: Apache-2.0
"""What observing its allocations costs a program: CPU time of the same work with and without, interleaved, and beside
memleak of libbpf-tools."""

import contextlib
import os
import statistics
import subprocess
import tempfile
import time

from costs import running_rival
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


@contextlib.contextmanager
def observed(daemon, kind, pid):
    session = session_of(daemon, pid, kind)
    yield
    daemon.stop_profile(session)


def work(program, pairs, spin, observer=lambda pid: contextlib.nullcontext()):
    """CPU seconds of the work."""
    with subprocess.Popen([program, str(pairs), str(spin)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        process.stdout.readline()
        with observer(process.pid):
            process.stdin.write("\n")
            process.stdin.flush()
            seconds = float(process.stdout.readline())
            process.wait()
    return seconds


@contextlib.contextmanager
def built():
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, f"pairs-{os.getpid()}")
        subprocess.run(["gcc", "-O2", "-o", program, os.path.join(HERE, "pairs.c")], check=True)
        yield program


def beside_memleak(row, memleak):
    with built() as program, Daemon() as daemon:
        for name, pairs, spin, _ in PROGRAMS:
            pairs //= 10
            work(program, pairs, spin, lambda pid: observed(daemon, "memory", pid))
            bare = work(program, pairs, spin)
            ours = statistics.median(work(program, pairs, spin, lambda pid: observed(daemon, "memory", pid)) for _ in range(ROUNDS))
            theirs = statistics.median(work(program, pairs, spin, lambda pid: running_rival(memleak, "-p", str(pid), "3600")) for _ in range(ROUNDS))
            row(f"CPU time of a program under memory / under memleak of libbpf-tools, {name}", ours, theirs, 1.0,
                f"memleak takes {(theirs - bare) / pairs * 1e6:.1f} us a pair")


def run(row):
    with built() as program, Daemon() as daemon:
        for name, pairs, spin, must in PROGRAMS:
            work(program, pairs, spin, lambda pid: observed(daemon, "alloc", pid))  # its files are known from here on
            for kind in ("alloc", "memory"):
                ratios, bases = [], []
                for _ in range(ROUNDS):
                    before = work(program, pairs, spin)
                    under = work(program, pairs, spin, lambda pid, kind=kind: observed(daemon, kind, pid))
                    bases.append((before + work(program, pairs, spin)) / 2)
                    ratios.append(under / bases[-1])
                base = statistics.median(bases)
                row(f"CPU time of a program under {kind}, {name}", statistics.median(ratios) * base, base, must,
                    f"{min(ratios):.3f} … {max(ratios):.3f} in {ROUNDS} rounds")
