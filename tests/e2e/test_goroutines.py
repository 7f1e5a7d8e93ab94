# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Goroutines, heap, allocations and contention of a real Go program, beside what the program says of itself;
threads of a C program."""

import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import urllib.request

from browser import Site
from harness import FAMILY_A, Daemon, build_go, check, compile_workload, cpu_ns, main, running, wait_until

FAMILY_B = "/api/v1/profiling"
C_FLAGS = ("-O2", "-fno-optimize-sibling-calls", "-pthread")
OBJECT_BYTES = 4096  # of tests/workloads/go/served
Stack = collections.namedtuple("Stack", "state wait frames creator")


@contextlib.contextmanager
def served():
    """The Go service; yields its process and a function that fetches a path of it."""
    with running(build_go("served"), env={"GOGC": "off"}) as process:
        port = int(process.stdout.readline())

        def fetch(path):
            # One connection per request, closed by the server before the answer is read to its end.
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Connection": "close"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read()

        yield process, fetch


@contextlib.contextmanager
def waiting_for_input(program):
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def is_own_server(frames):
    """Goroutines that serve HTTP are there or not from one moment to the next."""
    return any(f.startswith(("net/http.(*conn)", "net/http.(*connReader)", "net/http.(*Server).Serve")) for f in frames)


def parse_dump(text):
    """/debug/pprof/goroutine?debug=2 as a multiset of Stack."""
    stacks = collections.Counter()
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        words = re.match(r"goroutine \d+ (?:gp=\S+ m=\S+ (?:mp=\S+ )?)?\[([^\]]*)\]:", lines[0]).group(1)
        word = re.sub(r", (\d+ minutes|locked to thread)", "", words)
        creator, frames = "", []
        for line in lines[1:]:
            if line.startswith("created by "):
                creator = re.sub(r" in goroutine \d+$", "", line[len("created by "):])
            elif line and not line.startswith("\t"):
                frames.append(line[:line.rindex("(")])
        plain = word in ("running", "runnable", "syscall", "idle")
        if not is_own_server(frames):
            stacks[Stack(word if plain else "waiting", "" if plain else word, tuple(frames), creator)] += 1
    return stacks


def take(daemon, pid, kind="goroutine", **extra):
    answer = daemon.request("POST", FAMILY_B + "/sessions", {"profileType": kind, "target": f"pid:{pid}", **extra})
    check(answer.status == 200, f"session: {answer}")
    session = answer.json()
    check(session["status"] == "completed", f"session: {session}")
    return session["sessionId"]


def await_names(daemon, session):
    """A daemon that has just started looks at every file that the host runs: until it has seen ours."""
    wait_until(lambda: any("main.park" in s["frames"] for s in analysis(daemon, session)["topStacks"]), 60,
               "names of the program")


def analysis(daemon, session, query=""):
    return daemon.get(f"{FAMILY_B}/sessions/{session}/analysis?limit=1000{query}").json()


def stacks_of(result):
    stacks = collections.Counter()
    for s in result["topStacks"]:
        if not is_own_server(s["frames"]):
            stacks[Stack(s["state"], s["waitReason"], tuple(s["frames"]), s["createdBy"])] += s["count"]
    return stacks


def difference(ours, theirs):
    return f"only ours: {dict(ours - theirs)}; only in the program's dump: {dict(theirs - ours)}"


def test_goroutines_equal_their_own_dump():
    with Daemon() as daemon, served() as (process, fetch):
        session = take(daemon, process.pid)
        theirs = parse_dump(fetch("/debug/pprof/goroutine?debug=2").decode())
        await_names(daemon, session)
        result = analysis(daemon, session)
        ours = stacks_of(result)
        check(ours == theirs, difference(ours, theirs))
        check(sum(ours.values()) >= 27, f"only {sum(ours.values())} goroutines")
        check(result["goroutineCount"] == sum(s["count"] for s in result["topStacks"]), "counts differ from their sum")
        waiting = {w["waitReason"] for w in result["topStacks"]}
        for word in ("chan receive", "chan send", "select", "sync.Mutex.Lock", "sync.WaitGroup.Wait", "sleep"):
            check(word in waiting, f"no goroutine waits for {word}: {waiting}")
        labels = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=folded&where=tenant:acme").body.decode()
        check(labels.strip().endswith(" 1") and "main.leak" in labels, f"labelled: {labels!r}")
        check(result["labels"] == {"tenant": {"acme": 1}}, f"{result['labels']}")
        stuck = [d for d in result["deadlockCandidates"] if d["kind"] == "nilChannel"]
        check(len(stuck) == 1 and stuck[0]["frames"] == ["main.park"] and stuck[0]["count"] == 3, f"{stuck}")
        for wait in result["longestWaits"]:
            check(wait["goid"] > 0 and wait["waitSeconds"] > 0 and wait["frames"], f"{wait}")
        detailed = analysis(daemon, session, "&frames=details")
        for stack in detailed["topStacks"] + detailed["blockedGoroutines"] + detailed["longestWaits"]:
            details = stack["frameDetails"]
            check([d["name"] for d in details] == stack["frames"], f"{stack}")
            check(all(d["kind"] == "go" and d["file"].endswith((".go", ".s")) and d["line"] > 0 and not d["guessed"] and
                      os.path.samefile(d["module"], f"/proc/{process.pid}/exe") for d in details), f"{details}")
        data = daemon.get(f"{FAMILY_B}/goroutine-flame/{session}?format=json&frames=details").json()["data"]
        check('"inlined":' in data and '"buildId":' in data, f"{data[:300]}")
        with_system = analysis(daemon, session, "&system=true")["goroutineCount"]
        check(with_system > result["goroutineCount"], "the runtime's own goroutines are missing with system=true")
        for query, due in (("", result["goroutineCount"]), ("&system=true", with_system)):
            data = daemon.get(f"{FAMILY_B}/goroutine-flame/{session}?format=folded{query}").json()["data"]
            drawn = sum(int(line.rsplit(" ", 1)[1]) for line in data.splitlines())
            check(drawn == due, f"the flame graph{query} has {drawn} goroutines of {due}")


def shown_to_people(daemon, session, last):
    """The page of the session whose leak was planted, and of the last one, in which it has gone on."""
    with Site(daemon) as page:
        page.visit(f"/g/{session}", "document.querySelector('[aria-label=\"New since then\"]')")
        check(re.match(r"[\d,]+ goroutines or threads in [\d,]+ stacks, [\d,]+ wait in ", page.text(".lead")), page.text(".lead"))
        check(re.search(r"\+\d+\.\d % since sess-", page.text()), page.text()[:600])
        for label, words in (("States", ("waiting", "%")), ("Waiting for", ("chan receive", "select", "sync.Mutex.Lock")),
                             ("May be stuck for good", ("nil channel", "main.park")), ("New since then", ("137", "main.leak", "created by main."))):
            said = page.text(f"[aria-label='{label}']")
            check(all(word in said for word in words), f"{label}: {said[:600]}")
        page.shoot("goroutines")
        page.visit(f"/g/{last}", "document.querySelector('[aria-label=\"Grown since then\"]')")
        said = page.text("[aria-label='Suspected leaks']")
        check("155 (before: 137, 150)" in said and "main.leak" in said, said)
        page.clean()


def test_a_planted_leak_is_all_that_is_new():
    with Daemon() as daemon, served() as (process, fetch):
        fetch("/gc")
        base = take(daemon, process.pid)
        await_names(daemon, base)
        fetch("/leak?n=137")
        compare = take(daemon, process.pid)
        answer = daemon.request("POST", FAMILY_B + "/diff?frames=details",
                                {"baseId": base, "compareId": compare, "type": "goroutine"})
        check(answer.status == 200, f"diff: {answer}")
        diff = answer.json()
        new = [s for s in diff["newStacks"] if not is_own_server(s["frames"])]
        grown = [s for s in diff["grownStacks"] if not is_own_server(s["frames"])]
        check(len(new) == 1 and not grown, f"new {new}, grown {grown}")
        check(new[0]["frames"] == ["main.leak"] and new[0]["count"] == 137, f"new: {new}")
        check([d["name"] for d in new[0]["frameDetails"]] == ["main.leak"], f"new: {new}")
        check(diff["growthCount"] == 137, f"growthCount {diff['growthCount']}")
        fetch("/leak?n=13")
        third = take(daemon, process.pid)
        diff = daemon.request("POST", FAMILY_B + "/diff",
                              {"baseId": compare, "compareId": third, "type": "goroutine"}).json()
        check(not diff["newStacks"] and len(diff["grownStacks"]) == 1, f"second leak: {diff}")
        check(diff["growthCount"] == 13, f"growthCount {diff['growthCount']}")
        rate = analysis(daemon, third)["goroutineGrowthRate"]
        before = analysis(daemon, compare)["goroutineCount"]
        check(abs(rate - (before + 13) / before) < 1e-3, f"growth rate {rate}")
        check(not analysis(daemon, third)["suspectedLeaks"], "a leak that has grown once")
        fetch("/leak?n=5")
        fourth = take(daemon, process.pid)
        leaks = analysis(daemon, fourth)["suspectedLeaks"]
        check(len(leaks) == 1 and leaks[0]["frames"] == ["main.leak"] and leaks[0]["count"] == 155, f"{leaks}")
        check([(s["sessionId"], s["count"]) for s in leaks[0]["sessions"]] ==
              [(compare, 137), (third, 150), (fourth, 155)], f"{leaks}")
        shown_to_people(daemon, compare, fourth)


def own_heap(fetch, folder):
    """{function: (flat, cumulative)} in bytes, by go tool pprof from the program's own profile."""
    path = os.path.join(folder, "heap")
    with open(path, "wb") as f:
        f.write(fetch("/debug/pprof/heap"))
    text = subprocess.run(["go", "tool", "pprof", "-top", "-unit=b", "-nodecount=100000", "-nodefraction=0",
                           "-sample_index=inuse_space", path], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in text.splitlines():
        row = re.match(r"\s*(\d+)B?\s+\S+%\s+\S+%\s+(\d+)B?\s+\S+%\s+(\S.*?)(?: \(inline\))?$", line)
        if row:
            found[row.group(3)] = (int(row.group(1)), int(row.group(2)))
    return found


def named(daemon, session):
    """The result, as soon as the program's functions have names: a daemon that has just started looks at every file that
    the host runs."""
    def are_known():
        result = daemon.get(f"{FAMILY_A}/{session}?top=1000").json()
        return result if any(f["funcName"].startswith("main.") for f in result["topFunctions"]) else None

    return wait_until(are_known, 60, "names of the program")


def test_heap_equals_their_own():
    with Daemon() as daemon, served() as (process, fetch), tempfile.TemporaryDirectory() as folder:
        fetch("/keep?n=700")
        fetch("/gc")
        session = take(daemon, process.pid, "heap", durationSeconds=1)
        theirs = own_heap(fetch, folder)
        result = named(daemon, session)
        ours = {f["funcName"]: f for f in result["topFunctions"]}
        check(result["unit"] == "bytes" and result["profileType"] == "memory", f"{result['unit']}")
        kept = ours["main.keep"]["selfValue"]
        check(kept >= 1200 * OBJECT_BYTES, f"main.keep holds {kept}")
        flat = sum(v[0] for v in theirs.values())
        check(abs(result["totalValue"] - flat) <= 0.01 * flat, f"total {result['totalValue']}, their own {flat}")
        for name, (_, cumulative) in theirs.items():
            if cumulative < 0.01 * flat or name not in ours and name.startswith("runtime."):
                continue
            mine = ours[name]["cumulativeValue"] if name in ours else 0
            check(abs(mine - cumulative) <= 0.01 * cumulative, f"{name}: {mine}, their own {cumulative}")


def during(daemon, pid, kind, work):
    """A session of @kind that begins before @work and ends after it."""
    session = daemon.start_profile(f"pid:{pid}", 3600, kind)
    work()
    result = daemon.stop_profile(session)
    check(result["status"] == "completed", f"{kind}: {result}")
    return {f["funcName"]: f for f in result["topFunctions"]}


def test_counters_are_differences():
    with Daemon() as daemon, served() as (process, fetch):
        fetch("/waste?n=50")
        fetch("/contend?n=3")
        alloc = during(daemon, process.pid, "alloc", lambda: fetch("/waste?n=1000"))
        check("main.waste" in alloc, f"alloc: {alloc}")
        check(alloc["main.waste"]["selfValue"] == 1000 * OBJECT_BYTES, f"alloc: {alloc['main.waste']}")
        check(alloc["main.waste"]["sampleCount"] == 1000, f"alloc: {alloc['main.waste']}")
        check("main.keep" not in alloc, "what was allocated before the session counts")
        for kind in ("block", "mutex"):
            found = during(daemon, process.pid, kind, lambda: fetch("/contend?n=10"))
            name = "main.awaitLock" if kind == "block" else "main.contend"
            check(name in found, f"{kind}: {list(found)}")
            delay = found[name]["cumulativeValue"]
            check(0.19e9 < delay < 2e9, f"{kind}: {name} {delay} ns instead of 10 × 20 ms")


def test_a_difference_survives_the_server():
    with Daemon() as daemon, served() as (process, fetch):
        fetch("/waste?n=50")
        session = daemon.start_profile(f"pid:{process.pid}", 3600, "alloc")
        fetch("/waste?n=300")
        server = daemon.children()["profd-server"]
        os.kill(server, signal.SIGKILL)

        def is_back():
            with contextlib.suppress(OSError):
                return daemon.request("GET", f"{FAMILY_A}/{session}").status == 200
            return False

        wait_until(is_back, 60, "another server")
        fetch("/waste?n=700")
        result = daemon.stop_profile(session)
        check(result["status"] == "completed", f"{result}")
        found = {f["funcName"]: f for f in result["topFunctions"]}
        check(found["main.waste"]["sampleCount"] == 1000, f"{found}")


def test_what_cannot_be_read_is_refused_with_its_reason():
    with Daemon() as daemon, waiting_for_input(build_go("silent")) as silent, \
            running(compile_workload("waits.c", *C_FLAGS)) as native:
        answer = daemon.request("POST", FAMILY_B + "/sessions", {"profileType": "heap", "target": f"pid:{silent.pid}"})
        check(answer.status == 422 and answer.json()["error_code"] == "ProfileTypeUnavailable", f"{answer}")
        check("memory" in answer.json()["detail"], f"{answer}")

        def find():
            services = daemon.get("/api/v1/observability/services").json()["items"]
            return next((s for s in services if any(p["pid"] == native.pid for p in s["processes"])), None)

        types = {t["type"]: t for t in wait_until(find, 60, "the program to be listed")["profileTypes"]}
        check(types["goroutine"]["available"], f"{types}")


def test_threads_of_a_c_program():
    with Daemon() as daemon, running(compile_workload("waits.c", *C_FLAGS)) as process:
        session = take(daemon, process.pid)
        wait_until(lambda: len({f for s in analysis(daemon, session)["topStacks"] for f in s["frames"]
                                if f.startswith("wait_")}) == 5, 60, "names of the program")
        result = analysis(daemon, session)
        check(result["goroutineCount"] == 7, f"{result['goroutineCount']} threads")
        found = collections.Counter()
        for stack in result["topStacks"]:
            for frame in stack["frames"]:
                if frame.startswith("wait_"):
                    found[frame, stack["state"], stack["waitReason"]] += stack["count"]
        for function, wait, count in (("wait_lock", "futex", 2), ("wait_semaphore", "futex", 1),
                                      ("wait_pipe", "pipe read", 1), ("wait_epoll", "epoll", 1),
                                      ("wait_sleep", "nanosleep", 1)):
            got = {k: v for k, v in found.items() if k[0] == function}
            check(got == {(function, "sleeping", wait): count}, f"{function}: {got}")


def test_a_thread_that_runs_has_a_stack():
    with Daemon() as daemon, running(compile_workload("spin.c", *C_FLAGS), "600000", ready=False) as process:
        wait_until(lambda: cpu_ns(process.pid) > 1e8, 60, "it to run")
        stacks = analysis(daemon, take(daemon, process.pid))["topStacks"]
        check(len(stacks) == 1 and stacks[0]["state"] in ("running", "runnable") and "spin" in stacks[0]["frames"],
              f"a thread that does nothing else: {stacks}")


def test_readings_outlive_reader_and_daemon():
    folder = tempfile.mkdtemp(prefix="profd-e2e-")
    try:
        with served() as (process, fetch):
            daemon = Daemon(data_dir=folder).start()
            try:
                session = take(daemon, process.pid)
                before = analysis(daemon, session)
                reader = daemon.children()["profd-reader"]
                os.kill(reader, signal.SIGKILL)
                wait_until(lambda: daemon.children().get("profd-reader") not in (None, reader), 60, "another reader")
                check(stacks_of(analysis(daemon, take(daemon, process.pid))) == stacks_of(before), "after the reader")
                daemon.start_profile(f"pid:{process.pid}", 3600, "alloc")
            finally:
                daemon.stop()
            with Daemon(data_dir=folder) as daemon:
                after = analysis(daemon, session)
                for result in (before, after):
                    result.pop("analyzedAt")
                check(after == before, f"the analysis changed with a restart: {before} {after}")
                daemon.request("DELETE", f"{FAMILY_B}/sessions/{session}")
                daemon.get(f"{FAMILY_B}/sessions/{session}", status=404)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(test_goroutines_equal_their_own_dump, test_a_planted_leak_is_all_that_is_new, test_heap_equals_their_own,
         test_counters_are_differences, test_a_difference_survives_the_server,
         test_what_cannot_be_read_is_refused_with_its_reason, test_threads_of_a_c_program,
         test_a_thread_that_runs_has_a_stack, test_readings_outlive_reader_and_daemon)
