#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""CPU profiles of a Node program against what it can do: every stack must be one that the program's calls allow, every
line the one that calls, and the share of each branch what the program measured itself."""
import collections
import os
import subprocess

from harness import (FAMILY_A, ROOT, WITHOUT_LOOP, Counting, Daemon, Skip, await_work, check, compile_workload, judge_samples, main,
                     running)
from test_python_truth import pprof_stacks

PROGRAM = os.path.join(ROOT, "tests/workloads/node/chains.js")
OTHERS = os.path.join(ROOT, "tests/workloads/node/others.js")
NODES = os.environ.get("PROFD_TEST_NODES", "node").split(":")
CPU_NS = 2e9

# caller: {callee: what the caller's line says}
CALLS = {
    "work": {"branch": "branch("},
    "branch": {name: "BRANCHES[which]()" for name in (
        "bySort", "byReduce", "byReplace", "byGenerator", "byRecursion", "byClass", "byClosure", "byEval")},
    "bySort": {"(anonymous)": ".sort("},
    "(anonymous)": {"burn": "burn("},
    "byReduce": {"add": ".reduce("},
    "add": {"burn": "burn("},
    "byReplace": {"replace": ".replace("},
    "replace": {"burn": "burn("},
    "byGenerator": {"generate": "generate()"},
    "generate": {"burn": "burn("},
    "byRecursion": {"recurse": "recurse("},
    "recurse": {"recurse": "recurse(", "burn": "burn("},
    "byClass": {"Thing": "new Thing()"},
    "Thing": {"burn": "burn("},
    "byClosure": {"inner": "inner()"},
    "inner": {"burn": "burn("},
    "byEval": {"made": "made("},
    "made": {"burn": None},
}
MADE = ("anonymous", "(anonymous)")  # by new Function(): its text is no file's
BRANCHES = list(CALLS["branch"])


class Program(Counting):
    def __init__(self, node, *options):
        super().__init__(node, *options, PROGRAM)


def own_frames(stack):
    """(function, line) of the program's own frames from work() on, root first."""
    frames = [(name if file else "made", line) for name, file, line in stack if file == PROGRAM or name in MADE]
    names = [name for name, _ in frames]
    return frames[names.index("work"):] if "work" in names else []


def fault(frames, lines, all_lines, leaf_lines):
    """The reason why the program cannot have these frames; None if it can. @all_lines: each caller must have a line.
    @leaf_lines: those that burn() may have."""
    leaf, line = frames[-1]
    if leaf_lines and leaf == "burn" and line and line not in leaf_lines:
        return f"burn in line {line}"
    for (caller, line), (callee, _) in zip(frames, frames[1:]):
        allowed = CALLS.get(caller, {})
        if callee not in allowed:
            return f"{caller} calls {callee}"
        says = allowed[callee]
        if says and (all_lines or line) and says not in lines[line - 1]:
            return f"{caller} calls {callee} in line {line}"
    return None


def v8_version(node):
    done = subprocess.run([node, "-p", "process.versions.v8"], capture_output=True, text=True, check=True)
    return int(done.stdout.split(".")[0])


def lines_of_burn(lines):
    first = next(number for number, line in enumerate(lines, 1) if line.startswith("function burn("))
    return range(first, next(number for number, line in enumerate(lines, 1) if number > first and line == "}") + 1)


def check_program(node, all_lines, all_functions, *options, **more):
    judge_samples(lambda rate, ns: judge(rate, ns, node, all_lines, all_functions, *options, **more), CPU_NS)


def judge(rate, ns, node, all_lines, all_functions, *options, leaf_lines=False, lined=0, daemon_options=()):
    """The number of samples of a profile of @ns of CPU time, of which each is one that the program can have."""
    with open(PROGRAM) as f:
        lines = f.read().splitlines()
    leaf_lines = lines_of_burn(lines) if leaf_lines else ()
    with Daemon(*daemon_options) as daemon, Program(node, *options) as program:
        await_work(program.pid, CPU_NS / 4)
        session = daemon.start_profile(program.service, 3600, rate=rate)
        first = program.counters()
        await_work(program.pid, ns)
        last = program.counters()
        result = daemon.stop_profile(session)
        stacks = pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)
    total = sum(value for _, value in stacks)
    shares, faults, without, leaves, callers = (collections.Counter() for _ in range(5))
    for stack, value in stacks:
        frames = own_frames(stack)
        if not frames:
            without[";".join(name for name, _, _ in stack[-3:])] += value
        elif fault(frames, lines, all_lines, leaf_lines):
            faults[fault(frames, lines, all_lines, leaf_lines)] += value
        for name, _ in frames[2:3]:
            shares[name] += value
        for _, line in frames[:-1]:
            callers[line > 0] += value
        for _, line in [frame for frame in frames[-1:] if frame[0] == "burn"]:
            leaves[line > 0] += value
    check(result["sampleCount"] > 500, f"{result['sampleCount']} samples")
    check(not faults, f"stacks that cannot be: {faults.most_common(5)}")
    check(sum(without.values()) <= 0.05 * total, f"of {total} without a frame of the program: {without.most_common(5)}")
    check(not leaf_lines or leaves[True] > 0.97 * sum(leaves.values()), f"{dict(leaves)}: burn() with and without a line")
    check(callers[True] >= lined * sum(callers.values()), f"{dict(callers)}: callers with and without a line")
    if not all_functions:
        return result["sampleCount"]
    times = {name: last[name] - first[name] for name in BRANCHES}
    due, got = sum(times.values()), sum(shares.values())
    for name in BRANCHES:
        check(abs(shares[name] / got - times[name] / due) < 0.02 + 1 / result["sampleCount"] ** 0.5,
              f"{name}: {100 * shares[name] / got:.1f} %, the program says {100 * times[name] / due:.1f} %")
    return result["sampleCount"]


