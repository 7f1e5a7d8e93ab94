# SPDX-License-Identifier: Apache-2.0
"""Everything at once: 200 services, 100 short processes a second, all types, 20 clients, each process of the daemon killed
once a minute, the disk full twice, and the clock stepped where PROFD_SOAK_CLOCK=1 allows it (a machine of the test's own).
Nothing grows, no descriptor stays open, no finished session is lost, and every answer is one that the API describes."""

import contextlib
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e"))

from harness import FAMILY_A, ROOT, Daemon, check, compile_workload, main, wait_until  # noqa: E402 pylint: disable=wrong-import-position

SECONDS = int(os.environ.get("PROFD_SOAK_SECONDS", "3600"))
WARM_S = min(600, SECONDS / 3)
SERVICES, CLIENTS, CHURN_HZ = 200, 20, 100
DISK_MB = 512
GROWTH, GROWTH_S = 1.05, 1800  # from this length of a run on
ON_DEMAND = "cpu", "offcpu", "wall", "block", "mutex", "io", "faults", "goroutine", "memory", "alloc"
CHILDREN = "profd-collect", "profd-symbols", "profd-reader", "profd-server"
SUCCESS = 200, 202, 204


def described():
    """{error_code: status} of the API's table of errors."""
    with open(os.path.join(ROOT, "api/http/http_error.c"), encoding="utf-8") as file:
        return {code: int(status) for code, status in re.findall(r'{ "(\w+)", (\d{3}), "', file.read())}


