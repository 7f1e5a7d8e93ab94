# SPDX-License-Identifier: Apache-2.0
"""How soon and how whole stacks are, what sampling costs the sampled, and the size of unwind tables."""

import contextlib
import glob
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time

from harness import FAMILY_A, Daemon, check, compile_workload, running, wait_until

UNSEEN = 40
UNSEEN_SOURCE = """#include <stdint.h>
#include <time.h>
#define F __attribute__((noinline, noclone, noipa))
static volatile uint64_t sink;
F void unseen_leaf(void) { for (int i = 0; i < 20000; i++) sink = sink * %d + 1; }
F int unseen_middle(int depth) { if (depth) return unseen_middle(depth - 1) + 1; unseen_leaf(); return 1; }
int main(void) { struct timespec t; do { sink += unseen_middle(%d); clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); }
  while (t.tv_sec == 0 && t.tv_nsec < 100000000); }
"""
HEAD = re.compile(r"^(\S.*) (\d+)/\d+ \[000\] (\d+\.\d+): ")


def events(daemon, session):
    """(thread name, pid, time, function names leaf first) of every sample."""
    text = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=perfscript").body.decode()
    for block in text.split("\n\n"):
        lines = block.strip("\n").splitlines()
        head = HEAD.match(lines[0]) if lines else None
        if head:
            yield head[1], int(head[2]), float(head[3]), [line.split(None, 1)[1].rsplit(" (", 1)[0] for line in lines[1:]]


def unseen(absolute):
    began = {}
    with tempfile.TemporaryDirectory() as folder, Daemon() as daemon:
        programs = []
        for i in range(UNSEEN):
            source = os.path.join(folder, f"unseen{i}.c")
            with open(source, "w") as f:
                f.write(UNSEEN_SOURCE % (2 * i + 3, i))
            programs.append(source[:-2])
            subprocess.run(["gcc", "-O1", "-fomit-frame-pointer", "-o", source[:-2], source], check=True)
        time.sleep(3)
        session = daemon.start_profile("*", 600, rate=99)
        for program in programs:
            before = time.time()
            process = subprocess.Popen([program])
            began[process.pid] = before
            process.wait()
        daemon.stop_profile(session)

        def named():
            found = [e for e in events(daemon, session) if e[1] in began and e[0].startswith("unseen")]
            return found if sum(any("unseen_leaf" in f for f in e[3]) for e in found) > UNSEEN * 5 else None

        samples = wait_until(named, 60, "the programs' names")
    first, first_whole = {}, {}
    for _, pid, when, names in sorted(samples, key=lambda e: e[2]):
        if "unseen_leaf" not in names:
            continue
        first.setdefault(pid, when)
        if "main" in names and any(n in ("_start", "__libc_start_main_impl") or "libc_start" in n for n in names):
            first_whole.setdefault(pid, when)
    check(len(first_whole) >= UNSEEN * 0.9, f"only {len(first_whole)} programs have a whole stack")
    delays = sorted(1000 * (first_whole[pid] - began[pid]) for pid in first_whole)
    at_first = sum(first_whole.get(pid) == when for pid, when in first.items())
    absolute("never seen: fork to first whole stack, ms, median", statistics.median(delays), 30,
             f"worst {delays[-1]:.0f}; the first sample was whole in {at_first} of {len(first)} programs")


def storm(absolute, seconds=10):
    program = compile_workload("short.c", "-O2", "-fomit-frame-pointer")
    with Daemon() as daemon:
        subprocess.run([program, "storm", "200", "1", "3"], check=True, stdout=subprocess.DEVNULL)
        time.sleep(3)
        session = daemon.start_profile("short", 600, rate=99, waitSeconds=60)
        ran = subprocess.run([program, "storm", "200", str(seconds), "3"], check=True, capture_output=True, text=True)
        time.sleep(1)
        result = daemon.stop_profile(session)
        stacks = wait_until(lambda: [s for s in [daemon.folded(session)] if any("storm_burn" in f for st, _ in s for f in st)],
                            60, "the programs' names")[0]
    used = int(ran.stdout)
    kept = result["totalValue"] / used
    hot = [(s, v) for s, v in stacks if any("storm_burn" in f for f in s)]
    whole = sum(v for s, v in hot if "_start" in s[:2])
    absolute("200 programs/s of 3 ms: kept of their CPU time", kept, 0.9, "of the children's time; the parent's is in it too",
             smaller=False)
    absolute("200 programs/s of 3 ms: whole stacks of the named hot function", whole / sum(v for _, v in hot), 0.9,
             f"{100 * sum(v for _, v in hot) / result['totalValue']:.0f} % of all is in it", smaller=False)


def throughput(absolute, child_cpu_s):
    benches = {"bare system calls": (["syscall", "basic", "-l", "5000000"], 0.98),
               "pipe ping-pong": (["sched", "pipe", "-l", "200000"], 0.98)}
    best = {}
    with Daemon() as daemon:
        time.sleep(3)
        for _ in range(5):
            for sampled in (False, True):
                session = daemon.start_profile("*", 600, rate=99) if sampled else None
                for name, (command, _) in benches.items():
                    cost = child_cpu_s(["taskset", "-c", "1", "perf", "bench", *command])
                    best[name, sampled] = min(cost, best.get((name, sampled), cost))
                if session:
                    daemon.stop_profile(session)
    for name, (_, must) in benches.items():
        absolute(f"throughput while sampled at 99 Hz: {name}", best[name, False] / best[name, True], must,
                 f"{best[name, False]:.2f} s of CPU without, {best[name, True]:.2f} with, best of 5", smaller=False)


