# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""As the service runs: a user that is not root, with exactly the six capabilities of the unit file. It takes
a real profile of another user's process, and no process of the daemon holds more than it should."""

import os
import re
import shutil
import stat
import subprocess
import tempfile

from harness import BUILD, FAMILY_A, ROOT, Daemon, Skip, build_truth, check, cpu_ns, main, running, wait_until

SERVICE_USER, OTHER_USER = 64010, 64011
UNIT = os.path.join(ROOT, "tools/packaging/debian/profd.service")
NUMBERS = {"CAP_DAC_READ_SEARCH": 2, "CAP_SYS_PTRACE": 19, "CAP_SYSLOG": 34, "CAP_PERFMON": 38, "CAP_BPF": 39,
           "CAP_CHECKPOINT_RESTORE": 40}


def unit_capabilities(key):
    with open(UNIT) as f:
        found = re.search(rf"^{key}=(.*)$", f.read(), re.M)
    check(found, f"the unit has no {key}")
    return set(found.group(1).split())


def setpriv(user, capabilities=()):
    names = ",".join(["-all", *("+" + c.removeprefix("CAP_").lower() for c in sorted(capabilities))])
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", f"--inh-caps={names}",
            f"--ambient-caps={names}", f"--bounding-set={names}", "--no-new-privs"]


class ServiceDaemon(Daemon):
    """profd as SERVICE_USER, from a copy of the program that this user can reach."""

    def __init__(self, folder, capabilities, *args):
        super().__init__(*args, data_dir=os.path.join(folder, "data"))
        self.prefix = setpriv(SERVICE_USER, capabilities)
        self.program = shutil.copy(os.path.join(BUILD, "profd"), folder)
        os.mkdir(self.data_dir, 0o750)
        os.chown(self.data_dir, SERVICE_USER, SERVICE_USER)


def service_folder():
    if os.geteuid() != 0:
        raise Skip("needs root, to become other users")
    if not shutil.which("setpriv"):
        raise Skip("setpriv (util-linux) is not installed")
    with open("/proc/sys/kernel/perf_event_paranoid") as f:
        if int(f.read()) > 2:
            raise Skip("kernel.perf_event_paranoid is above 2: the package sets it, this host did not")
    folder = tempfile.TemporaryDirectory(prefix="profd-e2e-")
    os.chmod(folder.name, 0o755)
    return folder


def capability_names(pid, line):
    with open(f"/proc/{pid}/status") as f:
        mask = int(re.search(rf"^{line}:\s*([0-9a-f]+)$", f.read(), re.M).group(1), 16)
    known = {name for name, bit in NUMBERS.items() if mask >> bit & 1}
    check(bin(mask).count("1") == len(known), f"pid {pid}: {line} {mask:x} holds more than the unit grants")
    return known


def profiles_another_users_process():
    six = unit_capabilities("AmbientCapabilities")
    check(six == set(NUMBERS), f"the unit grants {six}")
    check(unit_capabilities("CapabilityBoundingSet") == six, "bounding set and ambient set differ")
    with service_folder() as folder:
        # Another user's program that nobody else may read: only the capabilities can.
        home = os.path.join(folder, "home")
        shutil.copytree(os.path.dirname(build_truth()), home)
        for name in os.listdir(home):
            os.chown(os.path.join(home, name), OTHER_USER, OTHER_USER)
            os.chmod(os.path.join(home, name), 0o500)
        os.chown(home, OTHER_USER, OTHER_USER)
        os.chmod(home, 0o700)
        with ServiceDaemon(folder, six) as daemon, \
                running(*setpriv(OTHER_USER), os.path.join(home, "truth_nofp")) as workload:
            session = daemon.start_profile(f"pid:{workload.pid}", 600)
            start = cpu_ns(workload.pid)
            wait_until(lambda: cpu_ns(workload.pid) - start > 3e9, 120, "the program to run")
            result = daemon.stop_profile(session)
            check(result["quality"]["samples"] > 100, result["quality"])

            def named():  # it has just begun, and looks at every file that the host runs
                again = daemon.get(f"{FAMILY_A}/{session}?top=1000").json()
                return again["quality"]["unknownFramePct"] < 2 and "main" in (f["funcName"] for f in again["topFunctions"])

            wait_until(named, 60, "names of the program")
            roots = {stack[0] for stack, _ in daemon.folded(result["id"])}
            check(not any(r == "[truncated]" for r in roots), f"cut stacks: {roots}")
            services = daemon.get("/api/v1/observability/services").json()["items"]
            exes = {p["exe"] for s in services for p in s["processes"] if p["pid"] == workload.pid}
            check(exes == {os.path.join(home, "truth_nofp")}, f"exe: {exes}")
            held = {comm: capability_names(pid, "CapEff") for comm, pid in daemon.children().items()}
            check(len(held) == 4, f"processes: {held}")
            check(sum(not caps for caps in held.values()) >= 2, f"server and symbolizer hold none: {held}")
            for pid in [*daemon.children().values(), daemon.process.pid]:
                capability_names(pid, "CapEff")
                check(os.stat(f"/proc/{pid}").st_uid in (0, SERVICE_USER), "another user")
            check(not [line for line in daemon.log if "cannot" in line], f"log: {daemon.log}")


