# SPDX-License-Identifier: Apache-2.0
"""Mutex profiles of programs whose other waits look like waits for locks to the kernel: Rust's conditions, messages and
parked threads, C++'s atomics. The programs time their waits for locks themselves."""

import os
import shutil
import subprocess
import time

from harness import FAMILY_A, ROOT, WORKLOADS, Counting, Daemon, check, compile_workload, main, wait_until


def of_rust(name, *flags):
    path = os.path.join(WORKLOADS, name)
    subprocess.run(["rustc", "-C", "opt-level=2", *flags, "-o", path, os.path.join(ROOT, "tests/workloads/rust_waits.rs")],
                   check=True)
    return path


def has(stack, part):
    return any(part in frame for frame in stack)


def only_locks_count(daemon, path):
    with Counting(path) as program:
        first = daemon.start_profile(program.service, 600, "mutex", 1000)
        wait_until(lambda: daemon.get(f"{FAMILY_A}/{first}").json()["sampleCount"] > 50, 60, "samples")
        daemon.stop_profile(first)
        wait_until(lambda: any(has(stack, "wait_lock") for stack, _ in daemon.folded(first)), 60, "names of a new program")
        before = program.counters()
        session = daemon.start_profile(program.service, 600, "mutex", 1000)
        begin = program.counters()
        time.sleep(3)
        least = program.counters() - begin
        result = daemon.stop_profile(session)
        most = program.counters() - before
        stacks = daemon.folded(session)
        got = sum(value for stack, value in stacks if has(stack, "wait_lock"))
        untimed = sum(value for stack, value in stacks if has(stack, "wait_message") and has(stack, "lock_contended"))
        # where the kernel hid the return, what the wait was for is known by its futex alone, and that looked like a lock's
        unseen = sum(value for stack, value in stacks if stack[0] == "[blocked, not sampled]")
        others = [(stack, value) for stack, value in stacks
                  if not has(stack, "wait_lock") and not has(stack, "lock_contended") and stack[0] != "[blocked, not sampled]"]
        name = os.path.basename(path)
        check(0.95 * least <= got <= 1.05 * most, f"{name}: {got / 1e6:.0f} ms of waits, {least / 1e6:.0f} to {most / 1e6:.0f} due")
        rest = sum(value for _, value in others)
        check(untimed <= 0.05 * got, f"{name}: {untimed / 1e6:.0f} ms of {got / 1e6:.0f} are of a channel's own lock")
        check(unseen <= 0.05 * got, f"{name}: {unseen / 1e6:.0f} ms of {got / 1e6:.0f} were not seen to end")
        check(rest <= 0.01 * got, f"{name}: {rest / 1e6:.0f} ms of {got / 1e6:.0f} are of other waits: {others[:4]}")
        check(abs(result["totalValue"] - got - untimed - unseen - rest) <= 0.01 * got, f"{name}: {result['totalValue']} in all")


def waits_that_are_no_locks_do_not_count():
    with Daemon() as daemon:
        only_locks_count(daemon, compile_workload("atomic_waits.cpp", "-std=c++20", "-O2", "-g", compiler="g++"))
        if not shutil.which("rustc"):
            print("  without Rust: rustc is not installed")
            return
        only_locks_count(daemon, of_rust("rust_waits"))
        only_locks_count(daemon, of_rust("rust_waits_v0", "-g", "-C", "symbol-mangling-version=v0"))


if __name__ == "__main__":
    main(waits_that_are_no_locks_do_not_count)
