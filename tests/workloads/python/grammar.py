# SPDX-License-Identifier: Apache-2.0
"""A Python program that calls itself in every way: recursion, callbacks from C (sorted, functools.reduce, re.sub, ctypes),
generators, coroutines, constructors, properties, exec, comprehensions, exceptions, threads. Prints "ready", then runs
until it is killed. With the argument "dump" or "steps", SIGUSR2 makes faulthandler write the stack of the thread that
gets it to standard output; with "steps" it does nothing but call."""

import ctypes
import faulthandler
import functools
import re
import signal
import sys
import threading

DEPTH = 6
IS_QUICK = "steps" in sys.argv
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)


def burn(n):
    total = 0
    for i in range(0 if IS_QUICK else n):
        total += i * i % 7
    return total


class Node:
    def __init__(self, depth):
        self.depth = depth
        self.value = step(depth - 1) if depth > 1 else burn(20)

    @property
    def half(self):
        return step(self.depth - 1) // 2

    def __lt__(self, other):
        return burn(5) + self.value < other.value

    def __call__(self, n):
        return burn(n) + self.depth


def by_recursion(depth):
    return step(depth - 1) + burn(10)


def by_sorted(depth):
    return sorted([3, 1, 2], key=lambda n: step(depth - 1) + n)[0]


def by_comparison(depth):
    nodes = [Node(1), Node(1)]
    nodes.sort()
    return step(depth - 1)


def by_reduce(depth):
    return functools.reduce(lambda a, b: a + step(depth - 1), [1, 2], 0)


def by_substitution(depth):
    return len(re.sub("a", lambda match: str(step(depth - 1)), "xay"))


def by_ctypes(depth):
    return CALLBACK(lambda n: step(depth - 1) & 0xff)(1)


def numbers(depth):
    yield burn(10)
    yield step(depth - 1)
    yield from (step(depth - 1) for _ in range(1))


def by_generator(depth):
    return sum(numbers(depth))


async def inner(depth):
    return step(depth - 1)


async def outer(depth):
    return await inner(depth) + burn(5)


def by_coroutine(depth):
    coroutine = outer(depth)
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    return 0


def by_constructor(depth):
    return Node(depth - 1).value + Node(1)(5)


def by_property(depth):
    return Node(1).half + step(depth - 1)


RUN = compile("def run():\n\n    return step(depth - 1)\nresult = run()", "<string>", "exec")


def by_exec(depth):
    names = {"step": step, "depth": depth}
    exec(RUN, names)
    return names["result"]


def by_comprehension(depth):
    return len([step(depth - 1) for _ in range(1)]) + sum({n: burn(n) for n in range(5)}.values())


def by_exception(depth):
    try:
        raise ValueError(step(depth - 1))
    except ValueError as error:
        return error.args[0]
    finally:
        burn(5)


def by_arguments(depth, *rest, **named):
    return max(map(lambda n: step(depth - 1) + n, rest or (1,)))


WAYS = [by_recursion, by_sorted, by_comparison, by_reduce, by_substitution, by_ctypes, by_generator, by_coroutine,
        by_constructor, by_property, by_exec, by_comprehension, by_exception, by_arguments]
turn = 0


def step(depth):
    global turn
    if depth <= 0:
        return burn(30)
    turn += 1
    return WAYS[(turn * 7919 + depth) % len(WAYS)](depth)


def forever():
    while True:
        step(DEPTH)


def main():
    if "dump" in sys.argv or IS_QUICK:
        faulthandler.register(signal.SIGUSR2, file=sys.stdout, all_threads=False, chain=False)
    print("ready", flush=True)
    if "threads" in sys.argv:
        for _ in range(2):
            threading.Thread(target=forever, daemon=True).start()
    forever()


main()
