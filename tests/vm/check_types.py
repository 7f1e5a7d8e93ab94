# SPDX-License-Identifier: Apache-2.0
"""check_types.py KERNEL PARTS CONSOLE TABLE: judges the profiles of every type that tests/vm/types prints on the console of a test
machine by what the profiled programs count of themselves, and adds a row of deviations to TABLE. A kernel that warns, stalls or
panics fails. So does a type that the README promises for the kernel and that is refused, and one that `profd --features` or
`profctl doctor` says something else of than the README."""

import collections
import json
import math
import re
import sys

import support
from support import FAILED, LOADED, TYPES

# A kernel says this when something is wrong with it, whoever is the cause.
COMPLAINTS = re.compile(r"^(?:\[[ .\d]+\] ?)?(.*(?:WARNING: |BUG: |Kernel panic|rcu.*stall|scheduling while atomic|lockdep|"
                        r"possible recursive locking|INFO: task .* blocked|general protection|Oops|soft lockup).*)$", re.M)
# The emulated machine says this without profd as well.
HARMLESS = re.compile(r"Spectre|MDS CPU bug|MMIO Stale|Retbleed|SMT|mitigations|L1TF|TAA|clocksource|TSC|hung_task", re.I)
BLOCKING = ("wait_lock", "wait_condition", "wait_pipe", "wait_epoll", "wait_rwlock", "wait_semaphore")
ALL_WAITS = (*BLOCKING, "wait_sleep", "wait_socket")
FAULT_PERIOD = 64


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

    def value(moment, function):
        found = moments[moment][function]
        return found[column] if isinstance(found, list) else found

    return {f: (value(2, f) - value(1, f), value(3, f) - value(0, f)) for f in moments[0]}


def waits(console, kind, functions, percent):
    """The largest deviation of the time off the CPU in functions with known waits, beyond what the moments leave open."""
    completed(console, kind)
    stacks = console.folded(f"stacks {kind}")
    due = bounds(console, "waits", 0)
    worst = max(outside(of(stacks, f), *due[f]) for f in functions)
    assert worst <= percent / 100, "; ".join(f"{f}: {of(stacks, f) / 1e6:.0f} ms, {due[f][0] / 1e6:.0f} to {due[f][1] / 1e6:.0f} are due"
                                             for f in functions)
    return f"{100 * worst:.1f} %"


def offcpu(console):
    kinds = console.folded("stacks offcpu wait")
    for function, kind in (("wait_lock", "futex"), ("wait_sleep", "sleep"), ("wait_pipe", "pipe"), ("wait_epoll", "epoll")):
        right, all_of_it = of(kinds, function, kind), of(kinds, function)
        assert right >= 0.9 * all_of_it > 0, f"{function}: {right} of {all_of_it} ns wait for {kind}"
    stacks = console.folded("stacks offcpu")
    whole = sum(v for s, v in stacks if {"main", "start_thread", "clone3", "__clone3"} & set(s))
    assert whole >= 0.97 * sum(v for _, v in stacks), f"{whole} of {sum(v for _, v in stacks)} ns have whole stacks"
    return waits(console, "offcpu", ALL_WAITS, 3)


def mutex(console):
    holders = console.folded("stacks mutex holder")
    for function, holder in (("wait_lock", "owner ("), ("wait_rwlock", "writer (")):
        held = of(holders, function, holder)
        assert held >= 0.9 * of(holders, function) > 0, f"{function}: held by {holder} {held} of {of(holders, function)} ns"
    return waits(console, "mutex", ("wait_lock", "wait_rwlock"), 5)


def cpu(console):
    session = completed(console, "cpu")
    stacks, truth = console.folded("stacks cpu"), console.json("counted cpu")
    samples, total = session["sampleCount"], sum(v for _, v in stacks)
    assert samples > 200, f"{samples} samples"
    complete = 100 * sum(v for s, v in stacks if "main" in s) / total
    assert complete >= 97, f"{complete:.1f} % of the stacks reach main"
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
    churn = rows.get("churn", {"selfValue": 0})["selfValue"]
    assert churn < 0.2 * (held["churn"][0] - console.json("counted heap 0")["churn"][0]), f"churn: {churn} in use"
    return f"{rows['cache']['cumulativeValue'] / held['cache'][2]:.2f} times"


def goroutine(console):
    session = console.json("session go_goroutine")
    dump = console.sections["counted go goroutines"]
    due = collections.Counter(re.findall(r"^goroutine \d+ \[([a-z ]+)", dump, re.M))
    assert session["status"] == "completed", f"{session}"
    got = session["sampleCount"]
    assert abs(got - sum(due.values())) <= 3, f"{got} goroutines, {sum(due.values())} in the runtime's own dump"
    return f"{got} of {sum(due.values())}"


def io(console):
    if "io" not in console.sections:
        return LOADED
    return "exact (check.py)"


JUDGES = {"cpu": cpu, "offcpu": offcpu, "wall": lambda c: waits(c, "wall", ALL_WAITS, 3),
          "block": lambda c: waits(c, "block", BLOCKING, 5), "mutex": mutex, "io": io, "faults": faults, "goroutine": goroutine,
          "memory": memory, "alloc": alloc}


def features_of(console):
    """({name: found} of `profd --features`, {name: not degraded} of the same names in `profctl doctor`)"""
    lines = [line.split(None, 2) for line in console.sections["features"].splitlines()]
    features = {words[0]: words[1] == "yes" for words in lines if len(words) > 1}
    checks = {check["check"]: check["state"] == "ok" for check in console.json("doctor")["checks"]}

    def check_of(name):
        kind, colon, what = name.partition(":")
        return f"{kind} {what}" if colon else f"{'privilege' if name.startswith('CAP_') else 'feature'} {name}"

    return features, {name: checks.get(check_of(name)) for name in features}


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
    for kind in TYPES:
        if parts == "features":
            row.append(loaded(console, kind))
            continue
        if parts == "more" and kind != "cpu":
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
        for fault in disagreements(console, kernel, parts) if parts != "more" else ():
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
    with open(table, "a") as f:
        print("| " + " | ".join(row) + " |", file=f)
    if not failed:
        cells = [f"{kind} {cell}" for kind, cell in zip(TYPES, row[2:]) if cell]
        if parts != "more":
            cells.append("README.md, --features and doctor agree")
        print(f"ok {kernel}: {', '.join(cells)}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
