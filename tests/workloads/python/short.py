# SPDX-License-Identifier: Apache-2.0
"""Works in functions of its own for 0.1 s of CPU time, prints the ns of it, and ends."""
import time


def burn(count):
    total = 0
    for i in range(count):
        total += i * i
    return total


def squares(count):
    return [burn(100) for _ in range(count)]


def work(until):
    while time.process_time() < until:
        squares(20)
        burn(3000)


begin = time.process_time()
work(begin + 0.1)
print(int((time.process_time() - begin) * 1e9))
