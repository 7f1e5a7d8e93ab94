# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the end-to-end tests: a daemon of their own on a free port and a temporary data
directory, an HTTP client, workloads built from tests/workloads, and a runner that prints one `ok`,
`not ok` or `skip` line per test (read by tools/test)."""

import contextlib
import datetime
import http.client
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("O", os.path.join(ROOT, "build"))
WORKLOADS = os.path.join(BUILD, "workloads")
FAMILY_A = "/api/v1/observability/profiling"
# Options of a daemon that walks stacks as on kernels before 5.17.
WITHOUT_LOOP = ("--disable-feature", "bpf_loop")

# nested JSON of stacks that are 500 frames deep
sys.setrecursionlimit(20000)


class Skip(Exception):
    """Raised with the reason why a test cannot run here."""


class Failure(AssertionError):
    """A check that did not hold."""


def check(condition, text):
    if not condition:
        raise Failure(text)


def wait_until(predicate, seconds, what):
    """Polls until predicate() is true; its value is returned. The limit only bounds a broken run."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = predicate()
        if value:
            return value
        time.sleep(0.05)
    raise Failure(f"timed out after {seconds} s waiting for {what}")


def free_port():
    """One on which nobody listens, of those that the kernel does not give to whoever wants any: until it is used nobody
    else gets it."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        beyond = int(f.read().split()[0])
    for port in random.SystemRandom().sample(range(10000, max(beyond, 20000)), 100):
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port))
            return port
    raise Failure("no free port")


def band(share, samples):
    """Four standard deviations of a sampled share, in percentage points."""
    return 400 * math.sqrt(max(share * (1 - share), 1e-6) / max(samples, 1))


def cpu_ns(pid):
    """User and system time of a process, all its threads."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * 1e9 / os.sysconf("SC_CLK_TCK")


def check_sampled(total, least, most, rate):
    """A session's ns of CPU time are what its program used, which lies between the time from its begin on, as the program's
    clock was read inside of it, and as it was read outside. But for five deviations of what is sampled of a program that has a
    CPU half of the time."""
    allowed = 0.02 + 5 * math.sqrt(0.5 / max(least * rate / 1e9, 1))
    check((1 - allowed) * least <= total <= (1 + allowed) * most,
          f"{total / 1e6:.0f} ms sampled of {least / 1e6:.0f} to {most / 1e6:.0f} ms, give or take {100 * allowed:.0f} %")


def await_perf(process, path):
    """Until `perf record` has opened its events: then it writes the head of its file @path."""
    wait_until(lambda: process.poll() is not None or os.path.exists(path) and os.path.getsize(path), 60, "perf to record")
    check(process.poll() is None, "perf has ended")


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:300]!r}>"


