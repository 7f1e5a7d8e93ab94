# SPDX-License-Identifier: Apache-2.0
"""memory and alloc of programs that are not Go, against a program that counts its own allocations
(tests/workloads/heap.c), and that observing a program does it no harm."""

import contextlib
import os
import re
import signal
import subprocess

from browser import Site
from harness import BUILD, FAMILY_A, Counting, Daemon, check, compile_workload, main, own_name, running, wait_until


@contextlib.contextmanager
def heap(*args):
    with own_name(compile_workload("heap.c", "-O2", "-lpthread")) as program, Counting(program, *args) as process:
        yield process


def follow(daemon, service, kind, samples, windows):
    """A session of @kind that has seen as much. A daemon that has just started reads all files of the host first:
    sessions before count for nothing."""
    wait_until(lambda: daemon.profile(service, 1, kind)["quality"].get("windows"), 90, "probes")
    session = daemon.start_profile(service, 600, kind)
    yield session

    def enough():
        quality = daemon.get(f"{FAMILY_A}/{session}").json()["quality"]
        return quality.get("sampled", 0) >= samples and quality.get("windows", 0) >= windows

    wait_until(enough, 120, "enough samples")
    yield


def observe(daemon, program, kind, samples=150, windows=3):
    """A session and what the program counted meanwhile: id, result, {function: row}, counters before and after."""
    steps = follow(daemon, program.service, kind, samples, windows)
    session = next(steps)
    before = program.counters()
    next(steps)
    after = program.counters()
    result = daemon.stop_profile(session)
    check(result["status"] == "completed", f"session: {result}")
    functions = {f["funcName"]: f for f in result["topFunctions"]}
    return session, result, functions, before, after


# How older kernels probe: 6.6 to 6.12 by two links, older ones by an event for each function; before 5.17 the events do not
# tell which function it is.
LINKS = ("--disable-feature=uprobe_session",)
EVENTS = (*LINKS, "--disable-feature=uprobe_multi")
PLACES = (*EVENTS, *(f"--disable-feature={name}" for name in ("bpf_loop", "task_storage", "task_btf", "task_pt_regs")))


def test_alloc(*options):
    """Bytes by function, within what a handful of windows can know."""
    with heap(300000, 2) as program, Daemon(*options) as daemon:
        session, result, functions, before, after = observe(daemon, program, "alloc")
        truth = {name: after[name][0] - before[name][0] for name in after}
        total = sum(truth.values())
        quality = result["quality"]
        check(quality["mode"] in ("windows", "full", "windows and full"), f"mode: {quality}")
        check(quality["hits"] > quality["sampled"] and quality["meanGapBytes"] > 0, f"seen: {quality}")
        check(0 < quality["dutyPct"] <= 100 and 0 < quality["dilation"] <= 1, f"duty: {quality}")
        check(result["unit"] == "bytes", f"unit: {result['unit']}")
        check(0.3 < result["totalValue"] / total < 3, f"total {result['totalValue']} of {total}")
        for name in ("churn", "cache", "grow"):
            seen, real = functions[name]["selfValue"] / result["totalValue"], truth[name] / total
            check(abs(seen - real) < 0.25, f"{name}: {seen:.3f} of the bytes, in truth {real:.3f}")
        for stack, value in daemon.folded(session):
            if stack[-1] in truth:
                check("work" in stack, f"stack: {stack}")
        text = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=folded").body
        check(b"churn" in text, "folded stacks")


def test_alloc_by_events():
    test_alloc(*EVENTS)


def judge_large(row, before, after, last, options):
    """Blocks with mappings of their own are known one by one: what was observed, to the byte. Kernels before 6.1 have a tree of
    mappings that newer ones lack, so its reader finds none here (tests/vm); they are estimated then, if any was met in a window."""
    if options == PLACES:
        check(not row or row["confidenceInterval"][0] / 2 <= after[2], f"large: {row}, in truth {after}")
        return
    holds = (200000 + 16 + 4095) // 4096 * 4096 - 16
    blocks, counted = row["selfValue"] / holds, after[1] - before[1]  # a few begin where the kernel joined two mappings
    check(blocks == int(blocks) and row["confidenceInterval"] == [row["selfValue"]] * 2, f"large: {row}")
    check(counted * 0.7 - 1 <= blocks <= last[1], f"large: {blocks} of {counted}")


