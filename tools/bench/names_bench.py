# SPDX-License-Identifier: Apache-2.0
"""Names and unwind tables of large files: the same answers as llvm-symbolizer's, and how long they take beside
llvm-symbolizer, llvm-gsymutil and readelf."""

import glob
import os
import random
import re
import subprocess
import tempfile

from harness import BUILD, ROOT, check

ADDRESSES = 20000
CANDIDATES = [  # large files with debug information as machines have them; five or more are wanted
    os.path.join(BUILD, "profd"), "/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libtsan.so.2",
    "/usr/lib/x86_64-linux-gnu/libasan.so.8", "/usr/bin/node", *glob.glob(os.path.expanduser("~/.pyenv/versions/3.1[23]*/lib/libpython3.1?.so.1.0")),
    *glob.glob(os.path.expanduser("~/.rustup/toolchains/stable*/lib/rustlib/*/lib/libstd-*.so")),
]
TABLE_OF = "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1"
CLONE = re.compile(r"(\.(part|constprop|isra|cold|lto_priv)(\.\d+)?)+( \[clone [^\]]*\])*$|( \[clone [^\]]*\])+$")


def output(*command, **kwargs):
    return subprocess.run(command, capture_output=True, text=True, check=True, **kwargs).stdout


def debug_file(path):
    found = re.search(r"Build ID: ([0-9a-f]+)", output("readelf", "-n", path))
    debug = f"/usr/lib/debug/.build-id/{found[1][:2]}/{found[1][2:]}.debug" if found else ""
    return debug if os.path.exists(debug) else ""


def random_addresses(path):
    """Random addresses of code; tables that assemblers put between functions are left out."""
    text = re.search(r" \.text +PROGBITS +([0-9a-f]+) [0-9a-f]+ ([0-9a-f]+)", output("readelf", "-SW", path))
    tables = [(int(at, 16), int(size, 0)) for at, size in
              re.findall(r"^ +\d+: ([0-9a-f]+) +(\w+) OBJECT ", output("readelf", "-sW", path), re.M)]
    start, size = int(text[1], 16), int(text[2], 16)
    tables = [(at, at + length) for at, length in tables if start <= at < start + size]
    generator = random.Random(1)
    found = []
    while len(found) < ADDRESSES:
        at = start + generator.randrange(size)
        if not any(low <= at < high for low, high in tables):
            found.append(at)
    return found


def aliases(*paths):
    """{name: addresses} of all symbols, demangled."""
    found = {}
    for path in filter(None, paths):
        for flags in ([], ["-D"]):
            text = subprocess.run(["nm", *flags, path], capture_output=True, text=True).stdout
            for line in subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True).stdout.splitlines():
                fields = line.split(" ", 2)
                if len(fields) == 3 and fields[0]:
                    found.setdefault(fields[2].split("@")[0], set()).add(fields[0])
    return found


def frames(chain):
    lines = chain.split("\n")
    # without `..`: one file has as many paths as folders that it was compiled from
    return [(lines[i], os.path.normpath(lines[i + 1].rsplit(":", 1)[0])) for i in range(0, len(lines) - 1, 2)]


def same_line(ours, theirs):
    return ours[0][1] == theirs[0][1] or theirs[0][1].endswith(":0")


def same(ours, theirs, address_of):
    """Whether two chains of frames are the same. Any name of one function counts (aliases, folded
    code, clones). A name may be qualified on our side only. Where we have no line, theirs may still
    name a file."""
    if len(ours) != len(theirs):
        return False
    for (name, place), (their_name, their_place) in zip(ours, theirs):
        bare, their_bare = CLONE.sub("", name), CLONE.sub("", their_name)
        if bare != their_bare and not bare.endswith("::" + their_bare) and \
           not address_of.get(name, set()) & address_of.get(their_name, set()):
            return False
        if place != their_place and not their_place.endswith(":0"):
            return False
    return True


def accuracy(path, image):
    """Shares of the addresses known to llvm-symbolizer at which all of the chain, its files and lines are the same, at which
    the innermost file and line are; the addresses."""
    addresses = "".join(f"{at:#x}\n" for at in random_addresses(path))
    ours = output(os.path.join(BUILD, "tools/bench/names"), "find", path, image, input=addresses)
    theirs = output("c++filt", "-i", input=output("llvm-symbolizer-14", "--inlines", "--no-demangle", f"--obj={path}",
                                                  input=addresses))
    address_of = aliases(path, debug_file(path))
    pairs = list(zip(ours.split("\n\n"), theirs.split("\n\n")))[:ADDRESSES]
    known = [(frames(a), frames(b)) for a, b in pairs if not b.startswith("??\n")]
    check(len(known) > ADDRESSES / 2, f"{path}: llvm-symbolizer knows only {len(known)} addresses")
    return [100 * sum(found) / len(known) for found in ((same(a, b, address_of) for a, b in known),
                                                        (same_line(a, b) for a, b in known))], addresses


