# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""`go tool pprof` reads a real Go program's profiles from the agent:
/debug/pprof/{heap,allocs,block,mutex,goroutine} and the heap profile of a pipeline."""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import urllib.request

from harness import Daemon, build_go, check, main, own_name, running, wait_until

OBJECT_BYTES = 4096  # of tests/workloads/go/served


def top(source, index):
    """(type and unit line, {function: (flat, cumulative)}) as go tool pprof prints them."""
    text = subprocess.run(["go", "tool", "pprof", "-top", "-unit=minimum", "-nodecount=100000", "-nodefraction=0",
                           f"-sample_index={index}", source], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in text.splitlines():
        row = re.match(r"\s*([\d.]+)(\w*)\s+\S+%\s+\S+%\s+([\d.]+)(\w*)\s+\S+%\s+(\S.*?)(?: \(inline\))?$", line)
        if row:
            found[row.group(5)] = (float(row.group(1)), float(row.group(3)))
    kind = re.search(r"^Type: (\S+)", text, re.M)
    return kind.group(1) if kind else "", found


class Served:
    """A Go service under a name of its own."""

    def __init__(self, process, name):
        self.pid, self.name = process.pid, name
        self.port = int(process.stdout.readline())

    def fetch(self, path):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers={"Connection": "close"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()


@contextlib.contextmanager
def profiled():
    """A daemon, and such a service whose names it knows."""
    with Daemon() as daemon, own_name(build_go("served")) as program, running(program, env={"GOGC": "off"}) as process:
        served = Served(process, os.path.basename(program))
        await_names(daemon, served.pid)
        yield daemon, served


def await_names(daemon, pid):
    """A daemon that has just started looks at every file that the host runs: until it has seen ours."""
    def are_known():
        url = f"http://127.0.0.1:{daemon.port}/debug/pprof/goroutine?service=pid:{pid}"
        return "main.park" in top(url, "goroutine")[1]

    wait_until(are_known, 60, "names of the program")


def save(url, folder):
    """Writes the answer of @url into a file and returns the file's path."""
    path = os.path.join(folder, "profile.pb.gz")
    with urllib.request.urlopen(url, timeout=120) as answer, open(path, "wb") as f:
        shutil.copyfileobj(answer, f)
    return path


def save_during(url, folder, work):
    """The same, while @work is done over and over."""
    stop = threading.Event()

    def repeat():
        while not stop.is_set():
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        return save(url, folder)
    finally:
        stop.set()
        thread.join()


def check_heap_is_what_the_program_says(daemon, served):
    with tempfile.TemporaryDirectory() as folder:
        served.fetch("/keep?n=700")
        served.fetch("/gc")
        base = f"http://127.0.0.1:{daemon.port}"
        for source in (f"{base}/debug/pprof/heap?service=pid:{served.pid}",
                       f"{base}/v0/pipelines/{served.name}/heap_profile"):
            path = save(source, folder)
            with open(path, "rb") as f:
                check(f.read(2) == b"\x1f\x8b", f"{source}: not gzip")
            kind, found = top(path, "inuse_space")
            check(kind == "inuse_space", f"{kind}")
            # 500 at its start, 700 by request; the vector of slices grows beside them.
            check("main.keep" in found, f"{list(found)}")
            check(1200 * OBJECT_BYTES <= found["main.keep"][0] <= 1200 * OBJECT_BYTES * 1.05, f"{found['main.keep']}")
        kind, found = top(f"{base}/debug/pprof/heap?service=pid:{served.pid}", "inuse_objects")
        check(kind == "inuse_objects" and 1200 <= found["main.keep"][0] <= 1210, f"{kind} {found['main.keep']}")


def check_counters_over_a_time(daemon, served):
    with tempfile.TemporaryDirectory() as folder:
        base = f"http://127.0.0.1:{daemon.port}/debug/pprof"
        for path, index, work, function in (("allocs", "alloc_space", "/waste?n=100", "main.waste"),
                                            ("block", "delay", "/contend?n=2", "main.awaitLock"),
                                            ("mutex", "delay", "/contend?n=2", "main.contend")):
            file = save_during(f"{base}/{path}?service=pid:{served.pid}&seconds=1", folder,
                               lambda work=work: served.fetch(work))
            kind, found = top(file, index)
            check(kind == index, f"{path}: {kind}")
            check(function in found and found[function][1] > 0, f"{path}: {list(found)}")


def check_goroutines(daemon, served):
    kind, found = top(f"http://127.0.0.1:{daemon.port}/debug/pprof/goroutine?service=pid:{served.pid}", "goroutine")
    check(kind == "goroutine", f"{kind}")
    check(not any(name.startswith("runtime.bg") for name in found), f"the runtime's own goroutines are in it: {list(found)}")
    # Three of each of the seven situations, and the leaks: five below grow, one labelled, one in a closure.
    check(found["main.park"][1] == 21 and found["main.grow"][1] == 5 and found["main.leak"][1] == 7, f"{found}")


def test_what_go_tool_pprof_reads():
    with profiled() as (daemon, served):
        check_goroutines(daemon, served)
        check_heap_is_what_the_program_says(daemon, served)
        check_counters_over_a_time(daemon, served)


if __name__ == "__main__":
    main(test_what_go_tool_pprof_reads)
