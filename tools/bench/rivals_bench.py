# SPDX-License-Identifier: Apache-2.0
"""profd beside profilers that are built from their public sources, whose folders are given (none of it is copied
into this tree): the OpenTelemetry eBPF profiler and libbpf-tools' profile. Each samples the same load in its turn, for as
long."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from costs import bpf_run, bpf_stats, cpu_s, processes, running_rival
from harness import BUILD, ROOT, Daemon, build_go, build_truth, check, compile_workload, running

FOLDER = os.path.join(BUILD, "bench")
ROUNDS = 2
SETTLE_S = 8
CPUS = os.cpu_count()


# ---- building ----------------------------------------------------------------------------------------------------

def build_otel(source):
    """Without CAP_SYS_RESOURCE it would not start: the one place where it insists on raising a limit, which kernels since
    5.11 do not ask for, is replaced in the build."""
    os.makedirs(FOLDER, exist_ok=True)
    program = os.path.join(FOLDER, "otel-profiler")
    limits = os.path.join(os.path.abspath(source), "rlimit/rlimit.go")
    with open(limits) as f:
        text = f.read()
    insists = 'return nil, fmt.Errorf("failed to set temporary rlimit: %w", err)'
    check(insists in text, f"{limits} is not as it was")
    with tempfile.TemporaryDirectory() as folder:
        replaced, overlay = os.path.join(folder, "rlimit.go"), os.path.join(folder, "overlay.json")
        with open(replaced, "w") as f:
            f.write(text.replace(insists, 'log.Warnf("%v", fmt.Errorf("limit: %w", err)); return func() {}, nil'))
        with open(overlay, "w") as f:
            json.dump({"Replace": {limits: replaced}}, f)
        subprocess.run(["go", "build", "-buildvcs=false", "-overlay", overlay, "-o", program, "."], cwd=source, check=True)
    return program


def build_sink():
    program = os.path.join(FOLDER, "otlp-sink")
    subprocess.run(["go", "build", "-o", program, os.path.join(ROOT, "tools/bench/otlp_sink.go")], check=True)
    return program


def build_libbpf(source, tool):
    """Against this system's libbpf: the folder has no submodules."""
    os.makedirs(FOLDER, exist_ok=True)
    tools, target = os.path.join(source, "libbpf-tools"), os.path.join(FOLDER, f"{tool}.bpf.o")
    program = os.path.join(FOLDER, f"libbpf-{tool}")
    helpers = [os.path.join(tools, name) for name in (f"{tool}.c", "trace_helpers.c", "syscall_helpers.c", "errno_helpers.c",
               "map_helpers.c", "uprobe_helpers.c", "btf_helpers.c", "path_helpers.c") if os.path.exists(os.path.join(tools, name))]
    # Debian 12's libbpf 1.1 has the macros under their older names only
    subprocess.run(["clang-14", "-g", "-O2", "-target", "bpf", "-D__TARGET_ARCH_x86", "-DBPF_UPROBE=BPF_KPROBE",
                    "-DBPF_URETPROBE=BPF_KRETPROBE", "-I", os.path.join(tools, "x86"), "-I", tools, "-c",
                    os.path.join(tools, f"{tool}.bpf.c"), "-o", target], check=True)
    with open(os.path.join(FOLDER, f"{tool}.skel.h"), "w") as f:
        subprocess.run(["bpftool", "gen", "skeleton", target], check=True, stdout=f)
    subprocess.run(["gcc", "-O2", "-w", "-I", FOLDER, "-I", tools, "-o", program, *helpers, "-lbpf", "-lelf", "-lz"], check=True)
    return program


# ---- what one costs ----------------------------------------------------------------------------------------------

class Cost:
    """The cost of processes during a span: CPU use in % of one CPU, and BPF time in us a sample,
    which the CPU use does not include."""

    def __init__(self, pids, seconds):
        cpu, (ns, runs) = cpu_s(pids), bpf_run(pids, "perf_event")
        time.sleep(seconds)
        cpu_after, (ns_after, runs_after) = cpu_s(pids), bpf_run(pids, "perf_event")
        check(runs_after > runs, "a profiler took no sample")
        self.cpu_pct = 100 * (cpu_after - cpu) / seconds
        self.bpf_us = (ns_after - ns) / (runs_after - runs) / 1000


