# SPDX-License-Identifier: Apache-2.0
"""Threads that sleep, each in another way and some below C functions that call back. asleep.py: prints "ready" when all
sleep; a line on standard input makes it print the stack of each thread as JSON, root first, from sys._current_frames():
{name: [[function, file, line]]}."""
import functools
import json
import os
import queue
import select
import socket
import sys
import threading
import time

never = threading.Event()


class Sleeper:
    def __init__(self, how):
        self.how = how

    @property
    def result(self):
        return self.how()


def by_event():
    never.wait()


def by_queue():
    queue.Queue().get()


def by_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def by_sleep():
    time.sleep(100000)


def by_socket():
    left, _right = socket.socketpair()
    left.recv(1)


def by_select():
    select.select([], [], [], 100000)


def by_pipe():
    read, _write = os.pipe()
    os.read(read, 1)


def by_sorted():
    return sorted([1, 2], key=lambda value: by_event())


def by_reduce():
    return functools.reduce(lambda left, right: Sleeper(by_sleep).result, [1, 2])


def generate():
    yield by_select()


def by_generator():
    return sum(generate())


def recurse(depth):
    return recurse(depth - 1) if depth else by_sorted()


def by_recursion():
    return recurse(60)


def by_exec():
    exec(compile("def inner():\n    by_lock()\ninner()", "<made>", "exec"), {"by_lock": by_lock})


WAYS = [by_event, by_queue, by_lock, by_sleep, by_socket, by_select, by_pipe, by_sorted, by_reduce, by_generator, by_recursion,
        by_exec]


def stacks():
    found = {}
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        frames = []
        while frame:
            code = frame.f_code
            frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
            frame = frame.f_back
        found[names.get(ident)] = frames[::-1]
    return found


def main():
    for way in WAYS:
        threading.Thread(target=way, name=way.__name__, daemon=True).start()
    while any(stack[-1][0] in ("Thread._bootstrap_inner", "_bootstrap_inner", "run", "Thread.run")
              for name, stack in stacks().items() if name != "MainThread"):
        time.sleep(0.01)
    time.sleep(0.1)
    print("ready", flush=True)
    while sys.stdin.readline():
        print(json.dumps(stacks()), flush=True)
    os._exit(0)


main()
