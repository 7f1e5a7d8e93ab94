#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Files of profd in the programs they are made for: the Firefox profiler's own code opens its format and perf script
text, LLVM and Go compile with their profiles, callgrind_annotate and speedscope's schema accept theirs; and what they
show is what the API says."""

import contextlib
import gzip
import json
import os
import re
import shutil
import subprocess
import tempfile

import jsonschema

from harness import FAMILY_A, Daemon, Skip, build_truth, check, cpu_ns, main, own_name, running, wait_until
from registry import node, npm

MEBIBYTE = 1 << 20
taken = {}


def take(daemon, service, pid, seconds, rate):
    """A finished session of @seconds of the program's own CPU time."""
    session = daemon.start_profile(service, 600, rate=rate)
    begin = cpu_ns(pid)
    wait_until(lambda: cpu_ns(pid) - begin > seconds * 1e9, 120, "the program to run")
    return daemon.stop_profile(session)


def native():
    """{format: bytes, "result": …} of a C++ program with two threads, taken once."""
    if not taken:
        with own_name(build_truth()) as program, Daemon() as daemon, running(program, "600", "2") as process:
            taken["result"] = take(daemon, os.path.basename(program), process.pid, 3, 999)
            for name in ("firefox", "perfscript", "autofdo", "callgrind", "speedscope"):
                taken[name] = daemon.get(f"{FAMILY_A}/{taken['result']['id']}/flamegraph?format={name}").body
    return taken


def run(*command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **kwargs)
    check(done.returncode == 0, f"{' '.join(command)}: {done.returncode} {done.stdout[-800:]} {done.stderr[-800:]}")
    return done.stdout


@contextlib.contextmanager
def opened(data, name):
    """A function that asks profiler-cli about the file; its answers as Python data."""
    cli = os.path.join(npm("@firefox-devtools/profiler-cli@0.10.0"), "node_modules/.bin/profiler-cli")
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, PROFILER_CLI_SESSION_DIR=folder)
        path = f"{folder}/{name}"
        with open(path, "wb") as f:
            f.write(data)

        def ask(*words):
            done = subprocess.run([node(), cli, *words, "--session", "test", "--json"], capture_output=True, text=True,
                                  timeout=120, env=environment)
            return json.loads(done.stdout) if done.returncode == 0 and done.stdout else None

        # It starts a process of its own and gives that half a second; more may be needed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([node(), cli, "load", path, "--session", "test"], capture_output=True, timeout=60,
                           env=environment)
        try:
            wait_until(lambda: ask("thread", "list"), 60, "profiler-cli to open the file")
            yield ask
        finally:
            subprocess.run([node(), cli, "stop", "test"], capture_output=True, timeout=60, env=environment)


def check_threads(ask, result):
    threads = ask("thread", "list")["threads"]
    pid = str(result["processes"][0]["pid"])
    check(len(threads) == 2 and {t["pid"] for t in threads} == {pid}, f"threads {threads}")
    functions, samples = {}, 0
    for thread in threads:
        ask("thread", "select", thread["threadHandle"])
        shown = ask("thread", "functions", "--limit", "1000")
        if shown is None or shown["threadHandle"] != thread["threadHandle"]:
            shown = ask("thread", "functions", "--thread", thread["threadHandle"], "--limit", "1000")
        check(shown["threadHandle"] == thread["threadHandle"], f"asked for {thread}, got {shown['threadHandle']}")
        for function in shown["functions"]:
            functions[function["name"]] = functions.get(function["name"], 0) + function["selfSamples"]
            samples += function["selfSamples"]
    check(samples == result["sampleCount"], f"{samples} samples, not {result['sampleCount']}")
    for function in result["topFunctions"][:4]:
        check(functions.get(function["funcName"]) == function["sampleCount"],
              f"{function['funcName']}: {functions.get(function['funcName'])}, not {function['sampleCount']}")


def firefox_profiler():
    with opened(gzip.compress(native()["firefox"]), "profile.json.gz") as ask:
        check_threads(ask, native()["result"])


def perf_script():
    with opened(native()["perfscript"], "profile.txt") as ask:
        check_threads(ask, native()["result"])


def firefox_size():
    """A minute of two cores at 1000 Hz are 120,000 samples: what one more costs must leave that under 10 MiB."""
    samples, size = native()["result"]["sampleCount"], len(gzip.compress(native()["firefox"], 6))
    check(samples > 1500, f"only {samples} samples")
    print(f"{samples} samples are {size} bytes of gzip, 120,000 would be {size / samples * 120000 / MEBIBYTE:.2f} MiB", flush=True)
    check(size / samples * 120000 < 10 * MEBIBYTE, f"{size} bytes for {samples} samples")


def llvm_profdata():
    tool = shutil.which("llvm-profdata-14") or shutil.which("llvm-profdata")
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/profile.txt", "wb") as f:
            f.write(native()["autofdo"])
        shown = run(tool, "show", "--sample", f"{folder}/profile.txt")
        counts = {name: int(count) for name, count in re.findall(r"^Function: (\S+): (\d+),", shown, re.M)}
        for function in native()["result"]["topFunctions"][:3]:
            check(counts.get(function["funcName"]) == function["sampleCount"], f"{function}: {counts}")
        run(tool, "merge", "--sample", f"{folder}/profile.txt", "-o", f"{folder}/profile.prof")
        check(os.path.getsize(f"{folder}/profile.prof") > 50, "an empty profile")


