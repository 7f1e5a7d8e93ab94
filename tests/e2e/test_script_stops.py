#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Threads of Java and Node that block, each time below another chain of calls: interpreted, compiled and inlined
functions, as the compilers have left them at that moment. Immediately before it blocks, the program asks its virtual machine
for the stack. All frames and lines of every stack must be equal. A stop may be missing only if the kernel hid its end, which
profd counts, or if a frame of the stack has no name or line, because the runtime had moved or freed what says it: one in a
hundred, with Node one in two. What this does not show: a stop at any instruction (test_java_truth.py and
test_node_truth.py sample such, against the program's grammar).
PROFD_TEST_STOPS: how many stops."""
import os
import re
import subprocess
import tempfile

from harness import FAMILY_A, ROOT, Counting, Daemon, check, main
from test_java_truth import installed
from test_node_truth import NODES, v8_version
from test_python_truth import pprof_stacks

JAVA = os.path.join(ROOT, "tests/workloads/java/Stops.java")
NODE = os.path.join(ROOT, "tests/workloads/node/stops.js")
STOPS = int(os.environ.get("PROFD_TEST_STOPS", 480))
THREADS = 8
ROUNDS = 5
UNREADY = "script_state"  # in a round in which the runtime was not known yet


def java_chain(frames):
    """The frames of Stops, innermost first; the numbers of lambdas and their classes are left out."""
    frames = [(re.sub(r"(lambda\$\w+?)\$\d+$", r"\1", name), line) for name, line in frames]
    return tuple(frame for frame in frames if re.match(r"Stops(\$(Left|Right))?\.", frame[0]))


def dumped(text):
    return [(name, int(line)) for name, line in re.findall(r"([^;]*):(\d+);", text)]


def is_named(stack):
    """Has every script frame a name, and those of the programs a line?"""
    return all(name not in ("[js]", "[java]") and (line or file not in ("Stops.java", NODE)) for name, file, line in stack)


def check_stops(what, command, blocked, chain, ours, gone=0.01):
    """@blocked: the function that blocks. @ours: is it a frame of the program? @gone: share of stops that may lack a name."""
    with Daemon() as daemon, Counting(*command, THREADS, STOPS) as program:
        for _ in range(ROUNDS):
            session = daemon.start_profile(program.service, 600, "offcpu", rate=999)
            # The look at all sleeping threads with which a session begins cuts a wait in two, and may find it over.
            first = {chain(dumped(text)) for text in program.counters()}
            wanted = {chain(dumped(text)) for text in program.counters()}
            result = daemon.stop_profile(session)
            if UNREADY not in result["quality"]["unwindErrors"]:
                break
        stacks = pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)
    found, unnamed, others = {}, 0, []
    for stack, ns in stacks:
        names = [name for name, _, _ in stack]
        if blocked not in names:
            others.append((ns, names))
            continue
        stack = stack[:names.index(blocked)]
        if is_named(stack):
            found[chain([(name, line) for name, file, line in reversed(stack) if ours(file)])] = stack
        else:
            unnamed += 1
    unlike = [frames for frames in found if frames not in wanted | first]
    missing = [frames for frames in wanted if frames not in found]
    hidden = result["quality"]["unwindErrors"].get("return_unseen", 0)
    print(f"# {what}: {len(wanted)} stops, {sum(map(len, wanted))} frames, {len(unlike)} unlike, {len(missing)} missing; "
          f"the kernel hid {hidden}; {unnamed} stacks with frames that were gone")
    check(len(wanted) > 0.99 * STOPS, f"{what}: {len(wanted)} chains in {STOPS} stops")
    check(not unlike, f"{what}: {len(unlike)} stacks are not the program's: {[found[frames] for frames in unlike[:2]]}")
    check(len(missing) <= hidden + min(unnamed, gone * STOPS),
          f"{what}: {len(missing)} are missing: {missing[:2]}; {result['quality']}; other waits: "
          + "; ".join(f"{ns / 1e6:.1f} ms {names}" for ns, names in others if ns >= 15e6))


def java():
    """Each JDK that is here: 8 to 25."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["javac", "-g", "-Xlint:-options", "--release", "8", "-d", folder, JAVA], check=True)
        for version, program in sorted(installed().items()):
            check_stops(f"JDK {version}", [program, "-cp", folder, "Stops"], "java.util.concurrent.locks.LockSupport.parkNanos",
                        java_chain, lambda file: True)


def node():
    """Each Node of PROFD_TEST_NODES."""
    for program in NODES:
        check_stops(f"V8 {v8_version(program)}", [program, NODE], "block", tuple, lambda file: file == NODE, gone=0.5)


if __name__ == "__main__":
    main(java, node)
