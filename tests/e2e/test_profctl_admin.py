# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""profctl for those who run the daemon: continuous profiling, the switch over all sampling, backup and restore, the
live view on a terminal, colours, formats, and a manual that names what each command takes."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import tarfile
import tempfile
import termios
import time

from harness import BUILD, Daemon, build_truth, check, cpu_ns, main, running, wait_until

PROFCTL = os.path.join(BUILD, "profctl")


def run(*arguments, status=0, env=None):
    done = subprocess.run([PROFCTL, *arguments], capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, **(env or {})))
    check(done.returncode == status, f"profctl {' '.join(arguments)}: exit {done.returncode}: {done.stdout[-500:]}"
          f"{done.stderr[-500:]}")
    return done


@contextlib.contextmanager
def served(*arguments, data_dir=None):
    """A daemon with a Unix socket, over which root is an administrator: (daemon, how profctl reaches it)."""
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        path = os.path.join(folder, "profd.sock")
        with Daemon("--socket", path, *arguments, data_dir=data_dir) as daemon:
            yield daemon, ["--socket", path]


def continuous_profiling():
    with served() as (daemon, at), running(build_truth(), "600") as process:
        wait_until(lambda: any(p["pid"] == process.pid for s in
                               json.loads(run(*at, "services", "-o", "json").stdout)["items"] for p in s["processes"]),
                   60, "the service to be listed")
        done = run(*at, "continuous", "start", "truth_nofp", "--type", "cpu,offcpu", "--rate", "49", "--retention", "3")
        text = done.stdout
        check("warning" not in done.stderr, done.stderr)
        misspelt = run(*at, "continuous", "start", "truth_nofb")
        check("warning: no service 'truth_nofb' is known here" in misspelt.stderr, misspelt)
        run(*at, "continuous", "stop", "truth_nofb")
        check("truth_nofp" in text and "cpu,offcpu" in text and "49 Hz" in text and "3 d" in text, text)
        answer = json.loads(run(*at, "continuous", "status", "truth_nofp", "-o", "json").stdout)
        check(answer["profileTypes"] == ["cpu", "offcpu"] and answer["enabled"], answer)
        # its samples appear as a running span of the history
        wait_until(lambda: json.loads(run(*at, "continuous", "status", "-o", "json").stdout)
                   ["items"][0]["status"]["lastSessionId"], 60, "continuous data")
        span = json.loads(run(*at, "continuous", "status", "-o", "json").stdout)["items"][0]["status"]["lastSessionId"]
        refused = run(*at, "stop", span, status=1).stderr
        check("profctl continuous stop truth_nofp" in refused, refused)
        run(*at, "get", span)
        run(*at, "continuous", "start", "truth_nofp", "--webhook", "http://127.0.0.1:1/", status=2)
        run(*at, "continuous", "start", "truth_nofp", "--watch", "yesterday", status=2)
        gone = json.loads(run(*at, "continuous", "stop", "truth_nofp", "-o", "json").stdout)
        check(gone == {"service": "truth_nofp", "deleted": True}, f"{gone}")
        run(*at, "continuous", "stop", "truth_nofp", status=1)
        check(json.loads(run(*at, "continuous", "status", "-o", "json").stdout)["total"] == 0, "it is gone")


def the_switch():
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as data, running(build_truth(), "600") as process:
        with served(data_dir=data) as (daemon, at):
            target = f"pid:{process.pid}"
            run(*at, "continuous", "start", "*")
            session = daemon.start_profile(target, 600)
            other = run(*at, "--tenant", "other", "start", target, "-t", "cpu", "-d", "600").stdout.strip()
            begin = cpu_ns(process.pid)
            wait_until(lambda: cpu_ns(process.pid) - begin > 1e9, 120, "the program to run")
            check(daemon.request("POST", "/api/v1/sampling", {"enabled": False}).status == 403, "role profile may not")
            text = run(*at, "stop", "--all").stdout
            check("2 profiles ended" in text, text)
            check(daemon.finish_profile(session)["status"] == "completed", "it keeps what it had")
            ended = json.loads(run(*at, "--tenant", "other", "get", other, "-o", "json").stdout)
            check(ended["status"] != "running" or wait_until(
                lambda: json.loads(run(*at, "--tenant", "other", "get", other, "-o", "json").stdout)["status"] != "running",
                60, "the other tenant's profile to end"), ended)

            def is_quiet():
                return "profd_sample_rate_hertz 0\n" in daemon.get("/metrics").body.decode()

            wait_until(is_quiet, 60, "the sampler to be off")
            check("profd_sampling_enabled 0\n" in daemon.get("/metrics").body.decode(), "the metric")
            refused = daemon.request("POST", "/api/v1/observability/profiling/start",
                                     {"service": target, "profileType": "cpu"})
            check(refused.status == 503 and "profctl resume" in refused.json()["detail"], refused)
            check("resume" in run(*at, "status").stdout, "status says so")
        with served(data_dir=data) as (daemon, at):
            state = daemon.get("/api/v1/sampling").json()
            check(state["enabled"] is False and state["stoppedSince"], f"a restart forgot it: {state}")
            run(*at, "start", target, "-d", "1", status=1)
            check("is on" in run(*at, "resume").stdout, "resume")
            session = daemon.start_profile(target, 600)
            daemon.stop_profile(session)
            wait_until(lambda: "profd_sample_rate_hertz 0\n" not in daemon.get("/metrics").body.decode(), 60,
                       "continuous profiling to go on")
        run("stop", status=2)
        run("stop", "sess-1", "--all", status=2)


