# SPDX-License-Identifier: Apache-2.0
"""Judges what tests/vm/more printed on the console of a test machine: samples of a CPU that came online later, whole ledgers
while it was away, waits for a disk, bytes by stack and by thread, taken at the ends of the calls that move them."""

import collections
import json
import sys

import support

kernel, path = sys.argv[1:]
with open(path, errors="replace") as f:
    text = f.read().replace("\r", "")
COPIED = 8 << 20  # bytes that tests/vm/init reads from /dev/loop0 and writes to a pipe


def folded_of(lines):
    """[(frames root first, value)]"""
    stacks = [line.rsplit(" ", 1) for line in lines.splitlines() if " " in line]
    return [(stack.split(";"), int(value)) for stack, value in stacks]


def bytes_of_calls(io, attached, paths, means, threads):
    assert attached.strip() == "23, then 0", f"ends of calls: {attached}"
    assert any("(fexit)" in note for note in io["quality"]["notes"]), f"how bytes are taken: {io['quality']}"
    for place in ("/dev/loop0", "pipe:["):
        moved = [value for stack, value in folded_of(paths) if stack[0].startswith(place)]
        assert moved == [COPIED], f"{place}: {moved} bytes by stack: {paths}"
    due = json.loads(means[means.index("{"):])
    return support.bytes_moved(folded_of(threads), due, io["quality"]["notes"])


def posts_are_exact(posts, threads):
    """Each thread moves bytes in one function of its name, by requests of io_uring that post many completions."""
    due = json.loads(posts[posts.index("{"):])
    moved = collections.Counter()
    for stack, value in folded_of(threads):
        moved[stack[0]] += value
        assert stack[0] not in due or stack[0] in stack[1:], f"{stack}: {value}"
    for function, value in due.items():
        assert moved[function] == value, f"{function}: {moved}, {due}"
    # 6.1 has no multishot reads and no bundles
    assert all(value for function, value in due.items() if function.startswith("recv")), f"{due}"


try:
    went, back = text.split("=== went\n")[1].split("=== log")[0].split("=== back\n")
    back, io = back.split("=== io\n")
    back, ledger = back.split("=== ledger\n")
    io, attached = io.split("=== attached\n")
    attached, paths = attached.split("=== paths\n")
    paths, means = paths.split("=== means\n")
    means, threads = means.split("=== threads\n")
    threads, posts = threads.split("=== posts\n")
    posts, posters = posts.split("=== posters\n")
    back, ledger, io = map(json.loads, (back, ledger, io))
    assert went.strip() == "0, then 0-1", f"CPUs online: {went}"
    assert back["status"] == "completed" and back["sampleCount"] > 20, f"on a CPU that came back: {back}"
    assert ledger["threads"], "no threads in the ledger"
    for t in ledger["threads"]:
        parts = t["userNs"] + t["kernelNs"] + t["runqueueNs"] + t["preemptedNs"] + sum(t["blockedNs"].values())
        assert t["elapsedNs"] > 3e9 and abs(parts / t["elapsedNs"] - 1) < 0.01, f"while a CPU went: {t}"
    assert io["status"] == "completed" and io["breakdown"]["disk"].get("loop1 device"), f"reads of a disk: {io}"
    bytes_moved = bytes_of_calls(io, attached, paths, means, threads)
    posts_are_exact(posts, posters)
    print(f"ok {kernel}: {back['sampleCount']} samples on a CPU that came back, bytes: {bytes_moved}")
except (AssertionError, IndexError, ValueError) as error:
    print(f"not ok {kernel}: {error}")
    print(text[-6000:])
    sys.exit(1)
