# SPDX-License-Identifier: Apache-2.0
"""How soon a leak is named first among the suspected ones, in a program that allocates and frees much more
(tests/workloads/heap.c), and that its cache, which stays as large as it is, is never called one."""

import contextlib
import time

from coverage_bench import Program, started
from harness import FAMILY_A, Daemon, compile_workload, own_name, wait_until

# bytes a second, seconds in which it must be named, pairs a second
LEAKS = [(1_000_000, 60, 1_000_000), (10_000, 120, 1_000_000)]
LEAK_BYTES = 100


def name_after(daemon, path, bytes_per_s, seconds, pairs_per_s):
    """What is suspected after so many seconds."""
    program = Program(path, pairs_per_s, 1, bytes_per_s // LEAK_BYTES)
    try:
        wait_until(lambda: daemon.profile(program.service, 1, "alloc")["quality"].get("windows"), 90, "probes")
        session = started(daemon, program, "memory")
        time.sleep(seconds)
        return [leak["funcName"] for leak in daemon.stop_profile(session)["suspectedLeaks"]]
    finally:
        program.stop()


def run(absolute):
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(own_name(compile_workload("heap.c", "-O2", "-lpthread")))
        daemon = stack.enter_context(Daemon())
        for bytes_per_s, seconds, pairs_per_s in LEAKS:
            seen = name_after(daemon, path, bytes_per_s, seconds, pairs_per_s)
            absolute(f"a leak of {bytes_per_s // 1000} KB/s named first after {seconds} s, {pairs_per_s} pairs/s",
                     seen[:1] == ["leak"], 1, f"suspected: {', '.join(seen)}", smaller=False)
            absolute("steady sites that are called leaks", sum(name != "leak" and name != "large" for name in seen), 0)
