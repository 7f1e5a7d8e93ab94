# SPDX-License-Identifier: Apache-2.0
"""check_types.py KERNEL PARTS CONSOLE TABLE: judges the profiles of every type that tests/vm/types prints on the console of a test
machine by what the profiled programs count of themselves, and adds a row of deviations to TABLE. A kernel that warns, stalls or
panics fails. So does a type that the README promises for the kernel and that is refused, and one that `profd --features` or
`profctl doctor` says something else of than the README."""

import collections
import datetime
import itertools
import json
import math
import os
import re
import sys

import support
from support import COLUMNS, FAILED, LOADED, TYPES, VERIFIED

sys.path.insert(0, os.path.join(support.ROOT, "tests/e2e"))
from test_goroutines import difference, parse_dump, stacks_of  # noqa: E402

# A kernel says this when something is wrong with it, whoever is the cause.
COMPLAINTS = re.compile(r"^(?:\[[ .\d]+\] ?)?(.*(?:WARNING: |BUG: |Kernel panic|rcu.*stall|scheduling while atomic|lockdep|"
                        r"possible recursive locking|INFO: task .* blocked|general protection|Oops|soft lockup).*)$", re.M)
# The emulated machine says this without profd as well.
HARMLESS = re.compile(r"Spectre|MDS CPU bug|MMIO Stale|Retbleed|SMT|mitigations|L1TF|TAA|clocksource|TSC|hung_task", re.I)
KINDS = {"wait_lock": "futex", "wait_condition": "futex", "wait_rwlock": "futex", "wait_semaphore": "futex", "wait_pipe": "pipe",
         "wait_epoll": "epoll", "wait_sleep": "sleep", "wait_socket": "socket"}
BLOCKING = ("wait_lock", "wait_condition", "wait_pipe", "wait_epoll", "wait_rwlock", "wait_semaphore")
THREADS = {"main", "run", "own", "rewrite", "feed", "stay"}  # the first functions of off_waits' threads
ALL_WAITS = (*BLOCKING, "wait_sleep", "wait_socket")
FAULT_PERIOD = 64
LARGE_BYTES = 200000  # of a block of heap.c's large()


class Console:
    """Sections of the console: "=== NAME" and the lines until the next one."""

    def __init__(self, path):
        with open(path, errors="replace") as f:
            self.text = f.read().replace("\r", "")
        self.sections = {}
        for part in self.text.split("\n=== ")[1:]:
            name, _, body = part.partition("\n")
            self.sections[name] = body

    def json(self, name):
        body = self.sections[name]
        return json.loads(body[body.index("{"):body.rindex("}") + 1])

    def folded(self, name):
        """[(frames root first, value)]"""
        found = []
        for line in self.sections[name].splitlines():
            stack, _, value = line.rpartition(" ")
            if stack and value.isdigit():
                found.append((stack.split(";"), int(value)))
        return found


def of(stacks, function, first=None):
    return sum(value for stack, value in stacks if function in stack and (first is None or stack[0].startswith(first)))


def outside(value, least, most):
    """How far @value is from the interval, as a share of it; 0 inside."""
    if least <= value <= most:
        return 0.0
    return min(abs(value - least), abs(value - most)) / max(least, 1)


def completed(console, name):
    session = console.json(f"session {name}")
    assert session["status"] == "completed", f"{name}: {session['status']}, {session.get('error')}"
    return session


def bounds(console, program, column):
    """{function: (at least, at most)} of what @program counted in a session: between the inner and the outer moments."""
    moments = [console.json(f"counted {program} {i}") for i in range(4)]
    return {f: (moments[2][f][column] - moments[1][f][column], moments[3][f][column] - moments[0][f][column]) for f in moments[0]}


class Wait:
    """Counters of one function of off_waits in a session, in ns, each as (at least, at most): between those just inside of
    the session's ends and those just outside. Some of the time that its thread waits for CPUs is outside of the function."""

    def __init__(self, inner, outer):
        columns = zip(("off", "calls", "off_least", "ran", "queued"), *inner, *outer)
        least, most = {}, {}
        for name, least_first, least_last, most_first, most_last in columns:
            least[name], most[name] = least_last - least_first, most_last - most_first
        self.off = least["off_least"], most["off"]
        # it also runs outside of the function: it reads clocks
        self.elapsed = least["off_least"], most["off"] + most["ran"]
        self.blocked = least["off_least"] - most["queued"], most["off"]
        self.queued_most = most["queued"]


