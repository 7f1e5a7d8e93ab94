# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Starts that cannot work say in one line what is missing and what to do, exit non-zero and leave nothing
behind; the informational commands answer."""

import concurrent.futures
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from harness import BUILD, FAMILY_A, Daemon, Skip, check, main, running, wait_until

PROFD = os.path.join(BUILD, "profd")
PROFCTL = os.path.join(BUILD, "profctl")


def own_in_run():
    """Others make and remove there what they like."""
    return {name for name in os.listdir("/run") if "profd" in name}


def refused(arguments, words, user=None, inside=()):
    """Runs profd, expects exit != 0 and exactly one line on standard error that holds every word."""
    scratch = tempfile.mkdtemp(prefix="profd-e2e-")
    os.chmod(scratch, 0o755)
    data = os.path.join(scratch, "data")
    command = [*inside, PROFD, *[a.replace("DATA", data).replace("SCRATCH", scratch) for a in arguments]]
    if user:
        if not shutil.which("setpriv"):
            raise Skip("setpriv (util-linux) is not installed")
        reachable = os.path.join(scratch, "profd")
        shutil.copy(PROFD, reachable)
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", reachable, *command[1:]]
    before = own_in_run()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        check(done.returncode not in (0, None) and done.returncode > 0, f"exit {done.returncode}: {lines}")
        check(len(lines) == 1, f"not one line: {lines}")
        for word in words:
            check(word in lines[0], f"'{word}' not in: {lines[0]}")
        left = [f for f in os.listdir(scratch) if f not in ("profd", "c.conf", "conf.d")]
        check(not left, f"left behind: {left}")
        check(own_in_run() <= before, "something new in /run")
        return lines[0]
    finally:
        shutil.rmtree(scratch)


def without_privileges():
    refused(["--listen", "127.0.0.1:0", "--data-dir", "DATA"], ["CAP_"], user="65534")


def without_btf():
    refused(["--listen", "127.0.0.1:0", "--data-dir", "DATA", "--disable-feature=btf"], ["btf", "start without"])


def port_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(["--listen", f"127.0.0.1:{port}", "--data-dir", "DATA"], [str(port), "--listen"])


def address_malformed():
    refused(["--listen", "localhost", "--data-dir", "DATA"], ["ADDR:PORT"])


def data_directory_not_writable():
    refused(["--listen", "127.0.0.1:0", "--data-dir", "/proc/nowhere"], ["/proc/nowhere", "--data-dir"])


def data_directory_in_use():
    with Daemon() as daemon:
        refused(["--listen", "127.0.0.1:0", "--data-dir", daemon.data_dir], ["another profd"])


def configuration_errors():
    cases = [
        ("[server]\nlisten = 127.0.0.1:0\ncolour = red\n", [":3:", "colour", "[server]", "known: listen socket public_url"]),
        ("[sever]\nlisten = 127.0.0.1:0\n", [":1:", "[sever]"]),
        ("# nothing\n[sever]\n", [":2:", "[sever]"]),
        ("[limits]\nbody_bytes = lots\n", [":2:", "body_bytes"]),
        ("[store]\nretention_days = 0\n", [":2:", "retention_days", "from 1 to 3650"]),
        ("[store]\nurl = clickhouse://localhost/profd\n", [":2:", "sqlite:PATH", "host:port/database"]),
        ("[store]\ndata_dir =\n", [":2:", "data_dir", "a folder"]),
        ("[server]\nlisten = 8088\n", [":2:", "listen", "ADDR:PORT"]),
        ("[server]\nlisten = 127.0.0.1:65536\n", [":2:", "listen", "ADDR:PORT"]),
        ("[server]\nsocket = /run/" + "s" * 104 + "\n", [":2:", "socket", "107"]),
        ("[server]\npublic_url = profd.example\n", [":2:", "public_url", "https://"]),
        ("[collect]\ndebuginfod_urls = http://a http:// http://b\n", [":2:", "debuginfod_urls", "https://"]),
        ("[collect]\ncpu_budget_pct = -1\n", [":2:", "cpu_budget_pct"]),
        ("[continuous]\nspan = 10\n", [":2:", "span", "10s"]),
        ("listen\n", [":1:"]),
        ("[auth]\njwt_algorithm = none\n", [":2:", "jwt_algorithm", "EdDSA"]),
        ("[tenant a/b]\nservices = x\n", [":1:", "a/b"]),
        ("[tenant t]\nservices = " + "x " * 65 + "\n", [":2:", "[tenant t]", "64"]),
        ("[service x]\nport = http\n", [":2:", "port", "65535"]),
        ("[service x]\nport = 65536\n", [":2:", "port", "65535"]),
        ("[service pid:1]\nunit = x\n", [":1:", "[service pid:1]"]),
        ("[service *]\nunit = x\n", [":1:", "[service *]"]),
        ("[service " + "x" * 256 + "]\nunit = x\n", [":1:", "255"]),
        ("[export x]\nkind = carrier-pigeon\n", ["kind"]),
        ("[export x]\nkind = otlp\nurl = collector:4318\n", [":3:", "url", "http://"]),
        ("[export x]\nkind = otlp\nurl = http://\n", [":3:", "url", "http://"]),
    ]
    for text, words in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "profd.conf")
            with open(path, "w") as f:
                f.write(text)
            refused(["--config", path, "--data-dir", "DATA"], words)
    refused(["--config", "/nonexistent.conf"], ["/nonexistent.conf", "--config"])


def drop_ins_are_read():
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "conf.d"))
        with open(os.path.join(folder, "profd.conf"), "w") as f:
            f.write("[limits]\nconnections = 5\n")
        with open(os.path.join(folder, "conf.d", "10-bad.conf"), "w") as f:
            f.write("[limits]\n\nconnections = 0\n")
        refused(["--config", f"{folder}/profd.conf", "--data-dir", "DATA"], ["10-bad.conf:3:", "connections"])


def unknown_feature():
    refused(["--listen", "127.0.0.1:0", "--data-dir", "DATA", "--disable-feature=warp"], ["warp"])


def in_a_pid_namespace_of_its_own():
    """In a pid namespace other than the host's profd refuses to start: samples carry the host's
    pids, which /proc does not show there."""
    refused(["--listen", "127.0.0.1:0", "--data-dir", "DATA"], ["host_pids", "--pid=host"],
            inside=("unshare", "--pid", "--fork", "--mount-proc"))


def each_feature_disabled():
    """Without a required kernel feature profd refuses to start and names the remedy. For every
    other feature --features says what profd does instead."""
    features = subprocess.run([PROFD, "--features"], capture_output=True, text=True, check=True).stdout
    rows = dict(line.split(None, 1) for line in features.splitlines())
    others = [name for name in rows if name.startswith(("CAP_", "type:")) or name in ("landlock", "loading")]
    names = [name for name in rows if name not in others]
    check(len(names) >= 11 and len(others) == 4 + 9 + 2, features)
    verified = int(re.search(r"; (\d+) instructions verified", rows["loading"])[1])
    # programs at the ends of the kernel's functions make it more: 302,000 on 6.1
    check(100_000 < verified < (350_000 if rows["fexit"].startswith("yes") else 280_000), rows["loading"])

    def disabled(name):
        text = subprocess.run([PROFD, "--features", f"--disable-feature={name}"], capture_output=True, text=True,
                              check=True).stdout
        row = next(line for line in text.splitlines() if line.startswith(name + " "))
        check("disabled" in row and ("required" in row or len(row.split("instead: ")[1]) > 10), row)
        done = subprocess.run([PROFD, "--check", f"--disable-feature={name}"], capture_output=True, text=True)
        check((done.returncode == 0) == ("required" not in row), f"{name}: {done}")
        check(done.returncode == 0 or f"without --disable-feature={name}" in done.stderr, done.stderr)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # each loads all programs
        list(pool.map(disabled, names))


def elsewhere_takes_a_key_and_encryption():
    """An address that other hosts can reach is served only with keys and a certificate, or when the
    configuration says that something else encrypts."""
    with tempfile.TemporaryDirectory() as folder:
        path, everywhere = os.path.join(folder, "s"), ["--no-collect", "--listen", "0.0.0.0:0", "--data-dir", folder]

        def refused_to_listen(words):
            done = subprocess.run([PROFD, *everywhere], capture_output=True, text=True, timeout=60)
            check(done.returncode > 0 and words in done.stderr and done.stderr.count("\n") == 1, f"{done}")

        def key(*words):
            done = subprocess.run([PROFCTL, "--socket", path, "key", *words], capture_output=True, text=True, check=True)
            return done.stdout.splitlines()

        refused_to_listen("profctl key create")
        with Daemon("--no-collect", "--socket", path, data_dir=folder):
            key("create", "--name", "first")
        refused_to_listen("tls_certificate")
        with Daemon(*everywhere, "--socket", path, "--set", "server.cleartext=yes", data_dir=folder) as daemon:
            daemon.get("/api/v1/observability/services", status=401)
            key("delete", key("list")[-1].split()[0])
            daemon.get("/api/v1/observability/services", status=401)  # without any key it is not open to all


def informational_commands():
    version = subprocess.run([PROFD, "--version"], capture_output=True, text=True)
    check(version.returncode == 0 and version.stdout.startswith("profd "), version.stdout)
    features = subprocess.run([PROFD, "--features"], capture_output=True, text=True)
    check(features.returncode == 0 and "bpf_loop" in features.stdout, features.stdout)
    with tempfile.TemporaryDirectory() as folder:
        checked = subprocess.run([PROFD, "--check", "--data-dir", folder], capture_output=True, text=True)
        check(checked.returncode == 0 and not os.listdir(folder), checked.stderr)


def processes_are_known_at_once():
    """Whoever asks a daemon that has just begun to listen is not told that there is no service."""
    with Daemon() as daemon:
        pids = [p["pid"] for item in daemon.get("/api/v1/observability/services").json()["items"] for p in item["processes"]]
        check(os.getpid() in pids, pids)
        check(daemon.get("/readyz").status == 200, "it knows the processes and is not ready")


LEADERLESS = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *stay(void *arg) { sleep(600); return arg; }
int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, stay, NULL);
	puts("ready");
	fflush(stdout);
	pthread_exit(NULL);
}
"""