@contextlib.contextmanager
def otel(program, sink, rate, *folder):
    """The profiler once it samples; its pids. Its requests are kept in @folder."""
    receiver = subprocess.Popen([sink, *folder], stdout=subprocess.PIPE, text=True)
    port = receiver.stdout.readline().strip()
    # it looks up its tracepoints in tracefs, which not every host has mounted
    tracefs = 'mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec "$@"'
    profiler = subprocess.Popen(["unshare", "-m", "sh", "-c", tracefs, "sh", program, "-collection-agent", f"127.0.0.1:{port}",
                                 "-disable-tls", "-samples-per-second", str(rate), "-reporter-interval", "5s"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        for line in profiler.stderr:
            lines.append(line)
            if "Attached sched monitor" in line:
                break
        check(profiler.poll() is None and lines and "Attached sched monitor" in lines[-1], "it does not start: " + "".join(lines[-5:]))
        with open(os.devnull, "w") as nothing, subprocess.Popen(["cat"], stdin=profiler.stderr, stdout=nothing):
            yield [profiler.pid]
            profiler.terminate()
            profiler.wait()
    finally:
        profiler.kill()
        profiler.wait()
        receiver.kill()
        receiver.wait()


@contextlib.contextmanager
def ours(rate):
    with Daemon() as daemon:
        session = daemon.start_profile("*", 600, rate=rate)
        yield [daemon.process.pid, *daemon.children().values()]
        daemon.stop_profile(session)


def alternate(first, second, seconds):
    """Means of the costs of two profilers, each in its turn."""
    costs = ([], [])
    for _ in range(ROUNDS):
        for start, found in zip((first, second), costs):
            with start() as pids, bpf_stats():
                time.sleep(SETTLE_S)
                found.append(Cost(pids, seconds))
    return [(statistics.mean(c.cpu_pct for c in found), statistics.mean(c.bpf_us for c in found)) for found in costs]


# ---- loads -------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def busy(frames, *flags):
    program = compile_workload("deep.c", "-O2", *flags, output="deep_fp" if "-fno-omit-frame-pointer" in flags else "deep")
    with contextlib.ExitStack() as stack:
        for _ in range(CPUS):
            stack.enter_context(running(program, str(frames)))
        yield


@contextlib.contextmanager
def mixed():
    """C++ without frame pointers, a Go server under load, Python and Java."""
    java = "public class Spin { public static void main(String[] a) { System.out.println(\"ready\"); int x = 1; while (x != 0) " \
           "x = x * 31 + 1 | 1; } }\n"
    python = "print('ready', flush=True)\ndef f(n): return sum(i * i for i in range(n))\nwhile True: f(1000)\n"
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        with open(os.path.join(folder, "Spin.java"), "w") as f:
            f.write(java)
        stack.enter_context(running(build_truth(), "100000", "1"))
        stack.enter_context(running(sys.executable, "-c", python))
        stack.enter_context(running("java", os.path.join(folder, "Spin.java")))
        server = stack.enter_context(running(build_go("served")))
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/"
        client = subprocess.Popen(["wrk", "-t1", "-c4", "-d3600", url], stdout=subprocess.DEVNULL)
        stack.callback(client.wait)
        stack.callback(client.kill)
        yield


# ---- benches -----------------------------------------------------------------------------------------------------

def beside_otel(program, sink, rate, seconds):
    return alternate(lambda: ours(rate), lambda: otel(program, sink, rate), seconds)


def otel_busy(row, source, seconds):
    """Both CPUs 60 frames deep without frame pointers."""
    program, sink = build_otel(source), build_sink()
    start_up(row, program, sink)
    with busy(60, "-fomit-frame-pointer"):
        for rate in (99, 20):
            (cpu, bpf), (their_cpu, their_bpf) = beside_otel(program, sink, rate, seconds)
            row(f"CPU of all processes, busy, {rate} Hz, % of one / OpenTelemetry profiler", cpu, their_cpu, 0.4,
                "without BPF, which runs in the sampled programs")
            row(f"BPF us a sample, 60 frames by tables, {rate} Hz / OpenTelemetry profiler", bpf, their_bpf, 0.8)


def otel_mixed(row, source, seconds):
    program, sink = build_otel(source), build_sink()
    with mixed():
        (cpu, bpf), (their_cpu, their_bpf) = beside_otel(program, sink, 99, seconds)
    row("CPU of all processes, mixed load, 99 Hz, % of one / OpenTelemetry profiler", cpu, their_cpu, 0.25,
        f"BPF us a sample {bpf:.1f} / {their_bpf:.1f}")


def start_up(row, program, sink):
    """CPU time of a start with 100 processes, until ten seconds after it."""
    with processes(100):
        with Daemon() as daemon:
            time.sleep(10)
            mine = cpu_s([daemon.process.pid, *daemon.children().values()])
        with otel(program, sink, 20) as pids:
            time.sleep(10)
            row("start-up CPU, 100 processes, s / OpenTelemetry profiler", mine, cpu_s(pids), None)


def libbpf(row, source, seconds):
    program = build_libbpf(source, "profile")
    with busy(64, "-fno-omit-frame-pointer"):
        (_, bpf), (_, their_bpf) = alternate(lambda: ours(99), lambda: running_rival(program, "-F", "99", "600"), seconds)
    row("BPF us a sample, 64 frames with frame pointers, 99 Hz / libbpf-tools profile", bpf, their_bpf, 1.5)


# ---- the sampled program -----------------------------------------------------------------------------------------

RATE = 999


@contextlib.contextmanager
def perf_record(*flags):
    with tempfile.TemporaryDirectory() as folder:
        perf = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock", "-a", "-F", str(RATE), *flags, "-o",
                                 os.path.join(folder, "perf.data")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)
            check(perf.poll() is None, "perf record does not run")
            yield
        finally:
            perf.terminate()
            perf.wait()


def sampled(row, rounds=9, work=700):
    """The same work, alone and under each sampler in turn: extra CPU time a sample, the least of several."""
    program = compile_workload("deep.c", "-O2", "-fno-omit-frame-pointer", output="deep_fp")

    def cpu_ns():
        done = subprocess.run(["taskset", "-c", "1", program, "64", str(work)], capture_output=True, text=True, check=True)
        return int(done.stdout.split()[1])

    least = {"alone": [], "ours": [], "perf": [], "no stacks": []}
    with Daemon() as daemon:
        time.sleep(3)
        for _ in range(rounds):
            least["alone"].append(cpu_ns())
            session = daemon.start_profile("*", 600, rate=RATE)
            least["ours"].append(cpu_ns())
            daemon.stop_profile(session)
            with perf_record("-g"):
                least["perf"].append(cpu_ns())
            with perf_record():
                least["no stacks"].append(cpu_ns())
    alone, mine, theirs, bare = (min(least[name]) for name in ("alone", "ours", "perf", "no stacks"))
    samples = alone / 1e9 * RATE
    row("extra CPU us of the sampled program a sample, frame pointers / perf record -g", (mine - alone) / samples / 1000,
              (theirs - alone) / samples / 1000, 0.9, f"{(bare - alone) / samples / 1000:.1f} us in perf record without stacks; {samples:.0f} samples, "
              f"64 frames, least of {rounds}")
