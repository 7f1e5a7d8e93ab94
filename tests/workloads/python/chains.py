# SPDX-License-Identifier: Apache-2.0
"""A program whose stacks follow a grammar that tests/e2e/test_python_truth.py knows: Python frames with C
callbacks, generators, recursion, __init__ and exec between them. chains.py THREADS. Works until a line (or the
end) comes on standard input, then prints the CPU time of each branch as JSON."""
import functools
import json
import re
import sys
import threading
import time

COUNT = 1500
times = {}
ended = threading.Event()


def burn(count):
    total = 0
    for i in range(count):
        total += i * i
    return total


class Thing:
    def __init__(self, count):
        self.total = burn(count)


def by_sorted():
    return sorted(range(3), key=lambda value: burn(COUNT))


def add(left, count):
    return left + burn(count)


def by_reduce():
    return functools.reduce(add, [COUNT] * 4)


def replace(match):
    return str(burn(COUNT))


def by_re():
    return re.sub("a", replace, "aaaa")


def generate():
    for _ in range(5):
        yield burn(COUNT)


def by_generator():
    return sum(generate())


def recurse(depth):
    if depth:
        return recurse(depth - 1)
    return by_sorted()


def by_recursion():
    return recurse(40)


def by_comprehension():
    return [burn(COUNT) for _ in range(6)]


CODE = compile("def inner():\n    return burn(7 * COUNT)\ninner()", "<made>", "exec")


def by_exec():
    exec(CODE, {"burn": burn, "COUNT": COUNT})


def by_init():
    return Thing(2 * COUNT)


def branch(function):
    before = time.thread_time_ns()
    function()
    times[function.__name__] = times.get(function.__name__, 0) + time.thread_time_ns() - before


def work():
    while not ended.is_set():
        branch(by_sorted)
        branch(by_reduce)
        branch(by_re)
        branch(by_generator)
        branch(by_recursion)
        branch(by_comprehension)
        branch(by_exec)
        branch(by_init)


def main():
    threads = [threading.Thread(target=work) for _ in range(int(sys.argv[1]))]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.readline()
    ended.set()
    for thread in threads:
        thread.join()
    print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