def instructions(path):
    """Random addresses of instructions: the runtime looks one byte further, which padding and the end of a function
    forbid."""
    text = output("objdump", "-d", "--no-show-raw-insn", "-j", ".text", path)
    found = []
    for line in text.splitlines():
        if line.endswith(">:"):
            found = found[:-1]  # perhaps ends where this one begins
        elif line.startswith("  ") and "\tint3" not in line:
            found.append(line[:line.index(":")].strip())
    return "".join(f"0x{at}\n" for at in random.Random(1).sample(found, ADDRESSES))


def go_accuracy(folder):
    """The share of equal chains of inlined calls in a large Go program, whole and stripped, against
    the chains of its own runtime."""
    shares = []
    for name, flags in (("go", []), ("go-stripped", ["-ldflags=-s -w"])):
        program, image = os.path.join(folder, name), os.path.join(folder, "image")
        subprocess.run(["go", "build", *flags, "-o", program, "./frames"], check=True, cwd=os.path.join(ROOT, "tests/workloads/go"))
        if name == "go":
            addresses = instructions(program)
        subprocess.run([os.path.join(BUILD, "tools/bench/names"), "build", program, "", image], check=True)
        ours = output(os.path.join(BUILD, "tools/bench/names"), "find", program, image, input=addresses).split("\n\n")
        theirs = output(program, input=addresses).split("\n\n")
        equal = sum(a.replace("\n??:", "\n?:") == b for a, b in list(zip(ours, theirs))[:ADDRESSES])
        shares.append(100 * equal / ADDRESSES)
    return min(shares)


def best_of(command, child_cpu_s, **kwargs):
    return min(child_cpu_s(command, **kwargs) for _ in range(3))


def timed_find(command, addresses, child_cpu_s):
    """CPU s of @command with the addresses on standard input."""
    with tempfile.TemporaryFile("w+") as file:
        file.write(addresses)
        best = []
        for _ in range(3):
            file.seek(0)
            best.append(child_cpu_s(command, stdin=file))
        return min(best)


def run(row, absolute, child_cpu_s):
    tool = os.path.join(BUILD, "tools/bench/names")
    worst, worst_line, finds, builds, count = 100.0, 100.0, [0, 0], [0, 0], 0
    texts = []
    with tempfile.TemporaryDirectory() as folder:
        image, gsym = os.path.join(folder, "image"), os.path.join(folder, "gsym")
        for path in filter(os.path.exists, CANDIDATES):
            debug = debug_file(path)
            build = [tool, "build", path, debug, image]
            ours = best_of(build, child_cpu_s)
            theirs = best_of(["llvm-gsymutil-14", f"--convert={debug or path}", f"--out-file={gsym}", "--num-threads=1"],
                             child_cpu_s)
            (share, line), addresses = accuracy(path, image)
            find = timed_find([tool, "find", path, image], addresses, child_cpu_s)
            llvm = timed_find(["llvm-symbolizer-14", "--inlines", f"--obj={path}"], addresses, child_cpu_s)
            finds, builds = [finds[0] + find, finds[1] + llvm], [builds[0] + ours, builds[1] + theirs]
            texts.append(f"{os.path.basename(path)} {share:.2f}")
            worst, worst_line, count = min(worst, share), min(worst_line, line), count + 1
        go = go_accuracy(folder)
    check(count >= 5, f"only {count} large files with debug information here")
    absolute(f"same chain and line as llvm-symbolizer, {ADDRESSES} random addresses, worst of {count} files, %", worst, 99.5,
             ", ".join(texts), smaller=False)
    absolute("same line at them, worst file, %", worst_line, 100, smaller=False)
    absolute(f"Go: chain, files, lines as runtime.CallersFrames, {ADDRESSES} random instructions, plain and stripped, %", go, 100,
             smaller=False)
    row(f"CPU s, {ADDRESSES} addresses with inlines, whole command / llvm-symbolizer", *finds, 0.08, f"sum of {count} files")
    row("CPU s, index build / llvm-gsymutil --convert", *builds, 1.0, f"sum of {count} files")
    row("CPU s, unwind table of libLLVM / readelf -wF", best_of([tool, "rows", TABLE_OF], child_cpu_s),
        child_cpu_s(["readelf", "-wF", TABLE_OF]), 0.15)
