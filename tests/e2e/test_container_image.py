# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""The container image with the rights that its chart gives it: it profiles a container beside it."""

import gzip
import json
import os
import shutil
import subprocess
import tempfile

from harness import BUILD, ROOT, Skip, check, compile_workload, main, wait_until

CAPABILITIES = ("BPF", "PERFMON", "SYS_PTRACE", "CHECKPOINT_RESTORE", "SYSLOG", "DAC_READ_SEARCH")
LIMITS = ("--ulimit", "nofile=16384:16384", "--ulimit", "nproc=1000:1000")


def podman(*args, check_it=True):
    run = subprocess.run(["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs", *args], capture_output=True, text=True)
    check(run.returncode == 0 or not check_it, f"podman {' '.join(args)}: {run.stderr}")
    return run


class Containers:
    """Images and containers whose names tell whose they are."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="profd-image-")
        self.name = f"profd-image-{os.getpid()}"
        self.beside = f"beside-{os.getpid()}"

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind:
            print(podman("logs", self.name, check_it=False).stderr[-3000:])
        for name in (self.name, self.beside):
            podman("rm", "-f", "-t", "5", name, check_it=False)
            podman("rmi", "-f", f"localhost/{name}:1", check_it=False)
        shutil.rmtree(self.folder)

    def run_beside(self):
        os.makedirs(f"{self.folder}/beside")
        shutil.copy(compile_workload("calm.c", "-O1", "-g", "-static", output="calm_static"), f"{self.folder}/beside/program")
        subprocess.run(["tar", "-C", f"{self.folder}/beside", "-cf", f"{self.folder}/beside.tar", "."], check=True)
        podman("import", f"{self.folder}/beside.tar", f"localhost/{self.beside}:1")
        run = podman("run", "-d", "--name", self.beside, "--network", "none", *LIMITS, f"localhost/{self.beside}:1", "/program",
                     check_it=False)
        if run.returncode != 0:
            raise Skip(f"Podman cannot run a container here: {run.stderr.strip()[-200:]}")

    def run_profd(self):
        """As the chart does: no privilege but six capabilities, the node's processes, runtimes' folders read-only."""
        caps = [f"--cap-add={name}" for name in CAPABILITIES]
        podman("run", "-d", "--name", self.name, "--pid", "host", "--network", "host", "--read-only", "--cap-drop=ALL", *caps,
               "--security-opt", "seccomp=unconfined", "--security-opt", "no-new-privileges", *LIMITS,
               "-v", "/etc/passwd:/host/etc/passwd:ro",
               "-v", "/var/lib/containers/storage/overlay-containers:/host/var/lib/containers/storage/overlay-containers:ro",
               "--tmpfs", "/run/profd", "--tmpfs", "/tmp", f"localhost/{self.name}:1", "--listen", "127.0.0.1:0",
               "--socket", "/run/profd/profd.sock")

    def profctl(self, *args):
        return podman("exec", self.name, "/usr/bin/profctl", *args, check_it=False)


def packed_bytes(path):
    with open(path, "rb") as f:
        return len(gzip.compress(f.read(), 6))


def image():
    made = subprocess.run([f"{ROOT}/tools/packaging/container/rootfs", os.path.relpath(BUILD, ROOT)], capture_output=True, text=True,
                          cwd=ROOT)
    check(made.returncode == 0, made.stderr)
    size = packed_bytes(f"{BUILD}/container/rootfs.tar")
    check(size <= 60e6, f"{size / 1e6:.1f} MB compressed")
    with Containers() as c:
        podman("build", "-t", f"localhost/{c.name}:1", f"{BUILD}/container")
        c.run_beside()
        c.run_profd()
        wait_until(lambda: c.profctl("services").returncode == 0, 60, "profd to answer in its container")
        services = wait_until(lambda: [s for s in json.loads(c.profctl("services", "-o", "json").stdout)["items"]
                                       if s["name"] == c.beside], 60, "the container beside it")
        check(services[0]["image"] == f"localhost/{c.beside}:1", services)
        run = c.profctl("start", c.beside, "--duration", "3", "--follow")
        check(run.returncode == 0 and "main" in run.stdout, (run.stdout, run.stderr))
    print(f"image: {size / 1e6:.1f} MB compressed")


main(image)
