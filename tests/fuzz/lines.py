# SPDX-License-Identifier: Apache-2.0
"""Reads `llvm-cov export` of one file; prints reached and all lines of the functions that were entered, then reached and all
lines of the file, then the functions that were not entered. A file also writes what its parser reads: that part is none of a
fuzz target's."""

import json
import sys


def line_counts(segments):
    """{line: how often}, of lines with code. A segment holds until the next one."""
    counts = {}
    for (line, _, count, has_count, _, is_gap), following in zip(segments, segments[1:]):
        if not has_count or is_gap:
            continue
        for number in range(line, following[0] + (following[1] > 1)):
            counts[number] = max(counts.get(number, 0), count)
    return counts


def main():
    data = json.load(sys.stdin)["data"][0]
    counts = line_counts(data["files"][0]["segments"])
    entered, missed = set(), set()
    for function in data["functions"]:
        if function["filenames"][0] != data["files"][0]["filename"]:
            continue
        lines = range(function["regions"][0][0], function["regions"][0][2] + 1)
        if function["count"]:
            entered.update(lines)
        else:
            missed.add(function["name"].split(":")[-1])
    inside = [counts[line] for line in counts if line in entered]
    print(sum(map(bool, inside)), len(inside), sum(map(bool, counts.values())), len(counts), " ".join(sorted(missed)))


main()
