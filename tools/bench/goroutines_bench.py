# SPDX-License-Identifier: Apache-2.0
"""What reading goroutines costs: CPU time of the reader, and the throughput of a program while its goroutines are
read without pause, beside the same program while another's are read."""

import os
import subprocess
import time

from costs import on_cpu_ns
from harness import Daemon, build_go, check

FAMILY_B = "/api/v1/profiling"
ROUNDS = 7
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
        """(rounds done, CPU ns)"""
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return tuple(int(n) for n in self.process.stdout.readline().split())

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


def cpu_per_round(target, daemon, pid, readings=10):
    """CPU ns of a round of work while the goroutines of @pid are read without pause."""
    rounds, cpu = target.ask()
    for _ in range(readings):
        read(daemon, pid)
    rounds_after, cpu_after = target.ask()
    return (cpu_after - cpu) / max(rounds_after - rounds, 1)


def throughput(row):
    last = os.cpu_count() - 1
    daemon = Daemon()
    daemon.prefix = ["taskset", "-c", str(last)]
    with daemon, Target(cpu=0) as target, Target("-idle", cpu=0) as other:
        own, others = [], []
        read(daemon, target.pid)
        for _ in range(ROUNDS):
            own.append(cpu_per_round(target, daemon, target.pid))
            others.append(cpu_per_round(target, daemon, other.pid))
    row("CPU ns of a round of work while read / while another is read", sorted(own)[ROUNDS // 2],
        sorted(others)[ROUNDS // 2], 1.02,
        f"10,000 goroutines read without pause; medians of {ROUNDS}, least {min(own):.0f} / {min(others):.0f}")


def run(row, absolute):
    with Daemon() as daemon:
        costs(daemon, absolute)
    throughput(row)
