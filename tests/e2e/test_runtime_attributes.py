# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""The attributes `tier` and `runtime` of Python, Java and JavaScript: which tiers there are is what the runtime was told to
use, and how much a virtual machine's own threads take is what the kernel counts of each thread."""
import os
import re
import signal
import subprocess
import sys
import tempfile

from harness import ROOT, Counting, Daemon, check, cpu_ns, main, running, wait_until
from test_node_truth import PROGRAM as CHAINS_JS
from test_node_truth import without
from test_java_truth import classes, installed

GARBAGE = os.path.join(ROOT, "tests/workloads/java/Garbage.java")
CPU_NS = 2e9
GC_THREADS = r"GC Thread#|G1 |Z|X|Shenandoah "


def tiers(daemon, service, pid):
    """{tier: ns} of two seconds of CPU time; filtered by each, the profile has that part. The session's id."""
    before = cpu_ns(pid)
    wait_until(lambda: cpu_ns(pid) > before + CPU_NS / 2, 60, "the program to begin")
    session = daemon.start_profile(service, 600, rate=499)
    before = cpu_ns(pid)
    wait_until(lambda: cpu_ns(pid) > before + CPU_NS, 60, "the program to work")
    result = daemon.stop_profile(session)
    found = result["breakdown"].get("tier", {})
    for tier, value in found.items():
        part = sum(value for _, value in daemon.folded(session, f"&where=tier:{tier}"))
        check(part == value, f"{tier}: {part} of {found}")
    return found, session


def share(found, tier):
    return found.get(tier, 0) / sum(found.values())


def test_python_is_interpreted():
    with Daemon() as daemon, running(sys.executable, "-c", "while True: sum(i * i for i in range(1000))", ready=False) as program:
        found, session = tiers(daemon, f"pid:{program.pid}", program.pid)
        check(share(found, "interpreted") > 0.9 and set(found) <= {"", "interpreted"}, f"{found}")
        roots = {frames[0] for frames, _ in daemon.folded(session, "&groupBy=tier")}
        check("interpreted" in roots, f"{roots}")


def test_java_tiers():
    modes = {("-Xint",): {"interpreted"}, ("-XX:TieredStopAtLevel=1",): {"interpreted", "baseline"},
             ("-XX:-TieredCompilation",): {"interpreted", "optimized"},
             (): {"interpreted", "baseline", "optimized"}}
    with classes() as folder:
        for version, java in installed().items():
            for flags, allowed in modes.items():
                with Daemon() as daemon, Counting(java, *flags, "-cp", folder, "Chains", 2) as program:
                    found, _ = tiers(daemon, program.service, program.pid)
                    last = max(allowed, key=["interpreted", "baseline", "optimized"].index)
                    check(set(found) - {""} <= allowed and share(found, last) > 0.5, f"{version} {flags}: {found}")


def test_node_tiers():
    node = os.environ.get("PROFD_TEST_NODES", "node").split(":")[0]
    with Daemon() as daemon, Counting(node, *without(node, "opt", "sparkplug", "maglev"), CHAINS_JS) as program:
        found, _ = tiers(daemon, program.service, program.pid)
        check(set(found) <= {"", "interpreted"} and share(found, "interpreted") > 0.9, f"{found}")
    with Daemon() as daemon, Counting(node, "--always-sparkplug", *without(node, "opt", "maglev"), CHAINS_JS) as program:
        found, _ = tiers(daemon, program.service, program.pid)
        check("optimized" not in found and share(found, "baseline") > 0.5, f"{found}")
    with Daemon() as daemon, Counting(node, CHAINS_JS) as program:
        found, _ = tiers(daemon, program.service, program.pid)
        check(share(found, "optimized") > 0.5, f"{found}")


def thread_ns(pid):
    """(CPU time of the collector's threads, of all threads), as the scheduler counts it."""
    gc = whole = 0
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/comm") as comm, open(f"/proc/{pid}/task/{tid}/schedstat") as times:
            ns = int(times.read().split()[0])
            whole += ns
            gc += ns if re.match(GC_THREADS, comm.read()) else 0
    return gc, whole


def check_collector(daemon, java, folder, *flags):
    """The program stands still at both ends of the session and of what the kernel counts."""
    with running(java, "-Xmx128m", *flags, "-cp", folder, "Garbage", ready=False) as program:
        wait_until(lambda: thread_ns(program.pid)[0] > 1e8, 60, "the collector to begin")
        program.send_signal(signal.SIGSTOP)
        session = daemon.start_profile(f"pid:{program.pid}", 600, rate=499)
        gc_before, before = thread_ns(program.pid)
        program.send_signal(signal.SIGCONT)
        wait_until(lambda: thread_ns(program.pid)[1] > before + CPU_NS, 60, "the program to work")
        program.send_signal(signal.SIGSTOP)
        gc, whole = thread_ns(program.pid)
        result = daemon.stop_profile(session)
    found = result["breakdown"]["runtime"]
    due, got = (gc - gc_before) / (whole - before), found.get("gc", 0) / result["totalValue"]
    check(abs(got - due) < 0.02 + 1 / result["sampleCount"] ** 0.5,
          f"{java} {flags}: {found} of {result['totalValue']}, the kernel says {100 * due:.1f} %")
    check(got > 0.03, f"{java} {flags}: {found}")


def test_share_of_the_collector():
    with Daemon() as daemon, tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "--release", "11", "-d", folder, GARBAGE], check=True)
        for java in installed().values():
            for flags in (("-XX:+UseG1GC",), ("-XX:+UseParallelGC",)):
                check_collector(daemon, java, folder, *flags)


if __name__ == "__main__":
    main(test_python_is_interpreted, test_java_tiers, test_node_tiers, test_share_of_the_collector)