def test_memory(*options):
    """Blocks that are never freed are in use; blocks that are freed at once are not. The bands are
    as wide as a dozen samples allow."""
    with heap(20000, 2) as program, Daemon(*options) as daemon:
        session, result, functions, before, after = observe(daemon, program, "memory")
        quality = result["quality"]
        check(quality["mode"] and quality["observedSince"] and result["unit"] == "bytes", f"quality: {quality}")
        allocated = {name: after[name][0] - before[name][0] for name in after}
        churn = functions.get("churn", {"selfValue": 0})["selfValue"]
        check(churn < allocated["churn"] / 5, f"churn: {churn} in use of {allocated['churn']} allocated")
        cache = functions["cache"]
        check(0.1 < cache["selfValue"] / after["cache"][2] < 10, f"cache: {cache}, in truth {after['cache']}")
        low, high = cache["confidenceInterval"]
        check(low <= cache["cumulativeValue"] <= high, f"interval: {cache}")
        check(quality["granularity"] == "allocations", f"quality: {quality}")
        judge_large(functions.get("large"), before["large"], after["large"], program.counters()["large"], options)
        # The heap as a whole by its own structures; blocks hold up to 24 bytes more than was asked for.
        asked, objects = (sum(row[i] for row in after.values()) for i in (2, 3))
        check(asked * 0.97 < quality["heapBytes"] < (asked + 24 * objects) * 1.03 + 4e6,
              f"heap: {quality['heapBytes']}, in truth {asked} in {objects} objects")
        check(result["unattributedValue"] == max(0, quality["heapBytes"] - result["totalValue"]), f"rest: {result}")
        # and so people are told
        text = subprocess.run([os.path.join(BUILD, "profctl"), "--url", f"http://127.0.0.1:{daemon.port}", "get", session],
                              capture_output=True, text=True, check=True).stdout
        check(re.search(r"^heap       [\d.]+ MiB, of it [\d.]+ .?i?B not in the total: allocated before 20", text, re.M), text)
        check(re.search(r"cum, 95 % sure .*\n(.*\n)*.* [\d.]+ .?i?B to [\d.]+ .?i?B .* cache\n", text), text)
        with Site(daemon) as page:
            page.visit(f"/p/{session}", "document.querySelector('.graph')?.dataset.final === 'true'")
            said = page.text()
            check(re.search(r"The heap holds [\d. ]+ MiB, of it [\d. ]+ .?i?B not in the total", said), said[:600])
            check(re.search(r"cache[\d. ]+ .?i?B[\d.]+ %[\d. ]+ .?i?B and [\d. ]+ .?i?B", page.text("[aria-label=Estimates]")), said[:2000])
            page.clean()
        sums = [sum(result["breakdown"]["process"].values()), sum(p["value"] for p in result["processes"])]
        check(sums == [result["totalValue"]] * 2, f"sums {sums} of {result['totalValue']}")


def test_memory_by_links():
    """Large blocks by the event that replaces the tracepoint on arm64."""
    test_memory(*LINKS, "--disable-feature", "page_fault_user")


def test_memory_by_events():
    test_memory(*EVENTS)


def test_memory_by_places():
    test_memory(*PLACES)


def judge_growth(daemon, program, what, known_exactly=("list", "doubled", "vector", "shrunk", "parts", "buffers")):
    """Blocks that grow and shrink (tests/workloads/grow.c) have their final size within 3 %, and none is suspected to leak."""
    session = daemon.start_profile(program.service, 600, "memory")
    # The first windows find out how cheap the probes are: then they stay open.
    wait_until(lambda: "full" in daemon.get(f"{FAMILY_A}/{session}").json()["quality"].get("mode", ""), 90, "probes")
    program.counters()
    wait_until(lambda: all(done for _, done in program.counters().values()), 90, "the blocks")
    windows = daemon.get(f"{FAMILY_A}/{session}").json()["quality"]["windows"]
    wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["quality"]["windows"] >= windows + 3, 90, "windows")
    truth = {name: row[0] for name, row in program.counters().items()}
    result = daemon.stop_profile(session)
    seen = {f["funcName"]: f["selfValue"] for f in result["topFunctions"]}
    print(f"# {what}: " + ", ".join(f"{name} {seen.get(name, 0) / 1e6:.2f} of {truth[name] / 1e6:.2f} MB" for name in truth)
          + f"; {result['quality']['mode']}", flush=True)
    off = {name: (seen.get(name, 0), truth[name]) for name in known_exactly
           if abs(seen.get(name, 0) - truth[name]) > 0.03 * truth[name] + (1.1e6 if name == "buffers" else 0)}
    check(not off, f"{what}: in use {off}")
    most = result["quality"].get("heapBytes") or result["quality"]["residentBytes"]
    check(result["totalValue"] <= 1.03 * most + 4e6, f"{what}: {result['totalValue']} in use of {most}")
    check("buffers" not in [leak["funcName"] for leak in result["suspectedLeaks"]], f"{what}: {result['suspectedLeaks']}")


def test_growing_blocks(churn_hz=0):
    """Blocks that grow by realloc(), which the kernel moves, and by copying."""
    with own_name(compile_workload("grow.c", "-O2", "-lpthread")) as built, Counting(built, churn_hz) as program, \
            Daemon() as daemon:
        judge_growth(daemon, program, "glibc")