def backup_and_restore():
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder, running(build_truth(), "600") as process:
        archive, copy = os.path.join(folder, "profd.tar"), os.path.join(folder, "copy")
        with served() as (daemon, at):
            target = f"pid:{process.pid}"
            session = daemon.start_profile(target, 600, rate=999)
            begin = cpu_ns(process.pid)
            wait_until(lambda: cpu_ns(process.pid) - begin > 1e9, 120, "the program to run")
            result = daemon.stop_profile(session)
            flames = daemon.folded(session)
            baseline = run(*at, "baseline", "create", session, "--label", "kept").stdout.strip()
            run(*at, "continuous", "start", "*")
            wait_until(lambda: os.path.isdir(os.path.join(daemon.data_dir, "history")) and any(
                n.endswith(".db") for n in os.listdir(os.path.join(daemon.data_dir, "history"))), 60, "continuous data")
            under_way = daemon.start_profile(target, 600)
            check(daemon.request("GET", "/api/v1/backup").status == 403, "role profile may not")
            out = run(*at, "backup", archive)
            check("restore" in out.stdout and not out.stderr and "\033" not in out.stdout, out)
            check(not os.path.exists(os.path.join(daemon.data_dir, "backup.tmp")), "left behind")
            with tarfile.open(archive) as tar:  # any tar reads it
                names = tar.getnames()
            check("state.db" in names and f"sessions/{session}.log" in names and f"sessions/{baseline}.log" in names, names)
            check(any(n.startswith("history/") for n in names), names)
            run("restore", archive, daemon.data_dir, status=1)
            again = json.loads(run(*at, "-o", "json", "backup", archive + "2").stdout)
            check(again == {"file": archive + "2", "bytes": os.path.getsize(archive + "2")}, f"{again}")
        restored = json.loads(run("-o", "json", "restore", archive, copy).stdout)
        check(restored["dataDir"] == copy and restored["files"] >= 4, f"{restored}")
        run("restore", archive, copy, status=1)
        refused = run("restore", archive, folder, status=1).stderr
        check("is no data directory and not empty (copy)" in refused and sorted(os.listdir(folder)) == ["copy", "profd.tar", "profd.tar2"], refused)
        with Daemon("--no-collect", data_dir=copy) as daemon:
            again = daemon.get(f"/api/v1/observability/profiling/{session}?top=20").json()
            check(again["sampleCount"] == result["sampleCount"], again)
            check(daemon.folded(session) == flames, "other stacks than before")
            check(daemon.get(f"/api/v1/profiling/baselines/{baseline}").json()["baselineLabel"] == "kept", "baseline")
            check(daemon.get("/api/v1/observability/profiling/continuous").json()["total"] == 1, "settings")
            check(daemon.get(f"/api/v1/observability/profiling/{under_way}").json()["status"] != "running",
                  "what ran when the copy was made has ended in it")
        with open(archive, "rb") as f:
            whole = f.read()
        for name, data in (("cut", whole[:len(whole) // 2]), ("other", b"x" * 2048), ("empty", b"")):
            bad = os.path.join(folder, name)
            with open(bad, "wb") as f:
                f.write(data)
            run("restore", bad, bad + ".d", status=1)
            check(os.listdir(bad + ".d") == ["lock"], f"{name} leaves {os.listdir(bad + '.d')}")


class Terminal:
    """profctl on a pseudo-terminal of 40 lines and 120 columns."""

    def __init__(self, *arguments, env=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", **(env or {})})
            os.execv(PROFCTL, [PROFCTL, *arguments])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.seen = ""

    def read_until(self, pattern, seconds=120):
        end = time.monotonic() + seconds
        while not re.search(pattern, self.seen):
            check(time.monotonic() < end, f"no {pattern!r} on the terminal: {self.seen[-2000:]!r}")
            if select.select([self.fd], [], [], 1)[0]:
                with contextlib.suppress(OSError):
                    self.seen += os.read(self.fd, 65536).decode(errors="replace")

    def end(self):
        """Exit status; everything printed is in self.seen."""
        with contextlib.suppress(OSError):
            while data := os.read(self.fd, 65536):
                self.seen += data.decode(errors="replace")
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def live_top():
    with served() as (daemon, at), running(build_truth(), "600") as process:
        for leave in ("q", "\x03"):
            screen = Terminal(*at, "top", f"pid:{process.pid}", "-r", "499", "--interval", "1")
            screen.read_until(r"leaf_a")
            os.write(screen.fd, b"s")
            screen.read_until(r"by self")
            os.write(screen.fd, leave.encode())
            check(screen.end() == 0, f"exit status: {screen.seen[-1000:]!r}")
            check("\033[?1049h" in screen.seen and screen.seen.rindex("\033[?1049l") > screen.seen.rindex("\033[?1049h"),
                  "the terminal is as it was before")
        check(json.loads(run(*at, "history", "-o", "json").stdout)["total"] == 0, "it leaves no profile behind")
        # whose process ends is told so, since the picture goes with its screen
        with running("sleep", "600", ready=False) as short:
            screen = Terminal(*at, "top", f"pid:{short.pid}", "--interval", "1")
            screen.read_until(r"self%")
        check(screen.end() == 0 and "has ended: its processes have" in screen.seen[screen.seen.rindex("\033[?1049l"):], screen.seen[-300:])
        # not on a terminal, or when asked, it prints once
        check("self%" in run(*at, "top", f"pid:{process.pid}", "-d", "1").stdout, "top without a terminal")
        screen = Terminal(*at, "top", f"pid:{process.pid}", "--once")
        status = screen.end()
        check(status == 0 and "1049h" not in screen.seen and "profiling [" in screen.seen, screen.seen[-500:])


def colours():
    with served("--no-collect") as (daemon, at):
        for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
            screen = Terminal(*at, "services", env=env)
            check(screen.end() == 0, screen.seen)
            check(("\033[1m" in screen.seen) == coloured, f"{env}: {screen.seen!r}")
        check("\033" not in run(*at, "services").stdout, "not a terminal")


def formats_and_places():
    with served("--no-collect") as (daemon, at):
        check(json.loads(run(*at, "history", "-o", "json").stdout)["items"] == [], "-o after the command")
        check(json.loads(run(*at, "-o", "json", "history", "--from", "-1h", "--to", "now").stdout)["items"] == [], "times")
        run(*at, "history", "--from", "yesterday", status=2)
        run(*at, "start", "truth_nofp", "-t", "bogus", status=2)
        check("history" in run(*at, "history", "-o", "folded", status=2).stderr, "says which command")
        run(*at, "-o", "pprof", "services", status=2)


def manual_of_each_command():
    usage = run("--help").stdout.split("Commands:\n")[1].split("\nOptions:")[0]
    names = re.findall(r"^  ([a-z]+(?: [a-z]+)?)(?: [-\[A-Z]| {2,})", usage, re.M)
    check(len(names) >= 28, names)
    manual = run("--generate", "man").stdout.replace("\\-", "-")
    parts = manual.split(".SH COMMANDS\n")[1].split(".SH OPTIONS")[0].split("\n.TP\n")
    described = {re.match(r"(?:\.TP\n)?\.B (.*)\n", part).group(1): part for part in parts}
    check(set(described) == set(names), set(described) ^ set(names))
    for name in names:
        text = run(*name.split(), "--help").stdout
        check(text.startswith(f"Usage: profctl {name}"), text)
        check(f"\nExample: profctl {name}" in text, f"{name} has no example")
        check(max(map(len, text.splitlines()[1:])) <= 80, f"{name}: a line of its help is longer than 80 columns")
        options = set(re.findall(r"^  -., --([a-z-]+)", text, re.M))
        listed = re.search(r"^Options: (.*)\.$", described[name], re.M)
        found = set(re.findall(r"--([a-z-]+)", listed.group(1))) if listed else set()
        check(found == options, f"{name}: manual {found}, --help {options}")


if __name__ == "__main__":
    main(continuous_profiling, the_switch, backup_and_restore, live_top, colours, formats_and_places,
         manual_of_each_command)
