# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Containers by the names that their runtimes keep on the host: a real one of Podman's, and processes in control groups
of other runtimes, whose state directories are below a root of the test's own."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile

from harness import FAMILY_A, Daemon, Skip, check, compile_workload, group, main, own_name, running, wait_until

IMAGE = "localhost/profd-test:1"


def services(daemon):
    return daemon.get("/api/v1/observability/services").json()["items"]


def find(daemon, name):
    return wait_until(lambda: next((s for s in services(daemon) if s["name"] == name), None), 30, f"service {name}")


# ---- Podman ----------------------------------------------------------------------------------------------------------


class Podman:
    """Podman with a storage of the test's own would not be where the host's is: names of the test tell its containers."""

    def __init__(self):
        self.name = f"profd-test-{os.getpid()}"

    def run(self, *args):
        return subprocess.run(["podman", "--runtime", "runc", "--cgroup-manager", "cgroupfs", *args], capture_output=True,
                              text=True)

    def make_image(self, program, folder):
        os.makedirs(f"{folder}/rootfs")
        shutil.copy(program, f"{folder}/rootfs/program")
        subprocess.run(["tar", "-C", f"{folder}/rootfs", "-cf", f"{folder}/image.tar", "."], check=True)
        made = self.run("import", f"{folder}/image.tar", IMAGE)
        check(made.returncode == 0, made.stderr)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.run("rm", "-f", "-t", "0", self.name)
        self.run("rmi", "-f", IMAGE)


def real_container():
    program = compile_workload("calm.c", "-O1", "-g", "-static", output="calm_static")
    folder = tempfile.mkdtemp(prefix="profd-image-")
    try:
        with Podman() as podman, Daemon() as daemon:
            podman.make_image(program, folder)
            made = podman.run("run", "-d", "--name", podman.name, "--network", "none", "--ulimit", "nofile=1024:1024",
                              "--ulimit", "nproc=1000:1000", IMAGE, "/program")
            if made.returncode != 0:
                raise Skip(f"Podman cannot run a container here: {made.stderr.strip()[-200:]}")
            service = find(daemon, podman.name)
            check(service["source"] == "container" and not service["inferred"], service)
            check((service["container"], service["image"]) == (podman.name, IMAGE), service)
            session = daemon.profile(podman.name, 2, rate=199)["id"]
            check(podman.run("rm", "-f", "-t", "0", podman.name).returncode == 0, "the container stays")
            gone_and_known(daemon, session, podman.name)
    finally:
        shutil.rmtree(folder)


def gone_and_known(daemon, session, name):
    wait_until(lambda: name not in [s["name"] for s in services(daemon)], 30, "the container to be gone")
    check(daemon.get(f"{FAMILY_A}/{session}").json()["service"] == name, "another name")
    everything = daemon.folded(session)
    check(any("main" in stack for stack, _ in everything), everything)
    for where in (f"container:{name}", f"image:{IMAGE}"):
        check(daemon.folded(session, f"&where={where}") == everything, where)
    check(not daemon.folded(session, "&where=container:another"), "another container's")
    check({stack[0] for stack, _ in daemon.folded(session, "&groupBy=container")} == {name}, "groups")


# ---- other runtimes --------------------------------------------------------------------------------------------------


def write(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f)


def faked_runtimes():
    docker, pod = (f"{os.getpid():x}".rjust(64, letter) for letter in "ab")
    uid = f"{os.getpid():08x}-2222-3333-4444-555555555555"
    root = tempfile.mkdtemp(prefix="profd-root-")
    write(f"{root}/var/lib/docker/containers/{docker}/config.v2.json", {
        "Name": "/shop-web-1", "Config": {"Image": "nginx:1.25", "Labels": {
            "com.docker.compose.project": f"shop{os.getpid()}", "com.docker.compose.service": "web"}}})
    write(f"{root}/run/containerd/io.containerd.runtime.v2.task/k8s.io/{pod}/config.json", {"annotations": {
        "io.kubernetes.cri.sandbox-name": "web-7d9c6b8f5d-x2x4z", "io.kubernetes.cri.sandbox-namespace": f"ns{os.getpid()}",
        "io.kubernetes.cri.container-name": "app", "io.kubernetes.cri.image-name": "registry.example/app:2"}})
    try:
        with own_name(compile_workload("calm.c", "-O1", "-g")) as program, \
                group(f"profd{os.getpid()}/docker-{docker}.scope") as into_docker, \
                group(f"profd{os.getpid()}/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{pod}.scope") as into_pod, \
                running("sh", "-c", f"read x; exec {program}", ready=False, stdin=subprocess.PIPE) as first, \
                running("sh", "-c", f"read x; exec {program}", ready=False, stdin=subprocess.PIPE) as second, \
                Daemon("--set", f"collect.host_root={root}") as daemon:
            into_docker(first.pid)
            into_pod(second.pid)
            for process in (first, second):
                process.stdin.write("go\n")
                process.stdin.flush()
            service = find(daemon, f"shop{os.getpid()}/web")
            check((service["source"], service["container"], service["image"]) == ("container", "shop-web-1", "nginx:1.25"),
                  service)
            service = find(daemon, f"ns{os.getpid()}/web/app")
            check(service["source"] == "kubernetes" and service["namespace"] == f"ns{os.getpid()}" and
                  service["pod"] == "web-7d9c6b8f5d-x2x4z" and service["workload"] == "web", service)
            session = daemon.profile(service["name"], 2, rate=199)["id"]
            check(daemon.folded(session, "&where=pod:web-7d9c6b8f5d-x2x4z") == daemon.folded(session), "the pod's")
            check({stack[0] for stack, _ in daemon.folded(session, "&groupBy=namespace")} == {f"ns{os.getpid()}"}, "groups")
    finally:
        shutil.rmtree(root)


main(real_container, faked_runtimes)
