# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
# tools/test: takes minutes
"""Every command of profctl against a live daemon: what it prints, its JSON, its exit status; the man page
and the completions name every command and option of --help."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from harness import BUILD, WORKLOADS, Daemon, build_truth, check, compile_workload, cpu_ns, main, own_name, running, wait_until

PROFCTL = os.path.join(BUILD, "profctl")
HOSTILE = """import ctypes, time
ctypes.CDLL(None).prctl(15, '\\x1b[31m\\u202eX'.encode())
print('ready', flush=True)
time.sleep(600)"""
LEAST_S = 9  # a comparison needs several blocks of one second on each side


def profctl(daemon, *arguments, status=0, env=None, output=None):
    """Runs a command; its standard output, or the parsed JSON with output="json"."""
    command = [PROFCTL, "--url", f"http://127.0.0.1:{daemon.port}"]
    if output:
        command += ["-o", output]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120,
                          env=dict(os.environ, **(env or {})))
    check(done.returncode == status, f"profctl {' '.join(arguments)}: exit {done.returncode}: {done.stdout[-500:]}"
          f"{done.stderr[-500:]}")
    if status == 1 and arguments[0] != "ci":
        check(done.stderr.startswith("profctl: ") and done.stderr.count("\n") == 1, f"not one line: {done.stderr!r}")
    check("\033" not in done.stdout, "escape sequences outside a terminal")
    return json.loads(done.stdout) if output == "json" else done.stdout


def take(daemon, process, kind="cpu", seconds=0):
    """A finished profile of the process, 2 s of its CPU time (about 2,000 samples) and at least @seconds."""
    session = profctl(daemon, "start", f"pid:{process.pid}", "-d", "600", "-r", "999", "-t", kind).strip()
    check(re.fullmatch(r"sess-[0-9a-z]{26}", session), session)
    start, end = cpu_ns(process.pid), time.monotonic() + seconds
    wait_until(lambda: cpu_ns(process.pid) - start > 2e9 and time.monotonic() > end, 120, "the program to run")
    profctl(daemon, "stop", session)
    daemon.finish_profile(session)
    return session


def profiles():
    with Daemon() as daemon, running(build_truth(), "600") as process:
        check(re.match(r"profd \S+ at http.*\nstore +works\ncollector +works\nsymbolizer +works\n$", profctl(daemon, "status")), "status")
        check(profctl(daemon, "status", output="json")["ready"]["store"] is True, "status as JSON")
        wait_until(lambda: process.pid in [p["pid"] for s in profctl(daemon, "services", output="json")["items"]
                                           for p in s["processes"]], 60, "the service to be listed")
        head, *rows = profctl(daemon, "services").splitlines()
        cpus = [float(row[:head.index("cpus") + 4].split()[-1]) for row in rows]
        check(any(row.startswith("truth_nofp") for row in rows) and cpus == sorted(cpus, reverse=True), f"services as a table, busiest first: {rows}")

        session = take(daemon, process)
        text = profctl(daemon, "get", session, "--top", "3")
        check(session in text and "leaf_a" in text and "completed" in text, text)
        check(len(profctl(daemon, "get", session, "-n", "3", output="json")["topFunctions"]) == 3, "--top")
        check("leaf_a" in profctl(daemon, "get", session, output="folded"), "get as folded stacks")
        pprof = subprocess.run([PROFCTL, "--url", f"http://127.0.0.1:{daemon.port}", "get", session, "-o", "pprof"], capture_output=True, check=True)
        check(pprof.stdout.startswith(b"\x1f\x8b"), "get as pprof")
        with tempfile.TemporaryDirectory() as folder:
            for form, first in (("html", b"<!"), ("svg", b"<"), ("pprof", b"\x1f\x8b"), ("folded", b"")):
                path = os.path.join(folder, form)
                profctl(daemon, "flamegraph", session, path, "--format", form)
                with open(path, "rb") as f:
                    data = f.read()
                check(len(data) > 100 and data.startswith(first), f"{form}: {data[:40]}")
        profctl(daemon, "flamegraph", session, "-F", "nonsense", status=2)
        with tempfile.TemporaryDirectory() as folder:  # what cannot be written leaves what was there
            kept, device, new = (os.path.join(folder, name) for name in ("kept", "device", "new"))
            with open(kept, "w") as f:
                f.write("kept")
            os.symlink("/dev/null", device)
            for path in (kept, device, new):
                profctl(daemon, "flamegraph", session, path, "-F", "nonsense", status=2)
            with open(kept) as f:
                check(f.read() == "kept" and sorted(os.listdir(folder)) == ["device", "kept"], os.listdir(folder))
            for path in (kept, device):
                profctl(daemon, "flamegraph", session, path, "-F", "folded")
            with open(kept) as f:
                check("leaf_a" in f.read() and os.path.islink(device), "written anew, and to a device")
        check(profctl(daemon, "flamegraph", session, output="json")["name"], "-o json is JSON here, too")
        folded = profctl(daemon, "flamegraph", session, "-", "-F", "folded")
        check("leaf_a" in folded, f"standard output by its usual name: {folded[:100]}")

        text = profctl(daemon, "top", f"pid:{process.pid}", "-d", "2", "-r", "199", "-n", "5")
        check("self%" in text and "quality" in text, text)
        items = profctl(daemon, "history", "--type", "cpu", "--limit", "1", output="json")
        check(len(items["items"]) == 1 and items["total"] == 2, items)
        check(session in profctl(daemon, "history"), "history as a table")
        done = subprocess.run([PROFCTL, "--url", f"http://127.0.0.1:{daemon.port}", "history", "-l", "1"], capture_output=True, text=True, check=True)
        check("the newest 1 of 2" in done.stderr and done.stdout.count("\n") == 2, f"that there are more is said: {done}")
        check(profctl(daemon, "history", "-s", "nobody", "-S", "completed", output="json")["total"] == 0, "filters")
        terminal, other_end = os.openpty()
        done = subprocess.run([PROFCTL, "--url", f"http://127.0.0.1:{daemon.port}", "flamegraph", session], stdout=other_end, stderr=subprocess.PIPE, text=True)
        check(done.returncode == 1 and "not for a terminal" in done.stderr, f"a page for a terminal: {done}")
        os.close(terminal)
        os.close(other_end)
        gone = profctl(daemon, "stop", session, output="json")
        check(gone == {"sessionId": session, "deleted": True}, f"a finished one is deleted: {gone}")
        profctl(daemon, "get", session, status=1)
        profctl(daemon, "stop", session, status=1)
        running_one = profctl(daemon, "start", f"pid:{process.pid}", "-d", "600").strip()
        check(profctl(daemon, "stop", running_one, output="json")["id"] == running_one, "a running one is answered as it is")
        for arguments, words in ((["baseline", "list"], "no baseline found"), (["continuous", "status"], "nothing is profiled"), (["history", "-s", "nobody"], "no profile found"), (["findings", "--limit", "5"], "nothing found")):
            check(profctl(daemon, *arguments).startswith(words), f"{arguments} of nothing")


def bytes_without_time():
    """A profile of a program that reads and writes without ever waiting is shown by bytes, by every
    command."""
    with Daemon() as daemon, \
            running("dd", "if=/dev/zero", "of=/dev/null", "bs=64k", ready=False) as process:
        session = profctl(daemon, "start", f"pid:{process.pid}", "-t", "io", "-d", "600").strip()
        wait_until(lambda: profctl(daemon, "get", session, "-v", "bytes", output="json")["totalValue"] > 2**20, 60, "bytes")
        profctl(daemon, "stop", session)
        result = daemon.finish_profile(session)
        check(result["totalValue"] == 0 and result["sampleCount"] > 0, f"{result}")
        shown = profctl(daemon, "get", session, output="json")
        check(shown["unit"] == "bytes" and shown["totalValue"] > 2**20 and shown["topFunctions"], f"{shown}")
        text = profctl(daemon, "get", session)
        check(re.search(r"^total +[0-9.]+ .?i?B in \d+ operations, 0 ns of delay, in [0-9.]+ ", text, re.M) and f"{session}/flamegraph?value=bytes" in text, text)
        for stacks in (profctl(daemon, "get", session, output="folded"), profctl(daemon, "flamegraph", session, "-F", "folded")):
            moved = sum(int(line.rsplit(" ", 1)[1]) for line in stacks.splitlines())
            check(moved == shown["totalValue"], f"{moved} of {shown['totalValue']}: {stacks}")
        check(profctl(daemon, "get", session, "-v", "delay", output="json")["unit"] == "nanoseconds", "as asked")
        profctl(daemon, "get", session, "-v", "nonsense", status=2)


def nothing_to_see():
    """A session without a sample says what there was none of."""
    with Daemon() as daemon, running("sleep", "600", ready=False) as process:
        wait_until(lambda: any(p["pid"] == process.pid for s in profctl(daemon, "services", output="json")["items"]
                               for p in s["processes"]), 60, "the service to be listed")
        session = daemon.profile(f"pid:{process.pid}", 1, "io")["id"]
        row = next(line for line in profctl(daemon, "history").splitlines() if session in line)
        check(row.endswith("0: no read or write"), row)


def the_busy_come_first():
    with Daemon() as daemon, running(build_truth(), "600"):
        wait_until(lambda: "truth_nofp" in profctl(daemon, "services"), 60, "the service to be listed")
        busy, functions = profctl(daemon, "top", "--duration", "2").split("\n\nprofctl top SERVICE shows one of them.")
        check(re.search(r"^truth_nofp +[01]\.\d\d +\d+$", busy, re.M) and "self%" in functions, f"the busy services come first: {busy}")


def recording():
    with Daemon() as daemon:
        text = profctl(daemon, "record", "-r", "499", "--", "sh", "-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done")
        check("completed" in text and "self%" in text and re.search(r"^service +(sh|dash|bash),", text, re.M), text)
        # what the command prints does not stand in what a program reads
        answer = profctl(daemon, "record", "--", "sh", "-c", "echo words; i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done", output="json")
        check(answer["service"] not in ("", "profctl"), answer["service"])


def comparing():
    with Daemon() as daemon, running(build_truth(), "600") as process:
        first, second = (take(daemon, process, seconds=LEAST_S) for _ in range(2))
        # at 99 % one comparison of equal profiles in some hundred finds a change
        answer = profctl(daemon, "compare", first, second, "-c", "0.9999", output="json")
        check(answer["verdict"] == "unchanged" and not answer["regressions"], answer["summary"])
        check("verdict    unchanged" in profctl(daemon, "compare", first, second, "-p", "2", "-c", "0.9999"), "compare")
        profctl(daemon, "compare", first, second, "--threshold", "many", status=2)
        profctl(daemon, "compare", first, "sess-00000000000000000000000000", status=1)
        check("leaf_a" in profctl(daemon, "diff", first, second, "--top", "1000"), "diff")
        check(profctl(daemon, "diff", first, second, "--type", "cpu", output="json")["functions"], "diff as JSON")

        baseline = profctl(daemon, "baseline", "create", first, "--label", "v1", "--tag", "prod", "--tag", "second",
                           "--description", "first").strip()
        check(baseline.startswith("bl-"), baseline)
        listed = profctl(daemon, "baseline", "list", "--tag", "prod", output="json")
        check([b["baselineId"] for b in listed["items"]] == [baseline], listed)
        check(baseline in profctl(daemon, "baseline", "list"), "baseline list")
        check("leaf_a" in profctl(daemon, "baseline", "get", baseline), "baseline get")

        service = listed["items"][0]["service"]
        profctl(daemon, "ci", "--service", service, status=2)
        profctl(daemon, "ci", "--service", service, "-b", "v0", status=2)
        profctl(daemon, "ci", "--service", "nobody", "-b", "v1", "--", "true", status=2)
        gone = profctl(daemon, "baseline", "delete", baseline, output="json")
        check(gone == {"baselineId": baseline, "deleted": True}, f"{gone}")
        profctl(daemon, "baseline", "get", baseline, status=1)


def gate():
    """A function more, beside work that stays as it was, is a regression; the program itself is none; what is too
    short is open; a command that fails is not judged."""
    before, after = ("0", "20"), ("50", "10")  # five rounds of fast_way to one of each other, then as many of slow_way
    def ci(status, *command, seconds=LEAST_S, output=None):
        return profctl(daemon, "ci", "--baseline", "fast", "--service", name, "-d", str(seconds), "-r", "999", "--",
                       *command, status=status, output=output)

    with own_name(compile_workload("two_ways.c", "-O2", "-g")) as program:
        name = os.path.basename(program)
        with Daemon() as daemon:
            with running(program, *before) as process:
                profctl(daemon, "baseline", "create", take(daemon, process), "--label", "fast")
                newest = profctl(daemon, "baseline", "create", take(daemon, process, seconds=LEAST_S), "--label", "fast").strip()
            text = ci(0, program, *before)
            check("gate       passed" in text and "verdict    unchanged" in text, text)
            answer = ci(1, program, *after, output="json")
            check((answer["exitStatus"], answer["outcome"], answer["commandStatus"]) == (1, "regressed", None), answer)
            check(answer["baselineId"] == newest, f"of two with the label, the newer one: {answer['baselineId']}")
            check("slow_way" in [f["funcName"] for f in answer["comparison"]["regressions"]], answer["comparison"])
            text = ci(3, program, *after, seconds=1)
            check("gate       undecided" in text and "verdict    not enough data" in text, text)
            check("command failed" in ci(4, "sh", "-c", "exit 7"), "a failing command")
            answer = ci(4, "/nonexistent", output="json")
            check(answer["commandStatus"] == 127 and answer["comparison"] is None, answer)
            # The command drives a service that runs already; its own time is not judged.
            with running(program, *before):
                answer = ci(0, "sleep", str(LEAST_S), seconds=600, output="json")
                check(answer["commandStatus"] == 0 and answer["comparison"]["verdict"] == "unchanged", answer)
        check(ci(2, "true") == "", "no daemon")


def threads():
    with Daemon() as daemon, running(build_truth(), "600") as process:
        wall = take(daemon, process, kind="wall")
        answer = profctl(daemon, "ledger", wall, output="json")
        check(any(t["pid"] == process.pid for t in answer["threads"]), answer)
        check("user%" in profctl(daemon, "ledger", wall), "ledger")
        # names of others' threads do not steer the terminal
        with running(sys.executable, "-c", HOSTILE) as hostile:
            named = profctl(daemon, "start", f"pid:{hostile.pid}", "-t", "wall", "-d", "1").strip()
            daemon.finish_profile(named)
        table = profctl(daemon, "ledger", named)
        check("?[31m?X" in table, table)
        check([t["thread"] for t in profctl(daemon, "ledger", named, output="json")["threads"]] == ["\x1b[31m\u202eX"], "as they are in JSON")
        available = {t["type"]: t["available"] for s in profctl(daemon, "services", output="json")["items"]
                     for t in s["profileTypes"] if any(p["pid"] == process.pid for p in s["processes"])}
        if not available["goroutine"]:
            profctl(daemon, "goroutines", f"pid:{process.pid}", status=1)
            return
        answer = profctl(daemon, "goroutines", f"pid:{process.pid}", "-n", "5", output="json")
        check(answer["goroutineCount"] >= 1, answer)
        check(profctl(daemon, "goroutines", answer["sessionId"], "--system").startswith("in all "), "goroutines")
        text = profctl(daemon, "get", answer["sessionId"])  # what this type does not know is no 0
        check("loss not known" in text and "overhead not known" in text, text)


def keys():
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        path = os.path.join(folder, "profd.sock")
        with Daemon("--no-collect", "--socket", path) as daemon:
            def admin(*arguments):
                done = subprocess.run([PROFCTL, "--socket", path, *arguments], capture_output=True, text=True)
                check(done.returncode == 0, done.stderr)
                return done.stdout

            key = admin("key", "create", "--name", "ci", "--role", "read", "--tenant", "default").splitlines()[-1]
            # The first key closes the API, loopback too.
            profctl(daemon, "history", status=1)
            profctl(daemon, "history", env={"PROFD_TOKEN": key})
            profctl(daemon, "key", "list", env={"PROFD_TOKEN": key}, status=1)
            listed = json.loads(admin("-o", "json", "key", "list"))["items"]
            check([(k["name"], k["role"], k["tenant"], "key" in k) for k in listed] == [("ci", "read", "default", False)],
                  listed)
            check("ci" in admin("key", "list"), "key list")
            token_file = os.path.join(folder, "token")
            with open(token_file, "w") as f:
                f.write(key + "\n")
            done = subprocess.run([PROFCTL, "--url", f"http://127.0.0.1:{daemon.port}", "--token-file", token_file,
                                   "--tenant", "other", "history"], capture_output=True, text=True)
            check(done.returncode == 1 and "403" in done.stderr, f"{done}")
            gone = json.loads(admin("key", "delete", listed[0]["id"], "-o", "json"))
            check(gone == {"id": listed[0]["id"], "deleted": True}, f"{gone}")
            check(json.loads(admin("-o", "json", "key", "list"))["total"] == 0, "the key is gone")


def doctor():
    with Daemon() as daemon:
        checks = {c["check"]: c for c in profctl(daemon, "doctor", output="json")["checks"]}
        check(checks["feature btf"]["state"] == "ok", checks)
        check(checks["daemon collector"]["state"] == "ok", checks)
        for name, entry in checks.items():
            check(entry["state"] == "ok" or len(entry["detail"]) > 20, f"{name} has no remedy: {entry}")
        check("daemon store" in profctl(daemon, "doctor"), "doctor as text")
        # It is the daemon that is asked, not who asks.
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            nobody = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                                     shutil.copy(PROFCTL, folder), "--url", f"http://127.0.0.1:{daemon.port}", "-o", "json",
                                     "doctor"], capture_output=True, text=True)
        check(nobody.stdout, nobody)
        seen = {c["check"]: c for c in json.loads(nobody.stdout)["checks"]}
        check(seen["feature btf"]["state"] == seen["privilege CAP_SYSLOG"]["state"] == "ok", seen)
        os.kill(daemon.process.pid, signal.SIGTERM)
        daemon.process.wait(120)
        done = subprocess.run([PROFCTL, "--url", f"http://127.0.0.1:{daemon.port}", "doctor"], capture_output=True,
                              text=True)
        check(done.returncode == 1 and "not reached" in done.stdout and "feature btf" in done.stdout, f"{done}")
    with Daemon("--disable-feature=bpf_loop") as daemon:
        found = {c["check"]: c for c in profctl(daemon, "doctor", output="json")["checks"]}["feature bpf_loop"]
        check(found["state"] == "degraded" and "--disable-feature" in found["detail"] and "locks of the kernel" in found["detail"], found)


def configuration():
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        path = os.path.join(folder, "profd.conf")
        for text, status, words in (("[limits]\nconnections = 5\n", 0, "is valid"), ("[limits]\nx = 5\n", 1, ":2:")):
            with open(path, "w") as f:
                f.write(text)
            done = subprocess.run([PROFCTL, "config", "check", path], capture_output=True, text=True)
            check(done.returncode == status and words in done.stdout + done.stderr, f"{done}")
            done = subprocess.run([PROFCTL, "-o", "json", "config", "check", path], capture_output=True, text=True)
            check(json.loads(done.stdout)["valid"] == (status == 0), done.stdout)


def wrong_usage():
    for arguments, words in ((["dance"], "unknown command dance"), (["continuous"], "profctl continuous --help"), (["get"], "ID"), (["get", "a", "b"], "too many"),
                             (["top", "--dance"], "--dance; see profctl top --help"), (["top", "-q"], "-q"), (["history", "--from"], "missing after --from"),
                             (["--dance"], "--dance; see profctl --help"), (["start", "-d", "0", "x"], "1 to 3600"),
                             (["start", "x", "-v", "dance", "--follow"], "--value 'dance': a cpu profile has no such value, only samples, cpu"), (["record", "-t", "io", "-v", "cpu", "--", "true"], "delay, bytes"),
                             (["top", "-v", "bytes"], "--value"), (["start", "x", "-v", "samples"], "--value needs --follow"), (["start", "x", "-n", "5"], "--top needs --follow"), (["start", "x", "-o", "pprof"], "--follow"),
                             (["record", "-t", "goroutine", "--", "true"], "profctl start pid:N --type goroutine"), (["compare", "a", "b", "-c", "1"], "0.5 to 0.99999"), (["--url", "http://x", "--socket", "y", "status"], "--url and --socket"),
                             (["history", "a"], "usage: profctl history; see")):
        done = subprocess.run([PROFCTL, *arguments], capture_output=True, text=True)
        check(done.returncode == 2 and words in done.stderr and done.stderr.startswith("profctl: ") and done.stderr.count("\n") == 1, f"{arguments}: {done}")
    group = subprocess.run([PROFCTL, "baseline", "--help"], capture_output=True, text=True)
    check(group.returncode == 0 and group.stdout.count("  baseline ") == 4, group)
    for arguments in ([], ["baseline", "dance"], ["-o", "xml", "status"], ["key", "create"]):
        done = subprocess.run([PROFCTL, *arguments], capture_output=True, text=True)
        check(done.returncode == 2, f"{arguments}: exit {done.returncode}: {done.stderr}")
    done = subprocess.run([PROFCTL, "--url", "http://127.0.0.1:1", "status"], capture_output=True, text=True)
    check(done.returncode == 1 and "cannot reach" in done.stderr, f"{done}")


def generated_documents():
    def run(*arguments):
        return subprocess.run([PROFCTL, *arguments], capture_output=True, text=True, check=True).stdout

    usage = run("--help")
    names = set(re.findall(r"^  ([a-z]+(?: [a-z]+)?)(?: [-\[A-Z]| {2,})", usage, re.M))
    options = set(re.findall(r"--([a-z][a-z-]+)", usage.split("Options:")[1]))
    check(len(names) >= 20 and len(options) >= 20, f"{names} {options}")
    manual = run("--generate", "man").replace("\\-", "-")
    for name in names:
        check(re.search(rf"^\.B {name}$", manual, re.M), f"the manual has no command {name}")
    for option in options:
        check(f"--{option}" in manual, f"the manual has no --{option}")
    if shutil.which("man"):
        os.makedirs(WORKLOADS, exist_ok=True)
        path = os.path.join(WORKLOADS, "profctl.1")
        with open(path, "w") as f:
            f.write(run("--generate", "man"))
        done = subprocess.run(["man", "--warnings", "-l", path], capture_output=True, text=True,
                              env=dict(os.environ, MANWIDTH="80", LC_ALL="C.UTF-8"))
        check(done.returncode == 0 and not done.stderr, done.stderr)
    for shell in ("bash", "zsh", "fish"):
        text = run("--generate", shell)
        for word in {part for name in names for part in name.split()} | options:
            check(re.search(rf"\b{word}\b", text), f"{shell} does not complete {word}")
        for line in text.splitlines():  # also where the shell is not installed: an apostrophe of a help text ends no quotation
            if "'" in line:
                shlex.split(line.rstrip("\\"))
        if shutil.which(shell):
            done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True)
            check(done.returncode == 0, f"{shell}: {done.stderr}")
    # bash completes for real
    for line, expected in (("profctl bas", "baseline"), ("profctl baseline cr", "create"),
                           ("profctl baseline create x --la", "--label"), ("profctl top --ty", "--type")):
        words = line.split()
        script = (run("--generate", "bash") + f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
                  "_profctl; echo \"${COMPREPLY[*]}\"\n")
        done = subprocess.run(["bash"], input=script, capture_output=True, text=True)
        check(done.stdout.strip() == expected, f"{line}: {done.stdout!r} {done.stderr}")


if __name__ == "__main__":
    main(profiles, nothing_to_see, the_busy_come_first, bytes_without_time, recording, comparing, gate, threads, keys, doctor, configuration, wrong_usage, generated_documents)