def who_has_ended_is_no_process():
    """Also who had when the daemon started, and waits for its parent to look; but not whose first thread alone has."""
    with tempfile.TemporaryDirectory(prefix="profd-e2e-") as folder:
        program = f"{folder}/leaderless"
        subprocess.run(["gcc", "-x", "c", "-", "-o", program, "-lpthread"], input=LEADERLESS, text=True, check=True)
        ended = subprocess.Popen(["true"])
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with running(program) as lives:
            def state():
                with open(f"/proc/{lives.pid}/stat") as f:
                    return f.read().rsplit(") ", 1)[1][0]

            wait_until(lambda: state() == "Z", 30, "its first thread to end")
            with Daemon() as daemon:
                pids = [p["pid"] for item in daemon.get("/api/v1/observability/services").json()["items"] for p in item["processes"]]
                check(ended.pid not in pids and lives.pid in pids, f"{ended.pid} has ended, {lives.pid} has not: {pids}")
                answer = daemon.request("POST", FAMILY_A + "/start", {"service": f"pid:{ended.pid}", "profileType": "cpu"})
                check(answer.status == 404 and answer.json()["error_code"] == "UnknownService", answer)
        ended.wait()


def open_files_are_not_limited_by_a_shell():
    daemon = Daemon()
    daemon.prefix = ["prlimit", "--nofile=256:5000"]
    with daemon:
        for pid in (daemon.process.pid, daemon.children()["profd-collect"], daemon.children()["profd-server"]):
            limit = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            check(limit == (5000, 5000), f"{pid}: {limit}")


