# SPDX-License-Identifier: Apache-2.0
# tools/test: beside others
"""One truth, many builds: shares, whole stacks, chains of known depth, names and source lines of the same
programs by several compilers, optimizations, links and kinds of debug information. All run under one profile
of the whole host."""

import contextlib
import csv
import os
import re
import shutil
import subprocess

from harness import FAMILY_A, ROOT, WORKLOADS, Daemon, band, check, compile_workload, main

CPU_SECONDS = 2.4
FOLDER = os.path.join(WORKLOADS, "builds")

# leaf: share, its chain's function, how many frames of it
TRUTH = {"leaf_a": (0.44, "chain_a", 9), "leaf_b": (0.25, "chain_b", 25), "leaf_c": (0.15, "chain_c", 118),
         "leaf_s": (0.10, "chain_s", 17), "leaf_t": (0.06, None, 0)}
PLAIN = {"leaf_a": (0.60, "chain_a", 20), "leaf_b": (0.40, "chain_b", 5)}
GO = {"main.leafA": (0.60, "main.chainA", 20), "main.leafB": (0.40, "main.chainB", 5)}
RUST = {f"deep::{leaf}": (share, f"deep::{chain}", count) for leaf, (share, chain, count) in PLAIN.items()}

# what a build shows
NAMES, LINES = 1, 2

# where a whole stack begins; Go's scheduler has a stack of its own, to which mcall and morestack go without return
ENTRIES = ("_start", "runtime.goexit", "runtime.rt0_go", "runtime.mstart", "_dl_start_user", "runtime.mcall", "runtime.morestack")


class Build:
    """@how(path) builds it; @shows: NAMES and LINES, 0 for a stripped program."""

    def __init__(self, name, how, truth, shows, source):
        self.name, self.how, self.truth, self.shows, self.source = name, how, truth, shows, source
        self.path = os.path.join(FOLDER, name)


# The share of complete stacks, though profd has never seen these files: all but a tick or two of
# about 470.
WHOLE = 0.995
TICK_NS = 1e9 / 199
UNKNOWN_MAX = 0.005  # of the frames


def shell(*command, **kwargs):
    subprocess.run(command, check=True, **kwargs)


def cpp(*flags, compiler=None, static=False, after=None):
    """truth.cpp with its library, or with that linked in."""
    def how(path):
        name = os.path.relpath(path, WORKLOADS)
        sources = os.path.join(ROOT, "tests/workloads/truth_lib.cpp")
        if static:
            compile_workload("truth.cpp", *flags, sources, "-lpthread", compiler=compiler, output=name)
        else:
            compile_workload("truth_lib.cpp", *[f for f in flags if f != "-no-pie"], "-fPIC", "-shared",
                             compiler=compiler, output=f"builds/lib{os.path.basename(name)}.so")
            compile_workload("truth.cpp", *flags, f"-L{FOLDER}", f"-l{os.path.basename(name)}", "-Wl,-rpath,$ORIGIN",
                             "-lpthread", compiler=compiler, output=name)
        if after:
            after(path)
    return how


def plain_c(*flags, compiler=None):
    return lambda path: compile_workload("truth_plain.c", *flags, compiler=compiler,
                                         output=os.path.relpath(path, WORKLOADS))


def rust(*flags):
    return lambda path: shell("rustc", "-C", "opt-level=2", *flags, "-o", path,
                              os.path.join(ROOT, "tests/workloads/truth_plain.rs"))


def go(*flags):
    return lambda path: shell("go", "build", *flags, "-o", path, "./plain",
                              cwd=os.path.join(ROOT, "tests/workloads/go"), env=dict(os.environ, GOFLAGS="-mod=mod"))


def strip(path):
    shell("strip", path)


def split_debug(path):
    """The debug information goes into a file beside it, found by its link."""
    shell("objcopy", "--only-keep-debug", path, path + ".debug")
    shell("strip", "--strip-all", path)
    shell("objcopy", f"--add-gnu-debuglink={path}.debug", path)


def package(path):
    """The .dwo files packed into one beside the program, and removed."""
    shell("llvm-dwp-14", "-e", path, "-o", path + ".dwp")
    for name in os.listdir(FOLDER):
        if name.startswith(os.path.basename(path) + "-") and name.endswith(".dwo"):
            os.unlink(os.path.join(FOLDER, name))


