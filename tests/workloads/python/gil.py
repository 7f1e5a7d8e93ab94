# SPDX-License-Identifier: Apache-2.0
"""A thread that holds the interpreter's lock (the GIL) in two functions, in C code that does not look at requests for it, and
threads that want the lock all the time. gil.py WAITERS. After "ready", a line on standard input makes it print as JSON the ns
that the waiters waited so far, by the function that held the lock: {function: ns}."""
import json
import os
import sys
import threading
import time

PAUSE_S = 0.0005
current = "nobody"
times = {}


def hold_long():
    global current
    current = "hold_long"
    return sum(range(1200000))


def hold_short():
    global current
    current = "hold_short"
    return sum(range(400000))


def name_thread(name):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w", encoding="ascii") as file:
        file.write(name)


def hold():
    name_thread("holder")
    while True:
        hold_long()
        hold_short()


def want():
    name_thread("waiter")
    while True:
        begin = time.monotonic_ns()
        time.sleep(PAUSE_S)  # without the lock, which it then waits for
        waited = time.monotonic_ns() - begin - int(PAUSE_S * 1e9)
        times[current] = times.get(current, 0) + waited


def main():
    for _ in range(int(sys.argv[1])):
        threading.Thread(target=want, daemon=True).start()
    threading.Thread(target=hold, daemon=True).start()
    time.sleep(0.2)
    print("ready", flush=True)
    while sys.stdin.readline():
        print(json.dumps(times), flush=True)
    os._exit(0)


main()
