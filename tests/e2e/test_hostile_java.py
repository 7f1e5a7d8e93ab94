# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Programs that are a HotSpot from outside and lie about their memory: bounded, no name that is wrong, and an agent that goes
on to name another program's frames."""
import subprocess

from harness import FAMILY_A, ROOT, Daemon, check, compile_workload, cpu_ns, main, running, wait_until
from test_python_truth import pprof_stacks

FRAMES = [("[java call stub]", "", 0), ("app.Main.outer", "app/Main.java", 12), ("app.Main.inner", "app/Main.java", 12)]


def build_liar():
    return compile_workload("hotspot_liar.c", "-O1", "-rdynamic", f"-I{ROOT}")


def java_frames(stack):
    return [frame for frame in stack if frame[0].startswith(("[java", "app.")) or frame[1].endswith(".java")]


def stacks_of(daemon, process):
    session = daemon.start_profile(f"pid:{process.pid}", 600, rate=499)
    before = cpu_ns(process.pid)
    wait_until(lambda: cpu_ns(process.pid) > before + 4e8, 60, "the program to work")
    daemon.stop_profile(session)
    return pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)


def share_of(stacks, holds):
    return sum(value for stack, value in stacks if holds(stack)) / sum(value for _, value in stacks)


def is_honest(daemon, process, least=0.95):
    """Stacks in the compiled method have the frames that there are, and nothing else is said."""
    stacks = stacks_of(daemon, process)
    for stack, _ in stacks:
        frames = java_frames(stack)
        check(all(frame in FRAMES for frame in frames), f"{stack}")
    check(share_of(stacks, lambda stack: java_frames(stack) == FRAMES) > least, f"{stacks}")
    check(share_of(stacks, lambda stack: "run_java" in [name for name, _, _ in stack]) > least, f"{stacks}")


def check_lie(how, stacks):
    names = {frame for stack, _ in stacks for frame in java_frames(stack)}
    check(stacks, f"{how}: no samples")
    known = {frame[0] for frame in FRAMES} | {"[java]"}
    check(all(name in known or name.startswith("[java stub") for name, _, _ in names), f"{how}: {names}")
    if how in ("tables", "codelets", "heap"):  # refused from the beginning
        check(not names, f"{how}: {names}")


def test_forged_from_the_beginning():
    """Tables without an end, an interpreter that leads to itself, heaps and blocks beyond all memory."""
    with Daemon() as daemon, running(build_liar(), "honest", stdin=subprocess.PIPE) as honest:
        children = daemon.children()
        for how in ("tables", "codelets", "heap"):
            with running(build_liar(), how, stdin=subprocess.PIPE) as process:
                check_lie(how, stacks_of(daemon, process))
                check(process.poll() is None, "the target died of being read")
        wait_until(lambda: share_of(stacks_of(daemon, honest), lambda s: java_frames(s) == FRAMES) > 0.95, 60, "the honest program")
        is_honest(daemon, honest)
        check(daemon.children() == children, f"{daemon.children()}, before {children}")


def test_forged_later():
    """Segments that lead nowhere, names that are not there, tables of 2^31 bytes: in a program whose runtime was believed."""
    with Daemon() as daemon, running(build_liar(), "honest", stdin=subprocess.PIPE) as honest:
        wait_until(lambda: share_of(stacks_of(daemon, honest), lambda s: java_frames(s) == FRAMES) > 0.95, 60, "the honest program")
        children = daemon.children()
        for how in ("segments", "symbols", "parts"):
            with running(build_liar(), how, stdin=subprocess.PIPE) as process:
                process.stdin.write("\n")
                process.stdin.flush()
                check(process.stdout.readline() == "lying\n", f"{how} does not lie")
                check_lie(how, stacks_of(daemon, process))
                check(process.poll() is None, "the target died of being read")
            is_honest(daemon, honest)
        check(daemon.children() == children, f"{daemon.children()}, before {children}")


if __name__ == "__main__":
    main(test_forged_from_the_beginning, test_forged_later)