def waits_due(console, session):
    """{function: Wait}. A wait that goes on at an end of the session has a quarter of a second to be counted."""
    started, ended = (datetime.datetime.fromisoformat(session[name].replace("Z", "+00:00")).timestamp()
                      for name in ("startedAt", "completedAt"))
    moments = [json.loads(line) for line in console.sections["counted waits"].splitlines() if line.startswith("{")]
    inside = [m for m in moments if started <= m["time"] / 1e9 <= ended]
    before = [m for m in moments if m["time"] / 1e9 <= started]
    behind = [m for m in moments if m["time"] / 1e9 >= ended + 0.25]
    assert len(inside) >= 2 and before and behind, f"{len(before)}, {len(inside)}, {len(behind)} moments"
    return {f: Wait((inside[0][f], inside[-1][f]), (before[-1][f], behind[0][f])) for f in ALL_WAITS}


def waits(console, kind, functions, part, percent):
    """The largest deviation of the time in functions with known waits, beyond what the moments leave open; @part of Wait."""
    due = {f: getattr(wait, part) for f, wait in waits_due(console, completed(console, kind)).items()}
    stacks = console.folded(f"stacks {kind}")
    worst = max(outside(of(stacks, f), *due[f]) for f in functions)
    assert worst <= percent / 100, "; ".join(f"{f}: {of(stacks, f) / 1e6:.0f} ms, {due[f][0] / 1e6:.0f} to {due[f][1] / 1e6:.0f} are due"
                                             for f in functions)
    return f"{100 * worst:.1f} %"


def offcpu(console):
    kinds, due = console.folded("stacks offcpu wait"), waits_due(console, completed(console, "offcpu"))
    for function, kind in KINDS.items():
        other = of(kinds, function) - of(kinds, function, kind)
        # what is no wait of this kind is a wait for a CPU
        assert other <= due[function].queued_most + 0.03 * of(kinds, function), (
            f"{function}: {other} of {of(kinds, function)} ns are no wait for {kind}, {due[function].queued_most} ns at most are waits for CPUs")
    # a thread that waits all the time has no samples
    stacks = [(s, v) for s, v in console.folded("stacks offcpu") if s[0] != "[blocked, not sampled]"]
    whole, total = sum(v for s, v in stacks if THREADS & set(s)), sum(v for _, v in stacks)
    assert whole >= 0.99 * total > 0, f"{whole} of {total} ns have whole stacks"
    return waits(console, "offcpu", ALL_WAITS, "off", 3)


def mutex(console):
    holders = console.folded("stacks mutex holder")
    for function, holder in (("wait_lock", "owner ("), ("wait_rwlock", "writer (")):
        held = of(holders, function, holder)
        assert held >= 0.9 * of(holders, function) > 0, f"{function}: held by {holder} {held} of {of(holders, function)} ns"
    return waits(console, "mutex", ("wait_lock", "wait_rwlock"), "blocked", 5)


def shares(console, kind, *first):
    """The largest deviation of a function's share of CPU time; every whole stack has one of the functions @first."""
    session = completed(console, kind)
    stacks, truth = console.folded(f"stacks {kind}"), console.json(f"counted {kind}")
    samples, total = session["sampleCount"], sum(v for _, v in stacks)
    assert samples > 200, f"{samples} samples"
    complete = 100 * sum(v for s, v in stacks if not set(first).isdisjoint(s)) / total
    assert complete >= 97, f"{complete:.1f} % of the stacks reach {' or '.join(first)}"
    in_leaves, worst = sum(v for s, v in stacks if truth.keys() & set(s)), 0
    for leaf, ns in truth.items():
        got, share = 100 * of(stacks, leaf) / in_leaves, 100 * ns / sum(truth.values())
        worst = max(worst, abs(got - share))
        # an emulated machine's clocks are coarse: three points, and five deviations of so many samples
        allowed = 3 + 500 * math.sqrt(share / 100 * (1 - share / 100) / samples)
        assert abs(got - share) < allowed, f"{leaf}: {got:.1f} % instead of {share:.1f} %"
    return f"{worst:.1f} points"


def faults(console):
    completed(console, "faults")
    stacks, worst = console.folded("stacks faults state"), 0
    for function in ("touch_a", "touch_b"):
        due = sum(console.json(f"counted faults {i}")[function] for i in (1, 2, 3))
        got = of(stacks, function, "minor")
        worst = max(worst, abs(got / due - 1))
        # a sample stands for a period: four deviations of so many
        assert abs(got - due) <= 4 * FAULT_PERIOD * math.sqrt(due / FAULT_PERIOD), f"{function}: {got} faults of {due}"
    return f"{100 * worst:.1f} %"


