# SPDX-License-Identifier: Apache-2.0
"""Judges what a test machine printed on its console: shares and completeness of truth_nofp's profile, samples of a CPU
that came online later, whole ledgers while it was away, waits for a disk."""

import json
import sys

kernel, path = sys.argv[1:]
with open(path, errors="replace") as f:
    text = f.read().replace("\r", "")
try:
    went, back = text.split("=== went\n")[1].split("=== result")[0].split("=== back\n")
    back, io = back.split("=== io\n")
    back, ledger = back.split("=== ledger\n")
    back, ledger, io = map(json.loads, (back, ledger, io))
    result = json.loads(text.split("=== result\n")[1].split("=== folded")[0])
    folded, truth = text.split("=== folded\n")[1].split("=== end")[0].split("=== truth\n")
    # What the program says of itself: on an emulated CPU its slices end late by their own amounts.
    truth = json.loads(truth[truth.index("{"):])
    stacks = [line.rsplit(" ", 1) for line in folded.splitlines() if " " in line]
    stacks = [(stack.split(";"), int(value)) for stack, value in stacks]
    total = sum(value for _, value in stacks)
    assert went.strip() == "0, then 0-1", f"CPUs online: {went}"
    assert back["status"] == "completed" and back["sampleCount"] > 20, f"on a CPU that came back: {back}"
    assert ledger["threads"], "no threads in the ledger"
    for t in ledger["threads"]:
        parts = t["userNs"] + t["kernelNs"] + t["runqueueNs"] + t["preemptedNs"] + sum(t["blockedNs"].values())
        assert t["elapsedNs"] > 3e9 and abs(parts / t["elapsedNs"] - 1) < 0.01, f"while a CPU went: {t}"
    assert io["status"] == "completed" and io["breakdown"]["disk"].get("loop0 device"), f"reads of a disk: {io}"
    assert result["status"] == "completed", result
    assert total and result["sampleCount"] > 200, f"{result['sampleCount']} samples"
    complete = 100 * sum(v for s, v in stacks if "main" in s) / total
    assert complete >= 97, f"{complete:.1f} % of the stacks reach main"
    in_leaves = sum(v for s, v in stacks if truth.keys() & set(s))
    for leaf, ns in truth.items():
        got = 100 * sum(v for s, v in stacks if leaf in s) / in_leaves
        share = 100 * ns / sum(truth.values())
        # an emulated machine's clocks are coarse: a wider band than on the host
        assert abs(got - share) < 6, f"{leaf}: {got:.1f} % instead of {share:.1f} %"
    print(f"ok {kernel}: {result['sampleCount']} samples, {complete:.1f} % complete; "
          f"{back['sampleCount']} on a CPU that came back")
except (AssertionError, IndexError, ValueError) as error:
    print(f"not ok {kernel}: {error}")
    print(text[-6000:])
    sys.exit(1)
