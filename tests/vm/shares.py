# SPDX-License-Identifier: Apache-2.0
"""shares.py SECONDS: says "ready", spends CPU time in three functions, one of them called back by sorted(), prints the ns of each.
It imports nothing that is not built into the interpreter: the test machine has no more of the library than starts it."""

import sys
import time

spent = {"most": 0, "some": 0, "called_back": 0}


def most():
    spend("most", 5)


def some():
    spend("some", 3)


def called_back(item):
    spend("called_back", 2)
    return item


def spend(name, turns):
    begin = time.thread_time_ns()
    for _ in range(turns * 20000):
        pass
    spent[name] += time.thread_time_ns() - begin


print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    most()
    some()
    sorted([1], key=called_back)
print("{" + ", ".join(f'"{name}": {ns}' for name, ns in spent.items()) + "}")