def rows_of(session):
    return {row["funcName"]: row for row in session["topFunctions"]}


def alloc(console):
    session, due = completed(console, "alloc"), bounds(console, "heap", 0)
    rows = rows_of(session)
    least, most = (sum(interval[i] for interval in due.values()) for i in (0, 1))
    for function in ("churn", "cache"):
        low, high = rows[function]["confidenceInterval"]
        # an interval misses in one of twenty: half as far again
        middle = (low + high) / 2
        assert (middle + 1.5 * (high - middle) >= due[function][0] and
                middle - 1.5 * (middle - low) <= due[function][1]), f"{function}: {rows[function]}, due {due[function]}"
    return f"{session['totalValue'] / ((least + most) / 2):.2f} times"


def memory(console):
    session = completed(console, "memory")
    rows = rows_of(session)
    held = console.json("counted heap 3")
    low, high = rows["cache"]["confidenceInterval"]
    assert low / 2 <= held["cache"][2] <= 2 * high, f"cache: {rows['cache']}, in use {held['cache'][2]}"
    large = rows["large"]["selfValue"] / LARGE_BYTES
    seen = held["large"][1] - console.json("counted heap 1")["large"][1]  # a few begin where the kernel joined two mappings
    assert 0.7 * seen - 2 <= large <= 1.03 * held["large"][1], f"large: {large} blocks of {seen}"
    churn = rows.get("churn", {"selfValue": 0})["selfValue"]
    assert churn < 0.2 * (held["churn"][0] - console.json("counted heap 0")["churn"][0]), f"churn: {churn} in use"
    return f"{rows['cache']['cumulativeValue'] / held['cache'][2]:.2f} times"


def as_dumped(stack):
    """Go's dump calls runtime.gopanic "panic", and has the first and the last 50 frames of a deep stack and a line about those
    between."""
    frames, between = ["panic" if f == "runtime.gopanic" else f for f in stack.frames], len(stack.frames) - 100
    if between > 0:
        frames[50:-50] = [f"...{between} frames elided..."]
    return stack._replace(frames=tuple(frames))


def goroutine(console):
    """Every goroutine by state, reason, stack and creator, but for the one that writes the dump itself."""
    completed(console, "go_goroutine")
    dump = re.sub(r"(frames elided\.\.\.)", r"\1()", console.sections["counted go goroutines"])
    due = parse_dump(dump[dump.index("goroutine "):dump.index("<<<end>>>")])
    got = collections.Counter()
    for stack, count in stacks_of(console.json("analysis goroutine")).items():
        got[as_dumped(stack)] += count
    for stacks in (due, got):
        for stack in [stack for stack in stacks if stack.frames[-1] == "main.main"]:
            del stacks[stack]
    assert due == got, difference(got, due)
    assert sum(due.values()) > 100, f"{sum(due.values())} goroutines"
    return f"exact, {sum(due.values())}"


def go_heap(console):
    """Where the heap of the Go program differs from what its runtime says is in use: sentences"""
    in_use = sum(int(line.split()[3]) for line in console.sections["counted go memory"].splitlines() if line[:1].isdigit())
    found = completed(console, "go_memory")["totalValue"]
    if found != in_use or not in_use:
        yield f"memory of a Go program: {found} bytes in use, {in_use} in the runtime's own records"


def io(console):
    session, due = completed(console, "io"), console.json("counted io")
    if not features_of(console)[0]["io_uring"]:
        due["steady"] -= due["by_ring"]
    return support.bytes_moved(console.folded("threads io"), due, session["quality"]["notes"])


JUDGES = {"cpu": lambda c: shares(c, "cpu", "main"), "offcpu": offcpu, "wall": lambda c: waits(c, "wall", ALL_WAITS, "elapsed", 3),
          "block": lambda c: waits(c, "block", BLOCKING, "blocked", 5), "mutex": mutex, "io": io, "faults": faults, "goroutine": goroutine,
          "memory": memory, "alloc": alloc, "python": lambda c: shares(c, "python", "<module>"),
          # Go's scheduler and its monitor run on stacks of their own
          "go": lambda c: shares(c, "go", "main.main", "runtime.mstart", "runtime.mcall", "runtime.morestack"),
          # V8 compiles and collects in threads of its own
          "node": lambda c: shares(c, "node", "executeUserEntryPoint", "start_thread")}
# Columns that a part fills; others fill all but that of Node, which the machines of amd64 do not have.
FILLED = {"more": ("cpu",), "builds": ("cpu",), "python": ("cpu", "python"), "go": ("cpu", "go"), "node": ("cpu", "node")}