def high_rate(absolute, child_cpu_s):
    best = {}
    small = "import time\nprint('ready',flush=True)\nwhile True: sum(range(100000)); time.sleep(0.05)"
    with Daemon() as daemon, running("python3", "-c", small) as service:
        time.sleep(3)
        for _ in range(5):
            for sampled in (None, f"pid:{service.pid}", "*"):
                session = daemon.start_profile(sampled, 600, rate=999) if sampled else None
                time.sleep(0.5)
                cost = child_cpu_s(["taskset", "-c", "1", "perf", "bench", "syscall", "basic", "-l", "8000000"])
                kind = sampled and sampled[:1]
                best[kind] = min(cost, best.get(kind, cost))
                if session:
                    daemon.stop_profile(session)
    absolute("throughput of others while one small service is sampled at 999 Hz: bare system calls", best[None] / best["p"], 0.98,
             f"while the whole host is: {best[None] / best['*']:.3f}; best of 5", smaller=False)


def ready(absolute, cpu_s_of):
    waits, used = [], []
    script = "import json,ssl,time;time.sleep(600)"
    commands = [["python3", "-c", script], ["sleep", "600"], ["perl", "-e", "sleep 600"], ["tail", "-f", "/dev/null"],
                ["sh", "-c", "read line; true"], ["bash", "-c", "read line; true"], ["cat"], ["sed", ""], ["awk", "{}"], ["sort"]]
    with contextlib.ExitStack() as stack:
        for command in commands * 20:
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
            stack.callback(process.kill)
        time.sleep(2)
        for _ in range(5):
            begin = time.monotonic()
            with Daemon() as daemon:
                # It begins when the tables of what runs are there, or 2.5 s after it was asked for.
                session = daemon.start_profile("*", 600, rate=99)
                waits.append(time.monotonic() - begin)
                used.append(cpu_s_of(daemon))
                daemon.stop_profile(session)
    absolute("tables of 200 running processes of ten programs ready, s after the start, worst of 5", max(waits), 2,
             f"median {statistics.median(waits):.2f}, {statistics.median(used):.2f} s of CPU")


def first_stack(row, install, child_cpu_s, cpu_s_of, rounds=5):
    """A program of 60 frames that runs already: from our start to its whole stack in an answer, beside how long bpftrace
    takes to start and end."""
    if not shutil.which("bpftrace"):
        install("bpftrace")
    program = compile_workload("deep.c", "-O2", "-fomit-frame-pointer")
    ours, theirs, cpu, their_cpu = [], [], [], []

    def is_whole(stack):
        return len(stack) == 60 and stack[0] == "_start" and stack[3:] == ["main", *["deep"] * 55, "deep_leaf"]

    with running(program, "60") as process:
        for _ in range(rounds):
            begin = time.monotonic()
            with Daemon() as daemon:
                session = daemon.start_profile(f"pid:{process.pid}", 600, rate=99)
                while not any(is_whole(stack) for stack, _ in daemon.folded(session)):
                    check(time.monotonic() - begin < 60, "no whole stack")
                    time.sleep(0.01)
                ours.append(time.monotonic() - begin)
                cpu.append(cpu_s_of(daemon))
            begin = time.monotonic()
            their_cpu.append(child_cpu_s(["bpftrace", "-e", "BEGIN { exit(); }"]))
            theirs.append(time.monotonic() - begin)
    row("s from the start to a whole stack of a running program / start and end of bpftrace", statistics.median(ours),
        statistics.median(theirs), 3, f"CPU s {statistics.median(cpu):.2f} / {statistics.median(their_cpu):.2f}; medians of {rounds}")


def eh_frame_bytes(path):
    shown = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=False).stdout
    found = re.search(r" \.eh_frame +\w+ +[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+) ", shown)
    return int(found[1], 16) if found else 0


def mapped_inodes():
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/maps") as f:
                found.update(int(line.split(None, 5)[4]) for line in f)
        except OSError:
            continue
    return found


def published(daemon):
    """{id: bytes} of the collector's unwind tables."""
    collector = daemon.children()["profd-collect"]
    found = {}
    for fd in os.listdir(f"/proc/{collector}/fdinfo"):
        try:
            with open(f"/proc/{collector}/fdinfo/{fd}") as f:
                fields = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        except OSError:
            continue
        if fields.get("map_type") == "2" and fields.get("value_size") == "16":
            found[fields["map_id"]] = int(fields["memlock"])
    return found


def tables(row):
    """A program maps libraries that nobody else has; a build of one's own must not begin meanwhile."""
    mapped = mapped_inodes()
    libraries = sorted((path for path in glob.glob("/usr/lib/x86_64-linux-gnu/*.so.*")
                        if not os.path.islink(path) and os.stat(path).st_ino not in mapped and eh_frame_bytes(path) > 100000),
                       key=eh_frame_bytes)[-12:]
    check(len(libraries) >= 3, "no large libraries that nobody maps")
    program = ("import mmap,sys,time\nheld=[]\nfor p in sys.argv[1:]:\n f=open(p,'rb'); held.append(mmap.mmap(f.fileno(),0,"
               "flags=mmap.MAP_PRIVATE,prot=mmap.PROT_READ|mmap.PROT_EXEC))\nprint('ready',flush=True)\ntime.sleep(600)")
    with Daemon() as daemon:
        daemon.profile("*", 3, rate=99)
        before = published(daemon)
        with running("python3", "-c", program, *libraries):
            daemon.profile("*", 5, rate=99)
            new = {name: size for name, size in published(daemon).items() if name not in before}
    # python's own are there already; programs that others started meanwhile may add some
    largest = sorted(new.values())[-len(libraries):]
    row("unwind tables in the kernel / .eh_frame, MB", sum(largest) / 1e6, sum(map(eh_frame_bytes, libraries)) / 1e6, 0.9,
        f"{len(libraries)} libraries, {os.path.basename(libraries[-1])} the largest")