class Daemon:
    """profd on a free port; `with Daemon() as d`. Arguments are added to its command line."""

    def __init__(self, *args, data_dir=None, expect_start=True, env=None):
        self.own_dir = data_dir is None
        self.data_dir = data_dir or tempfile.mkdtemp(prefix="profd-e2e-")
        self.args = args
        self.expect_start = expect_start
        self.env = dict(os.environ, **(env or {}))
        self.prefix = []  # command that runs it, as setpriv
        self.program = os.path.join(BUILD, "profd")
        self.process = None
        self.log = []
        self.port = None

    def start(self):
        self.log = []
        self.port = None
        self.process = subprocess.Popen(
            [*self.prefix, self.program, "--listen", "127.0.0.1:0", "--data-dir", self.data_dir, *self.args],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=self.env)
        ready = threading.Event()

        def read():
            for line in self.process.stderr:
                self.log.append(line.rstrip("\n"))
                found = re.match(r"listening on https?://[0-9.]+:(\d+)", line)
                if found:
                    self.port = int(found.group(1))
                    ready.set()
            ready.set()

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        check(ready.wait(120), "profd did not say where it listens: " + " | ".join(self.log))
        check(self.port or not self.expect_start, "profd ended at start: " + " | ".join(self.log))
        return self

    def stop(self, sig=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            if sig == signal.SIGKILL:
                for pid in [*self.children().values(), self.process.pid]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            else:
                self.process.send_signal(sig)
            self.process.wait(120)
        if self.process:
            self.reader.join(5)
        return self.process.returncode if self.process else None

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        self.stop()
        if kind and self.log:
            print("daemon log:", *self.log[-30:], sep="\n  ")
        if self.own_dir:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def resident_mb(self):
        """Memory of all its processes, shared pages counted in each."""
        total = 0
        for pid in [self.process.pid, *self.children().values()]:
            with open(f"/proc/{pid}/status") as f:
                total += sum(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))
        return total / 1024

    def children(self):
        """{comm: pid} of the daemon's processes."""
        found = {}
        for pid in os.listdir("/proc"):
            if not pid.isdigit():
                continue
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/stat") as f:
                    text = f.read()
                comm = text[text.index("(") + 1:text.rindex(")")]
                if int(text[text.rindex(")") + 2:].split()[1]) == self.process.pid:
                    found[comm] = int(pid)
        return found

    def request(self, method, path, body=None, headers=None, timeout=90):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = body
            sent = dict(headers or {})
            if isinstance(body, (dict, list)):
                data = json.dumps(body)
                sent.setdefault("Content-Type", "application/json")
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def get(self, path, status=200, **kwargs):
        answer = self.request("GET", path, **kwargs)
        check(answer.status == status, f"GET {path}: {answer}")
        return answer

    def start_profile(self, service, seconds=5, kind="cpu", rate=99, **extra):
        answer = self.request("POST", FAMILY_A + "/start", {
            "service": service, "profileType": kind, "durationSeconds": seconds, "sampleRate": rate, **extra})
        check(answer.status == 202, f"start: {answer}")
        session = answer.json()["id"]
        if not extra.get("waitSeconds"):
            wait_until(lambda: self.get(f"{FAMILY_A}/{session}").json()["startedAt"], 60, "sampling to begin")
        return session

    def finish_profile(self, session, seconds=60, top=1000):
        def done():
            result = self.get(f"{FAMILY_A}/{session}?top={top}").json()
            return result if result["status"] != "running" else None

        return wait_until(done, seconds, "the session to end")

    def stop_profile(self, session):
        """Ends a running session early; its result."""
        answer = self.request("DELETE", f"{FAMILY_A}/{session}")
        check(answer.status == 202, f"stop: {answer}")
        return self.finish_profile(session)

    def profile(self, service, seconds=5, kind="cpu", rate=99, **extra):
        session = self.start_profile(service, seconds, kind, rate, **extra)
        result = self.finish_profile(session, seconds + 60)
        check(result["status"] == "completed", f"session: {result}")
        return result

    def folded(self, session, query=""):
        """[(frames root first, value)]"""
        text = self.get(f"{FAMILY_A}/{session}/flamegraph?format=folded{query}").body.decode()
        stacks = []
        for line in text.splitlines():
            stack, value = line.rsplit(" ", 1)
            stacks.append((stack.split(";"), int(value)))
        return stacks


def lasted_ns(result):
    """The exact duration of a session; its durationSeconds are whole seconds."""
    start, end = (datetime.datetime.fromisoformat(result[name].replace("Z", "+00:00"))
                  for name in ("startedAt", "completedAt"))
    return (end - start).total_seconds() * 1e9


def compile_workload(name, *flags, compiler=None, output=None):
    """Builds tests/workloads/NAME into build/workloads/OUTPUT and returns its path."""
    os.makedirs(WORKLOADS, exist_ok=True)
    source = os.path.join(ROOT, "tests/workloads", name)
    target = os.path.join(WORKLOADS, output or os.path.splitext(name)[0])
    tool = compiler or os.environ.get("CROSS_COMPILE", "") + ("g++" if name.endswith(".cpp") else "gcc")
    fresh = f"{target}.{os.getpid()}"  # another suite may be building or copying the same one
    subprocess.run([tool, "-o", fresh, source, *flags], check=True)
    os.replace(fresh, target)
    return target


def build_go(program, *flags):
    """Builds tests/workloads/go/PROGRAM; its path."""
    if not shutil.which("go"):
        raise Skip("the Go compiler is not installed")
    os.makedirs(WORKLOADS, exist_ok=True)
    target = os.path.join(WORKLOADS, "go_" + program)
    fresh = f"{target}.{os.getpid()}"
    subprocess.run(["go", "build", "-buildvcs=false", *flags, "-o", fresh, "./" + program], check=True,
                   cwd=os.path.join(ROOT, "tests/workloads/go"), env=dict(os.environ, CGO_ENABLED="0"))
    os.replace(fresh, target)
    return target


