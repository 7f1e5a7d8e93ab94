# SPDX-License-Identifier: Apache-2.0
"""Cost of reading goroutines: CPU time of the reader, and the throughput of a program while its
goroutines are read without pause, beside the same program while another's are read."""

import math
import os
import statistics
import subprocess
import time

from costs import on_cpu_ns
from harness import Daemon, build_go, check

FAMILY_B = "/api/v1/profiling"
ROUNDS = 12
SECONDS = 3  # twice in each round
T95 = 2.201  # Student's t, 11 degrees of freedom, 95 % of both sides
SETTLE_S = 1


class Target:
    """tests/workloads/go/throughput"""

    def __init__(self, *args, cpu=None):
        pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
        self.process = subprocess.Popen([*pin, build_go("throughput"), *args], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        check(self.process.stdout.readline().strip() == "ready", "the workload did not start")
        self.pid = self.process.pid

    def ask(self, word=""):
        """Rounds done so far."""
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.communicate()


def read(daemon, pid):
    answer = daemon.request("POST", FAMILY_B + "/sessions", {"profileType": "goroutine", "target": f"pid:{pid}"})
    check(answer.status == 200 and answer.json()["status"] == "completed", f"{answer}")


def cost_ms(daemon, pid):
    """(reader's, whole agent's) CPU ms of one reading, with what happens to the session after its end."""
    children = daemon.children()
    before = {name: on_cpu_ns(child) for name, child in children.items()}
    read(daemon, pid)
    time.sleep(SETTLE_S)
    spent = {name: (on_cpu_ns(child) - before[name]) / 1e6 for name, child in children.items()}
    return spent["profd-reader"], sum(spent.values())


def costs(daemon, absolute):
    for many, first_must, again_must in ((10000, 40, None), (100000, 400, 80)):
        with Target("-many", str(many), "-idle") as target:
            first, again = [], []
            # Not noted as parked until a collection has seen them: each is read.
            for _ in range(3):
                first.append(cost_ms(daemon, target.pid))
            target.ask("gc")
            read(daemon, target.pid)
            for _ in range(3):
                again.append(cost_ms(daemon, target.pid))
        reader, agent = min(first)
        absolute(f"reader CPU ms, {many} goroutines", reader, first_must, f"whole agent with storing {agent:.0f} ms")
        if again_must:
            reader = min(again)[0]
            agent = min(agent for _, agent in again)
            absolute(f"agent CPU ms, {many} goroutines unchanged", agent, again_must, f"reader {reader:.0f} ms; with storing and naming")


def while_read(daemon, pid, targets):
    """[(rounds, CPU ns)] of each of @targets while the goroutines of @pid are read without pause."""
    before = [(target.ask(), on_cpu_ns(target.pid)) for target in targets]
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        read(daemon, pid)
    after = [(target.ask(), on_cpu_ns(target.pid)) for target in targets]
    return [(b[0] - a[0], b[1] - a[1]) for a, b in zip(before, after)]


def throughput(row):
    """Two of the program take turns on one CPU every few milliseconds, so that what makes the machine faster or slower does so
    to both; one is read, then the other, so that what makes one of them faster does so to both."""
    last = os.cpu_count() - 1
    daemon = Daemon()
    daemon.prefix = ["taskset", "-c", str(last)]
    cpu, done, bases = [], [], []
    with daemon, Target(cpu=0) as one, Target(cpu=0) as other:
        for target in (one, other):
            read(daemon, target.pid)
        for _ in range(ROUNDS):
            logs = []
            for which in (0, 1):
                spans = while_read(daemon, (one, other)[which].pid, (one, other))
                (rounds, ns), (rounds_beside, ns_beside) = spans[which], spans[1 - which]
                logs.append((math.log(ns / rounds * rounds_beside / ns_beside), math.log(rounds_beside / rounds)))
                bases.append(ns_beside / rounds_beside)
            cpu.append(sum(of[0] for of in logs) / 2)
            done.append(sum(of[1] for of in logs) / 2)
    base = statistics.median(bases)
    for name, logs in (("CPU ns of a round of work while read / of its twin meanwhile", cpu),
                       ("rounds of work of the twin of a program that is read / of that program", done)):
        mean, wide = statistics.mean(logs), T95 * statistics.stdev(logs) / math.sqrt(ROUNDS)
        unit = base if logs is cpu else 1
        row(name, math.exp(mean) * unit, unit, 1.02, "10,000 goroutines read without pause; 95 % interval "
            f"{math.exp(mean - wide):.3f} … {math.exp(mean + wide):.3f}")


def run(row, absolute):
    with Daemon() as daemon:
        costs(daemon, absolute)
    throughput(row)