CPP_PROGRAM = """namespace app {
struct Worker {
	unsigned long seed;
	unsigned long hot(unsigned long rounds);
};

__attribute__((noinline)) unsigned long Worker::hot(unsigned long rounds)
{
	unsigned long sum = seed;
	for (unsigned long i = 0; i < rounds; i++)
		sum = sum * 2862933555777941757ul + (sum >> 7 & 1 ? 3037000493ul : i);
	return sum;
}
}

volatile unsigned long kept;

int main()
{
	for (;;) {
		app::Worker worker{kept};
		kept = worker.hot(1ul << 20);
	}
}
"""


def llvm_compiler():
    """A function of C++, which its symbol names: the compiler finds it in the profile, and has no counts without one."""
    compiler = shutil.which("clang++-14") or shutil.which("clang++")
    check(compiler, "clang++ is needed (package clang-14)")
    symbol = "_ZN3app6Worker3hotEm"
    with tempfile.TemporaryDirectory() as folder:
        source, program = f"{folder}/worker.cpp", f"{folder}/worker-{os.getpid()}"
        with open(source, "w") as f:
            f.write(CPP_PROGRAM)
        run("g++", "-O2", "-g", "-o", program, source)
        with Daemon() as daemon, running(program, ready=False) as process:
            result = take(daemon, os.path.basename(program), process.pid, 1, 499)
            text = daemon.get(f"{FAMILY_A}/{result['id']}/flamegraph?format=autofdo").body
        check(result["topFunctions"][0]["funcName"] == "app::Worker::hot(unsigned long)", result["topFunctions"][0])
        with open(f"{folder}/profile.txt", "wb") as f:
            f.write(text)
        for flags, counted in (([f"-fprofile-sample-use={folder}/profile.txt"], True), ([], False)):
            code = run(compiler, "-O2", "-gline-tables-only", *flags, "-S", "-emit-llvm", "-o", "-", source)
            found = re.search(rf"^define .*@{symbol}\(.*$", code, re.M)
            check(found, f"no {symbol} in what was compiled")
            check(("!prof " in found.group()) == counted, f"{flags}: {found.group()}, from {text[:300]}")


def callgrind():
    tool = shutil.which("callgrind_annotate")
    check(tool, "callgrind_annotate is needed (package valgrind)")
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/callgrind.out", "wb") as f:
            f.write(native()["callgrind"])
        shown = run(tool, "--threshold=100", f"{folder}/callgrind.out")
        for function in native()["result"]["topFunctions"][:3]:
            check(re.search(rf"^ *{function['selfValue']:,} \(.*:{re.escape(function['funcName'])}", shown, re.M),
                  f"{function}: {shown[:2000]}")


def speedscope_schema():
    folder = npm("speedscope@1.25.0")
    with open(f"{folder}/node_modules/speedscope/dist/release/file-format-schema.json") as f:
        schema = json.load(f)
    errors = [e.message[:200] for e in jsonschema.Draft7Validator(schema).iter_errors(json.loads(native()["speedscope"]))]
    check(not errors, f"{errors[:3]}")


GO_PROGRAM = """package main

type shape interface{ area(i int) int }
type square struct{ side int }

func (s square) area(i int) int { return s.side*s.side + i }

//go:noinline
func hot(s shape, n int) int {
	sum := 0
	for i := 0; i < n; i++ {
		sum += s.area(i) ^ sum>>3
	}
	return sum
}

func main() {
	for sum := 1; ; {
		sum += hot(square{3}, 1<<20) | 1
	}
}
"""


def go_build():
    """The Go compiler makes a direct call of the one through an interface that the profile shows as hot."""
    go = shutil.which("go")
    check(go, "go is needed (package golang-go)")
    version = re.search(r"go1\.(\d+)", run(go, "version"))
    if int(version.group(1)) < 21:
        raise Skip(f"this Go ({version.group(0)}) cannot compile with a profile; 1.21 can")
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/main.go", "w") as f:
            f.write(GO_PROGRAM)
        with open(f"{folder}/go.mod", "w") as f:
            f.write("module hotcall\n\ngo 1.21\n")
        environment = dict(os.environ, GOFLAGS="-mod=mod", GOTOOLCHAIN="local")
        program = f"{folder}/hotcall-{os.getpid()}"
        plain = subprocess.run([go, "build", "-gcflags=-m=2", "-o", program, "."], cwd=folder, capture_output=True,
                               text=True, env=environment)
        check(plain.returncode == 0 and "devirtualizing interface" not in plain.stderr, f"without: {plain.stderr[-1000:]}")
        with Daemon() as daemon, running(program, ready=False) as process:
            result = take(daemon, os.path.basename(program), process.pid, 2, 499)
            with open(f"{folder}/default.pgo", "wb") as f:
                f.write(daemon.get(f"{FAMILY_A}/{result['id']}/flamegraph?format=pgo").body)
        done = subprocess.run([go, "build", "-pgo=default.pgo", "-gcflags=-m=2", "-o", "faster", "."], cwd=folder,
                              capture_output=True, text=True, env=environment)
        check(done.returncode == 0, f"go build -pgo: {done.stderr[-1000:]}")
        check("PGO devirtualizing interface call s.area to square.area" in done.stderr, f"the profile had no effect: {done.stderr[-1500:]}")


if __name__ == "__main__":
    main(firefox_profiler, perf_script, firefox_size, llvm_profdata, llvm_compiler, callgrind, speedscope_schema, go_build)