def test_leak_in_cpp():
    """A leak is what grows: named first, although far more is allocated elsewhere."""
    with own_name(compile_workload("leaks.cpp", "-O2")) as program, running(program) as process, \
            Daemon() as daemon:
        service = f"pid:{process.pid}"
        steps = follow(daemon, service, "memory", 150, 3)
        session = next(steps)
        next(steps)
        result = daemon.stop_profile(session)
        functions = {f["funcName"].split("(")[0]: f["cumulativeValue"] for f in result["topFunctions"]}
        check("leak" in functions and "operator new" not in functions, f"functions: {functions}")
        check(functions["leak"] > functions.get("pass", 0), f"functions: {functions}")


def test_refused():
    """A program that cannot be probed is refused at once, with the reason."""
    with own_name(compile_workload("heap.c", "-O2", "-static", "-s", "-lpthread", output="heap_static")) as program:
        with Counting(program, 1000) as process, Daemon() as daemon:
            for kind in ("alloc", "memory"):
                def ask():
                    answer = daemon.request("POST", FAMILY_A + "/start", {
                        "service": process.service, "profileType": kind, "durationSeconds": 1})
                    return answer if answer.status == 422 else None

                answer = wait_until(ask, 60, "a refusal")
                check(answer.json()["error_code"] == "ProfileTypeUnavailable" and b"symbol" in answer.body,
                      f"refused: {answer}")


def test_switched_off():
    with Daemon("--set", "collect.native_memory=no") as daemon, running("sleep", "600", ready=False) as process:
        answer = daemon.request("POST", FAMILY_A + "/start", {
            "service": f"pid:{process.pid}", "profileType": "alloc", "durationSeconds": 1, "waitSeconds": 10})
        check(answer.status == 422 and b"native_memory = no" in answer.body, f"refused: {answer}")


def malloc_code(pid):
    """The first bytes of malloc in the memory of a process and in its C library."""
    with open(f"/proc/{pid}/maps") as f:
        maps = [line.split() for line in f if "/libc.so.6" in line and " r-xp " in line]
    start, offset, path = int(maps[0][0].split("-")[0], 16), int(maps[0][2], 16), maps[0][5]
    symbols = subprocess.run(["readelf", "-W", "--dyn-syms", path], capture_output=True, text=True, check=True).stdout
    value = next(int(line.split()[1], 16) for line in symbols.splitlines() if line.split()[-1:] and
                 line.split()[-1].split("@")[0] == "malloc")
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(start + value - offset)  # libraries are laid out so that addresses are file offsets here
        seen = memory.read(32)
    with open(path, "rb") as file:
        file.seek(value)
        return seen, file.read(32)


def test_nothing_is_left():
    """A daemon that is killed while probes are open leaves the program as it was, and running."""
    with heap(1000, 1) as program:
        with Daemon() as daemon:
            wait_until(lambda: daemon.profile(program.service, 1, "alloc")["quality"].get("windows"), 90, "probes")
            daemon.start_profile(program.service, 600, "alloc")

            def probed():
                seen, original = malloc_code(program.pid)
                return seen != original

            wait_until(probed, 60, "an open probe")
            daemon.stop(signal.SIGKILL)
        wait_until(lambda: not probed(), 60, "the probes to go")
        before = program.counters()["churn"][1]
        wait_until(lambda: program.counters()["churn"][1] > before + 100, 60, "the program to go on")


def test_waking_up():
    """A program that does nothing is probed nearly all the time. The probe window ends as soon as
    the program begins to allocate, not when its time is up."""
    def told(words):
        return [line for line in daemon.log if words in line]

    def nothing():
        result = daemon.profile(program.service, 1, "alloc")
        return result if result["quality"].get("windows") else None

    with heap(300000, 2) as program, Daemon("--verbose") as daemon:
        os.kill(program.pid, signal.SIGSTOP)
        empty = wait_until(nothing, 90, "probes")
        with Site(daemon) as page:
            page.visit(f"/p/{empty['id']}", "document.querySelector('main').textContent.includes('Nothing was seen')")
            page.clean()
        session = daemon.start_profile(program.service, 600, "alloc")
        wait_until(lambda: told("hits 0 allocations 0")[3:], 60, "windows in which nothing happens")
        check(not told("than was foreseen"), "a program that does nothing costs nothing")
        os.kill(program.pid, signal.SIGCONT)
        wait_until(lambda: told("than was foreseen"), 60, "the end of a window")
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["quality"].get("sampled"), 60, "samples")
        names = {f["funcName"] for f in daemon.stop_profile(session)["topFunctions"]}
        check("churn" in names, f"functions: {names}")


if __name__ == "__main__":
    main(test_alloc, test_alloc_by_events, test_memory, test_memory_by_links, test_memory_by_events, test_memory_by_places,
         test_growing_blocks, test_leak_in_cpp, test_refused, test_switched_off, test_waking_up, test_nothing_is_left)