def build_truth(frame_pointers=False):
    suffix = "fp" if frame_pointers else "nofp"
    flag = "-fno-omit-frame-pointer" if frame_pointers else "-fomit-frame-pointer"
    folder = os.path.join(WORKLOADS, suffix)
    os.makedirs(folder, exist_ok=True)
    compile_workload("truth_lib.cpp", "-O2", flag, "-fPIC", "-shared", output=f"{suffix}/libtruth.so")
    return compile_workload("truth.cpp", "-O2", flag, "-L" + folder, "-ltruth", "-Wl,-rpath,$ORIGIN",
                            "-lpthread", output=f"{suffix}/truth_{suffix}")


def cgroup2():
    with open("/proc/mounts", encoding="utf-8") as f:
        for line in f:
            _, place, kind, *_ = line.split()
            if kind == "cgroup2":
                return place
    raise Skip("no cgroup2 file system is mounted")


@contextlib.contextmanager
def group(path):
    """A control group, which @yields a function that puts a process into it."""
    place = f"{cgroup2()}/{path}"
    os.makedirs(place)

    def take(pid):
        with open(f"{place}/cgroup.procs", "w", encoding="ascii") as f:
            f.write(str(pid))

    try:
        yield take
    finally:
        part = path
        while part:
            with contextlib.suppress(OSError):
                os.rmdir(f"{cgroup2()}/{part}")
            part = os.path.dirname(part)


@contextlib.contextmanager
def own_name(program):
    """A copy of a program under a name that no other process has: nobody else's run joins its service."""
    copy = f"{program}-{os.getpid()}"
    shutil.copy(program, copy)
    try:
        yield copy
    finally:
        os.unlink(copy)


@contextlib.contextmanager
def running(*command, ready=True, env=None, stdin=None):
    """A workload that prints `ready` first; killed at the end."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=stdin, text=True,
                               env=dict(os.environ, **(env or {})))
    try:
        if ready:
            line = process.stdout.readline()
            check(line.strip() == "ready", f"{command[0]} said {line!r}")
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Counting:
    """A workload that says `ready` and then answers each line of its input with what it has counted; killed at the
    end."""

    def __init__(self, program, *arguments, env=None):
        self.process = subprocess.Popen([program, *map(str, arguments)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=env)
        check(self.process.stdout.readline() == "ready\n", f"{program} is not ready")
        self.pid = self.process.pid
        self.service = f"pid:{self.pid}"

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def say(self, text=""):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def counters(self, command=""):
        self.say(command)
        return json.loads(self.process.stdout.readline())


def judge_samples(judge, short_ns):
    """Calls judge(sample rate, ns of CPU time), which profiles a program of known stacks and returns how many samples it took:
    once and shortly, or until it took PROFD_TEST_SAMPLES samples."""
    due, taken = int(os.environ.get("PROFD_TEST_SAMPLES", "0")), 0
    if not due:
        judge(499, short_ns)
    while taken < due:
        taken += judge(999, min(due - taken + 1000, 200000) / 999 * 1e9)
    if due:
        print(f"# {taken} samples judged", flush=True)


def await_work(pid, ns):
    """Until the process has used so much more CPU time. A busy machine only makes that last longer."""
    before = cpu_ns(pid)
    wait_until(lambda: cpu_ns(pid) > before + ns, 60 + ns / 1e8, "the program to work")


def main(*tests):
    """Runs the tests named on the command line, or all; exit status 1 if one failed."""
    names = sys.argv[1:]
    failed = 0
    for test in tests:
        if names and test.__name__ not in names:
            continue
        started = time.monotonic()
        try:
            test()
            print(f"ok {test.__name__} ({time.monotonic() - started:.1f} s)", flush=True)
        except Skip as reason:
            print(f"skip {test.__name__}: {reason}", flush=True)
        except Exception as error:  # every kind of failure is a line of the report
            failed += 1
            print(f"not ok {test.__name__}: {error}", flush=True)
            traceback.print_exc(file=sys.stdout)
    sys.exit(1 if failed else 0)
