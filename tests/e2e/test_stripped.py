# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""A program and a library without symbols: each of their functions is one row, named by where it begins, with its share, in every
session the same."""

import csv
import os
import shutil
import subprocess

from harness import FAMILY_A, WORKLOADS, Daemon, band, check, compile_workload, cpu_ns, main, running, wait_until

FOLDER = os.path.join(WORKLOADS, "stripped")
RATE = 199
SELF = {"work_a": 0.40, "shown_b": 0.30, "work_c": 0.20, "work_d": 0.10}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def starts(path):
    """{name: file offset} of the functions of a file that is not stripped yet."""
    loads = [line.split() for line in output("readelf", "-lW", path).splitlines() if line.startswith("  LOAD")]

    def offset(ev):
        return next(ev - int(va, 16) + int(fo, 16) for _, fo, va, _, size, *_ in loads if int(va, 16) <= ev < int(va, 16) + int(size, 16))

    symbols = [line.split() for line in output("nm", "--defined-only", path).splitlines()]
    return {name: offset(int(ev, 16)) for ev, kind, name in symbols if kind in "tT"}


def build():
    """The program's path, and {row: name} of what may be sampled."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    flags = ["-O2", "-fomit-frame-pointer"]
    library = compile_workload("stripped.c", *flags, "-DLIBRARY", "-shared", "-fPIC", output="stripped/libstripped.so")
    # without PIE addresses are no file offsets
    program = compile_workload("stripped.c", *flags, "-no-pie", "-fno-pie", f"-L{FOLDER}", "-lstripped", "-Wl,-rpath,$ORIGIN",
                               output="stripped/stripped")
    rows = {}
    for path in (library, program):
        for name, offset in starts(path).items():
            rows[name if name.startswith("shown_") else f"[unknown] {os.path.basename(path)}+0x{offset:x}"] = name
            if name.startswith("shown_"):
                rows[f"{name}@plt"] = f"{name}@plt" # what calls go through: two instructions, sampled once in many runs
        subprocess.run(["strip", "--strip-all", path], check=True)
        check(not output("nm", path), f"{path} has symbols")
    return program, rows


def profile(program):
    """(folded stacks, rows of the table) of a session with a daemon of its own."""
    with Daemon() as daemon, running(program, "100", ready=False) as process:
        session = daemon.start_profile(f"pid:{process.pid}", 300, rate=RATE, waitSeconds=60)
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["startedAt"], 60, "sampling to begin")
        start = cpu_ns(process.pid)
        wait_until(lambda: cpu_ns(process.pid) - start > 3e9, 120, "the program to run")
        daemon.stop_profile(session)
        text = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=csv").body.decode()
        return daemon.folded(session), list(csv.DictReader(text.splitlines()))


def ours(name):
    return name.startswith("shown_") or "stripped" in name and "+0x" in name


def one_row_for_each_function():
    program, rows = build()
    tables = []
    for _ in range(2):
        stacks, table = profile(program)
        total = sum(v for _, v in stacks)
        samples = total * RATE / 1e9
        found = {f for s, _ in stacks for f in s if ours(f)}
        check(found <= rows.keys(), f"no functions: {sorted(found - rows.keys())} of {rows}")
        names = {rows[f] for f in found}
        check({*SELF, "chain", "shown_run", "main"} <= names, f"only {names}")
        shown = sorted(r["funcName"] for r in table if ours(r["funcName"]))
        check(shown == sorted(found), f"rows of the table {shown}, of the stacks {found}")
        for row, name in rows.items():
            share = sum(v for s, v in stacks if s[-1] == row) / total
            due = SELF.get(name, 0)
            check(abs(share - due) * 100 <= 2 + band(due, samples), f"{name} has {100 * share:.1f} % of {samples:.0f} samples, not {100 * due:.0f} %")
        # the recursion is 8 frames of one function, and each stack begins in the C library below main
        chain, leaf = (next(r for r, n in rows.items() if n == name) for name in ("chain", "work_c"))
        deep = [(s.count(chain), v) for s, v in stacks if s[-1] == leaf]
        check(sum(v for count, v in deep if count == 8) >= 0.97 * sum(v for _, v in deep), f"frames of chain: {deep}")
        tables.append({f for f in found if rows[f] in SELF})
    check(tables[0] == tables[1], f"two sessions, two sets of rows: {tables}")


if __name__ == "__main__":
    main(one_row_for_each_function)