def each_capability_is_needed_or_said():
    """Without one of them it either refuses with a line that names the remedy or says what it lacks."""
    with service_folder() as folder:
        program = shutil.copy(os.path.join(BUILD, "profd"), folder)
        for missing in ("CAP_BPF", "CAP_PERFMON"):
            done = subprocess.run([*setpriv(SERVICE_USER, set(NUMBERS) - {missing}), program, "--check",
                                   "--data-dir", os.path.join(folder, "data")],
                                  capture_output=True, text=True, timeout=60)
            check(done.returncode == 1, f"without {missing}: {done}")
            check(missing in done.stderr and len(done.stderr.splitlines()) == 1, f"{missing}: {done.stderr}")


def what_is_lost_is_said():
    with service_folder() as folder:
        program = shutil.copy(os.path.join(BUILD, "profd"), folder)
        held = set(NUMBERS) - {"CAP_SYSLOG", "CAP_SYS_PTRACE"}
        text = subprocess.run([*setpriv(SERVICE_USER, held), program, "--features"], capture_output=True, text=True,
                              timeout=60).stdout
        for name in set(NUMBERS) - {"CAP_BPF", "CAP_PERFMON"}:
            row = next(line for line in text.splitlines() if line.startswith(name + " "))
            check((" yes" in row) == (name in held) and (name in held or "AmbientCapabilities" in row), row)
        with ServiceDaemon(folder, held) as daemon:
            for name, lost in (("CAP_SYSLOG", "functions of the kernel"), ("CAP_SYS_PTRACE", "goroutines")):
                check(any(name in line and lost in line for line in daemon.log), f"{name}: {daemon.log}")


def socket_is_for_the_group():
    with service_folder() as folder:
        run = os.path.join(folder, "run")
        os.mkdir(run, 0o755)
        os.chown(run, SERVICE_USER, SERVICE_USER)
        path = os.path.join(run, "profd.sock")
        with ServiceDaemon(folder, set(NUMBERS), "--socket", path):
            mode = os.stat(path)
            check(stat.S_IMODE(mode.st_mode) == 0o660 and mode.st_uid == SERVICE_USER, oct(mode.st_mode))
            command = [os.path.join(folder, "profctl"), "--socket", path, "status"]
            shutil.copy(os.path.join(BUILD, "profctl"), folder)
            wait_until(lambda: subprocess.run(command, capture_output=True).returncode == 0, 60, "status as root")
            own = subprocess.run([*setpriv(SERVICE_USER), *command], capture_output=True, text=True)
            check(own.returncode == 0, own.stderr)
            other = subprocess.run([*setpriv(OTHER_USER), *command], capture_output=True, text=True)
            check(other.returncode == 1 and "cannot reach" in other.stderr, f"{other}")
        check(not os.path.exists(path), "the socket stays behind")


if __name__ == "__main__":
    main(profiles_another_users_process, each_capability_is_needed_or_said, what_is_lost_is_said, socket_is_for_the_group)
