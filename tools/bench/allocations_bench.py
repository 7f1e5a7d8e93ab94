# SPDX-License-Identifier: Apache-2.0
"""The cost of observing a program's allocations: CPU time of a pair of malloc and free in it and in
a twin that nobody observes. Both take turns on one CPU every few milliseconds, so that a faster or
slower machine affects both. Then they change roles, so that a difference between the two processes
cancels. The same is measured under memleak of libbpf-tools."""

import contextlib
import math
import os
import statistics
import struct
import subprocess
import tempfile
import time

from costs import running_rival
from harness import FAMILY_A, Daemon, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS = 6
SECONDS = 6  # twice in each round
T95 = {5: 2.571}  # Student's t, 95 % of both sides, by degrees of freedom
# name, pairs a second of CPU time, must
PROGRAMS = [("1 M pairs/s", 1_000_000, 1.02), ("100 k pairs/s", 100_000, 1.015)]


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


class Twin:
    """tools/bench/pairs.c on CPU 0."""

    def __init__(self, program, spin):
        self.file = tempfile.NamedTemporaryFile()
        self.file.write(bytes(8))
        self.file.flush()
        self.process = subprocess.Popen(["taskset", "-c", "0", program, str(spin), self.file.name], stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.file.close()

    def counters(self):
        """Pairs and ns of CPU time so far; both are at most one tick apart."""
        with open(f"/proc/{self.pid}/schedstat") as f:
            cpu_ns = int(f.read().split()[0])
        return struct.unpack("Q", os.pread(self.file.fileno(), 8, 0))[0], cpu_ns


def ns_of_pairs(twins, seconds):
    """ns of CPU time that a pair takes in each."""
    first = [twin.counters() for twin in twins]
    time.sleep(seconds)
    last = [twin.counters() for twin in twins]
    return [(b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(first, last)]


def turns(program, rate):
    """Between malloc and free, so that this machine makes @rate pairs a second of CPU time."""
    spin = 1000
    for _ in range(4):
        with Twin(program, spin) as twin:
            spin = max(1, round(spin * 1e9 / rate / min(ns_of_pairs([twin], 0.3)[0] for _ in range(3))))
    return spin


@contextlib.contextmanager
def built():
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, f"pairs-{os.getpid()}")
        subprocess.run(["gcc", "-O2", "-o", program, os.path.join(HERE, "pairs.c")], check=True)
        yield program


def cost(program, spin, observer, rounds=ROUNDS):
    """ns of CPU time of a pair, observed and not, and the quotient's 95 % interval over rounds."""
    quotients, bases = [], []
    with Twin(program, spin) as one, Twin(program, spin) as other:
        for _ in range(rounds):
            with observer(one.pid):
                under, beside = ns_of_pairs((one, other), SECONDS)
            with observer(other.pid):
                beside_too, under_too = ns_of_pairs((one, other), SECONDS)
            quotients.append((math.log(under / beside) + math.log(under_too / beside_too)) / 2)
            bases.append((beside + beside_too) / 2)
    mean, base = statistics.mean(quotients), statistics.median(bases)
    wide = T95[rounds - 1] * statistics.stdev(quotients) / math.sqrt(rounds)
    return math.exp(mean) * base, base, f"{math.exp(mean - wide):.3f} … {math.exp(mean + wide):.3f}"


def beside_memleak(row, memleak):
    with built() as program, Daemon() as daemon:
        for name, rate, _ in PROGRAMS:
            spin = turns(program, rate)
            ours, _, _ = cost(program, spin, lambda pid: observed(daemon, "memory", pid))
            theirs, bare, _ = cost(program, spin, lambda pid: running_rival(memleak, "-p", str(pid), "3600"))
            row(f"ns of CPU time of a pair under memory / under memleak of libbpf-tools, {name}", ours, theirs, 1.0,
                f"memleak takes {(theirs - bare) / 1e3:.1f} us a pair")


def run(row):
    with built() as program, Daemon() as daemon:
        for name, rate, must in PROGRAMS:
            spin = turns(program, rate)
            ours, base, interval = cost(program, spin, lambda _: contextlib.nullcontext())
            row(f"ns of CPU time of a pair of which nobody observes any, {name}", ours, base, None, interval)
            for kind in ("alloc", "memory"):
                ours, base, interval = cost(program, spin, lambda pid, kind=kind: observed(daemon, kind, pid))
                row(f"ns of CPU time of a pair under {kind}, {name}", ours, base, must, f"95 % interval {interval}")