TRACER = """
import ctypes, sys, time
if ctypes.CDLL(None, use_errno=True).ptrace(0x4206, int(sys.argv[1]), None, None) != 0:  # PTRACE_SEIZE
    sys.exit(f"ptrace: {ctypes.get_errno()}")
print("seized", flush=True)
time.sleep(600)
"""


def stop_does_not_wait_for_what_cannot_be_killed():
    """As of a process that hangs in the kernel, the end of one that is traced is not to be had."""
    daemon = Daemon().start()
    pid = daemon.children()["profd-symbols"]
    with subprocess.Popen([sys.executable, "-c", TRACER, str(pid)], stdout=subprocess.PIPE, text=True) as tracer:
        try:
            check(tracer.stdout.readline() == "seized\n", "the process could not be traced")
            begin = time.monotonic()
            check(daemon.stop() == 0, f"exit {daemon.process.returncode}: {daemon.log}")
            took = time.monotonic() - begin
        finally:
            tracer.kill()
    check(took < 30, f"it took {took:.0f} s")
    said = [line for line in daemon.log if "symbolizer" in line and "cannot be killed" in line]
    check(len(said) == 1, daemon.log)
    shutil.rmtree(daemon.data_dir)


def stop_is_clean():
    daemon = Daemon().start()
    children = daemon.children()
    check(len(children) == 4, f"processes: {children}")
    check(daemon.stop() == 0, f"exit {daemon.process.returncode}: {daemon.log}")
    for comm, pid in children.items():
        check(not os.path.exists(f"/proc/{pid}"), f"{comm} lives on")
    shutil.rmtree(daemon.data_dir)


if __name__ == "__main__":
    main(without_privileges, without_btf, port_taken, address_malformed, data_directory_not_writable,
         data_directory_in_use, configuration_errors, drop_ins_are_read, unknown_feature,
         in_a_pid_namespace_of_its_own,
         each_feature_disabled, elsewhere_takes_a_key_and_encryption, informational_commands, processes_are_known_at_once,
         who_has_ended_is_no_process, open_files_are_not_limited_by_a_shell, stop_does_not_wait_for_what_cannot_be_killed, stop_is_clean)
