# SPDX-License-Identifier: Apache-2.0
"""Loads every BPF program against the types of many kernels, none of which is booted (fake_kernel.c): fields, helpers and
kernel functions of Debian's kernels from 5.10 to the newest, amd64 and arm64.

A program that a kernel refuses costs the feature that it serves, and nothing else. A kernel passes if loading left out no feature that its types promise, no field that is read by its size has another one,
it has what README.md says of its version, and the unit gets CAP_SYS_ADMIN there exactly if uprobes take it. A field that no kernel has is misspelt, or gone for good."""

import collections
import os
import re
import subprocess
import sys
import tempfile
import time

import support

BUILD = os.path.abspath(os.environ.get("O", "build"))
KERNELS_MIN = 12
# Programs that are loaded together, and a profile type of theirs in README.md's table of kernels
LOADED_FOR = {"the sampler": "cpu", "waits": "offcpu", "allocations": "alloc"}
# Fields whose loads libbpf makes as wide as the kernel's (they are loaded directly, by the size of an unsigned number).
LOADED = {"task_struct.on_cpu"}
# Programs that may be refused, by kernel, and the feature that each one serves: one of each entry of feature_of_refused(), of
# agent/collect/kernel/bpf_load.c
OPTIONAL = {
    "5.10-amd64": {"io_exit": "io_calls", "walk_due_compat": "irq_work"},
    "6.18-amd64": {"io_exit": "io_calls", "walk_due": "irq_work", "off_waking": "wakers",
                   "off_waker": "wakers", "lock_end": "lock_contention", "disk_done": "block_requests",
                   "io_ring_done": "io_uring", "io_read": "fexit"},
}
# A field of kernels that no suite has: before 5.17, with requests of block devices.
UNSEEN = {"request___disk.rq_disk"}


def run_on(path, *command):
    """@command with the BTF at @path as the kernel's"""
    return subprocess.run(("unshare", "-m", "sh", "-c", 'mount --bind "$0" /sys/kernel/btf/vmlinux && exec "$@"', path, *command),
                          capture_output=True, text=True, timeout=60)


def said_by(path, *refused):
    """{word: {what}} of fake_kernel, which takes no program of these names"""
    done = run_on(path, f"{BUILD}/tests/vm/fake_kernel", *refused)
    said = collections.defaultdict(set)
    for line in done.stdout.splitlines():
        word, _, what = line.partition(" ")
        said[word].add(what)
    return said, done.returncode, done.stdout[-2000:] + done.stderr[-2000:]


def admin_fault_of(path, version):
    """The fault in what profd-generator gives to the unit, None = none"""
    with tempfile.TemporaryDirectory(prefix="profd-btf-") as folder:
        done = run_on(path, "tools/packaging/profd-generator", folder)
        drop_in = os.path.join(folder, "profd.service.d/10-uprobes.conf")
        given = ""
        if os.path.exists(drop_in):
            with open(drop_in) as f:
                given = f.read()
    due = support.promise(version, "alloc") == "with CAP_SYS_ADMIN"
    if done.returncode == 0 and due == ("\nAmbientCapabilities=CAP_SYS_ADMIN\nCapabilityBoundingSet=CAP_SYS_ADMIN\n" in given):
        return None
    return f"profd-generator gives '{given}' {done.stderr}"


def faults_of(said, version):
    for feature in sorted(said["lost"]):
        yield f"{feature} was left out: {'; '.join(sorted(said['warn']))[:600]}"
    for field in sorted(said["resized"] - LOADED):
        yield f"{field} has another size"
    for what, kind in LOADED_FOR.items():
        promised = support.promise(version, kind) != "no"
        if not promised and what in said["loaded"]:
            yield f"{what} could be loaded, README.md says that the kernel has no {kind}"
        if promised and what not in said["loaded"]:
            yield f"{what} could not be loaded: {'; '.join(sorted(said['refused'] | said['warn']))[:600]}"


def check_optional(folder):
    """A line for each kernel of OPTIONAL. True if all hold."""
    right = True
    for kernel, programs in OPTIONAL.items():
        faults = []
        for program, feature in programs.items():
            said, status, end = said_by(os.path.join(folder, kernel + ".btf"), program)
            if status != 0 or said["lost"] != {feature} or not {"the sampler", "waits"} <= said["loaded"]:
                faults.append(f"{program}: lost {sorted(said['lost'])}, loaded {sorted(said['loaded'])} {end if status else ''}")
        print(f"not ok {kernel}:" if faults else f"ok {kernel} loses one feature with each of", "; ".join(faults or programs))
        right &= not faults
    return right


def main():
    began = time.monotonic()
    folder = subprocess.run((sys.executable, "tests/vm/debian.py", "btf"), stdout=subprocess.PIPE, text=True,
                            check=True).stdout.strip()
    fetched = time.monotonic()
    paths = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".btf")]
    resolved, unresolved, failed = set(), set(), False
    for path in sorted(paths, key=lambda p: [int(n) for n in re.findall(r"\d+", os.path.basename(p))]):
        name = os.path.basename(path)[:-len(".btf")]
        version = tuple(map(int, name.split("-")[0].split(".")))
        said, status, end = said_by(path)
        faults = list(faults_of(said, version))
        faults += filter(None, [admin_fault_of(path, version)])
        if status != 0:
            faults.append(f"fake_kernel ended with {status}: {end}")
        resolved |= said["field"]
        unresolved |= said["unresolved"]
        failed |= bool(faults)
        print(f"not ok {name}" if faults else f"ok {name}: {len(said['field'])} fields, {len(said['has'])} features,",
              "; ".join(faults) or " and ".join(sorted(said["loaded"])))
    failed |= not check_optional(folder)
    gone = sorted(unresolved - resolved - UNSEEN)
    enough = len(paths) >= KERNELS_MIN
    print(f"{'ok' if not gone else 'not ok'} every field is one of some kernel: {', '.join(gone) or len(resolved)}")
    print(f"{'ok' if enough else 'not ok'} types of {len(paths)} kernels")
    print(f"fetched in {fetched - began:.1f} s, checked in {time.monotonic() - fetched:.1f} s")
    return 1 if failed or gone or not enough else 0


if __name__ == "__main__":
    sys.exit(main())
