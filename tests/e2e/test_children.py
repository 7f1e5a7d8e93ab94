# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""A recorded command with all that it starts: the sum of its processes is what the kernel accounts to them, whoever their
parents were and however short they live; and the command's own exit status."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

from harness import BUILD, FAMILY_A, Daemon, check, compile_workload, main, own_name, running, wait_until

PROFCTL = os.path.join(BUILD, "profctl")
RATE = 499
# Prints what its children and theirs used of CPUs, in ns, as the kernel accounts it to a parent that waits for them.
ACCOUNT = ("import resource,subprocess,sys;code=subprocess.call(sys.argv[2:]);u=resource.getrusage(resource.RUSAGE_CHILDREN);"
           "open(sys.argv[1],'w').write(str((u.ru_utime+u.ru_stime)*1e9));sys.exit(code)")


def record(daemon, *command, status=0, options=()):
    """The recorded command's profile."""
    done = subprocess.run([PROFCTL, "--url", f"http://127.0.0.1:{daemon.port}", "-o", "json", "record", "-r", str(RATE), *options, "--", *command],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    check(done.returncode == status, f"exit {done.returncode}, not {status}: {done.stdout[-300:]} {done.stderr[-300:]}")
    return json.loads(done.stdout[done.stdout.index("{"):])


def accounted(daemon, folder, *command):
    """The profile of a command, what is sampled of it, and what the kernel accounts to it, in ns."""
    path, program = os.path.join(folder, "used"), os.path.realpath(sys.executable)
    result = record(daemon, sys.executable, "-c", ACCOUNT, path, *command)
    check(result["totalValue"] == sum(p["value"] for p in result["processes"]) or len(result["processes"]) == 1000, "processes sum up")
    accountant = [p["value"] for p in result["processes"] if p["exe"] == program]
    check(len(accountant) == 1, f"{accountant}")
    with open(path) as f:
        return result, result["totalValue"] - accountant[0], float(f.read())


def check_sum(got, used, allowed=0.02):
    """Five deviations of a sampled sum beside what accounting and sampling differ by."""
    allowed += 5 * (1e9 / max(used, 1) / RATE) ** 0.5
    check(abs(got - used) <= allowed * used, f"{got / 1e6:.0f} ms sampled of {used / 1e6:.0f} ms, give or take {100 * allowed:.0f} %")


def of_program(result, name):
    return [p for p in result["processes"] if os.path.basename(p["exe"]) == name]


@contextlib.contextmanager
def spinner():
    """A program of a name that nobody else has, and a folder."""
    with own_name(compile_workload("spin.c", "-O1", output="spin")) as spin, tempfile.TemporaryDirectory() as folder:
        yield spin, folder


def a_build():
    """make, which is seldom on a CPU itself: the compiler's processes live for some ten to some hundred milliseconds."""
    with Daemon() as daemon, tempfile.TemporaryDirectory() as folder:
        for i in range(12):
            with open(os.path.join(folder, f"f{i}.c"), "w") as f:
                f.write("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n")
                for j in range(60):
                    f.write(f"int f{i}_{j}(int *a, int n) {{ int s = 0; for (int k = 0; k < n; k++) s += a[k] * {j} + a[(k * 7) % n]; "
                            f"printf(\"%d\", s); return s; }}\n")
            with open(os.path.join(folder, "main.c"), "w") as f:
                f.write("int main(void) { return 0; }\n")
        with open(os.path.join(folder, "Makefile"), "w") as f:
            f.write("prog: $(patsubst %.c,%.o,$(wildcard *.c))\n\t/usr/bin/gcc -o $@ $^\n%.o: %.c\n\t/usr/bin/gcc -O2 -c -o $@ $<\n")
        result, got, used = accounted(daemon, folder, "make", "-j2", "-C", folder)
        programs = {os.path.basename(p["exe"]) for p in result["processes"]}
        check("cc1" in programs and any(name.endswith("as") for name in programs), f"{programs}")
        check(len(of_program(result, "cc1")) == 13, f"each process of its own: {result['processes'][:20]}")
        check_sum(got, used)


def parents_that_are_gone():
    """Children of parents that exited at once, daemons that nobody waits for, and programs started by programs."""
    with spinner() as (spin, folder), Daemon() as daemon:
        path, name = os.path.join(folder, "pid"), os.path.basename(spin)
        # each ( … & ) is a shell that ends at once; the last two are the child's and the grandchild's of such ones
        script = (f"(({spin} 700; echo $? >{folder}/a) &) ; (((({spin} 300 {spin} 400; echo $? >{folder}/b) &) &) &) ; "
                  f"setsid sh -c '{spin} 700 & echo $! >{path}' ; "
                  f"while [ ! -s {folder}/a ] || [ ! -s {folder}/b ] || kill -0 $(cat {path}) 2>/dev/null; do sleep 0.05; done")
        result = record(daemon, "sh", "-c", script)
        found = of_program(result, name)
        check(len(found) == 3, f"{result['processes']}")
        for process in found:
            check_sum(process["value"], 700e6)


def short_lives():
    """A storm of processes of 40 ms: none is lost, and nobody else's is taken. (One of 20 ms in a thousand has no sample or one where
    others take turns with it: its slices are hardly longer than the 2 ms between samples.)"""
    with spinner() as (spin, folder), own_name(spin) as other, Daemon() as daemon, running(other, "600000", ready=False):
        result, got, used = accounted(daemon, folder, "sh", "-c", f"i=0; while [ $i -lt 100 ]; do {spin} 40; i=$((i+1)); done")
        found = of_program(result, os.path.basename(spin))
        check(len(found) == 100, f"{len(found)} of 100 programs: {sorted(p['value'] for p in found)}")
        check_sum(got, used)
        check(not of_program(result, os.path.basename(other)), "what others run is not the command's")
        check(result["quality"]["lost"] == 0, f"{result['quality']}")


def a_storm():
    """Thousands of processes cost bounded memory, and the next session works."""
    with spinner() as (spin, folder), Daemon() as daemon:
        record(daemon, spin, "100")
        before = daemon.resident_mb()
        result, got, used = accounted(daemon, folder, "sh", "-c", "i=0; while [ $i -lt 4000 ]; do /bin/true; i=$((i+1)); done")
        check(len(result["processes"]) <= 1000, f"{len(result['processes'])} processes are listed")
        check_sum(got, used, 0.1)
        check(daemon.resident_mb() < before + 60, f"{daemon.resident_mb():.0f} MB after {before:.0f}")
        check_sum(record(daemon, spin, "1000")["totalValue"], 1e9, 0.03)


def waits():
    """Waits of children are theirs, too."""
    with spinner() as (_, folder), Daemon() as daemon:
        sleeper = os.path.join(folder, "sleeper")
        shutil.copy(shutil.which("sleep"), sleeper)
        result = record(daemon, "sh", "-c", f"({sleeper} 0.5 &); {sleeper} 1", options=("-t", "offcpu"))
        values = sorted(p["value"] for p in of_program(result, "sleeper"))
        check(len(values) == 2 and abs(values[0] - 0.5e9) < 0.1e9 and abs(values[1] - 1e9) < 0.1e9, f"{result['processes']}")


def one_process_where_asked():
    with spinner() as (spin, folder), Daemon() as daemon:
        result = record(daemon, "sh", "-c", f"{spin} 400; :", options=("--no-children",))
        check(not of_program(result, os.path.basename(spin)), f"{result['processes']}")
        # a program that runs: with children only where that is asked for, those that it has too
        with running("sh", "-c", f"{spin} 60000 & echo ready; {spin} 60000; wait") as shell:
            children = lambda: open(f"/proc/{shell.pid}/task/{shell.pid}/children").read().split()
            wait_until(lambda: len(children()) == 2, 60, "two children")
            try:
                session = daemon.start_profile(f"pid:{shell.pid}", 600, children=True)
                alone = daemon.start_profile(f"pid:{shell.pid}", 600)  # another selector: no conflict
                names = lambda: [os.path.basename(p["exe"]) for p in daemon.get(f"{FAMILY_A}/{session}").json()["processes"]]
                wait_until(lambda: names().count(os.path.basename(spin)) == 2, 60, "both children")
                check(daemon.stop_profile(session)["target"].endswith("+children"), "the target says it")
                check(not daemon.get(f"{FAMILY_A}/{alone}").json()["processes"], "the other one follows the shell alone")
            finally:
                for child in children():
                    os.kill(int(child), signal.SIGKILL)
        for body in ({"service": f"pid:{os.getpid()}", "profileType": "memory"}, {"service": "*", "profileType": "cpu"}):
            answer = daemon.request("POST", FAMILY_A + "/start", {**body, "children": True})
            check(answer.status == 400 and b"children" in answer.body, f"{answer}")


def a_shell_that_execs():
    """Whoever starts a service through a shell and asks for its profile at once gets it, wherever the shell is on its way to exec."""
    with spinner() as (spin, _), Daemon() as daemon:
        for i in range(60):
            with running("sh", "-c", f"i=0; while [ $i -lt {random.randrange(4000)} ]; do i=$((i+1)); done; exec {spin} 60000", ready=False) as shell:
                session = daemon.start_profile(f"pid:{shell.pid}", 600)
                if i % 20 == 0:
                    names = lambda: [os.path.basename(p["exe"]) for p in daemon.get(f"{FAMILY_A}/{session}").json()["processes"]]
                    wait_until(lambda: os.path.basename(spin) in names(), 60, "what it became")
                daemon.request("DELETE", f"{FAMILY_A}/{session}")


def servers_that_die():
    """The processes that a command started are still known after the server was killed, also those
    that started meanwhile."""
    with spinner() as (spin, folder), Daemon() as daemon:
        script = f"touch {folder}/begun; i=0; while [ $i -lt 60 ]; do {spin} 50; i=$((i+1)); done; touch {folder}/ended"
        with running("sh", "-c", f"echo ready; while [ ! -e {folder}/go ]; do sleep 0.05; done; {script}; sleep 60") as shell:
            session = daemon.start_profile(f"pid:{shell.pid}", 600, rate=RATE, children=True)
            open(os.path.join(folder, "go"), "w").close()
            wait_until(lambda: os.path.exists(os.path.join(folder, "begun")), 60, "the command")
            os.kill(daemon.children()["profd-server"], signal.SIGKILL)
            wait_until(lambda: os.path.exists(os.path.join(folder, "ended")), 60, "its end")
            result = daemon.stop_profile(session)
        check(len(of_program(result, os.path.basename(spin))) == 60, f"{len(result['processes'])} processes")
        check_sum(sum(p["value"] for p in of_program(result, os.path.basename(spin))), 3e9, 0.05)


def statuses():
    with Daemon() as daemon:
        record(daemon, "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 7", status=7)
        record(daemon, "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; kill -TERM $$", status=128 + signal.SIGTERM)
        command = [PROFCTL, "--url", f"http://127.0.0.1:{daemon.port}", "record", "--"]
        for words, status in ((("true",), 0), (("false",), 1), (("/nonexistent/program",), 127), (("/etc/passwd",), 126)):
            done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=60)
            check(done.returncode == status, f"{words}: {done}")
        done = subprocess.run([*command[:-1], "-t", "dance", "--", "true"], capture_output=True, text=True, timeout=60)
        check(done.returncode == 2 and "must be a profile type" in done.stderr, f"what profctl failed at: {done}")
    done = subprocess.run([*command, "false"], capture_output=True, text=True, timeout=60)
    check(done.returncode == 1 and "cannot reach profd" in done.stderr, f"without a daemon: {done}")


if __name__ == "__main__":
    main(a_build, parents_that_are_gone, short_lives, a_storm, waits, one_process_where_asked, a_shell_that_execs, servers_that_die, statuses)
