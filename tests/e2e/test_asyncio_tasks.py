# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""The view of threads with asyncio tasks against what the program itself says of each: asyncio.all_tasks(), the chain of
coroutines with its lines, the state, and the tasks that await it. Each CPython that is found here is tested."""
import gzip
import os
import re
import subprocess

from harness import FAMILY_A, ROOT, Counting, Daemon, Skip, check, main
from test_python_truth import VERSIONS, WITHOUT_GIL, fields, interpreters, pprof_stacks, three

PROGRAM = os.path.join(ROOT, "tests/workloads/python/tasks.py")
ASLEEP = os.path.join(ROOT, "tests/workloads/python/asleep.py")
LIAR = os.path.join(ROOT, "tests/workloads/python/tasks_lie.py")
MARKER = "[task]"
SPINNERS = 300
STOPS = 12  # by the debugger
WAITS = {"main": "asyncio gather", "first": "asyncio task", "lock": "asyncio lock", "stream": "asyncio stream",
         "worker 0": "asyncio queue", "leaf": "asyncio sleep", "by generator": "asyncio future", "deep": "asyncio sleep"}
# Each coroutine of the busy program, what it awaits, and what its line says then.
SPINS = {"spins": {"even": "even()", "odd": "odd()", None: "brief()"}, "brief": {"even": "even()"},
         "even": {"sleep": "sleep(0)"}, "odd": {"sleep": "sleep(0)"}}


def read(daemon, program, **extra):
    """The result of a goroutine session with tasks, and [(labels, frames)] of its threads and tasks, innermost first."""
    result = daemon.profile(program.service, 1, "goroutine", **{"tasks": True, **extra})
    data = daemon.get(f"{FAMILY_A}/{result['id']}/flamegraph?format=pprof").body
    raw = list(fields(gzip.decompress(data)))
    strings = [value.decode() for field, value in raw if field == 6]
    found = []
    for (frames, value), sample in zip(pprof_stacks(data), [value for field, value in raw if field == 2]):
        labels = {strings[label[1]]: strings[label.get(2, 0)]
                  for label in (dict(fields(part)) for field, part in fields(sample) if field == 3)}
        found += [(labels, [list(frame) for frame in frames[::-1]])] * value
    return result, found


def chains(frames):
    """The chains of the task and of those behind it."""
    found = [[]]
    for frame in frames:
        if frame[0] == MARKER:
            found.append([])
        else:
            found[-1].append(frame)
    check(not found.pop(), f"{frames} does not end in {MARKER}")
    return found


def expected_chains(account, name):
    """The own chain, then that of the one task that awaits it, and so on."""
    found = [account[name]["chain"]]
    while len(account[name]["awaitedBy"]) == 1:
        name = account[name]["awaitedBy"][0]
        found.append(account[name]["chain"])
    return found


def check_way(version, path, way):
    with Daemon() as daemon, Counting(path, PROGRAM, way) as program:
        due = program.counters()
        result, found = read(daemon, program)
        said = f"{version} {way}: {result['quality']}"
        tasks = {labels["task"]: (labels, frames) for labels, frames in found if "task" in labels}
        threads = [frames for labels, frames in found if "task" not in labels]
        check(len(threads) == 2 and result["sampleCount"] == len(found) == len(due) + 2, f"{said}: {len(found)} rows")
        check(set(tasks) == set(due) and len(due) >= 50, f"{said}: {set(tasks) ^ set(due)}")
        for name, (labels, frames) in tasks.items():
            seen = {"state": labels["state"], "chain": chains(frames)[0],
                    "awaitedBy": sorted(filter(None, labels.get("awaitedBy", "").split(", ")))}
            check(seen == due[name], f"{version} {way}, task {name}: {seen}, the program says {due[name]}")
            check(chains(frames) == expected_chains(due, name), f"{version} {way}, task {name}: {frames}")
        waits = {name: tasks[name][0].get("wait") for name in WAITS}
        check(waits == WAITS, f"{version} {way}: {waits}")
        states = sorted(task["state"] for task in due.values())
        check((way == "running") == ("running" in states and "runnable" in states), f"{version} {way}: {states}")
        without, plain = read(daemon, program, tasks=False)
        check(without["sampleCount"] == 2 and not any("task" in labels for labels, _ in plain), f"{said}: tasks unasked for")


def check_version(version):
    path = interpreters().get(version)
    if not path:
        raise Skip(f"CPython {version} is not installed")
    for way in ("parked", "running"):
        check_way(version, path, way)


def fault(frames, lines):
    """The first error in the chain of a task of the busy program; None if there is none."""
    for frame, inner in zip(frames[::-1], [*frames[::-1][1:], None]):
        name, file, line = frame
        if file != PROGRAM:
            continue
        begins = lines[line].startswith("async def")  # it has not begun to run
        called = inner and inner[0]
        says = SPINS.get(name, {}).get(called, "def" if begins and not called else None)
        if begins and not called:
            continue
        if says is None or says not in lines[line]:
            return f"{name} at line {line} awaits {called}"
    return None


def tasks_that_run():
    """Tasks that never stop: each is listed once, and no chain is made of two moments."""
    found = interpreters()
    with open(PROGRAM, encoding="utf-8") as f:
        lines = [""] + f.read().splitlines()
    for version in three(found):
        rows = whole = 0
        with Daemon() as daemon, Counting(found[version], PROGRAM, "busy") as program:
            for _ in range(5):
                result, items = read(daemon, program)
                names = names_of_spinners(items)
                check(names == sorted(f"spinner {i}" for i in range(SPINNERS)), f"{version}: {len(names)} {result['quality']}")
                for labels, frames in items:
                    if labels.get("task") != "brief" and not labels.get("task", "").startswith("spinner"):
                        continue
                    rows += 1
                    if frames[-1][0] != MARKER:
                        check(frames[-1][0] in ("[no stack]", "[running]", "[runnable]"), f"{version}: {frames}")
                        continue
                    whole += 1
                    # A task that runs has frames of functions, too, and may be between two of its awaits.
                    wrong = labels["state"] != "running" and fault(chains(frames)[0], lines)
                    check(not wrong, f"{version}: {labels} {frames}: {wrong}")
        check(whole >= 0.8 * rows, f"{version}: {whole} of {rows} tasks have chains")


def names_of_spinners(items):
    return sorted(labels["task"] for labels, _ in items if labels.get("task", "").startswith("spinner"))


def tasks_that_begin_to_run():
    """A debugger stops the loop's thread whenever it enters the interpreter: also where a task's coroutine says that it runs
    and has no frame in the thread's chain yet. Each task is listed."""
    path = interpreters().get("3.11")
    if not path:
        raise Skip("CPython 3.11 is not installed")
    between = 0
    with Daemon() as daemon, Counting(path, PROGRAM, "busy") as program:
        with subprocess.Popen(["gdb", "-q", "-nx", "-p", str(program.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) as gdb:
            try:
                gdb.stdin.write("break _PyEval_EvalFrameDefault\n")
                for stop in range(STOPS):
                    gdb.stdin.write("continue\n")
                    gdb.stdin.flush()
                    stopped = any("Breakpoint 1, " in line for line in iter(gdb.stdout.readline, ""))
                    check(stopped, f"stop {stop}: gdb has ended")
                    result, items = read(daemon, program)
                    names = names_of_spinners(items)
                    check(names == sorted(f"spinner {i}" for i in range(SPINNERS)), f"{len(names)} {result['quality']}")
                    between += sum(labels.get("state") == "running" and "task" in labels and frames[-1][0] != MARKER
                                   for labels, frames in items)
            finally:
                gdb.kill()
    check(between, f"none of {STOPS} stops was between a coroutine's word and its frame")


def what_is_left_out_is_said():
    """A program without asyncio, one that is no Python, tasks of a class that cannot be read, a type without tasks."""
    found = interpreters()
    version = list(filter(found.get, VERSIONS))[-1]
    with Daemon() as daemon:
        with Counting(found[version], ASLEEP) as program:
            notes = read(daemon, program)[0]["quality"]["notes"]
            check(any("no asyncio tasks: asyncio is not used" in note for note in notes), f"{version} without: {notes}")
        with Counting("sh", "-c", "echo ready; read line; echo {}; sleep 1000") as program:
            notes = read(daemon, program)[0]["quality"]["notes"]
            check(any("no asyncio tasks: no Python interpreter was found" in note for note in notes), f"sh: {notes}")
            answer = daemon.request("POST", FAMILY_A + "/start",
                                    {"service": program.service, "profileType": "cpu", "tasks": True})
            check(answer.status == 400 and "tasks: only for goroutine" in str(answer.json()), f"cpu with tasks: {answer}")
        for other in filter(found.get, VERSIONS):
            with Counting(found[other], PROGRAM, "foreign") as program:
                # all_tasks() of 3.14 leaves such tasks out
                due = {name for name in program.counters() if not name.startswith("foreign")}
                result, items = read(daemon, program)
                notes = result["quality"]["notes"]
                check(any("3 asyncio tasks are not listed: their class Task" in note for note in notes), f"{other}: {notes}")
                shown = {labels["task"] for labels, _ in items if "task" in labels}
                check(shown == due, f"{other}: {shown ^ due}")
        if WITHOUT_GIL in found:
            with Counting(found[WITHOUT_GIL], PROGRAM, "parked") as program:
                notes = read(daemon, program)[0]["quality"]["notes"]
                check(any("layout of asyncio's tasks" in note for note in notes), f"{WITHOUT_GIL}: {notes}")


def tasks_that_lie():
    """Objects without end, cycles and pointers into the kernel: each answer comes in time, and the next program's is right."""
    path = interpreters().get("3.11")
    if not path:
        raise Skip("CPython 3.11 is not installed")
    with open(LIAR, encoding="utf-8") as f:
        ways = re.findall(r"^def (\w+)\(all_tasks\)", f.read(), re.MULTILINE)
    check(len(ways) >= 9, ways)
    with Daemon() as daemon, Counting(path, PROGRAM, "parked") as honest:
        due = len(honest.counters())
        for way in ways:
            with Counting(path, LIAR, way) as liar:
                result, found = read(daemon, liar)
                named = sum(labels.get("task", "").endswith("of the liar") for labels, _ in found)
                said = f"{way}: {named} tasks, {result['quality']['notes']}"
                check(liar.process.poll() is None, f"{said}: the program has ended")
                if "set" in way or "dict" in way or "index" in way:
                    check(named == 0 or any("asyncio tasks" in note for note in result["quality"]["notes"]), said)
                elif way == "kernel_pointers":
                    check(named == 0 and any("100 asyncio tasks are not listed" in n for n in result["quality"]["notes"]), said)
                else:
                    check(named >= 99, said)
            _, found = read(daemon, honest)
            check(sum("task" in labels for labels, _ in found) == due, f"{way}: the honest program is not read any more")


def of(version):
    def test():
        check_version(version)
    test.__name__ = "cpython_" + version.replace(".", "_")
    test.__doc__ = f"Tasks of CPython {version}."
    return test


if __name__ == "__main__":
    main(*map(of, VERSIONS), tasks_that_run, tasks_that_begin_to_run, what_is_left_out_is_said, tasks_that_lie)