def memory_kb(pid):
    """Its share of the memory that it uses, the ring between collector and server included."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


class Soak:
    def __init__(self, daemon, services):
        self.daemon = daemon
        self.services = services
        self.until = time.monotonic() + SECONDS
        self.codes = described()
        self.lock = threading.Lock()
        self.problems = []
        self.finished = {}  # id: samples, of sessions that were seen to have ended
        self.deleted = set()
        self.answers = {}  # status: count
        self.samples = []  # (time, {process: KB}, descriptors of the supervisor, of the server)
        self.churned = self.killed = self.filled = 0

    def over(self):
        return time.monotonic() >= self.until

    def problem(self, text):
        with self.lock:
            self.problems.append(text)

    # ---- load ---------------------------------------------------------------------------------

    def churn(self):
        while not self.over():
            began = time.monotonic()
            for _ in range(10):
                pid = os.posix_spawn("/bin/true", ["true"], os.environ)
                os.waitpid(pid, 0)
                self.churned += 1
            time.sleep(max(0, began + 10 / CHURN_HZ - time.monotonic()))

    def ask(self, method, path, body=None):
        """The answer, None while the server is away."""
        try:
            answer = self.daemon.request(method, path, body)
        except OSError:
            return None  # killed, or being started again
        except Exception as error:  # pylint: disable=broad-exception-caught
            if "IncompleteRead" not in repr(error) and "BadStatus" not in repr(error) and "Disconnected" not in repr(error):
                self.problem(f"{method} {path}: {error!r}")
            return None
        with self.lock:
            self.answers[answer.status] = self.answers.get(answer.status, 0) + 1
        if answer.status not in SUCCESS and (path, answer.status) != ("/readyz", 503):
            code = None
            with contextlib.suppress(ValueError):
                code = answer.json().get("error_code")
            if self.codes.get(code) != answer.status or answer.status == 500:
                self.problem(f"{method} {path}: not described: {answer}")
        return answer

    def look_at(self, session):
        answer = self.ask("GET", f"{FAMILY_A}/{session}")
        if not answer or answer.status != 200:
            return
        result = answer.json()
        if result["status"] == "completed":
            with self.lock:
                self.finished.setdefault(session, result["sampleCount"])
            self.ask("GET", f"{FAMILY_A}/{session}/flamegraph?format={random.choice(('folded', 'svg', 'pprof', 'json'))}")

    def client(self, number):
        own = []
        while not self.over():
            kind = random.randrange(6)
            service = random.choice(self.services)
            if kind == 0:
                answer = self.ask("POST", FAMILY_A + "/start", {"service": service, "profileType": random.choice(ON_DEMAND),
                                                                "durationSeconds": 2 + number % 5, "sampleRate": 99})
                if answer and answer.status == 202:
                    own.append(answer.json()["id"])
            elif kind == 1 and own:
                self.look_at(random.choice(own))
            elif kind == 2 and len(own) > 50:
                session = own.pop(0)
                with self.lock:
                    self.deleted.add(session)
                self.ask("DELETE", f"{FAMILY_A}/{session}")
            elif kind == 3:
                self.ask("GET", f"{FAMILY_A}/window/flamegraph?service={service}&profileType=cpu&start=now-1h&end=now&format=folded")
            elif kind == 4 and len(own) > 1:
                self.ask("GET", f"{FAMILY_A}/compare?baseProfileId={own[0]}&comparisonProfileId={own[-1]}")
            else:
                self.ask("GET", random.choice(["/api/v1/observability/services", FAMILY_A, "/metrics", "/readyz",
                                               FAMILY_A + "/continuous"]))
            time.sleep(random.uniform(0, 0.5))

    # ---- harm ---------------------------------------------------------------------------------

    def kill(self):
        """Each process once a minute, one after another."""
        at = 0
        while not self.over():
            time.sleep(60 / len(CHILDREN))
            pid = self.daemon.children().get(CHILDREN[at % len(CHILDREN)])
            at += 1
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1

    def fill_disk(self, folder):
        """Twice, for a twentieth of the time each: at a third and at two thirds of it."""
        for part in (1, 2):
            time.sleep(max(0, self.until - SECONDS * (1 - part / 3) - time.monotonic()))
            filling = os.path.join(folder, "filling")  # "ballast" is the store's own
            fd = os.open(filling, os.O_CREAT | os.O_WRONLY, 0o600)
            with contextlib.suppress(OSError):
                while True:
                    os.write(fd, b"\0" * (1 << 20))
            os.close(fd)
            self.filled += 1
            time.sleep(SECONDS / 20)
            os.unlink(filling)

    def step_clock(self):
        if os.environ.get("PROFD_SOAK_CLOCK") != "1":
            return
        for wait, seconds in (SECONDS / 5, +3600), (min(120, SECONDS / 5), -3600), (SECONDS / 5, -60), (SECONDS / 5, +60):
            time.sleep(wait)
            time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)

    # ---- what is watched ----------------------------------------------------------------------

    def measure(self):
        while not self.over():
            with contextlib.suppress(OSError, KeyError, StopIteration):
                children = self.daemon.children()
                pids = {"profd": self.daemon.process.pid, **children}
                sizes = {name: memory_kb(pid) for name, pid in pids.items()}
                if len(children) == len(CHILDREN):
                    self.samples.append((time.monotonic(), sizes, len(os.listdir(f"/proc/{pids['profd']}/fd")),
                                         len(os.listdir(f"/proc/{pids['profd-server']}/fd"))))
            time.sleep(2)

    def judge(self):
        start = self.until - SECONDS
        third = (SECONDS - WARM_S) / 3
        first = [s for s in self.samples if WARM_S <= s[0] - start < WARM_S + third]
        last = [s for s in self.samples if s[0] >= self.until - third]
        check(first and last, f"nothing was measured: {len(self.samples)}")
        parts = [{name: [s[1][name] for s in part] for name in ("profd", *CHILDREN)} for part in (first, last)]
        for name in parts[0]:
            print(f"# {name}: " + ", then ".join(f"{statistics.median(part[name]) / 1024:.1f} MB" for part in parts))
        before, after = (statistics.median(sum(s[1].values()) for s in part) for part in (first, last))
        print(f"# {self.churned} short processes, {self.killed} kills, {self.filled} times full; answers {self.answers}; "
              f"{len(self.finished)} finished sessions; {before / 1024:.1f} MB after the beginning, {after / 1024:.1f} MB at the end; "
              f"descriptors of the supervisor {first[0][2]} to {last[-1][2]}, of the server at most {max(s[3] for s in first)}, "
              f"then {max(s[3] for s in last)}")
        kinds = sorted({re.sub(r"[0-9a-z-]{20,}|soak\d+", "…", problem) for problem in self.problems})
        check(not kinds, f"{len(self.problems)} problems: {kinds[:5]}")
        if SECONDS < GROWTH_S:
            print(f"# growth is not judged: caches fill in less than {GROWTH_S} s")
        else:
            check(after <= before * GROWTH, f"memory grew from {before} to {after} KB")
        check(last[-1][2] <= max(s[2] for s in first), "the supervisor keeps descriptors open")
        check(max(s[3] for s in last) <= max(s[3] for s in first) + CLIENTS, "the server keeps descriptors open")
        wait_until(lambda: len(self.daemon.children()) == len(CHILDREN), 60, "all processes")
        wait_until(lambda: self.ask("GET", "/readyz"), 60, "the server")
        for session, samples in self.finished.items():
            if session in self.deleted:
                continue
            result = self.daemon.get(f"{FAMILY_A}/{session}").json()
            check(result["status"] == "completed" and result["sampleCount"] == samples, f"lost or changed: {samples}, {result}")


def start_services(folder, stack):
    program = compile_workload("light.c", "-O1")
    names = []
    for i in range(SERVICES):
        name = f"soak{i:03d}"
        process = subprocess.Popen([shutil.copy(program, os.path.join(folder, name))], stdout=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        names.append(name)
    return names


def test_everything_at_once():
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="profd-soak-"))
        programs, data = os.path.join(folder, "bin"), os.path.join(folder, "data")
        os.mkdir(programs)
        os.mkdir(data)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", data], check=True)
        stack.callback(subprocess.run, ["umount", "-l", data], check=True)
        services = start_services(programs, stack)
        daemon = stack.enter_context(Daemon(data_dir=data))
        soak = Soak(daemon, services)
        answer = daemon.request("POST", FAMILY_A + "/continuous", {"service": "*", "profileTypes": ["cpu", "offcpu", "wall"],
                                                                   "sampleRate": 19})
        check(answer.status == 200, f"{answer}")
        tasks = [soak.churn, soak.kill, soak.step_clock, soak.measure, lambda: soak.fill_disk(data)]
        tasks += [lambda number=number: soak.client(number) for number in range(CLIENTS)]
        threads = [threading.Thread(target=task, daemon=True) for task in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        soak.judge()


if __name__ == "__main__":
    main(test_everything_at_once)