def dwz(path):
    """Moves the debug information that the program shares with a copy of it into a third file."""
    shutil.copy(path, path + ".copy")
    shell("dwz", "-m", path + ".common", path, path + ".copy")
    sections = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
    check(".gnu_debugaltlink" in sections, "dwz moved nothing")


def builds():
    both, cc, cxx = NAMES | LINES, "truth_plain.c", "truth.cpp"
    found = [
        Build("g-O0", cpp("-O0", "-g"), TRUTH, both, cxx),
        Build("g-O2", cpp("-O2", "-g"), TRUTH, both, cxx),
        Build("g-O3-nopie", cpp("-O3", "-g", "-no-pie", "-fno-pie"), TRUTH, both, cxx),
        Build("g-static", cpp("-O2", "-g", "-static", static=True), TRUTH, both, cxx),
        Build("g-static-pie", cpp("-O2", "-g", "-static-pie", "-fPIE", static=True), TRUTH, both, cxx),
        Build("g-nodebug", cpp("-O2"), TRUTH, NAMES, cxx),
        Build("g-stripped", cpp("-O2", static=True, after=strip), TRUTH, 0, cxx),
        Build("g-debuglink", cpp("-O2", "-g", "-Wl,--build-id=none", static=True, after=split_debug), TRUTH, both, cxx),
        Build("g-gz", cpp("-O2", "-g", "-gz=zlib"), TRUTH, both, cxx),
        Build("g-split", cpp("-O2", "-g", "-gsplit-dwarf"), TRUTH, both, cxx),
        Build("g-split4-dwp", cpp("-O2", "-gdwarf-4", "-gsplit-dwarf", static=True, after=package), TRUTH, both, cxx),
        Build("g-dwz", cpp("-O2", "-g", static=True, after=dwz), TRUTH, both, cxx),
        Build("g-dwarf4", cpp("-O2", "-gdwarf-4"), TRUTH, both, cxx),
        Build("g-cet", cpp("-O2", "-g", "-fcf-protection=full"), TRUTH, both, cxx),
        Build("g-thunk", cpp("-O2", "-g", "-mindirect-branch=thunk", "-mfunction-return=thunk", "-fcf-protection=none"),
              TRUTH, both, cxx),
        Build("g-lazy-fp", cpp("-O2", "-g", "-fno-omit-frame-pointer", "-Wl,-z,lazy"), TRUTH, both, cxx),
        Build("g-mold", cpp("-O2", "-g", "-fuse-ld=mold"), TRUTH, both, cxx),
        Build("gcc-lto", plain_c("-O2", "-g", "-flto"), PLAIN, both, cc),
        Build("gcc-sections", plain_c("-O2", "-g", "-ffunction-sections", "-Wl,--gc-sections", "-Wl,-z,separate-code"),
              PLAIN, both, cc),
    ]
    if shutil.which("clang-14"):
        found += [Build("clang-O2", cpp("-O2", "-g", "-Wno-unknown-attributes", compiler="clang++-14"), TRUTH, both, cxx),
                  Build("clang-c-O0", plain_c("-O0", "-g", compiler="clang-14"), PLAIN, both, cc)]
    else:
        print("  without clang: clang-14 is not installed")
    if shutil.which("rustc"):
        found += [Build("rust", rust("-g"), RUST, both, "truth_plain.rs"),
                  Build("rust-stripped", rust("-C", "strip=symbols"), RUST, 0, "truth_plain.rs")]
    else:
        print("  without Rust: rustc is not installed")
    if shutil.which("go"):
        found += [Build("go-plain", go(), GO, both, "main.go"), Build("go-sw", go("-ldflags=-s -w"), GO, both, "main.go"),
                  Build("go-pie", go("-buildmode=pie"), GO, both, "main.go")]
    else:
        print("  without Go: go is not installed")
    return found


def line_of(source, leaf):
    """The line at which @leaf is defined."""
    word = leaf.split("::")[-1].split(".")[-1]
    path = next(os.path.join(d, source) for d, _, files in os.walk(os.path.join(ROOT, "tests/workloads"))
                if source in files and (source != "main.go" or d.endswith("/plain")))
    with open(path) as f:
        return next(i for i, line in enumerate(f, 1) if re.search(rf"(void|fn|func) {word}\(", line))


def clean(frame):
    """Without parameters, and Rust's crate."""
    return re.sub(r"\(.*", "", frame).replace("truth_plain::", "").replace("rust::", "")


def stacks_of(daemon, session, build):
    return [([clean(f) for f in s], v) for s, v in daemon.folded(session, f"&where=process:{build.name}")
            if not any("execve" in f for f in s)]  # there is no user stack yet


