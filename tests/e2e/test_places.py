# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""Code in unusual places: deep recursion, a library opened late, a program whose file is gone, a program that
only its own mount namespace or root has."""

import os
import shutil
import subprocess
import tempfile

from harness import FAMILY_A, WORKLOADS, Daemon, Skip, check, compile_workload, cpu_ns, main, running, wait_until

LIBRARY = """#include <stdint.h>
static volatile uint64_t sink;
void place_leaf_in_library(void) { for (int i = 0; i < 100000; i++) sink = sink * 6364136223846793005u + 1; }
"""


def program():
    return compile_workload("places.c", "-O2", "-ldl", "-Wl,-z,lazy")


def innermost(pid):
    """The process that a chain of commands leads to, each the only child of the one before."""
    while True:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            children = f.read().split()
        if not children:
            return int(pid)
        pid = children[0]


def stacks_of(*command, cpu_seconds=1.5, after_start=None):
    with Daemon() as daemon, running(*command) as process:
        if after_start:
            after_start()
        pid = innermost(process.pid)
        session = daemon.start_profile(f"pid:{pid}", 300, rate=199, waitSeconds=60)
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{session}").json()["startedAt"], 60, "sampling to begin")
        start = cpu_ns(pid)
        wait_until(lambda: cpu_ns(pid) - start > cpu_seconds * 1e9, 120, "the program to run")
        daemon.stop_profile(session)
        return daemon.folded(session)


def check_share(stacks, what, holds):
    total = sum(v for _, v in stacks)
    good = sum(v for s, v in stacks if s[0] == "_start" and holds(s))
    check(total > 60 * 5e6, f"only {total / 1e6:.0f} ms")
    other = [s for s, _ in stacks if s[0] != "_start" or not holds(s)]
    check(good >= 0.97 * total, f"{what}: {100 * good / total:.1f} %, others {other[:3]}")


def four_hundred_frames():
    check_share(stacks_of(program(), "deep"), "whole stacks of 400 frames",
                lambda s: s.count("place_deep") == 400 and "main" in s and "place_leaf" in s)


def opened_library():
    os.makedirs(WORKLOADS, exist_ok=True)
    source = os.path.join(WORKLOADS, "place_library.c")
    with open(source, "w") as f:
        f.write(LIBRARY)
    library = os.path.join(WORKLOADS, "place_library.so")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    check_share(stacks_of(program(), "dlopen", library), "in the library",
                lambda s: s[-1] == "place_leaf_in_library" or "place_leaf_in_library" in s)


def lazy_binding():
    """In the dynamic linker, whose frame below has its base in a register that is not followed elsewhere."""
    stacks = stacks_of("env", "LD_BIND_NOT=1", program(), "lazy")
    check_share(stacks, "through lazy binding", lambda s: "main" in s and "place_lazy" in s)
    binding = sum(v for s, v in stacks if any("dl_runtime_resolve" in f or "dl_fixup" in f for f in s))
    check(binding > 0.5 * sum(v for _, v in stacks), f"only {binding / 1e6:.0f} ms in the dynamic linker")


def deleted_program():
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(program(), os.path.join(folder, "gone"))
        check_share(stacks_of(copy, "plain", after_start=lambda: os.unlink(copy)), "named though the file is gone",
                    lambda s: "place_plain" in s and "place_leaf" in s)


def other_mounts():
    """A tmpfs that only the program's mount namespace has."""
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", folder], stderr=subprocess.DEVNULL).returncode:
            raise Skip("no mount namespace can be made here")
        script = 'mount -t tmpfs none "$1" && cp "$0" "$1/hidden" && exec "$1/hidden" plain'
        check_share(stacks_of("unshare", "-m", "sh", "-c", script, program(), folder), "named in its mount namespace",
                    lambda s: "place_plain" in s and "place_leaf" in s)


def other_root():
    """A static program below a root of its own that is gone, in namespaces of its own: users, mounts, processes."""
    own = ["unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*own, "true"], stderr=subprocess.DEVNULL).returncode:
        raise Skip("no user namespace can be made here")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        inside = os.path.join(folder, "inside")
        compile_workload("places.c", "-O2", "-static", "-Wl,--no-warnings", output=os.path.relpath(inside, WORKLOADS))
        check_share(stacks_of(*own, "chroot", folder, "/inside", "plain", after_start=lambda: shutil.rmtree(folder)),
                    "named below its root",
                    lambda s: "place_plain" in s and "place_leaf" in s)


if __name__ == "__main__":
    main(four_hundred_frames, opened_library, lazy_binding, deleted_program, other_mounts, other_root)
