# SPDX-License-Identifier: Apache-2.0
"""Cost of a profiler by the kernel's accounting: CPU time of its processes, run time of the BPF
programs that they hold."""

import contextlib
import json
import os
import subprocess
import time

from harness import check, running

STATS = "/proc/sys/kernel/bpf_stats_enabled"
STATS_FLOOR_NS = 57  # performance.md, 1: cost of one measured run of an empty program
TICK = os.sysconf("SC_CLK_TCK")


def on_cpu_ns(pid):
    """Time on a CPU of a process, all its threads, to the nanosecond."""
    total = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{tid}/schedstat") as f:
            total += int(f.read().split()[0])
    return total


def cpu_s(pids):
    """CPU time of processes and of their ended children, in seconds."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(") ", 1)[1].split()
            total += on_cpu_ns(pid) / 1e9 + (int(fields[13]) + int(fields[14])) / TICK
    return total


@contextlib.contextmanager
def processes(count):
    """At least so many on this host."""
    with contextlib.ExitStack() as stack:
        for _ in range(max(0, count - sum(p.isdigit() for p in os.listdir("/proc")))):
            stack.enter_context(running("sleep", "3600", ready=False))
        yield


@contextlib.contextmanager
def running_rival(*command):
    """A profiler of others at work: its process."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2)
        check(process.poll() is None, f"{' '.join(command)} does not run")
        yield [process.pid]
    finally:
        process.kill()
        process.wait()


def held(pid, kind):
    """Ids of the BPF programs (`prog_id`) or maps (`map_id`) that a process has open."""
    ids = set()
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/fdinfo/{fd}") as f:
            ids.update(int(line.split()[1]) for line in f if line.startswith(kind + ":"))
    return ids


def bpf_run(pids, kind=None):
    """(ns less the floor, runs) of the programs that processes hold, of those of one type."""
    ids = set().union(*(held(pid, "prog_id") for pid in pids))
    shown = subprocess.run(["bpftool", "prog", "show", "-j"], capture_output=True, text=True, check=True)
    found = [p for p in json.loads(shown.stdout) if p["id"] in ids and (kind is None or p["type"] == kind)]
    runs = sum(p.get("run_cnt", 0) for p in found)
    return max(sum(p.get("run_time_ns", 0) for p in found) - runs * STATS_FLOOR_NS, 0), runs


@contextlib.contextmanager
def bpf_stats():
    with open(STATS, "r+") as f:
        f.write("1")
    try:
        yield
    finally:
        with open(STATS, "r+") as f:
            f.write("0")
