# SPDX-License-Identifier: Apache-2.0
"""Programs of Python, Java and Node beside profilers that name their functions without a flag, too: py-spy, and the
OpenTelemetry eBPF profiler when its source is given. What a sample costs, and how many stacks and lines are right: the
programs are those of tests/e2e/test_*_truth.py, whose calls are known."""

import collections
import contextlib
import glob
import gzip
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import test_java_truth as java_truth
import test_node_truth as node_truth
import test_python_truth as python_truth
from costs import bpf_run, bpf_stats, cpu_s
from harness import FAMILY_A, Counting, Daemon, check, compile_workload, running
from registry import pypi, pypi_import
from rivals_bench import alternate, build_otel, build_sink, otel, ours

CPUS = os.cpu_count()
RATE = 99
FRAMES = 60
DEEP = {
    "Python": "import sys\ndef deep(n):\n    if n:\n        return deep(n - 1)\n    print('ready', flush=True)\n    while True:\n"
              f"        n = n * 31 + 1 & 65535\nsys.setrecursionlimit(9999)\ndeep({FRAMES})\n",
    "Java": "public class Deep { static int deep(int n) { if (n > 0) return deep(n - 1) + 1; System.out.println(\"ready\"); "
            f"while (n != -1) n = n * 31 + 1 & 65535; return n; }} public static void main(String[] a) {{ deep({FRAMES}); }} }}\n",
    "Node": "function deep(n) { if (n) return deep(n - 1) + 1; console.log('ready'); for (;;) n = n * 31 + 1 & 65535; }\n"
            f"deep({FRAMES});\n",
}