def features_of(console):
    """({name: found} of `profd --features`, {name: not degraded} of the same names in `profctl doctor`)"""
    lines = [line.split(None, 2) for line in console.sections["features"].splitlines()]
    # the kernel's own messages come between them
    features = {words[0]: words[1] == "yes" for words in lines if len(words) > 1 and not words[0].startswith("[")}
    features.pop("loading", None)
    checks = {check["check"]: check["state"] == "ok" for check in console.json("doctor")["checks"]}

    def check_of(name):
        kind, colon, what = name.partition(":")
        return f"{kind} {what}" if colon else f"{'privilege' if name.startswith('CAP_') else 'feature'} {name}"

    return features, {name: checks.get(check_of(name)) for name in features}


def verified(console):
    """The cell of the column VERIFIED. Kernels before 5.16 do not say it."""
    found = re.search(r"^loading .*; (\d+) instructions verified", console.sections.get("features", ""), re.M)
    return "" if not found else f"{int(found.group(1)) / 1000:.0f} k" if int(found.group(1)) else "not told"


def loaded(console, kind):
    """The cell of a type of which no profile was taken. The programs of goroutine are the reader's."""
    found = re.search(rf"^type:{kind} +(yes|no)", console.sections.get("features", ""), re.M)
    return LOADED if kind == "goroutine" or (found and found.group(1) == "yes") else "no" if found else FAILED


def disagreements(console, kernel, parts):
    """Where README.md, `profd --features`, `profctl doctor`, the unit's rights and the sessions of this kernel contradict each
    other: sentences"""
    features, doctor = features_of(console)
    if len(features) < 20:
        yield f"profd --features has {len(features)} lines"
    for name, found in features.items():
        if doctor[name] != found:
            yield f"{name}: --features says {found}, doctor {doctor[name]}"
    for kind in TYPES:
        due = support.promise(support.version_of(kernel), kind)
        refused = f"refused {kind}" in console.sections
        if parts != "features" and refused != (due == "no"):
            yield f"{kind}: README.md says '{due}', the session was {'refused' if refused else 'started'}"
        # goroutine takes no feature of the kernel
        if kind != "goroutine" and features.get(f"type:{kind}") != (due != "no"):
            yield f"{kind}: README.md says '{due}', --features {features.get(f'type:{kind}')}"
        if (due == "with CAP_SYS_ADMIN") != ("+sys_admin" in console.sections["capabilities"]) and kind == "alloc":
            yield f"{kind}: README.md says '{due}', the unit has {console.sections['capabilities']}"


def main():
    kernel, parts, path, table = sys.argv[1:]
    console, failed = Console(path), False
    release = re.search(r"^\d+\.\d+\S*(?:amd64|arm64)$", console.text, re.M)
    row = [kernel, release.group() if release else FAILED]
    for kind in COLUMNS:
        if parts == "features":
            row.append(loaded(console, kind) if kind in TYPES else "")
            continue
        if kind not in FILLED.get(parts, COLUMNS[:-1]):
            row.append("")
            continue
        try:
            refused = console.sections.get(f"refused {kind}")
            assert refused is None or support.promise(support.version_of(kernel), kind) == "no", f"refused: {refused}"
            row.append("no" if refused is not None else JUDGES[kind](console))
        except (AssertionError, KeyError, ValueError) as error:
            failed = True
            row.append(FAILED)
            print(f"not ok {kernel} {kind}: {type(error).__name__} {error}")
    try:
        for fault in itertools.chain(disagreements(console, kernel, parts) if parts in ("types", "features", "all") else (),
                                     go_heap(console) if parts in ("types", "all") else ()):
            failed = True
            print(f"not ok {kernel} {fault}")
    except (KeyError, ValueError) as error:
        failed = True
        print(f"not ok {kernel} features: {type(error).__name__} {error}")
    complaints = [line for line in COMPLAINTS.findall(console.text) if not HARMLESS.search(line)]
    if complaints or "=== end" not in console.text:
        failed = True
        print(f"not ok {kernel} console: {complaints[:5] or 'the machine did not end'}")
        print(console.text[-3000:])
    row.append(verified(console))
    with open(table, "a") as f:
        print("| " + " | ".join(row) + " |", file=f)
    if not failed:
        cells = [f"{kind} {cell}" for kind, cell in zip((*COLUMNS, VERIFIED), row[2:]) if cell]
        if parts not in FILLED:
            cells.append("README.md, --features and doctor agree")
        print(f"ok {kernel}: {', '.join(cells)}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
