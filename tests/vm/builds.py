# SPDX-License-Identifier: Apache-2.0
"""The table of builds of tests/e2e/test_builds.py for a test machine of another architecture.

    builds.py make ROOT       builds them with CROSS_COMPILE and GOARCH; ROOT has Debian's libraries of that architecture
    builds.py judge CONSOLE   judges the stacks that tests/vm/builds prints: names, and whole chains of known depth"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from test_builds import FOLDER, GO, LINES, NAMES, PLAIN, RUST, TICK_NS, TRUTH, Build, clean, cpp, cut_or_unnamed, go  # noqa: E402
from test_builds import plain_c, shell  # noqa: E402
from harness import ROOT, compile_workload  # noqa: E402

SAMPLES_MIN = 30
# An emulated machine is sampled more slowly when profd's budget is used up: one sample may be 1 % of a program's.
WHOLE = 0.97
STRIPPED = ("libc.so.6", "ld-linux-")  # Debian's own, whose functions have no names without their debug packages


def musl(root):
    """truth_plain.c, linked with musl and nothing else."""
    library, headers = f"{root}/usr/lib/aarch64-linux-musl", f"{root}/usr/include/aarch64-linux-musl"

    def how(path):
        compile_workload("truth_plain.c", "-O2", "-g", "-fomit-frame-pointer", "-nostdinc", "-isystem", headers, "-nostdlib", "-static",
                         f"{library}/crt1.o", f"{library}/crti.o", f"{library}/libc.a", "-lgcc", f"{library}/crtn.o",
                         output=f"builds/{os.path.basename(path)}")
    return how


def rust(root, *flags):
    """Debian's compiler with the library of the other architecture."""
    return lambda path: shell("/usr/bin/rustc", "--target", "aarch64-unknown-linux-gnu", "--sysroot", f"{root}/usr", "-C", "opt-level=2",
                              "-C", f"linker={os.environ['CROSS_COMPILE']}gcc", *flags, "-o", path,
                              os.path.join(ROOT, "tests/workloads/truth_plain.rs"))


def builds(root):
    both, cc, cxx, signed = NAMES | LINES, "truth_plain.c", "truth.cpp", "-mbranch-protection=standard"
    return [
        Build("g-O0", cpp("-O0", "-g"), TRUTH, both, cxx),
        Build("g-nofp", cpp("-O2", "-g", "-fomit-frame-pointer"), TRUTH, both, cxx),
        Build("g-fp", cpp("-O2", "-g", "-fno-omit-frame-pointer"), TRUTH, both, cxx),
        Build("g-signed-nofp", cpp("-O2", "-g", "-fomit-frame-pointer", signed), TRUTH, both, cxx),
        Build("g-signed-fp", cpp("-O2", "-g", "-fno-omit-frame-pointer", signed), TRUTH, both, cxx),
        Build("g-static-pie", cpp("-O2", "-g", "-static-pie", "-fPIE", static=True), TRUTH, both, cxx),
        Build("c-nofp", plain_c("-O2", "-g", "-fomit-frame-pointer"), PLAIN, both, cc),
        Build("c-signed-fp", plain_c("-O2", "-g", "-fno-omit-frame-pointer", signed), PLAIN, both, cc),
        Build("c-stripped", plain_c("-O2", "-fomit-frame-pointer", "-s"), PLAIN, 0, cc),
        Build("c-musl", musl(root), PLAIN, both, cc),
        Build("rust", rust(root, "-g"), RUST, both, "truth_plain.rs"),
        Build("rust-stripped", rust(root, "-C", "strip=symbols"), RUST, 0, "truth_plain.rs"),
        Build("go-plain", go(), GO, both, "main.go"),
        Build("go-sw", go("-ldflags=-s -w"), GO, both, "main.go"),
    ]


def named(stack, build):
    """Functions of stripped libraries are none that the program's own build could name, and the loader's first one is its entry.
    musl has no unwind tables: the outermost function that is known is the one that calls main(), or main() itself."""
    entries = ("libc_start_main_stage2", "main") if build.name == "c-musl" else ()
    begin = ["_start" if frame.startswith("[unknown] ld-linux-") or frame in entries else frame for frame in stack[:1]]
    return begin + [frame for frame in stack[1:] if not frame.startswith(tuple(f"[unknown] {library}" for library in STRIPPED))]


def problems(stacks, build):
    stacks = [(named(stack, build), value) for stack, value in stacks]
    total = sum(value for _, value in stacks)
    if total < SAMPLES_MIN * TICK_NS:
        return [f"only {total / TICK_NS:.0f} samples"]
    return list(cut_or_unnamed(stacks, build, (1 - WHOLE) * total))


def judge(console):
    failed = False
    for build in builds(""):
        stacks = [([clean(frame) for frame in stack], value) for stack, value in console.folded(f"stacks of {build.name}")
                  # there is no user stack yet, or no more
                  if not any("execve" in frame or frame == "do_exit" for frame in stack)]
        found = problems(stacks, build)
        failed |= bool(found)
        print(f"{'not ok' if found else 'ok'} build {build.name}: {'; '.join(found) or 'right'}")
    return failed


if __name__ == "__main__":
    if sys.argv[1] == "make":
        os.makedirs(FOLDER, exist_ok=True)
        for one in builds(os.path.abspath(sys.argv[2])):
            one.how(one.path)
    else:
        from check_types import Console  # noqa: E402

        sys.exit(judge(Console(sys.argv[2])))