@contextlib.contextmanager
def deep(language):
    """One program a CPU that computes below so many functions of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        name = os.path.join(folder, "Deep.java" if language == "Java" else "deep")
        with open(name, "w", encoding="utf-8") as f:
            f.write(DEEP[language])
        if language == "Java":
            subprocess.run(["javac", "-d", folder, name], check=True)
        command = {"Python": [sys.executable, name], "Java": ["java", "-cp", folder, "Deep"], "Node": ["node", name]}[language]
        yield [stack.enter_context(running(*command)).pid for _ in range(CPUS)]


# ---- stacks whose truth is known ---------------------------------------------------------------------------------

def otlp_stacks(folder, pid):
    """[([(function, file, line)], samples)], root first, of a process in the requests that a sink kept."""
    pypi_import("opentelemetry-proto==1.45.2", "protobuf==6.33.0", "googleapis-common-protos==1.72.0")
    from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2
    found = []
    for path in glob.glob(f"{folder}/*"):
        with open(path, "rb") as f:
            body = f.read()
        message = gzip.decompress(body[5:]) if body[0] else body[5:]
        request = profiles_service_pb2.ExportProfilesServiceRequest.FromString(message)
        tables = request.dictionary
        text = tables.string_table

        def frames(index, tables=tables, text=text):
            for at in reversed(tables.stack_table[index].location_indices):
                location = tables.location_table[at]
                for line in reversed(location.lines):
                    function = tables.function_table[line.function_index]
                    yield text[function.name_strindex], text[function.filename_strindex], line.line

        for resource in request.resource_profiles:
            for scope in resource.scope_profiles:
                for profile in scope.profiles:
                    for sample in profile.samples:
                        # the process is an attribute of the resource or, in other versions, of the sample
                        words = {text[a.key_strindex]: a.value.int_value for a in map(tables.attribute_table.__getitem__, sample.attribute_indices)}
                        words.update((a.key, a.value.int_value) for a in resource.resource.attributes)
                        if words.get("process.pid") == pid:
                            found.append((list(frames(sample.stack_index)), max(1, len(sample.timestamps_unix_nano))))
    return found


def python_chain(stack):
    return [(name, line) for name, _, line in python_truth.python_frames(stack)]


def java_chain(stack):
    plain = [(name.split("(")[0].split(" ")[-1].replace("/", "."), file, line) for name, file, line in stack]
    return [(name, line) for name, _, line in java_truth.program_frames(plain)]


def node_chain(stack):
    name = os.path.basename(node_truth.PROGRAM)
    plain = [(function, node_truth.PROGRAM if file.endswith(name) else file, line) for function, file, line in stack]
    return node_truth.own_frames(plain)


Truth = collections.namedtuple("Truth", "command program calls chain")


@contextlib.contextmanager
def truths():
    """{language: how its program is started, where its text is, who calls whom in which line, and the chain of a stack}"""
    calls = {**python_truth.CALLS, "by_re": {"replace": None}}  # by re.sub(), which is Python itself
    with java_truth.classes() as folder:
        yield {
            "Python": Truth([sys.executable, python_truth.PROGRAM, CPUS], python_truth.PROGRAM, calls, python_chain),
            "Java": Truth(["java", "-cp", folder, "Chains", CPUS], java_truth.PROGRAM, java_truth.CALLS, java_chain),
            "Node": Truth(["node", node_truth.PROGRAM], node_truth.PROGRAM, node_truth.CALLS, node_chain),
        }


def judge(truth, stacks):
    """(% of samples whose chain from the program's start is one that it can have, % of calls in these with their true line,
    samples)."""
    with open(truth.program, encoding="utf-8") as f:
        lines = ["", *f.read().splitlines()]
    total = right = calls = lined = 0
    for stack, count in stacks:
        total += count
        chain = truth.chain(stack)
        pairs = list(zip(chain, chain[1:]))
        if not pairs or any(after not in truth.calls.get(name, {}) for (name, _), (after, _) in pairs):
            continue
        right += count
        for (name, line), (after, _) in pairs:
            says = truth.calls[name][after]
            if says:
                calls += count
                lined += count * (0 < line < len(lines) and says in lines[line])
    check(total > 100, f"{total:.0f} samples of {truth.program}")
    return 100 * right / total, 100 * lined / max(calls, 1), total


def right_stacks(row, language, truth, program, sink, seconds):
    with Counting(*truth.command) as target:
        time.sleep(15)  # what is compiled at run time is
        with Daemon() as daemon:
            session = daemon.start_profile(target.service, 600, rate=RATE)
            time.sleep(seconds)
            daemon.stop_profile(session)
            stacks = python_truth.pprof_stacks(daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=pprof").body)
            mine = judge(truth, [(stack, ns * RATE / 1e9) for stack, ns in stacks])
        with tempfile.TemporaryDirectory() as folder:
            with otel(program, sink, RATE, folder):
                time.sleep(seconds)
            theirs = judge(truth, otlp_stacks(folder, target.pid))
    text = f"{mine[2]:.0f}; {theirs[2]:.0f} samples"
    row(f"{language}: stacks complete and possible, % / OpenTelemetry profiler", mine[0], theirs[0], None, text)
    row(f"{language}: calls with their true line, % / OpenTelemetry profiler", mine[1], theirs[1], None, text)


def beside_otel(row, source, seconds):
    program, sink = build_otel(source), build_sink()
    for language in DEEP:
        with deep(language):
            (cpu, bpf), (their_cpu, their_bpf) = alternate(lambda: ours(RATE), lambda: otel(program, sink, RATE), seconds)
        row(f"{language}, {FRAMES} frames: CPU of all processes, % of one / OpenTelemetry profiler", cpu, their_cpu, 0.4)
        row(f"{language}, {FRAMES} frames: BPF us a sample / OpenTelemetry profiler", bpf, their_bpf, 0.6)
    with truths() as programs:
        for language, truth in programs.items():
            right_stacks(row, language, truth, program, sink, seconds)


# ---- Python ------------------------------------------------------------------------------------------------------

def bpf_of_sample(seconds):
    with Daemon() as daemon, bpf_stats():
        daemon.start_profile("*", 600, rate=RATE)
        time.sleep(8)
        pids = [daemon.process.pid, *daemon.children().values()]
        ns, runs = bpf_run(pids, "perf_event")
        time.sleep(seconds)
        after_ns, after_runs = bpf_run(pids, "perf_event")
    return (after_ns - ns) / (after_runs - runs) / 1000


def beside_native(row, seconds):
    native = compile_workload("deep.c", "-O2", "-fomit-frame-pointer", output="deep")
    with deep("Python"):
        script = bpf_of_sample(seconds)
    with contextlib.ExitStack() as stack:
        for _ in range(CPUS):
            stack.enter_context(running(native, str(FRAMES)))
        base = bpf_of_sample(seconds)
    row(f"BPF us a sample, {FRAMES} Python frames / {FRAMES} native frames by tables", script, base, 1.6)


@contextlib.contextmanager
def py_spy(program, pid):
    with tempfile.NamedTemporaryFile() as out:
        process = subprocess.Popen([program, "record", "--pid", str(pid), "--rate", str(RATE), "--duration", "3600", "--format", "raw",
                                    "--output", out.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(2)
            check(process.poll() is None, "py-spy does not run")
            yield [process.pid]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


@contextlib.contextmanager
def ours_of(pid):
    with Daemon() as daemon:
        daemon.start_profile(f"pid:{pid}", 600, rate=RATE)
        yield [daemon.process.pid, *daemon.children().values()]


WORK = "import sys, time\ndef burn(n):\n    total = 0\n    for i in range(n):\n        total += i * i\n    return total\n" \
       "def deep(n):\n    if n:\n        return deep(n - 1)\n    print('ready', flush=True)\n    rounds = 0\n    while True:\n" \
       "        burn(1000)\n        rounds += 1\n        if rounds % 100 == 0:\n            print(rounds, flush=True)\ndeep(30)\n"


def rounds_a_second(out, seconds):
    """The rounds of work that a program does; it prints how many it has done."""
    def latest():
        os.set_blocking(out.fileno(), False)
        with contextlib.suppress(BlockingIOError, TypeError):
            while out.read(65536):
                pass
        os.set_blocking(out.fileno(), True)
        out.readline()  # perhaps a part
        return int(out.readline()), time.monotonic()

    rounds, at = latest()
    time.sleep(seconds)
    after, now = latest()
    return (after - rounds) / (now - at)


def beside_py_spy(row, seconds):
    """CPU time of one sampled program's profiler, and what the program gets done meanwhile."""
    program = os.path.join(pypi("py-spy==0.4.1"), "bin", "py-spy")
    target = subprocess.Popen([sys.executable, "-c", WORK], stdout=subprocess.PIPE, bufsize=0)
    try:
        os.sched_setaffinity(target.pid, {0})
        target.stdout.readline()
        samplers = {"ours": lambda: ours_of(target.pid), "theirs": lambda: py_spy(program, target.pid)}
        cpu = collections.defaultdict(list)
        kept = collections.defaultdict(list)
        for _ in range(8):
            for name, start in samplers.items():
                alone = rounds_a_second(target.stdout, seconds / 8)
                with start() as pids:
                    time.sleep(4)
                    before = cpu_s(pids)
                    began = time.monotonic()
                    kept[name].append(rounds_a_second(target.stdout, seconds / 8) / alone)
                    cpu[name].append(100 * (cpu_s(pids) - before) / (time.monotonic() - began))
    finally:
        target.kill()
        target.wait()
    said = {}
    for name, ratios in kept.items():
        half = 2.36 * statistics.stdev(ratios) / len(ratios) ** 0.5  # Student's t of 7 degrees of freedom
        said[name] = f"{statistics.mean(ratios):.3f} ± {half:.3f}"
    row(f"CPU of all processes, one Python program, {RATE} Hz, % of one / py-spy", statistics.mean(cpu["ours"]), statistics.mean(cpu["theirs"]), 0.1,
        f"the program got done {said['ours']} of what it did before it was sampled; under py-spy {said['theirs']}")


def python(row, seconds):
    beside_native(row, seconds)
    beside_py_spy(row, seconds)
