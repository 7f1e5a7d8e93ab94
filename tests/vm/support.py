# SPDX-License-Identifier: Apache-2.0
"""The README's table of kernels: what profd promises for which kernel. Every test of kernels reads the table here: check_types.py
(booted kernels), btf_check.py (types of kernels), tests/e2e/test_readme.py (the table beside matrix.txt).

    support.py head            prints the first lines of a table of results
    support.py keep TABLE      takes the rows of TABLE, as tests/vm/run leaves it, into matrix.txt
    support.py faults          prints each contradiction between the README's table and matrix.txt"""

import collections
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MATRIX = os.path.join(ROOT, "tests/vm/matrix.txt")
TYPES = ("cpu", "offcpu", "wall", "block", "mutex", "io", "faults", "goroutine", "memory", "alloc")
# Columns beside those of the types: the cpu profile of a Python program, of a Go program without symbols, and of a Node program.
COLUMNS = (*TYPES, "python", "go", "node")
VERIFIED = "verified"  # the column of the instructions that the verifier walks in all programs
CELLS = ("kernel", "release", *COLUMNS, VERIFIED)  # of a row
PROMISES = {"yes", "no", "with CAP_SYS_ADMIN"}
FAILED = "WRONG"
LOADED = "loads"  # the cell of a type whose programs the booted kernel took, and of which no profile was taken
MISSING_MAX = 0.005  # part of the bytes that may be missing where the session says that some are: emulated ends of calls take long
# A booted kernel has shown profiles of every type, or that it takes the programs of every type, or only some of this.
SEEN = ("profiled", "loaded", "in part")


def bytes_moved(stacks, due, notes):
    """How the bytes in @stacks, [(frames root first, value)] whose roots are threads, compare with those that the functions of @due
    count themselves, as words. A kernel that preempts the program at an end of a call skips other ends meanwhile: a little may be
    missing there if the session says so."""
    moved = collections.Counter()
    for stack, value in stacks:
        # requests of io_uring that would wait are moved by a thread of the kernel, which has a name of its own
        moved[stack[0] in due or stack[0].startswith(("iou-wrk-", "io_wqe_worker"))] += value
    total = due["steady"] + due["passing"]
    if moved[True] == total:
        return "exact"
    missing = 1 - moved[True] / total
    assert 0 < missing < MISSING_MAX and any("may be missing" in note for note in notes), f"{moved}, {due}, {notes}"
    return f"{100 * missing:.1f} % missing"


def seen(cells):
    """The one of SEEN that a row of matrix.txt shows"""
    found = {cells[kind] for kind in TYPES}
    return SEEN[2] if "" in found else SEEN[1] if LOADED in found else SEEN[0]


def version_of(name):
    """(5, 10) of "5.10" or "5.10-arm64\""""
    return tuple(int(number) for number in name.split("-")[0].split("."))


class Row:
    """Kernels from version @first to @last, the promise for each type (one of PROMISES), and the booted versions by what was
    seen there: {one of SEEN: {version}}"""

    def __init__(self, header, cells):
        versions = re.findall(r"\d+\.\d+", cells[0])
        self.first, self.last = version_of(versions[0]), version_of(versions[-1])
        checked = dict(part.partition(":")[::2] for part in cells[-1].split("; "))
        self.booted = {word: set(re.findall(r"\d+\.\d+", checked.get(word, ""))) for word in SEEN}
        self.promises = {}
        for title, cell in zip(header[1:-1], cells[1:-1]):
            assert cell in PROMISES, f"README.md: a kernel has '{cell}', not one of {PROMISES}"
            for kind in re.findall(r"`([a-z]+)`", title):
                self.promises[kind] = cell

    def holds(self, version):
        return self.first <= version <= self.last


def rows():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        lines = [line.strip() for line in f]
    begin = next(i for i, line in enumerate(lines) if line.startswith("| Linux |"))
    found = []
    for line in lines[begin:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return [Row(found[0], cells) for cells in found[2:]]


def promise(version, kind):
    """The promise for type @kind on kernel @version, (major, minor). A kernel that is newer than the table is like the newest
    in it. What the table does not name is promised everywhere."""
    table = rows()
    row = next((row for row in table if row.holds(version)), table[-1] if version > table[-1].last else None)
    assert row, f"README.md says nothing of {version}"
    return row.promises.get(kind, "yes")


def read_matrix():
    """{kernel: {column: cell}} of matrix.txt"""
    with open(MATRIX, encoding="utf-8") as f:
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in f if line.startswith("|")]
    header, kernels = lines[0], {}
    for cells in lines[2:]:
        assert len(cells) == len(header), f"matrix.txt: {cells}"
        kernels[cells[0]] = dict(zip(header, cells))
    return kernels


def faults():
    """Each contradiction between the README's table and the results in matrix.txt, as a sentence"""
    matrix = {name: row for name, row in read_matrix().items() if not name.endswith("-arm64")}
    table = rows()
    for before, after in zip(table, table[1:]):
        if before.last >= after.first:
            yield f"{before.last} and {after.first} are in two rows"
    for row in table:
        for word, named in row.booted.items():
            due = {name for name, cells in matrix.items() if row.holds(version_of(name)) and seen(cells) == word}
            if named != due:
                yield f"{row.first} to {row.last}: the README says {word} of {sorted(named)}, matrix.txt of {sorted(due)}"
    for name, cells in matrix.items():
        for kind in TYPES:
            due, cell = promise(version_of(name), kind), cells[kind]
            if cell == FAILED or (cell and (cell == "no") != (due == "no")):
                yield f"{name}, {kind}: the README says '{due}', the booted kernel '{cell}'"


def head():
    """The first lines of a table of results"""
    return [f"| {' | '.join(CELLS)} |\n", "|---" * len(CELLS) + "|\n"]


def keep(path):
    """A cell that is empty says nothing, and LOADED nothing new of a type that was profiled."""
    kernels = read_matrix()
    with open(path, encoding="utf-8") as f:
        for line in f.readlines()[len(head()):]:
            cells = dict(zip(CELLS, (cell.strip() for cell in line.strip().strip("|").split("|"))))
            kept = kernels.setdefault(cells["kernel"], {})
            kept.update({column: cell for column, cell in cells.items()
                         if column not in kept or (cell and (cell != LOADED or kept[column] in ("", "no", FAILED)))})
    with open(MATRIX, encoding="utf-8") as f:
        text = [line for line in f if line.startswith("#")]
    text += head()
    for name in sorted(kernels, key=lambda name: (name.endswith("-arm64"), version_of(name))):
        text.append("| " + " | ".join(kernels[name].get(column, "") for column in CELLS) + " |\n")
    with open(MATRIX, "w", encoding="utf-8") as f:
        f.writelines(text)


if __name__ == "__main__":
    if sys.argv[1] == "head":
        print("".join(head()), end="")
    elif sys.argv[1] == "keep":
        keep(sys.argv[2])
    elif sys.argv[1] == "faults":
        print("".join(fault + "\n" for fault in faults()), end="")
