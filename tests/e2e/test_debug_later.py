# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Debug information that appears after a program was profiled: installed on the host, or in a debuginfod server.
Stored sessions answer with the better names, also when the program is long gone and the daemon another one."""

import contextlib
import csv
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from harness import FAMILY_A, ROOT, Daemon, check, compile_workload, cpu_ns, free_port, main, wait_until

LEAVES = {"leaf_a": 0.6, "leaf_b": 0.4}


class Program:
    """A stripped program whose build-id nobody has seen, and its debug file."""

    def __init__(self, name):
        self.build_id = secrets.token_hex(20)
        self.path = compile_workload("truth_plain.c", "-O2", "-g", f"-Wl,--build-id=0x{self.build_id}",
                                     output=f"{name}-{os.getpid()}")
        self.debug = self.path + ".debug"
        subprocess.run(["objcopy", "--only-keep-debug", self.path, self.debug], check=True)
        subprocess.run(["strip", self.path], check=True)

    def remove(self):
        os.unlink(self.path)
        os.unlink(self.debug)


@contextlib.contextmanager
def program(name):
    it = Program(name)
    try:
        yield it
    finally:
        it.remove()


def profile(daemon, it):
    """Id of a finished session of @it."""
    process = subprocess.Popen([it.path, "100"], stdout=subprocess.DEVNULL)
    try:
        session = daemon.start_profile(f"pid:{process.pid}", 300, rate=199)
        start = cpu_ns(process.pid)
        wait_until(lambda: cpu_ns(process.pid) - start > 0.6e9, 60, "the program to run")
        daemon.stop_profile(session)
    finally:
        process.kill()
        process.wait()
    return session


def named(daemon, session):
    """{leaf: share} of the samples below the program's functions."""
    stacks = daemon.folded(session)
    total = sum(v for _, v in stacks)
    found = {leaf: sum(v for s, v in stacks if leaf in s) / total for leaf in LEAVES}
    return found if any(found.values()) else None


def check_names(daemon, session):
    """Waits for the names; checks shares, and that lines came along."""
    got = wait_until(lambda: named(daemon, session), 90, "the better names")
    for leaf, due in LEAVES.items():
        check(abs(got[leaf] - due) < 0.2, f"shares {got}")
    text = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=csv").body.decode()
    rows = {row["funcName"]: row for row in csv.DictReader(text.splitlines())}
    check(rows["leaf_a"]["file"].endswith("/truth_plain.c") and int(rows["leaf_a"]["line"]) > 0, f"line: {rows['leaf_a']}")
    # chain_a calls itself and leaf_a: each line that calls holds all below it, once for a stack
    lines = {line["line"]: line for line in daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=lines&function=chain_a").json()["lines"]}
    with open(os.path.join(ROOT, "tests/workloads/truth_plain.c")) as f:
        source = f.read().splitlines()
    for call in ("\t\tchain_a(depth - 1);", "\t\tleaf_a();"):
        line = lines.get(source.index(call) + 1)
        check(line and abs(line["cumulativePct"] / 100 - LEAVES["leaf_a"]) < 0.2, f"{call}: {lines}")


def installed_later():
    """The program has ended and the daemon was restarted before its debug file is installed."""
    with program("later") as it:
        folder = f"/usr/lib/debug/.build-id/{it.build_id[:2]}"
        installed = f"{folder}/{it.build_id[2:]}.debug"
        data_dir = tempfile.mkdtemp(prefix="profd-e2e-")
        made = not os.path.isdir(folder)
        try:
            with Daemon(data_dir=data_dir) as daemon:
                session = profile(daemon, it)
            with Daemon(data_dir=data_dir) as daemon:
                check(not named(daemon, session), "names without debug information")
                os.makedirs(folder, exist_ok=True)
                shutil.copy(it.debug, installed)
                check_names(daemon, session)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(installed)
                if made:
                    os.rmdir(folder)
            shutil.rmtree(data_dir, ignore_errors=True)


@contextlib.contextmanager
def debuginfod(folder, build_id):
    """A real server of the files in @folder; yields (url, requests()), the build-ids asked for."""
    port = free_port()
    log = open(os.path.join(folder, "log"), "w+")
    server = subprocess.Popen(["debuginfod", "-v", "-d", os.path.join(folder, "db"), "-p", str(port), "-F", folder],
                              stdout=log, stderr=log, env=dict(os.environ, DEBUGINFOD_URLS=""))

    def requests():
        with open(log.name) as f:
            return re.findall(r"UA:profd .*GET /buildid/([0-9a-f]+)/debuginfo", f.read())

    def has_it():
        check(server.poll() is None, "debuginfod has ended")
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/buildid/{build_id}/debuginfo", timeout=10).status == 200

    try:
        wait_until(has_it, 60, "debuginfod to have read its folder")
        yield f"http://127.0.0.1:{port}", requests
    finally:
        server.terminate()
        server.wait()
        log.close()


def fetched():
    """From debuginfod where the configuration names one, and not otherwise."""
    with program("fetched") as it, program("absent") as absent, tempfile.TemporaryDirectory() as folder:
        shutil.copy(it.debug, folder)
        with debuginfod(folder, it.build_id) as (url, requests):
            with Daemon(env={"DEBUGINFOD_URLS": url}) as daemon:
                check(not named(daemon, profile(daemon, it)), "the stripped program has names")
                check(not requests(), "debuginfod was asked, though it is off")
            config = os.path.join(folder, "profd.conf")
            with open(config, "w") as f:
                f.write(f"[collect]\ndebuginfod_urls = http://127.0.0.1:1 {url}/\n")
            with Daemon("--config", config) as daemon:
                session = profile(daemon, it)
                check_names(daemon, session)
                session = profile(daemon, absent)
                wait_until(lambda: not named(daemon, session) and absent.build_id in requests(), 60, "a question for it")
                # names that may improve are asked for again after ten seconds
                time.sleep(11)
                check(not named(daemon, session), "names from nowhere")
                asked = requests()
            again = {i for i in asked if asked.count(i) > 1}
            check(not again, f"asked for again: {again}")


if __name__ == "__main__":
    main(installed_later, fetched)