def without(node, *words):
    """The options that switch these parts of V8 off, as far as this version has them."""
    known = subprocess.run([node, "--v8-options"], capture_output=True, text=True, check=True).stdout
    return [f"--no-{word}" for word in words if f"--{word} " in known]


def interpreted():
    """The interpreter alone: exact lines."""
    for node in NODES:
        check_program(node, True, True, *without(node, "opt", "sparkplug", "maglev"))


def interpreted_on_old_kernels():
    """The same by the walk of kernels without bpf_loop()."""
    check_program(NODES[-1], True, True, *without(NODES[-1], "opt", "sparkplug", "maglev"), daemon_options=WITHOUT_LOOP)


def baseline():
    """Baseline code: exact lines, also in the innermost frame."""
    for node in NODES:
        check_program(node, True, True, "--always-sparkplug", *without(node, "opt", "maglev"), leaf_lines=True)


def maglev():
    """The middle tier alone (from Node 22 on), with and without inlining: exact lines of callers, with what is inlined."""
    nodes = [node for node in NODES if v8_version(node) >= 12]
    if not nodes:
        raise Skip("Node 22 or later is not here")
    for node in nodes:
        check_program(node, False, True, "--maglev", "--no-turbofan", "--no-maglev-inlining", lined=0.99)
        check_program(node, False, False, "--maglev", "--no-turbofan", lined=0.99)


def compiled():
    """All tiers, without inlining: exact functions, no wrong line."""
    for node in NODES:
        check_program(node, False, True, *without(node, "turbo-inlining", "maglev-inlining"))


def inlined():
    """As people run it: what is inlined at a call is shown with its line; what is inlined in the innermost frame is not."""
    for node in NODES:
        check_program(node, False, False)


def detailed():
    """Optimized code that has every place: exact functions and lines, also in the innermost frame, whatever is inlined."""
    for node in NODES:
        check_program(node, True, True, "--detailed-line-info", *without(node, "maglev"), leaf_lines=True)


def others():
    """Code of WebAssembly and of regular expressions is named by its kind, below the function that runs it."""
    for node in NODES:
        with Daemon() as daemon, running(node, *without(node, "maglev"), OTHERS) as program:
            await_work(program.pid, CPU_NS / 4)
            session = daemon.start_profile(f"pid:{program.pid}", 600, rate=499)
            await_work(program.pid, CPU_NS)
            daemon.stop_profile(session)
            stacks = daemon.folded(session)
        total = sum(value for _, value in stacks)
        for caller, name in (("byWasm", "[wasm]"), ("byRegExp", "[regexp]")):
            kind = sum(value for frames, value in stacks if name in frames)
            under = sum(value for frames, value in stacks if name in frames and caller in frames[:frames.index(name)])
            check(kind > 0.3 * total, f"{node}: {name} has {kind} of {total}")
            check(under > 0.98 * kind, f"{node}: {name} is below {caller} in {under} of {kind}")
        jit = sum(value for frames, value in stacks if "[jit]" in frames)
        check(jit < 0.02 * total, f"{node}: [jit] has {jit} of {total}")


def refused():
    """A V8 with compressed pointers, or without its description, says in every stack and at the service what is missing."""
    for flags, word in (("-DCOMPRESSED",), "compressed pointers"), ((), "v8dbg_"):
        program = compile_workload("v8_claims.c", "-O1", "-rdynamic", *flags, output="v8_claims" + "".join(flags))
        with Daemon() as daemon, running(program) as process:
            session = daemon.start_profile(f"pid:{process.pid}", 600, rate=199)
            await_work(process.pid, 5e8)
            result = daemon.stop_profile(session)
            found = [item for item in daemon.get("/api/v1/observability/services").json()["items"]
                     if any(p["pid"] == process.pid for p in item["processes"])]
        missing = result["quality"]["unwindErrors"].get("script_unsupported", 0)
        check(missing > 0.9 * result["sampleCount"], f"{result['quality']}")
        check(any("script_unsupported" in note for note in result["quality"]["notes"]), f"{result['quality']}")
        hints = {kind["type"]: kind["hint"] for kind in found[0]["profileTypes"]}
        check(found[0]["runtime"] == "node" and word in hints["cpu"], f"{found[0]}")


if __name__ == "__main__":
    main(interpreted, interpreted_on_old_kernels, baseline, maglev, compiled, inlined, detailed, others, refused)