def exact_ns(stacks, build):
    """Time in stacks that are complete, and of a leaf that has its chain."""
    # the entry of a stripped C program has no name, but what it calls is the C library's
    entry = (lambda f: f in ENTRIES) if build.shows & NAMES else (lambda f: "__libc_start" in f)
    whole = [(s, v) for s, v in stacks if any(map(entry, s[:2]))]
    # a stack guessed by frame pointers reaches the entry too, but without its leaf's caller
    wrong = sum(v for s, v in whole for leaf, (_, chain, count) in build.truth.items()
                if chain and leaf in s and s.count(chain) != count)
    return sum(v for _, v in whole) - wrong


def unknown_ns(stacks):
    """Time by the share of a stack's frames that have no name."""
    return sum(v * sum(f.startswith("[unknown]") for f in s) / len(s) for s, v in stacks)


def cut_or_unnamed(stacks, build, lost_max):
    """Faults of the stacks, of which @lost_max ns may not be whole: sentences"""
    total = sum(value for _, value in stacks)
    if build.shows & NAMES and unknown_ns(stacks) > UNKNOWN_MAX * total:
        yield f"{100 * unknown_ns(stacks) / total:.1f} % of its frames have no name"
    complete = exact_ns(stacks, build)
    if total - complete > lost_max:
        yield f"{100 * complete / total:.1f} % of its stacks are complete and exact"


def problems(daemon, session, build):
    stacks = stacks_of(daemon, session, build)
    total = sum(v for _, v in stacks)
    # only what the program does itself, not the loader's work before main
    samples = total / TICK_NS
    if samples < 60:
        return [f"only {samples:.0f} samples"]
    lost_max = max((1 - WHOLE) * total, 2.5 * TICK_NS)
    found = list(cut_or_unnamed(stacks, build, lost_max))
    if not build.shows & NAMES:
        wrong = {f for s, _ in stacks for f in s if any(leaf in f for leaf in build.truth)}
        if wrong:
            found.append(f"names in a stripped program: {wrong}")
        # a tick may come before the mapping of a library is known
        bad = [(f, v) for s, v in stacks for f in s if f.startswith("[unknown]") and not re.fullmatch(r"\[unknown\] \S+\+0x[0-9a-f]+", f)]
        if sum(v for _, v in bad) > lost_max:
            found.append(f"unknown frames without a place: {bad}")
        return found
    for leaf, (share, chain, count) in build.truth.items():
        mine = [(s, v) for s, v in stacks if leaf in s]
        got = sum(v for _, v in mine)
        if abs(got / total - share) * 100 > 2 + band(share, samples):
            found.append(f"{leaf} has {100 * got / total:.1f} % of {samples:.0f} samples, should be {100 * share:.0f} %")
    if build.shows & LINES:
        found += wrong_lines(daemon, session, build)
    return found


def wrong_lines(daemon, session, build):
    text = daemon.get(f"{FAMILY_A}/{session}/flamegraph?format=csv&where=process:{build.name}").body.decode()
    rows = {clean(row["funcName"]): row for row in csv.DictReader(text.splitlines())}
    found = []
    for leaf in build.truth:
        row = rows.get(leaf)
        due = line_of(build.source, leaf)
        if not row:
            found.append(f"{leaf} is not among the functions")
        elif not row["file"].endswith("/" + build.source) or int(row["line"]) != due:
            found.append(f"{leaf} is at {row['file']}:{row['line']}, should be {build.source}:{due}")
    return found


@contextlib.contextmanager
def profiled():
    """Yields (daemon, session, the builds) when each has run."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    table = builds()
    for build in table:
        build.how(build.path)
    with Daemon() as daemon:
        session = daemon.start_profile("*", 600, rate=199)
        waiting = list(table)
        running = []
        while waiting or running:
            while waiting and len(running) < 2:
                running.append(subprocess.Popen([waiting.pop(0).path, str(CPU_SECONDS)], stdout=subprocess.DEVNULL))
            running[0].wait()
            running.pop(0)
        daemon.stop_profile(session)
        yield daemon, session, table


def every_build():
    failed = []
    with profiled() as (daemon, session, table):
        for build in table:
            found = problems(daemon, session, build)
            print(f"  {build.name}: {'; '.join(found) or 'right'}")
            failed += [build.name] if found else []
    check(not failed, f"wrong: {', '.join(failed)}")


if __name__ == "__main__":
    main(every_build)
